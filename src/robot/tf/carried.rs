//! Whether a frame is carried along by those above it, as a base's is by odometry.
//!
//! What a base drives shows in many small changes, one after the other. What corrects a localization changes the
//! transform above `odom`, too, but nothing that cameras see in `odom`: in jumps, or slowly beside how the robot
//! itself goes. Neither counts.

use std::fmt;

use nalgebra::{Isometry3, Point3};

use super::{Link, TransformBuffer, plain_name};
use crate::message::Stamp;

/// How long it is watched (s), and the shortest time that tells.
const WATCHED_SECS: f64 = 1.0;
const LEAST_SECS: f64 = 0.4;
/// Speed that is told of (m/s): of what most moves alike in a scene, too (`src/predict/moving_world.rs`).
const LEAST_SPEED: f64 = 0.08;
/// Share of the way that one change is at most: five changes a second at least, none of them a jump.
const MOST_OF_WAY: f64 = 0.25;
/// Least share of the way that what hangs below goes in the frame itself: odometry drifts by less.
const LEAST_SHARE: f64 = 0.25;
/// How far off what is seen lies (m): turns move it by so much for each radian.
const SEEN_M: f64 = 1.0;

/// How a frame is carried along.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// The frame.
    pub frame: String,
    /// The nearest frame above it that nothing was seen to carry.
    pub above: String,
    /// The frame above all.
    pub root: String,
    /// How far it went (m) and turned (rad) in so many seconds.
    pub shift_m: f64,
    /// See `shift_m`.
    pub turn_rad: f64,
    /// See `shift_m`.
    pub secs: f64,
}

impl Carried {
    /// The frames that may be named in its place, in words.
    pub fn instead(&self) -> String {
        let Self { above, root, .. } = self;
        match above == root {
            true => format!("'{root}', the root of the tree"),
            false => format!("'{above}' (or '{root}', the root of the tree)"),
        }
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frame, above, shift_m, turn_rad, secs, .. } = self;
        let (mm, degrees) = (1e3 * shift_m, turn_rad.to_degrees());
        write!(
            f,
            "tf carries '{frame}' along below '{above}', by {mm:.0} mm and {degrees:.1} degrees in {secs:.1} s, \
             and a camera with it"
        )
    }
}

/// Way of what hangs on a frame, and of what lies [`SEEN_M`] before it.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    shift_m: f64,
    turn_rad: f64,
}

impl Way {
    fn between(a: &Isometry3<f64>, b: &Isometry3<f64>, at: &Point3<f64>) -> Self {
        let shift_m = (b * at - a * at).norm();
        Self { shift_m, turn_rad: a.rotation.angle_to(&b.rotation) }
    }

    fn of_seen_m(self) -> f64 {
        self.shift_m + SEEN_M * self.turn_rad
    }
}

impl TransformBuffer {
    /// How `frame` was carried along within the second before `stamp`, with `below`, which hangs on it; none
    /// where it was not, where its own parents are fixed, and where `below` hangs on something else.
    pub fn carried(&self, frame: &str, below: &str, stamp: Stamp) -> Option<Carried> {
        let chain = self.ancestors(plain_name(frame), stamp).ok()?;
        let (_, above) = chain.split_first().filter(|(_, above)| !above.is_empty())?;
        // What hangs elsewhere may be what moves: some publish odometry the other way round.
        if !self.ancestors(plain_name(below), stamp).ok()?.contains(&chain[0]) {
            return None;
        }
        let root = above.last()?;
        // From the root down: what is fixed to the ground is above all that moves.
        above.iter().zip(&chain).rev().find_map(|(parent, child)| {
            let link = self.links.get(*child).filter(|link| !link.is_static)?;
            let at = self.lookup(child, below, stamp).ok()?.translation.vector.into();
            let (way, [start, end]) = link.steady_way(&at, stamp)?;
            let own = [start, end].map(|stamp| self.lookup(frame, below, stamp));
            let [then, now] = own.map(Result::ok);
            let own = Way::between(&then?, &now?, &Point3::origin());
            (way.of_seen_m() >= LEAST_SHARE * own.of_seen_m()).then(|| Carried {
                frame: chain[0].to_owned(),
                above: (*parent).to_owned(),
                root: (*root).to_owned(),
                shift_m: way.shift_m,
                turn_rad: way.turn_rad,
                secs: end.secs_since(start),
            })
        })
    }
}

impl Link {
    /// How far `at` (child frame, m) went in the second before `stamp`, and from when to when that is; none
    /// where it hardly went, or mostly by a jump.
    fn steady_way(&self, at: &Point3<f64>, stamp: Stamp) -> Option<(Way, [Stamp; 2])> {
        let watched = self.samples.iter().filter(|(at, _)| {
            let ago_secs = stamp.secs_since(*at);
            (0.0..=WATCHED_SECS).contains(&ago_secs)
        });
        let (start, first) = watched.clone().next()?;
        let (end, last) = watched.clone().next_back()?;
        let way = Way::between(first, last, at);
        let changes = watched.clone().zip(watched.skip(1));
        let changes = changes.map(|((_, a), (_, b))| Way::between(a, b, at).of_seen_m());
        let (secs, most_m) = (end.secs_since(*start), changes.fold(0.0, f64::max));
        let is_fast = secs >= LEAST_SECS && way.of_seen_m() >= LEAST_SPEED * secs;
        (is_fast && most_m <= MOST_OF_WAY * way.of_seen_m()).then_some((way, [*start, *end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Header, TransformStamped};
    use nalgebra::{Translation3, UnitQuaternion, Vector3};

    fn insert(tf: &mut TransformBuffer, frames: [&str; 2], secs: f64, [x, yaw]: [f64; 2]) {
        let header = Header { stamp: Stamp::from_secs(secs), frame_id: frames[0].into() };
        let turn = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), yaw);
        let parent_from_child = Isometry3::from_parts(Translation3::new(x, 0.0, 0.0), turn);
        let child_frame_id = frames[1].to_owned();
        let message = TransformStamped { header, child_frame_id, parent_from_child };
        tf.insert(&message, secs < 0.0).unwrap();
    }

    /// map → odom → base → camera for two seconds from 1 s on, the moving ones `rate_hz` times a second:
    /// `map` and `odom` tell x and yaw of the first two by the time.
    fn tree(
        rate_hz: u32,
        map: impl Fn(f64) -> [f64; 2],
        odom: impl Fn(f64) -> [f64; 2],
    ) -> TransformBuffer {
        let mut tf = TransformBuffer::new();
        insert(&mut tf, ["base", "camera"], -1.0, [0.3, 0.5]);
        for i in 0..=2 * rate_hz {
            let secs = f64::from(i) / f64::from(rate_hz);
            insert(&mut tf, ["map", "odom"], 1.0 + secs, map(secs));
            insert(&mut tf, ["odom", "base"], 1.0 + secs, odom(secs));
        }
        tf
    }

    /// What carries `frame` with the camera at `secs`: the frame above that.
    fn above(tf: &TransformBuffer, frame: &str, secs: f64) -> Option<String> {
        tf.carried(frame, "camera", Stamp::from_secs(secs)).map(|carried| carried.above)
    }

    const STAYS: fn(f64) -> [f64; 2] = |_| [2.0, 0.3];

    #[test]
    fn a_base_that_drives_or_turns_carries_its_frame_and_the_root_is_named() {
        for rate_hz in [10, 50, 100] {
            for drive in [|t: f64| [0.16 * t, 0.0], |t| [0.0, 0.2 * t], |t| [-0.5 * t, 0.05 * t]] {
                let tf = tree(rate_hz, STAYS, drive);
                let found = tf.carried("/base", "camera", Stamp::from_secs(2.5)).unwrap();
                assert_eq!([&*found.frame, &found.above, &found.root], ["base", "odom", "map"]);
                // At once: half a second after it set off.
                assert!(above(&tf, "base", 1.5).is_some(), "{rate_hz}");
            }
        }
        let tf = tree(10, STAYS, |t| [0.16 * t, 0.0]);
        let found = tf.carried("base", "camera", Stamp::from_secs(2.5)).unwrap();
        assert!((found.shift_m - 0.16 * found.secs).abs() < 1e-9 && found.turn_rad < 1e-9);
    }

    #[test]
    fn the_frame_to_take_is_above_all_that_moves() {
        // map → odom → base → hand → tip: the base drives, and the arm moves.
        let mut tf = tree(50, STAYS, |t| [0.2 * t, 0.0]);
        insert(&mut tf, ["hand", "tip"], -1.0, [0.1, 0.0]);
        for i in 0..=100 {
            let secs = 0.02 * f64::from(i);
            insert(&mut tf, ["base", "hand"], 1.0 + secs, [0.0, 0.5 * secs]);
        }
        let found = tf.carried("hand", "tip", Stamp::from_secs(2.5)).unwrap();
        assert_eq!([&*found.above, &found.root], ["odom", "map"]);
        assert_eq!(found.instead(), "'odom' (or 'map', the root of the tree)");
        assert!(
            found.to_string().contains("tf carries 'hand' along below 'odom', by 200 mm"),
            "{found}"
        );
    }

    #[test]
    fn what_stays_or_trembles_carries_nothing() {
        let tremble = |t: f64| [0.002 * (700.0 * t).sin(), 0.002 * (900.0 * t).cos()];
        for odom in [STAYS, tremble] {
            let tf = tree(50, tremble, odom);
            assert_eq!(above(&tf, "base", 2.5), None);
            assert_eq!(above(&tf, "odom", 2.5), None);
        }
        // A fixed parent, a root, what no transform tells of, and a time of which nothing is known.
        let tf = tree(50, STAYS, |t| [0.5 * t, 0.0]);
        assert_eq!(above(&tf, "camera", 2.5).as_deref(), Some("odom"), "the camera's own frame");
        assert_eq!(above(&tf, "map", 2.5), None);
        assert_eq!(above(&tf, "nothing", 2.5), None);
        assert_eq!(above(&tf, "base", 99.0), None);
        let mut fixed = TransformBuffer::new();
        insert(&mut fixed, ["world", "base"], -1.0, [1.0, 0.0]);
        insert(&mut fixed, ["base", "camera"], -1.0, [1.0, 0.0]);
        assert_eq!(above(&fixed, "base", 2.5), None);
    }

    #[test]
    fn corrections_of_a_localization_carry_nothing() {
        let drive = |t: f64| [0.5 * t, 0.3 * t];
        // A jump now and then, however far, and small ones that come often.
        for (period_secs, jump_m) in [(1.2, 0.5), (0.2, 0.02)] {
            let jumps = move |t: f64| [jump_m * (t / period_secs).floor(), 0.0];
            let tf = tree(40, jumps, drive);
            for i in 0..=20 {
                let secs = 1.0 + 0.1 * f64::from(i);
                assert_eq!(above(&tf, "odom", secs), None, "{period_secs} s at {secs} s");
            }
        }
        // What goes on smoothly, but slowly beside the robot.
        let tf = tree(50, |t| [0.09 * t, 0.0], drive);
        assert_eq!(above(&tf, "odom", 2.5), None);
        // The frame of the base is carried all the same, below odom.
        assert!(above(&tf, "base", 2.5).is_some());
    }

    #[test]
    fn odometry_the_other_way_round_moves_no_world() {
        // base → odom, as some publish it: the camera hangs on the base, not on odom.
        let mut tf = TransformBuffer::new();
        insert(&mut tf, ["base", "camera"], -1.0, [0.3, 0.5]);
        for i in 0..40 {
            let secs = 0.05 * f64::from(i);
            insert(&mut tf, ["base", "odom"], 1.0 + secs, [-0.5 * secs, 0.0]);
        }
        assert_eq!(above(&tf, "odom", 2.5), None);
    }
}
