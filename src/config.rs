//! Settings of a prediction; `Default` is the only source of values.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::cloud::Workspace;
use crate::model::ModelConfig;
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
    /// What `horizon` may be.
    pub const HORIZON: RangeInclusive<usize> = 1..=100;
    /// What `n_particles` may be; besides, a model needs more than its neighbours.
    pub const N_PARTICLES: RangeInclusive<usize> = 0..=1 << 20;
    /// What `history_tolerance_secs` may be.
    pub const HISTORY_TOLERANCE_SECS: RangeInclusive<f64> = 0.0..=10.0;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check("horizon", self.horizon, Self::HORIZON, " steps")?;
        check("n_particles", self.n_particles, Self::N_PARTICLES, "")?;
        let tolerance_secs = self.history_tolerance_secs;
        check("history_tolerance_secs", tolerance_secs, Self::HISTORY_TOLERANCE_SECS, " s")?;
        self.workspace.map_or(Ok(()), |workspace| workspace.validate())
    }

    /// Checks all values, also for what `model` needs.
    ///
    /// # Errors
    /// As [`PredictorConfig::validate`].
    pub fn validate_for(&self, model: &ModelConfig) -> Result<()> {
        self.validate()?;
        if (1..=model.k).contains(&self.n_particles) {
            let (n, k) = (self.n_particles, model.k);
            let problem = format!("{n} are too few for a graph of {k} neighbours: more, or 0");
            return Err(Error::Config { key: "n_particles".into(), problem });
        }
        Ok(())
    }

    /// Box of the particles (world frame, m).
    pub fn workspace_of(&self, model: &ModelConfig) -> Workspace {
        self.workspace.unwrap_or(model.workspace)
    }
}

fn check<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    allowed: RangeInclusive<T>,
    unit: &str,
) -> Result<()> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let problem = format!("{value}{unit} is not in {}..={}", allowed.start(), allowed.end());
    Err(Error::Config { key: key.into(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named_with_what_is_allowed() {
        let model = ModelConfig::default();
        let told = |change: fn(&mut PredictorConfig)| {
            let mut config = PredictorConfig::default();
            change(&mut config);
            config.validate_for(&model).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(told(|_| ()), "");
        assert_eq!(told(|c| c.horizon = 0), "horizon: 0 steps is not in 1..=100");
        assert_eq!(told(|c| c.n_particles = 1 << 21), "n_particles: 2097152 is not in 0..=1048576");
        assert!(told(|c| c.n_particles = 3).contains("3 neighbours"));
        assert_eq!(told(|c| c.n_particles = 4), "");
        let tolerance = told(|c| c.history_tolerance_secs = f64::NAN);
        assert_eq!(tolerance, "history_tolerance_secs: NaN s is not in 0..=10");
        let flat = told(|c| c.workspace = Some(Workspace { min: [0.0; 3], max: [1.0, 0.0, 1.0] }));
        assert!(flat.starts_with("workspace: "), "{flat}");
    }
}
