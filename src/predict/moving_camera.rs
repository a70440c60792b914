//! What two frames of a camera that moved have in common, before motion is estimated from them.
//!
//! Two things look like motion of the scene and are none. What tf says of the camera is off by some millimetres,
//! by others in each frame: then all that rests moves alike, which registering one cloud to the other finds
//! (`registration.rs`) and takes out. And the image's border, or that of a box that moves, cuts things otherwise
//! in each frame: so only what both frames looked at is held against each other.
//!
//! Cameras that stand still cost nothing and change nothing.

mod looked;
mod registration;

use crate::base::geometry::{Rigid, Vec3, length};
use crate::predict::observation::Observation;
use crate::robot::kinematics::NO_LINK;
use crate::vision::particles::Particles;

pub use looked::Looked;
#[cfg(test)]
pub(crate) use looked::tests::looked as looked_down;
use registration::Registration;

/// Confidence in the rest of what nobody looked at one step back, as of what came from behind something else
/// (`hidden_confidence` of `src/vision/motion/settings.rs`).
const UNSEEN_CONFIDENCE: f32 = 0.3;

/// What was taken out of the motion of a step as tf's error: of the camera of which it was most.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoseError {
    /// How far it moves what the camera sees, on average (m).
    pub shift_m: f32,
    /// By how much it turns that (rad).
    pub turn_rad: f32,
}

/// Makes two frames comparable; keeps its memory between calls.
#[derive(Debug, Default)]
pub struct MovingCamera {
    registration: Registration,
    /// Particles and cloud one step back, as the tf of now would have them.
    particles: Particles,
    cloud: Particles,
    /// What of the clouds before and now both frames looked at.
    common: [Particles; 2],
    /// Whether a particle of now is of where nobody looked one step back.
    unseen: Vec<bool>,
    corrected: Vec<Vec3>,
    /// By camera number; none where tf is left as it is.
    corrections: Vec<Option<Rigid>>,
}

/// What is compared of a frame (world frame, m).
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Where its cameras looked.
    pub looked: &'a Looked,
    /// Its particles, and the whole cloud; both with their sources.
    pub particles: &'a Particles,
    /// See `particles`.
    pub cloud: &'a Particles,
    /// Link of the robot that each particle lies on, as [`Observation::on_links`].
    pub on_links: &'a [u32],
}

impl<'a> From<&'a Observation> for Seen<'a> {
    fn from(frame: &'a Observation) -> Self {
        let Observation { looked, particles, cloud, on_links, .. } = frame;
        Self { looked, particles, cloud, on_links }
    }
}

/// Two frames that can be compared.
pub struct Comparable<'a> {
    /// Particles one step back.
    pub particles: &'a Particles,
    /// The whole cloud then.
    pub cloud: &'a Particles,
    /// The clouds before and now that motion is estimated from.
    pub clouds: [&'a Particles; 2],
    /// Whether each particle of now is of where nobody looked one step back; empty where all was seen.
    pub unseen: &'a [bool],
    /// Whether a camera moved.
    pub camera_moved: bool,
    /// What was taken out; none where no camera moved, or tf is right as far as can be told.
    pub taken: Option<PoseError>,
}

impl MovingCamera {
    /// What `history` and `now` have in common.
    pub fn compare<'a>(&'a mut self, history: Seen<'a>, now: Seen<'a>) -> Comparable<'a> {
        self.corrections.clear();
        if history.looked == now.looked {
            let clouds = [history.cloud, now.cloud];
            let (particles, cloud) = (history.particles, history.cloud);
            let camera_moved = false;
            return Comparable { particles, cloud, clouds, unseen: &[], camera_moved, taken: None };
        }
        self.particles.clone_from(history.particles);
        self.cloud.clone_from(history.cloud);
        let taken = self.register(&history, &now);
        self.cut(&history, &now);
        let Self { particles, cloud, common: [before, after], unseen, .. } = self;
        let clouds = [&*before, &*after];
        Comparable { particles, cloud, clouds, unseen, camera_moved: true, taken }
    }

    /// What takes points of the history frame (m) to where the tf of now would have them, by the number of the
    /// camera that saw them; none, and beyond the end, where tf is left as it is.
    pub fn corrections(&self) -> &[Option<Rigid>] {
        &self.corrections
    }

    /// Where the tf of now would have had `particles` of the history frame (m); none where no error was taken out.
    pub fn corrected(&mut self, particles: &Particles) -> Option<&[Vec3]> {
        if !self.corrects() {
            return None;
        }
        let mut corrected = std::mem::take(&mut self.corrected);
        corrected.clone_from(&particles.positions);
        self.correct(&mut corrected, &particles.sources);
        self.corrected = corrected;
        Some(&self.corrected)
    }

    /// The same of points that cameras saw, by their `sources`.
    fn correct(&self, positions: &mut [Vec3], sources: &[u32]) {
        for (position, source) in positions.iter_mut().zip(sources) {
            if let Some(correction) = self.correction(*source) {
                *position = correction.apply(position);
            }
        }
    }

    /// Whether tf is taken to err.
    fn corrects(&self) -> bool {
        self.corrections.iter().any(Option::is_some)
    }

    fn correction(&self, source: u32) -> Option<&Rigid> {
        self.corrections.get((source >> 24) as usize)?.as_ref()
    }

    /// Finds how tf errs of each camera that moved, and moves what it saw.
    fn register(&mut self, history: &Seen, now: &Seen) -> Option<PoseError> {
        let mut most: Option<PoseError> = None;
        for camera in now.looked.moved_since(history.looked) {
            let is_free = |i: usize| now.on_links.get(i).is_none_or(|link| *link == NO_LINK);
            let seen = |source: &u32| (source >> 24) as usize == camera;
            let points = now.particles.sources.iter().enumerate();
            let here = points.filter(|(i, source)| seen(source) && is_free(*i)).map(|(i, _)| i);
            let here = here.map(|i| (now.particles.positions[i], now.particles.colors[i]));
            let there = self.cloud.sources.iter().enumerate().filter(|(_, source)| seen(source));
            let there = there.map(|(i, _)| (self.cloud.positions[i], self.cloud.colors[i]));
            let Some((correction, error)) = self.registration.find(there, here) else { continue };
            self.corrections.resize(self.corrections.len().max(camera + 1), None);
            self.corrections[camera] = Some(correction);
            most = most.filter(|most| most.shift_m >= error.shift_m).or(Some(error));
        }
        if !self.corrects() {
            return None;
        }
        let [mut particles, mut cloud] = [&mut self.particles, &mut self.cloud].map(std::mem::take);
        for moved in [&mut particles, &mut cloud] {
            self.correct(&mut moved.positions, &moved.sources);
            for (camera, eye) in moved.eyes.iter_mut().enumerate() {
                if let Some(Some(correction)) = self.corrections.get(camera) {
                    *eye = correction.apply(eye);
                }
            }
        }
        (self.particles, self.cloud) = (particles, cloud);
        most
    }

    /// Cuts both clouds to what the other frame looked at, too.
    fn cut(&mut self, history: &Seen, now: &Seen) {
        let corrections = &self.corrections;
        let then = |p: &Vec3| history.looked.sees(p, corrections);
        let [before, after] = &mut self.common;
        keep(&self.cloud, |p| now.looked.sees(p, &[]), before);
        keep(now.cloud, then, after);
        self.unseen.clear();
        self.unseen.extend(now.particles.positions.iter().map(|p| !then(p)));
    }
}

/// What rests as far as is known: particles of where nobody looked one step back, unless they move with what is
/// beside them.
pub fn rest_unseen(unseen: &[bool], motions: &[Vec3], known: &mut [f32]) {
    for ((unseen, motion), known) in unseen.iter().zip(motions).zip(known) {
        if *unseen && length(motion) == 0.0 {
            *known = known.max(UNSEEN_CONFIDENCE);
        }
    }
}

/// The points of `cloud` that are `seen`, into `out`.
fn keep(cloud: &Particles, seen: impl Fn(&Vec3) -> bool, out: &mut Particles) {
    out.positions.clear();
    out.colors.clear();
    out.sources.clear();
    out.eyes.clone_from(&cloud.eyes);
    out.support_m = cloud.support_m;
    for (i, position) in cloud.positions.iter().enumerate().filter(|(_, p)| seen(p)) {
        out.positions.push(*position);
        out.colors.push(cloud.colors[i]);
        out.sources.extend(cloud.sources.get(i));
    }
}
