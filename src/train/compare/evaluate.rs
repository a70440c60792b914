//! Errors on windows of the test recordings, beside the trivial baselines on the same points.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::Watch;
use crate::Result;
use crate::eval::baselines::{constant_velocity, nothing_moves};
use crate::eval::metrics::{Class, Mean, Scores, TrueMotion};
use crate::model::{Mode, Model, Rollout};
use crate::train::dataset::{Dataset, Window};

/// Steps after which errors are told.
pub const STEPS: [usize; 3] = [1, 5, 10];

/// Seed of the test's noise and particles: the same for all models.
const SEED: u64 = 0;

/// Mean errors after each of [`STEPS`] steps, over all points of all windows (mm); none where there
/// are no such points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestErrors {
    /// Windows that were predicted.
    pub n_windows: usize,
    /// Object points that move in the step.
    pub moving_mm: [Option<f64>; 3],
    /// The same points if nothing moves.
    pub nothing_mm: [Option<f64>; 3],
    /// The same points if they go on as they truly went in the step before (privileged).
    pub velocity_mm: [Option<f64>; 3],
    /// Points of the robot.
    pub robot_mm: [Option<f64>; 3],
    /// False motion of static points, mean of all steps (mm a step).
    pub static_mm: Option<f64>,
}

impl TestErrors {
    /// Error of moving points over that of the better baseline, after each of [`STEPS`].
    pub fn ratios(&self) -> [Option<f64>; 3] {
        std::array::from_fn(|i| {
            let better = self.nothing_mm[i]?.min(self.velocity_mm[i]?);
            Some(self.moving_mm[i]? / better)
        })
    }
}

/// Errors of `model` on `n_windows` windows spread over `data`; none if stopped. Windows near a
/// recording's end are predicted as far as they reach.
pub(super) fn test(
    model: &Model,
    data: &Dataset,
    n_windows: usize,
    watch: &dyn Watch,
) -> Result<Option<TestErrors>> {
    let mut rollout = Rollout::new(model.config.rollout(), Mode::Inference);
    let (mut own, mut nothing, mut velocity) =
        (Scores::default(), Scores::default(), Scores::default());
    let (mut window, mut n_predicted) = (Window::default(), 0);
    let n = n_windows.min(data.n_windows());
    for index in (0..n).map(|i| i * data.n_windows() / n) {
        if watch.stops() {
            return Ok(None);
        }
        let longest = (1..=STEPS[STEPS.len() - 1]).rev().find(|&horizon| {
            let mut rng = ChaCha8Rng::seed_from_u64(SEED);
            rng.set_stream(index as u64);
            data.get(index, &mut rng, horizon, &mut window)
        });
        let Some(horizon) = longest else { continue };
        let start = &window.scene.start.positions;
        let positions = std::iter::once(start).chain(&window.targets).take(horizon + 1).cloned();
        let truth = TrueMotion::new(window.back.clone(), positions, &window.kinds);
        rollout.run(&model.weights, &window.scene, horizon)?;
        let predicted: Vec<_> = (0..horizon).map(|t| rollout.displacements(t).to_vec()).collect();
        own.add("", &predicted, &truth)?;
        nothing.add("", &nothing_moves(start.len(), horizon), &truth)?;
        velocity.add("", &constant_velocity(&truth.back, start, horizon), &truth)?;
        n_predicted += 1;
    }
    let means = |scores: &Scores, class| STEPS.map(|step| scores.mean(class, step - 1, None).get());
    let mut false_motion = Mean::default();
    let steps = 0..STEPS[STEPS.len() - 1];
    steps.for_each(|step| false_motion.merge(own.mean(Class::Static, step, None)));
    Ok(Some(TestErrors {
        n_windows: n_predicted,
        moving_mm: means(&own, Class::Moving),
        nothing_mm: means(&nothing, Class::Moving),
        velocity_mm: means(&velocity, Class::Moving),
        robot_mm: means(&own, Class::Robot),
        static_mm: false_motion.get(),
    }))
}
