//! What a prediction is.

use std::time::Instant;

use crate::confidence::{Calibration, LEVELS, Situation};
use crate::message::Stamp;
use crate::particles::Particles;

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
    pub situations: Vec<Situation>,
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

    /// Takes a model's word `[horizon][n]` for how far off each position may be.
    pub(crate) fn set_sigmas(&mut self, told: Vec<Vec<f32>>, calibration: Option<&Calibration>) {
        self.sigmas = match calibration {
            Some(calibration) => {
                std::array::from_fn(|level| calibration.scale(&told, &self.situations, level))
            }
            None => [told, Vec::new()],
        };
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
            history_stamp: self.history_stamp,
            history: self.history.clone(),
            is_cut: self.is_cut,
            timings: Timings::default(),
        }
    }
}

/// Milliseconds of the stages of one prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Timings {
    /// Clouds, sampling and the robot's particles.
    pub particles_ms: f64,
    /// Graph and model, all steps.
    pub predict_ms: f64,
}

/// Wall time since `start`.
pub(crate) fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
