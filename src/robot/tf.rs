//! Transforms between coordinate frames over time: the part of tf2 that is needed.

use crate::base::error::{Error, Result};
use crate::message::{Stamp, TransformStamped};
use nalgebra::{Isometry3, Translation3};
use std::collections::{HashMap, VecDeque};

mod carried;

pub use carried::Carried;

/// Seconds for which moving transforms are kept.
const HISTORY_SECS: f64 = 10.0;
/// Samples of one transform beyond which the oldest go, whatever their time.
const MAX_SAMPLES: usize = 10_000;
/// Coordinate frames beyond which new ones are refused.
const MAX_FRAMES: usize = 1024;
/// Frames that an error message lists.
const MAX_LISTED: usize = 20;

/// A tree of coordinate frames; each frame has one parent, static or with a history.
#[derive(Debug, Default)]
pub struct TransformBuffer {
    /// By child frame.
    links: HashMap<String, Link>,
}

#[derive(Debug)]
struct Link {
    parent: String,
    is_static: bool,
    /// Ascending; `parent_from_child`. One sample if static.
    samples: VecDeque<(Stamp, Isometry3<f64>)>,
}

impl TransformBuffer {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a transform: from `/tf_static` if `is_static`, else one sample of `/tf`.
    ///
    /// A frame that comes with another parent moves there and loses its history. A sample that
    /// lies further back than the history is taken for a restart of time.
    ///
    /// # Errors
    /// [`Error::Transform`] if parent and child are the same, or at too many static frames; of too many moving
    /// ones, the one that was silent for longest makes room.
    pub fn insert(&mut self, transform: &TransformStamped, is_static: bool) -> Result<()> {
        let child = plain_name(&transform.child_frame_id);
        let parent = plain_name(&transform.header.frame_id);
        let refused = |problem: String| Error::Transform {
            source_frame: child.to_owned(),
            target_frame: parent.to_owned(),
            problem,
        };
        if child.is_empty() || parent.is_empty() || child == parent {
            return Err(refused("frames need two different names".into()));
        }
        if self.links.len() >= MAX_FRAMES
            && !self.links.contains_key(child)
            && (is_static || !self.drop_most_silent())
        {
            return Err(refused(format!("there are {MAX_FRAMES} frames already")));
        }
        let link = self.links.entry(child.to_owned()).or_insert_with(|| Link {
            parent: parent.to_owned(),
            is_static,
            samples: VecDeque::new(),
        });
        if link.parent != parent || link.is_static || is_static {
            *link = Link { parent: parent.to_owned(), is_static, samples: VecDeque::new() };
        }
        link.add(transform.header.stamp, transform.parent_from_child);
        Ok(())
    }

    /// Makes room: drops the moving frame that was silent for longest, such as that of an object that has gone;
    /// false if all are static.
    fn drop_most_silent(&mut self) -> bool {
        let moving = self.links.iter().filter(|(_, link)| !link.is_static);
        // By name where two are alike, as maps have no order.
        let silent = moving.min_by_key(|(name, link)| (link.samples.back().map(|s| s.0), *name));
        let silent = silent.map(|(name, _)| name.clone());
        silent.is_some_and(|name| self.links.remove(&name).is_some())
    }

    /// Maps points of `source` into `target` at `stamp`; moving transforms are interpolated.
    ///
    /// # Errors
    /// [`Error::Transform`] names the missing link, or the transform that has no sample yet.
    pub fn lookup(&self, target: &str, source: &str, stamp: Stamp) -> Result<Isometry3<f64>> {
        let (target, source) = (plain_name(target), plain_name(source));
        let error = |problem: String| Error::Transform {
            source_frame: source.to_owned(),
            target_frame: target.to_owned(),
            problem,
        };
        let up_from_source = self.ancestors(source, stamp).map_err(error)?;
        let up_from_target = self.ancestors(target, stamp).map_err(error)?;
        let common = up_from_source.iter().find(|frame| up_from_target.contains(frame));
        let common = *common.ok_or_else(|| error(self.advice(target, source)))?;
        let common_from_source = self.climb(&up_from_source, common, stamp).map_err(error)?;
        let common_from_target = self.climb(&up_from_target, common, stamp).map_err(error)?;
        Ok(common_from_target.inv_mul(&common_from_source))
    }

    /// Whether a chain of transforms leads from one frame to the other, at whatever times.
    pub fn connects(&self, a: &str, b: &str) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        a.is_none() || a == b
    }

    /// Whether any transform tells of a frame.
    pub fn knows(&self, frame: &str) -> bool {
        let frame = plain_name(frame);
        self.links.contains_key(frame) || self.links.values().any(|link| link.parent == frame)
    }

    /// The frame at the top of the chain that `frame` is in, at whatever times; the frame itself where
    /// nothing is above it, none where the chain is a loop.
    pub fn root<'a>(&'a self, frame: &'a str) -> Option<&'a str> {
        self.ancestors_where(plain_name(frame), |_| true).ok()?.pop()
    }

    /// Forgets the transform from its parent to `frame`.
    pub fn remove(&mut self, frame: &str) {
        self.links.remove(plain_name(frame));
    }

    /// Keeps static transforms only: time was set back.
    pub fn forget_moving(&mut self) {
        self.links.retain(|_, link| link.is_static);
    }

    /// The frame itself, its parent, and so on up to the root.
    ///
    /// Where that is a loop, moving transforms that fell silent no longer count: who published
    /// them may be gone.
    fn ancestors<'a>(
        &'a self,
        frame: &'a str,
        stamp: Stamp,
    ) -> std::result::Result<Vec<&'a str>, String> {
        let is_fresh = |link: &Link| {
            let newest = link.samples.back().filter(|_| !link.is_static);
            newest.is_none_or(|(newest, _)| stamp.secs_since(*newest) <= HISTORY_SECS)
        };
        self.ancestors_where(frame, |_| true)
            .or_else(|a_loop| self.ancestors_where(frame, is_fresh).map_err(|_| a_loop))
    }

    fn ancestors_where<'a>(
        &'a self,
        frame: &'a str,
        counts: impl Fn(&Link) -> bool,
    ) -> std::result::Result<Vec<&'a str>, String> {
        let mut frames = vec![frame];
        let mut last = frame;
        while let Some(link) = self.links.get(last).filter(|link| counts(link)) {
            last = &link.parent;
            if frames.contains(&last) {
                return Err(format!("'{last}' is its own ancestor: two nodes publish a loop"));
            }
            frames.push(last);
        }
        Ok(frames)
    }

    /// `common_from_first` along `chain`, from its first frame up to `common`.
    fn climb(
        &self,
        chain: &[&str],
        common: &str,
        stamp: Stamp,
    ) -> std::result::Result<Isometry3<f64>, String> {
        let mut up = Isometry3::identity();
        for frame in chain.iter().take_while(|frame| **frame != common) {
            let Some(link) = self.links.get(*frame) else { break }; // the root, which is `common`
            up = link.at(frame, stamp)? * up;
        }
        Ok(up)
    }

    fn advice(&self, target: &str, source: &str) -> String {
        let mut known: Vec<&str> = self.links.keys().map(String::as_str).collect();
        known.extend(self.links.values().map(|link| link.parent.as_str()));
        known.sort_unstable();
        known.dedup();
        let more = if known.len() > MAX_LISTED { ", …" } else { "" };
        known.truncate(MAX_LISTED);
        format!(
            "no path from '{target}' to '{source}'; known frames: {}{more}. Publish it on \
             /tf_static, e.g. ros2 run tf2_ros static_transform_publisher --x 0 --y 0 --z 1 \
             --frame-id {target} --child-frame-id {source}",
            if known.is_empty() { "none".into() } else { known.join(", ") },
        )
    }
}

impl Link {
    fn add(&mut self, stamp: Stamp, transform: Isometry3<f64>) {
        if let Some(&(newest, _)) = self.samples.back()
            && newest.secs_since(stamp) > HISTORY_SECS
        {
            self.samples.clear();
        }
        let at = self.samples.partition_point(|&(other, _)| other < stamp);
        match self.samples.get_mut(at) {
            Some(sample) if sample.0 == stamp => sample.1 = transform,
            _ => self.samples.insert(at, (stamp, transform)),
        }
        let newest = self.samples.back().map_or(stamp, |&(newest, _)| newest);
        while let Some(&(oldest, _)) = self.samples.front()
            && (newest.secs_since(oldest) > HISTORY_SECS || self.samples.len() > MAX_SAMPLES)
        {
            self.samples.pop_front();
        }
    }

    /// `parent_from_child` at `stamp`; never beyond the samples.
    fn at(&self, child: &str, stamp: Stamp) -> std::result::Result<Isometry3<f64>, String> {
        let after = match self.is_static {
            true => 0,
            false => self.samples.partition_point(|&(other, _)| other < stamp),
        };
        match (after.checked_sub(1).and_then(|i| self.samples.get(i)), self.samples.get(after)) {
            (_, Some((at, transform))) if self.is_static || *at == stamp => Ok(*transform),
            (Some(before), Some(after)) => Ok(interpolate(before, after, stamp)),
            (before, after) => {
                let (which, sample) =
                    if after.is_none() { ("newest", before) } else { ("oldest", after) };
                let at = sample.map_or_else(|| "nowhere".into(), |(at, _)| format!("at {at} s"));
                let parent = &self.parent;
                Err(format!(
                    "the {which} sample of '{parent}' to '{child}' is {at}, wanted at {stamp} s: \
                     is its publisher running, on the same clock?"
                ))
            }
        }
    }
}

fn interpolate(
    (before, start): &(Stamp, Isometry3<f64>),
    (after, end): &(Stamp, Isometry3<f64>),
    stamp: Stamp,
) -> Isometry3<f64> {
    let t = stamp.secs_since(*before) / after.secs_since(*before);
    let nearer = if t < 0.5 { start.rotation } else { end.rotation };
    // Half a turn has no shortest way.
    let rotation = start.rotation.try_slerp(&end.rotation, t, 1e-9).unwrap_or(nearer);
    let translation = start.translation.vector.lerp(&end.translation.vector, t);
    Isometry3::from_parts(Translation3::from(translation), rotation)
}

/// tf1 wrote names with a leading slash.
fn plain_name(name: &str) -> &str {
    name.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Header;
    use nalgebra::{UnitQuaternion, Vector3};

    fn link(parent: &str, child: &str, secs: f64, x: f64, yaw: f64) -> TransformStamped {
        let header = Header { stamp: Stamp::from_secs(secs), frame_id: parent.into() };
        let rotation = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), yaw);
        let parent_from_child = Isometry3::from_parts(Translation3::new(x, 0.0, 0.0), rotation);
        TransformStamped { header, child_frame_id: child.into(), parent_from_child }
    }

    fn at(secs: f64) -> Stamp {
        Stamp::from_secs(secs)
    }

    /// world → base (moving), base → left and base → right (static).
    fn tree() -> TransformBuffer {
        let mut tree = TransformBuffer::new();
        tree.insert(&link("world", "/base", 1.0, 0.0, 0.0), false).unwrap();
        tree.insert(&link("world", "base", 2.0, 2.0, 1.0), false).unwrap();
        tree.insert(&link("base", "left", 0.0, 1.0, 0.0), true).unwrap();
        tree.insert(&link("base", "right", 0.0, -1.0, 0.5), true).unwrap();
        tree
    }

    #[test]
    fn chains_are_composed_and_interpolated() {
        let tree = tree();
        let expected = link("", "", 0.0, 1.0, 0.5).parent_from_child
            * link("", "", 0.0, 1.0, 0.0).parent_from_child;
        let got = tree.lookup("world", "left", at(1.5)).unwrap();
        assert!((got.to_homogeneous() - expected.to_homogeneous()).norm() < 1e-12);
        let back = tree.lookup("left", "world", at(1.5)).unwrap();
        assert!(((back * got).to_homogeneous() - nalgebra::Matrix4::identity()).norm() < 1e-12);
        // Across, no moving transform is needed: any time will do.
        let across = tree.lookup("left", "right", at(99.0)).unwrap();
        assert!((across.translation.x + 2.0).abs() < 1e-12);
        assert_eq!(tree.lookup("any", "any", at(0.0)).unwrap(), Isometry3::identity());
        assert!(tree.connects("left", "/right") && !tree.connects("left", "camera"));
    }

    #[test]
    fn nothing_is_extrapolated() {
        let tree = tree();
        for (secs, which) in [(0.9, "oldest"), (2.1, "newest")] {
            let text = tree.lookup("world", "left", at(secs)).unwrap_err().to_string();
            assert!(text.contains(which) && text.contains("'base'"), "{text}");
        }
        assert!(tree.lookup("world", "left", at(2.0)).is_ok());
    }

    #[test]
    fn a_missing_link_is_named_with_the_frames_that_are_known() {
        let text = tree().lookup("world", "camera", at(1.5)).unwrap_err().to_string();
        assert!(text.contains("'camera'"), "{text}");
        assert!(text.contains("base, left, right, world"), "{text}");
    }

    #[test]
    fn loops_end_in_an_error() {
        let mut tree = tree();
        tree.insert(&link("left", "world", 0.0, 0.0, 0.0), true).unwrap();
        let text = tree.lookup("world", "right", at(1.5)).unwrap_err().to_string();
        assert!(text.contains("loop"), "{text}");
        assert!(tree.insert(&link("a", "/a", 0.0, 0.0, 0.0), false).is_err());
    }

    #[test]
    fn a_loop_ends_when_who_published_it_falls_silent() {
        let mut tree = tree();
        tree.insert(&link("left", "world", 2.0, 0.0, 0.0), false).unwrap();
        for (secs, has_loop) in [(2.0, true), (12.0, true), (12.1, false)] {
            tree.insert(&link("world", "base", secs, 3.0, 0.0), false).unwrap();
            let found = tree.lookup("world", "left", at(secs));
            let is_loop = found.as_ref().is_err_and(|error| error.to_string().contains("loop"));
            assert_eq!((is_loop, found.is_ok()), (has_loop, !has_loop), "at {secs} s");
        }
    }

    #[test]
    fn the_history_is_bounded() {
        let mut tree = TransformBuffer::new();
        for i in 0..30_000 {
            tree.insert(&link("world", "base", f64::from(i) * 1e-3, 0.0, 0.0), false).unwrap();
        }
        let n = tree.links["base"].samples.len();
        assert!(n <= MAX_SAMPLES, "{n}");
        for i in 0..2 * MAX_FRAMES {
            let _ = tree.insert(&link("world", &i.to_string(), 0.0, 0.0, 0.0), true);
        }
        assert_eq!(tree.links.len(), MAX_FRAMES);
        // Time set back: the old samples go.
        tree.insert(&link("world", "base", 1.0, 7.0, 0.0), false).unwrap();
        assert_eq!(tree.links["base"].samples.len(), 1);
    }

    #[test]
    fn moving_frames_make_room_those_first_that_fell_silent() {
        let mut tree = TransformBuffer::new();
        for i in 0..3 * MAX_FRAMES {
            let secs = i as f64 * 1e-3;
            tree.insert(&link("world", "base", secs, 0.0, 0.0), false).unwrap();
            tree.insert(&link("world", &format!("object_{i}"), secs, 0.0, 0.0), false).unwrap();
        }
        assert!(tree.links.len() == MAX_FRAMES && tree.links.contains_key("base"));
        assert!(!tree.links.contains_key("object_0") && tree.links.contains_key("object_3000"));
        // Nothing makes room among static ones.
        let mut tree = TransformBuffer::new();
        for i in 0..MAX_FRAMES {
            tree.insert(&link("world", &i.to_string(), 0.0, 0.0, 0.0), true).unwrap();
        }
        assert!(tree.insert(&link("world", "base", 0.0, 0.0, 0.0), false).is_err());
    }

    #[test]
    fn forgetting_keeps_static_transforms() {
        let mut tree = tree();
        tree.forget_moving();
        assert!(tree.lookup("left", "right", at(0.0)).is_ok());
        assert!(tree.lookup("world", "left", at(1.5)).is_err());
    }

    #[test]
    fn samples_may_come_out_of_order() {
        let mut tree = tree();
        tree.insert(&link("world", "base", 1.5, 8.0, 0.0), false).unwrap();
        assert_eq!(tree.lookup("world", "base", at(1.5)).unwrap().translation.x, 8.0);
        assert!((tree.lookup("world", "base", at(1.75)).unwrap().translation.x - 5.0).abs() < 1e-9);
    }
}
