//! Settings of a prediction; `Default` is the only source of values.

use serde::{Deserialize, Serialize};

use crate::cloud::Workspace;
use crate::{Error, Result};

/// How the predictor runs a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PredictorConfig {
    /// Steps to predict.
    pub horizon: usize,
    /// Scene particles; 0 takes the number that the model was trained with.
    pub n_particles: usize,
    /// Seed of the particles' draw.
    pub seed: u64,
    /// Box of the particles (world frame, m); none takes the model's.
    pub workspace: Option<Workspace>,
    /// Seconds by which the history frame may miss one step back.
    pub history_tolerance_secs: f64,
}

impl Default for PredictorConfig {
    fn default() -> Self {
        Self { horizon: 5, n_particles: 0, seed: 0, workspace: None, history_tolerance_secs: 0.025 }
    }
}

impl PredictorConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem| Err(Error::Config { key: key.into(), problem });
        if !(1..=100).contains(&self.horizon) {
            return wrong("horizon", format!("{} steps are not in 1..=100", self.horizon));
        }
        if self.n_particles > 1 << 20 {
            return wrong("n_particles", format!("{} are more than {}", self.n_particles, 1 << 20));
        }
        if !(0.0..=10.0).contains(&self.history_tolerance_secs) {
            let problem = format!("{} s is not in 0..=10", self.history_tolerance_secs);
            return wrong("history_tolerance_secs", problem);
        }
        self.workspace.map_or(Ok(()), |workspace| workspace.validate())
    }
}
