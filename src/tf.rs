//! Transforms between coordinate frames over time: the part of tf2 that is needed.

use crate::error::{Error, Result};
use crate::message::{Stamp, TransformStamped};
use nalgebra::{Isometry3, Translation3};
use std::collections::{HashMap, VecDeque};

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
    /// [`Error::Transform`] if parent and child are the same, or at too many frames.
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
        if self.links.len() >= MAX_FRAMES && !self.links.contains_key(child) {
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
        let up_from_source = self.ancestors(source).map_err(error)?;
        let up_from_target = self.ancestors(target).map_err(error)?;
        let common = up_from_source.iter().find(|frame| up_from_target.contains(frame));
        let common = *common.ok_or_else(|| error(self.advice(target, source)))?;
        let common_from_source = self.climb(&up_from_source, common, stamp).map_err(error)?;
        let common_from_target = self.climb(&up_from_target, common, stamp).map_err(error)?;
        Ok(common_from_target.inv_mul(&common_from_source))
    }

    /// Forgets the samples after `stamp`, and keeps static transforms: time was set back.
    pub fn forget_after(&mut self, stamp: Stamp) {
        self.links.retain(|_, link| {
            if !link.is_static {
                link.samples.retain(|&(at, _)| at <= stamp);
            }
            !link.samples.is_empty()
        });
    }

    /// The frame itself, its parent, and so on up to the root.
    fn ancestors<'a>(&'a self, frame: &'a str) -> std::result::Result<Vec<&'a str>, String> {
        let mut frames = vec![frame];
        let mut last = frame;
        while let Some(link) = self.links.get(last) {
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
