//! Settings of a prediction; `Default` is the only source of values.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::backend::Device;
use crate::engine::model::ModelConfig;
use crate::predict::deadline::Deadline;
use crate::robot::kinematics::RobotMode;
use crate::vision::cloud::{Place, Workspace};
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
    /// What the model runs on.
    pub device: Device,
    /// Whether predictions need the robot, where the model takes one.
    pub robot: RobotMode,
    /// Box of the particles (m); none takes the model's. In the world frame, or where frames tell of a frame of
    /// its own ([`crate::vision::frames::Frame::world_from_workspace`]), in that.
    pub workspace: Option<Workspace>,
    /// Point of the world frame that the model takes for the origin (m): for scenes elsewhere than where
    /// it was trained.
    pub origin: [f32; 3],
    /// Whether what rests is held at rest until something comes near that moves, or the robot: see
    /// `src/predict/known_motion/hold_static.rs`.
    pub hold_at_rest: bool,
    /// Whether what lies on the robot is carried by its links, as the plan leads them: see
    /// `src/predict/known_motion/robot_attached.rs`.
    pub carry_robot: bool,
    /// Seconds by which the history frame may miss one step back.
    pub history_tolerance_secs: f64,
    /// Seconds from when a frame is whole (its images, joints and transforms are there) within which its
    /// prediction is to end; 0 for no deadline.
    pub deadline_secs: f64,
    /// Seconds from a command to the robot being there; none takes the model file's. Counts from the start of
    /// a predictor.
    pub plan_lag_secs: Option<f64>,
}

/// Scene particles that a late prediction keeps; it has all of them where it never had more. Plans are judged
/// by as many (`PLAN_PARTICLES` of `src/planner/candidates.rs`): fewer show too little of a scene.
const MIN_PARTICLES: usize = 512;

impl Default for PredictorConfig {
    fn default() -> Self {
        Self {
            horizon: 5,
            n_particles: 0,
            seed: 0,
            device: Device::default(),
            robot: RobotMode::default(),
            workspace: None,
            origin: [0.0; 3],
            hold_at_rest: true,
            carry_robot: true,
            history_tolerance_secs: 0.025,
            deadline_secs: 0.0,
            plan_lag_secs: None,
        }
    }
}

impl PredictorConfig {
    /// What `horizon` may be.
    pub const HORIZON: RangeInclusive<usize> = 1..=100;
    /// What `n_particles` may be; besides, a model needs more than its neighbours.
    pub const N_PARTICLES: RangeInclusive<usize> = 0..=1 << 20;
    /// What `history_tolerance_secs` may be.
    pub const HISTORY_TOLERANCE_SECS: RangeInclusive<f64> = 0.0..=10.0;

    /// What `deadline_secs` may be.
    pub const DEADLINE_SECS: RangeInclusive<f64> = 0.0..=10.0;

    /// What `plan_lag_secs` may be.
    pub const PLAN_LAG_SECS: RangeInclusive<f64> = 0.0..=2.0;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check("horizon", self.horizon, Self::HORIZON, " steps")?;
        check("n_particles", self.n_particles, Self::N_PARTICLES, "")?;
        let tolerance_secs = self.history_tolerance_secs;
        check("history_tolerance_secs", tolerance_secs, Self::HISTORY_TOLERANCE_SECS, " s")?;
        check("deadline_secs", self.deadline_secs, Self::DEADLINE_SECS, " s")?;
        check("plan_lag_secs", self.plan_lag_secs.unwrap_or(0.0), Self::PLAN_LAG_SECS, " s")?;
        if !self.origin.iter().all(|x| x.is_finite()) {
            let problem = format!("{:?} is not finite", self.origin);
            return Err(Error::Config { key: "origin".into(), problem });
        }
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

    /// When predictions of `model` must end, and what may be given up for that: steps down to those that
    /// one pass of the model is kept for (a shorter roll-out takes as long), particles down to
    /// `MIN_PARTICLES`.
    pub fn deadline(&self, model: &ModelConfig) -> Deadline {
        let most = self.n_particles_of(model);
        let least = MIN_PARTICLES.max(model.k + 1).min(most);
        Deadline {
            time: Duration::from_secs_f64(self.deadline_secs.max(0.0)),
            steps: [model.whole_passes(1).min(self.horizon), self.horizon],
            particles: [least, most],
        }
    }

    /// Scene particles of a prediction that is not late.
    pub fn n_particles_of(&self, model: &ModelConfig) -> usize {
        if self.n_particles == 0 { model.n_particles } else { self.n_particles }
    }

    /// The same at `place`, where the cameras of a scene see most, unless a workspace is set.
    pub fn placed(self, place: Place) -> Self {
        if self.workspace.is_some() {
            return self;
        }
        Self { workspace: Some(place.workspace), origin: place.origin, ..self }
    }

    /// Where the box is, as the settings put it.
    pub fn place_of(&self, model: &ModelConfig) -> Place {
        Place { workspace: self.workspace_of(model), origin: self.origin }
    }

    /// Box of the particles (m), as [`PredictorConfig::workspace`].
    pub fn workspace_of(&self, model: &ModelConfig) -> Workspace {
        self.workspace.unwrap_or(model.workspace)
    }
}

/// Refuses a `value` out of the range `allowed`, NaN included.
pub fn check<T: PartialOrd + std::fmt::Display>(
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
