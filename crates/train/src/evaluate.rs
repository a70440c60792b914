//! Errors of a model on windows of recordings, beside those of trivial baselines on the same points.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::dataset::{Dataset, Window};
use crate::labels::SURE;
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::{Mode, Model, Rollout};
use forecloud_bag::recording::BodyKind;
use forecloud_eval::baselines::{constant_velocity, nothing_moves};
use forecloud_eval::metrics::{Scores, TrueMotion};

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
    /// All points go on as they truly went in the step before (privileged), or as that is estimated
    /// where hindsight teaches.
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
            // What hindsight is not sure of to the end is no measure.
            let sure: Vec<usize> = (0..window.kinds.len())
                .filter(|&i| window.weights[horizon - 1][i] >= SURE)
                .collect();
            let of_sure = |points: &[Vec3]| sure.iter().map(|&i| points[i]).collect::<Vec<Vec3>>();
            let start = of_sure(&window.scene.start.positions);
            let targets = window.targets[..horizon].iter().map(|positions| of_sure(positions));
            let positions = std::iter::once(start.clone()).chain(targets);
            let kinds: Vec<BodyKind> = sure.iter().map(|&i| window.kinds[i]).collect();
            let truth = TrueMotion::new(of_sure(&window.back), positions, &kinds);
            rollout.run(&model.weights, &window.scene, horizon)?;
            let predicted: Vec<_> =
                (0..horizon).map(|t| of_sure(rollout.displacements(t))).collect();
            all.model.add("", &predicted, &truth)?;
            all.nothing.add("", &nothing_moves(start.len(), horizon), &truth)?;
            all.velocity.add("", &constant_velocity(&truth.back, &start, horizon), &truth)?;
            all.n_windows += 1;
        }
        Ok(Some(all))
    }
}
