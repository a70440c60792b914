//! What a prediction is.

use std::time::Instant;

use crate::base::geometry::length;
use crate::engine::model::calibration::{Calibration, LEVELS};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::Evidence;
use crate::message::Stamp;
use crate::predict::last_miss::Outcomes;
use crate::predict::moving_camera::PoseError;
use crate::predict::objects::ObjectMap;
use crate::predict::robot_forecast::LinksAhead;
use crate::vision::particles::Particles;

/// How far off a position may be after some steps, as a share of so many usual misses of one step: for each of
/// [`LEVELS`].
const MISSES: [f32; LEVELS.len()] = [0.5, 1.2];
/// The same of what goes on, as a share of its way: it may stop, or turn.
const STOPS: [f32; LEVELS.len()] = [0.05, 0.25];
/// Noise of a particle's measured motion (m): a miss of the measurement, not of the model.
const MOTION_NOISE_M: f32 = 0.002;

/// Predicted motion of the particles of one frame, in the world frame.
#[derive(Debug, Clone, Default)]
pub struct Prediction {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Seed of the particles' draw.
    pub seed: u64,
    /// Particles in the frame (m), `[n]`, and what was seen there.
    pub particles: Particles,
    /// Displacement of each particle in each step (m): `[horizon][n]`, from where the step before
    /// left it.
    pub displacements: Vec<Vec<[f32; 3]>>,
    /// How far off each particle's position after each step may be (m), `[horizon][n]`, for each of
    /// [`LEVELS`]: so many of all errors are no larger. Of a model that was not calibrated its own word
    /// for the first, and nothing for the second; of models that don't tell nothing.
    pub sigmas: [Vec<Vec<f32>>; LEVELS.len()],
    /// What each particle does at the start, `[n]`.
    pub situations: Vec<MotionClass>,
    /// Which object each particle is of.
    pub objects: ObjectMap,
    /// How far all that is seen off the support plane moves alike in a step (m), the robot aside; none where
    /// it does not: the world frame moves, as one on a mobile base does.
    pub world_motion_m: Option<f32>,
    /// What was taken out of the motion since the history frame as an error of a camera's pose; none where no camera
    /// moved, or tf is right as far as can be told.
    pub pose_error: Option<PoseError>,
    /// Steps that the robot's plans tell of, the first ones.
    pub n_planned: usize,
    /// Stamp of the frame whose prediction was held against this frame, to tell from how that turned out; none
    /// where none was made about one step ago.
    pub held_against: Option<Stamp>,
    /// How it turned out.
    pub outcomes: Outcomes,
    /// Length of a step (s).
    pub step_secs: f64,
    /// Where the links of the robot are and will be.
    pub links: LinksAhead,
    /// Stamp of the history frame, about one step back.
    pub history_stamp: Stamp,
    /// The history frame's cloud, as densely as it was kept (m).
    pub history: Vec<[f32; 3]>,
    /// Whether it has fewer steps or particles than the settings ask for, to end in time.
    pub is_cut: bool,
    /// What the prediction took.
    pub timings: Timings,
}

impl Prediction {
    /// The radii `[horizon][n]` (m) of a level, as they are told to others: nothing of models that were
    /// not calibrated.
    pub fn told_sigmas(&self, level: usize) -> &[Vec<f32>] {
        let is_calibrated = !self.sigmas[LEVELS.len() - 1].is_empty();
        if is_calibrated { &self.sigmas[level] } else { &[] }
    }

    /// Takes the displacements `[horizon][n]` of a roll-out (m), in the memory that there is.
    pub(crate) fn set_displacements<'a>(
        &mut self,
        steps: impl ExactSizeIterator<Item = &'a [[f32; 3]]>,
    ) {
        self.displacements.resize_with(steps.len(), Vec::new);
        for (displacements, step) in self.displacements.iter_mut().zip(steps) {
            displacements.clear();
            displacements.extend_from_slice(step);
        }
    }

    /// Takes a model's word `[horizon][n]` for how far off each position may be, in the memory that there
    /// is.
    pub(crate) fn set_sigmas<'a>(
        &mut self,
        told: impl Iterator<Item = &'a [f32]>,
        calibration: Option<&Calibration>,
    ) {
        let n_levels = if calibration.is_some() { LEVELS.len() } else { 1 };
        let mut n_steps = 0;
        for (step, told) in told.enumerate() {
            for (level, radii) in self.sigmas[..n_levels].iter_mut().enumerate() {
                radii.resize_with(radii.len().max(step + 1), Vec::new);
                radii[step].clear();
                let scaled = told.iter().zip(&self.situations).map(|(sigma, &situation)| {
                    let situation = situation.in_step(step, self.n_planned);
                    sigma * calibration.map_or(1.0, |c| c.factor(situation, level, step))
                });
                radii[step].extend(scaled);
            }
            n_steps = step + 1;
        }
        for (level, radii) in self.sigmas.iter_mut().enumerate() {
            radii.truncate(if level < n_levels { n_steps } else { 0 });
        }
    }

    /// Where the world frame moves, no position is surer than that motion is far.
    pub(crate) fn widen_sigmas(&mut self) {
        let Some(motion_m) = self.world_motion_m else { return };
        for radii in &mut self.sigmas {
            for (step, radii) in radii.iter_mut().enumerate() {
                let least = (step + 1) as f32 * motion_m;
                radii.iter_mut().for_each(|radius| *radius = radius.max(least));
            }
        }
    }

    /// No position is surer than what was missed in the last steps allows, and what is moved by the evidence is as
    /// sure as that. What rests or lies on the robot is left as it is, and what flies unless it goes on: misses
    /// of a fall tell little of the next step.
    pub(crate) fn widen_by(&mut self, evidence: &[Option<Evidence>]) {
        for (i, known) in evidence.iter().enumerate() {
            let (Some(known), class) = (known, self.situations.get(i)) else { continue };
            let Some(first) = self.told_sigmas(1).first().and_then(|first| first.get(i)).copied()
            else {
                continue;
            };
            let [model_m, on_m] = known.misses_m;
            let excess_m = (model_m * model_m - MOTION_NOISE_M * MOTION_NOISE_M).max(0.0).sqrt();
            let is_worse = match class {
                Some(MotionClass::Robot | MotionClass::Resting) | None => continue,
                Some(MotionClass::Flying) => excess_m > first && known.goes_on > 0.5,
                Some(_) => excess_m > first,
            };
            let (mut way, mut last) = (0.0, [0.0_f32; 2]);
            for (step, displacements) in self.displacements.iter().enumerate() {
                let steps = (step + 1) as f32;
                way += length(&displacements[i]);
                for (level, radii) in self.sigmas.iter_mut().enumerate() {
                    let Some(radius) = radii.get_mut(step).map(|radii| &mut radii[i]) else {
                        continue;
                    };
                    let missed = |miss_m: f32| MISSES[level] * steps * miss_m;
                    // Not by more than the first step asks for: later ones know that what moves comes to rest.
                    let ratio = MISSES[1] * excess_m / first;
                    let wider = radius.max(missed(excess_m).min(ratio * *radius));
                    let model = if is_worse { wider } else { *radius };
                    let on = missed(on_m) + STOPS[level] * way;
                    let rests = radius.min(MISSES[level] * on_m);
                    if (step as u32) < known.until {
                        *radius = known.model * model + known.goes_on * on + known.rests * rests;
                        last[level] = *radius;
                    } else {
                        // The model's again, from where it went until then.
                        *radius = model.max(last[level]);
                    }
                }
            }
        }
    }

    /// A copy of what was known before the first step.
    pub(crate) fn without_displacements(&self) -> Self {
        Self {
            stamp: self.stamp,
            seed: self.seed,
            particles: self.particles.clone(),
            displacements: Vec::new(),
            sigmas: Default::default(),
            situations: self.situations.clone(),
            objects: self.objects.clone(),
            world_motion_m: self.world_motion_m,
            pose_error: self.pose_error,
            n_planned: self.n_planned,
            held_against: self.held_against,
            outcomes: self.outcomes,
            step_secs: self.step_secs,
            links: self.links.clone(),
            history_stamp: self.history_stamp,
            history: self.history.clone(),
            is_cut: self.is_cut,
            timings: Timings::default(),
        }
    }
}

/// Milliseconds of the stages of one prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Timings {
    /// Clouds, sampling and the robot's particles.
    pub particles_ms: f64,
    /// Graph and model, all steps.
    pub predict_ms: f64,
}

/// Wall time since `start`.
pub fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_word_is_scaled_by_situation_and_step_and_told_once_calibrated() {
        let mut prediction = Prediction {
            situations: vec![MotionClass::Robot, MotionClass::Resting],
            n_planned: 2,
            ..Prediction::default()
        };
        let word = [[0.1f32, 0.2], [0.3, 0.4]];
        let row = |i: usize| {
            let first = (i + 2) as f32;
            [vec![first, 10.0 * first], vec![3.0 * first, 30.0 * first]]
        };
        let factors = (0..MotionClass::ALL.len()).map(row).collect();
        let calibration = Calibration { n_recordings: 9, factors };
        let told = || word.iter().map(|sigmas| &sigmas[..]);
        prediction.set_sigmas(told(), Some(&calibration));
        let scaled = |[a, b]: [f32; 2]| [[0.1 * a, 0.2 * b], [0.3 * 10.0 * a, 0.4 * 10.0 * b]];
        for (level, factors) in [[2.0, 3.0], [6.0, 9.0]].into_iter().enumerate() {
            let pairs =
                prediction.told_sigmas(level).concat().into_iter().zip(scaled(factors).concat());
            assert!(pairs.clone().count() == 4 && pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6));
        }
        // The robot's second step is none of its plan's.
        prediction.n_planned = 1;
        prediction.set_sigmas(told(), Some(&calibration));
        let unplanned = (MotionClass::Unplanned as usize + 2) as f32;
        assert_eq!(prediction.sigmas[0], [[0.2, 0.6], [0.3 * 10.0 * unplanned, 12.0]]);
        // Where all of it moves, nothing is surer than that.
        let mut moving = prediction.clone();
        moving.world_motion_m = Some(0.5);
        moving.widen_sigmas();
        assert_eq!(moving.sigmas[0], [[0.5, 0.6], [0.3 * 10.0 * unplanned, 12.0]]);
        // Shorter, and of a model that was not calibrated: its own word, told to nobody.
        prediction.set_sigmas(told().take(1), None);
        assert_eq!(prediction.sigmas, [vec![vec![0.1, 0.2]], vec![]]);
        assert!(prediction.told_sigmas(0).is_empty());
    }

    #[test]
    fn misses_widen_each_step_by_no_more_than_they_ask_of_the_first() {
        let uncertain = |radii: [f32; 3]| radii.map(|radius| vec![radius]).to_vec();
        let fresh = || Prediction {
            displacements: vec![vec![[0.0; 3]]; 3],
            sigmas: [uncertain([0.001, 0.002, 0.0022]), uncertain([0.002, 0.006, 0.005])],
            situations: vec![MotionClass::Moving],
            ..Prediction::default()
        };
        let miss_m = 0.01_f32;
        let known = Evidence {
            model: 1.0,
            goes_on: 0.0,
            rests: 0.0,
            misses_m: [miss_m, 0.0],
            has_rested: false,
            keeps: 1.0,
            steady: None,
            until: u32::MAX,
        };
        let widened = |known: Option<Evidence>| {
            let mut prediction = fresh();
            prediction.widen_by(&[known]);
            prediction.sigmas.map(|level| level.concat())
        };
        assert_eq!(widened(None), fresh().sigmas.map(|level| level.concat()), "nothing is known");
        let excess_m = (miss_m * miss_m - MOTION_NOISE_M * MOTION_NOISE_M).sqrt();
        let [of_half, of_most] = widened(Some(known));
        // By the misses twice and three times the first; by the model's word three times and 2.5 times.
        let expected = [1.2, 2.4, 1.2 * 2.5].map(|share| share * excess_m);
        for (wider, expected) in of_most.iter().zip(expected) {
            assert!((wider - expected).abs() < 1e-5, "{wider} {expected}");
        }
        assert!(of_half[2] < 1.5 * excess_m, "{}", of_half[2]);
        // Where it rested until the robot came, it is no surer from then on than the model is.
        let rests = Evidence { model: 0.0, rests: 1.0, until: 2, ..known };
        let [_, until] = widened(Some(rests));
        assert!(until[..2] == [0.0; 2] && (until[2] - expected[2]).abs() < 1e-5, "{until:?}");
        // Nor than it was of where it went until then.
        let goes_on =
            Evidence { model: 0.0, goes_on: 1.0, misses_m: [0.0, 0.1], until: 2, ..known };
        let [_, until] = widened(Some(goes_on));
        assert!(until[1] > 0.1 && until[2] == until[1], "{until:?}");
    }
}
