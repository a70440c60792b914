//! Errors of a model on windows of recordings, beside those of trivial baselines on the same points.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::dataset::{Dataset, Window};
use crate::Result;
use crate::eval::baselines::{constant_velocity, nothing_moves};
use crate::eval::metrics::{Scores, TrueMotion};
use crate::model::{Mode, Model, Rollout};

/// Seed of particles: the same for all models.
const SEED: u64 = 0;

/// Errors (mm) of a model and of baselines.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Windows that were predicted.
    pub n_windows: usize,
    /// The model.
    pub model: Scores,
    /// Nothing moves.
    pub nothing: Scores,
    /// All points go on as they truly went in the step before (privileged).
    pub velocity: Scores,
}

impl Evaluation {
    /// Of `model` on `n_windows` windows spread over `data`, of up to `longest` steps: windows near a
    /// recording's end are predicted as far as they reach. None if `stops` says so.
    ///
    /// # Errors
    /// What roll-out and model return.
    pub fn new(
        model: &Model,
        data: &Dataset,
        n_windows: usize,
        longest: usize,
        stops: impl Fn() -> bool,
    ) -> Result<Option<Self>> {
        let mut all = Self::default();
        let mut rollout = Rollout::new(model.config.rollout(), Mode::Inference);
        let mut window = Window::default();
        let n = n_windows.min(data.n_windows());
        for index in (0..n).map(|i| i * data.n_windows() / n) {
            if stops() {
                return Ok(None);
            }
            let horizon = (1..=longest).rev().find(|&horizon| {
                let mut rng = ChaCha8Rng::seed_from_u64(SEED);
                rng.set_stream(index as u64);
                data.get(index, &mut rng, horizon, &mut window)
            });
            let Some(horizon) = horizon else { continue };
            let start = &window.scene.start.positions;
            let positions =
                std::iter::once(start).chain(&window.targets).take(horizon + 1).cloned();
            let truth = TrueMotion::new(window.back.clone(), positions, &window.kinds);
            rollout.run(&model.weights, &window.scene, horizon)?;
            let predicted: Vec<_> =
                (0..horizon).map(|t| rollout.displacements(t).to_vec()).collect();
            all.model.add("", &predicted, &truth)?;
            all.nothing.add("", &nothing_moves(start.len(), horizon), &truth)?;
            all.velocity.add("", &constant_velocity(&truth.back, start, horizon), &truth)?;
            all.n_windows += 1;
        }
        Ok(Some(all))
    }
}
