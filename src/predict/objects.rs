//! Objects: what hangs together off the support plane, under numbers that stay.
//!
//! Each frame, particles that are near to each other and don't move apart make clusters (`clusters`). Numbers
//! come from the past, particle by particle: each looks for where it came from, and for what was predicted to
//! come where it is, among the numbered particles of the last prediction (`tracks`). So two things that touch
//! keep both numbers, parts of one that a hand hides keep one, and only what moves away from the rest of its
//! object gets a number of its own. What is out of sight keeps its number for [`KEPT_SECS`]. Walls and furniture,
//! large things that never moved, have none, nor have the support plane and the robot.

mod clusters;
mod looks;
mod shape;
mod tracks;

use serde::{Deserialize, Serialize};

use crate::base::geometry::{Vec3, bounds};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::StepState;
use crate::message::Stamp;
use crate::predict::observation::Observation;
use crate::vision::particles::SUPPORT_M;
use clusters::Clusters;
use looks::Seen;
use tracks::Tracks;

pub use shape::{Object, ObjectPose};

/// How long something out of sight keeps its number (s).
pub const KEPT_SECS: f64 = 1.0;
/// What lies this far below the support plane (m) is no noise of it.
const BELOW_M: f32 = 0.03;

/// What a particle is. The numbers are those of `msg/Prediction.msg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ParticleKind {
    /// It lies on the support plane.
    Support = 0,
    /// It lies on a link of the robot.
    Robot = 1,
    /// It rests.
    Resting = 2,
    /// It moves, or nothing is known of its motion.
    Moving = 3,
    /// As moving, and its body touches neither the support plane nor the robot, as far as is seen.
    Flying = 4,
}

impl ParticleKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Support, Self::Robot, Self::Resting, Self::Moving, Self::Flying];

    /// Its name.
    pub fn name(self) -> &'static str {
        ["support", "robot", "resting", "moving", "flying"][self as usize]
    }
}

/// Which object each particle is of, and what each is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectMap {
    /// Number of each particle's object, `[n]`; 0 of those of none: the support plane, the robot, walls and
    /// furniture, and what is too small.
    pub number_of: Vec<u64>,
    /// What each particle is, `[n]`.
    pub kinds: Vec<ParticleKind>,
    /// The objects that are seen, by ascending number.
    pub seen: Vec<Followed>,
    /// Stamp of the first frame that was followed: numbers hang on all predictions since then.
    pub since: Stamp,
    /// Frames that were followed since then, this one included.
    pub n_followed: u64,
}

/// An object that is followed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Followed {
    /// Its number, from 1 up; given once since [`ObjectMap::since`].
    pub number: u64,
    /// Stamp of the frame in which it was first seen.
    pub since: Stamp,
}

impl ObjectMap {
    /// The number of particle `i`'s object; 0 for none.
    pub fn number(&self, i: usize) -> u64 {
        self.number_of.get(i).copied().unwrap_or(0)
    }

    /// As messages tell it: the numbers that there are, ascending, and for each particle which of these it has,
    /// counted from 1; 0 for none.
    pub fn indexed(&self) -> (Vec<u64>, Vec<u16>) {
        let numbers: Vec<u64> = self.seen.iter().map(|followed| followed.number).collect();
        // There are at most a quarter as many as particles; of more than fit, none is told wrong.
        let index = |number: &u64| {
            let at = numbers.binary_search(number).ok();
            at.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0)
        };
        let of = self.number_of.iter().map(index).collect();
        (numbers, of)
    }
}

/// Follows objects from prediction to prediction; its vectors are kept.
#[derive(Debug, Default)]
pub struct ObjectTracker {
    clusters: Clusters,
    tracks: Tracks,
    /// Particles that may be of objects, their places (m), motions in a step (m) and looks.
    free: Vec<u32>,
    seen: Seen,
    since: Option<Stamp>,
    last: Stamp,
    n_followed: u64,
}

impl ObjectTracker {
    /// Forgets all objects; numbers begin at 1 again.
    pub fn reset(&mut self) {
        self.tracks.forget();
        self.since = None;
        self.n_followed = 0;
    }

    /// Finds the objects among the particles of `now`, whose motion is known from `start`, and which move by
    /// `displacements` `[n_steps][n]` (m) in steps of `step_secs`; `classes` tell what each does. A time that is
    /// not after the last starts afresh.
    pub fn follow(
        &mut self,
        now: &Observation,
        start: &StepState,
        classes: &[MotionClass],
        (displacements, step_secs): (&[Vec<Vec3>], f64),
        map: &mut ObjectMap,
    ) {
        if self.since.is_some() && now.stamp <= self.last {
            self.reset();
        }
        let steps = match self.since {
            Some(_) => (now.stamp.secs_since(self.last) / step_secs) as f32,
            None => 0.0,
        };
        map.since = *self.since.get_or_insert(now.stamp);
        (self.last, self.n_followed) = (now.stamp, self.n_followed + 1);
        map.n_followed = self.n_followed;
        self.choose(now, start, classes, displacements, map);
        let [min, max] = bounds(&now.particles.positions);
        let extent_m = (0..3).map(|axis| max[axis] - min[axis]).fold(0.0, f32::max);
        self.clusters.find(&self.seen.positions, &self.seen.motions, extent_m);
        let frame = tracks::FrameFacts {
            stamp: now.stamp,
            steps,
            step_secs: step_secs as f32,
            extent_m,
            robot: &now.kinematic,
        };
        self.tracks.follow(&frame, &mut self.clusters, &self.seen);
        map.number_of.clear();
        map.number_of.resize(now.particles.len(), 0);
        for (&i, number) in self.free.iter().zip(self.tracks.numbers()) {
            map.number_of[i as usize] = number;
        }
        self.tracks.list(now.stamp, &mut map.seen);
    }

    /// Says what each particle is, and takes those that may be of objects.
    fn choose(
        &mut self,
        now: &Observation,
        start: &StepState,
        classes: &[MotionClass],
        displacements: &[Vec<Vec3>],
        map: &mut ObjectMap,
    ) {
        let particles = &now.particles;
        let Seen { positions, motions, known, colors, ahead } = &mut self.seen;
        map.kinds.clear();
        self.free.clear();
        known.clear();
        for vectors in [&mut *positions, &mut *motions, &mut *colors, &mut *ahead] {
            vectors.clear();
        }
        for (i, p) in particles.positions.iter().enumerate() {
            let above_m = particles.support_m.map_or(f32::INFINITY, |height| p[2] - height);
            let is_support = above_m <= SUPPORT_M && above_m > -BELOW_M;
            let kind = match classes.get(i) {
                Some(MotionClass::Robot | MotionClass::Unplanned) => ParticleKind::Robot,
                _ if is_support => ParticleKind::Support,
                Some(MotionClass::Resting) => ParticleKind::Resting,
                Some(MotionClass::Flying) => ParticleKind::Flying,
                Some(MotionClass::Moving) | None => ParticleKind::Moving,
            };
            map.kinds.push(kind);
            if matches!(kind, ParticleKind::Support | ParticleKind::Robot) {
                continue;
            }
            self.free.push(i as u32);
            positions.push(*p);
            let velocity = start.velocities.get(i).copied().unwrap_or_default();
            motions.push(start.extrapolated_motion.get(i).copied().unwrap_or(velocity));
            known.push(start.velocity_known.get(i).is_some_and(|&known| known >= 0.5));
            colors.push(particles.colors[i]);
            ahead.push(displacements.first().and_then(|d| d.get(i)).copied().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
