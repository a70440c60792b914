//! What a model's word for its own errors is multiplied by, so that a stated share of errors lies within it.

use serde::{Deserialize, Serialize};

use crate::engine::motion_class::MotionClass;
use crate::{Error, Result};

/// Shares of all errors that lie within the two radii that are told.
pub const LEVELS: [f64; 2] = [0.5, 0.9];

/// Factors of a model's sigma: `[situation][level][step]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Recordings that they were found on.
    pub n_recordings: usize,
    /// In the order of [`MotionClass::ALL`] and [`LEVELS`]; the last step's go for all later ones.
    pub factors: Vec<[Vec<f32>; LEVELS.len()]>,
}

impl Calibration {
    /// Most steps that it may have factors for.
    const MAX_STEPS: usize = 100;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names what is wrong.
    pub fn validate(&self) -> Result<()> {
        let lists = || self.factors.iter().flatten();
        let n_steps = lists().map(Vec::len).next().unwrap_or(0);
        let is_good = |factor: &f32| factor.is_finite() && *factor > 0.0;
        let n_rows = MotionClass::ALL.len();
        let problem = if self.factors.len() != n_rows {
            format!("factors for {} situations, not {n_rows}", self.factors.len())
        } else if !(1..=Self::MAX_STEPS).contains(&n_steps) {
            format!("factors for {n_steps} steps, not for 1..={}", Self::MAX_STEPS)
        } else if lists().any(|list| list.len() != n_steps) {
            "factors for other numbers of steps in each situation".into()
        } else if !lists().flatten().all(is_good) {
            "a factor is not a positive number".into()
        } else {
            return Ok(());
        };
        Err(Error::Config { key: "calibration".into(), problem })
    }

    /// The factor of `step` (0-based).
    pub fn factor(&self, situation: MotionClass, level: usize, step: usize) -> f32 {
        let of_steps = &self.factors[situation as usize][level];
        of_steps.get(step).or(of_steps.last()).copied().unwrap_or(1.0)
    }
}
