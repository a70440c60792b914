//! Errors on windows of the test recordings, as the table has them.

use serde::{Deserialize, Serialize};

use super::watch::Watch;
use forecloud::Result;
use forecloud::engine::model::Model;
use forecloud_eval::metrics::{Class, Mean, Scores};
use forecloud_train::dataset::Dataset;
use forecloud_train::evaluate::Evaluation;

/// Steps after which errors are told.
pub const STEPS: [usize; 3] = [1, 5, 10];

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
    /// False motion of static points, mean of all steps (mm per step).
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

/// Errors of `model` on `n_windows` windows spread over `data`; none if stopped.
pub(super) fn test(
    model: &Model,
    data: &Dataset,
    n_windows: usize,
    watch: &dyn Watch,
) -> Result<Option<TestErrors>> {
    let longest = STEPS[STEPS.len() - 1];
    let all = Evaluation::new(model, data, n_windows, longest, || watch.stops())?;
    let Some(Evaluation { n_windows, model, nothing, velocity }) = all else { return Ok(None) };
    let means = |scores: &Scores, class| STEPS.map(|step| scores.mean(class, step - 1, None).get());
    let mut false_motion = Mean::default();
    (0..longest).for_each(|step| false_motion.merge(model.mean(Class::Static, step, None)));
    Ok(Some(TestErrors {
        n_windows,
        moving_mm: means(&model, Class::Moving),
        nothing_mm: means(&nothing, Class::Moving),
        velocity_mm: means(&velocity, Class::Moving),
        robot_mm: means(&model, Class::Robot),
        static_mm: false_motion.get(),
    }))
}
