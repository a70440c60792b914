//! What is remembered of a frame: its particles, and the robot's; and where the robot will be.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cloud::{Cloud, Workspace};
use crate::config::PredictorConfig;
use crate::frames::Frame;
use crate::kinematics::{JointOrder, Robot};
use crate::message::Stamp;
use crate::model::ModelConfig;
use crate::particles::Particles;
use crate::plan::{self, Horizon};
use crate::{Error, Result};

/// Observations kept to find the one a step back: at 60 frames/s, a step of a quarter second.
const MAX_OBSERVATIONS: usize = 16;

/// All that predictions need of a frame, in the world frame (m).
#[derive(Debug, Default, Clone)]
pub struct Observation {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Numbers of the cameras that saw it, ascending.
    pub cameras: Vec<usize>,
    /// Scene particles.
    pub particles: Particles,
    /// A denser sample, to estimate motion from.
    pub cloud: Particles,
    /// Kinematic particles at the measured joints.
    pub kinematic: Vec<[f32; 3]>,
    /// Measured joints in the robot's order.
    joints: Vec<f64>,
}

/// Makes observations of frames.
pub struct Observer {
    model: ModelConfig,
    config: PredictorConfig,
    workspace: Workspace,
    cloud: Cloud,
    robot: Option<Robot>,
    order: Option<(Arc<[String]>, JointOrder)>,
    joint_velocities: Vec<f64>,
    joints_ahead: Vec<f64>,
}

impl Observer {
    /// An observer for a model and its settings.
    pub fn new(model: ModelConfig, config: PredictorConfig) -> Self {
        Self {
            workspace: config.workspace.unwrap_or(model.workspace),
            model,
            config,
            cloud: Cloud::default(),
            robot: None,
            order: None,
            joint_velocities: Vec::new(),
            joints_ahead: Vec::new(),
        }
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        let robot = Robot::from_urdf(urdf, self.model.n_kinematic, world_frame)?;
        self.order = None;
        Ok(&self.robot.insert(robot).warnings)
    }

    /// Frame → cloud in the world frame → sampled particles, and the robot's, into `out`.
    ///
    /// # Errors
    /// [`Error::NoRobot`] before [`Observer::set_robot`], [`Error::TooFewPoints`], and what makes
    /// images or joints unusable.
    pub fn observe(&mut self, frame: &Frame, out: &mut Observation) -> Result<()> {
        out.stamp = frame.stamp;
        out.cameras.clear();
        out.cameras.extend(frame.camera_numbers());
        self.cloud.from_cameras(&frame.cameras, &self.workspace, None)?;
        let n = match self.config.n_particles {
            0 => self.model.n_particles,
            n => n,
        };
        // One draw: the particles are part of the denser sample.
        for (sample, n) in [(&mut out.particles, n), (&mut out.cloud, self.model.n_motion)] {
            let (seed, stamp_ns) = (self.config.seed, frame.stamp.nanos());
            sample.sample(&self.cloud, n, seed, stamp_ns, &self.workspace);
        }
        let (needed, got) = (self.model.k + 1, out.particles.len());
        if got < needed {
            return Err(Error::TooFewPoints { needed, got });
        }
        if self.model.n_kinematic == 0 {
            return Ok(());
        }
        let robot = self.robot.as_mut().ok_or(Error::NoRobot)?;
        let names = &frame.joints.names;
        if self.order.as_ref().is_none_or(|(known, _)| known != names) {
            self.order = Some((names.clone(), robot.order(names)?));
        }
        if let Some((_, order)) = &self.order {
            order.apply(&frame.joints.positions, &mut out.joints)?;
        }
        robot.place(&out.joints, &mut out.kinematic)
    }

    /// Kinematic particles one step back, now, and at each step ahead, where the plan of `frame`
    /// leads: `rows` `[horizon + 2]`.
    ///
    /// # Errors
    /// As [`plan::forecast`] and [`Robot::place`].
    pub fn forecast(
        &mut self,
        history: &Observation,
        now: &Observation,
        frame: &Frame,
        rows: &mut Vec<Vec<[f32; 3]>>,
    ) -> Result<()> {
        rows.resize_with(self.config.horizon + 2, Vec::new);
        rows[0].clone_from(&history.kinematic);
        rows[1].clone_from(&now.kinematic);
        let Some(robot) = self.robot.as_mut().filter(|_| self.model.n_kinematic > 0) else {
            return Ok(());
        };
        let elapsed_secs = now.stamp.secs_since(history.stamp);
        plan::velocities(&now.joints, &history.joints, elapsed_secs, &mut self.joint_velocities)?;
        let horizon = Horizon {
            step_secs: self.model.step_secs,
            n_steps: self.config.horizon,
            lag_secs: self.model.plan_lag_secs,
        };
        plan::forecast(
            &now.joints,
            robot.joint_names(),
            Some(&self.joint_velocities),
            &frame.plan,
            now.stamp,
            &horizon,
            &mut self.joints_ahead,
        )?;
        let ahead = self.joints_ahead.chunks_exact(now.joints.len().max(1));
        ahead.zip(&mut rows[2..]).try_for_each(|(joints, row)| robot.place(joints, row))
    }
}

/// The last observations, ascending in time.
pub struct Memory {
    observations: VecDeque<Observation>,
    /// One that is no longer needed, for its memory.
    spare: Observation,
    step_secs: f64,
    tolerance_secs: f64,
}

impl Memory {
    /// A memory in which the observation `step_secs` back is found within `tolerance_secs`.
    pub fn new(step_secs: f64, tolerance_secs: f64) -> Self {
        let (observations, spare) = (VecDeque::new(), Observation::default());
        Self { observations, spare, step_secs, tolerance_secs }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.observations.clear();
    }

    /// Forgets all if `now` is not behind the newest observation: time was set back.
    pub fn follow(&mut self, now: Stamp) {
        if self.observations.back().is_some_and(|last| last.stamp >= now) {
            self.clear();
        }
    }

    /// Whether there is an observation of exactly this stamp.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.observations.iter().any(|known| known.stamp == stamp)
    }

    /// The observation by the same `cameras` that lies nearest to one step before `now`, within the
    /// tolerance.
    ///
    /// Where a camera falls out or comes back, surfaces that only it sees vanish or appear, and
    /// those that it shares get sparser or denser: differences that would be taken for motion. So
    /// there is no history across such a change: the next prediction comes one step later.
    pub fn one_step_back(
        &self,
        now: Stamp,
        cameras: impl Iterator<Item = usize> + Clone,
    ) -> Option<&Observation> {
        let wanted = now.plus_secs(-self.step_secs);
        let alike = |o: &&Observation| o.cameras.iter().copied().eq(cameras.clone());
        let alike = self.observations.iter().filter(alike);
        let nearest = alike.min_by_key(|o| o.stamp.abs_diff(wanted))?;
        let tolerance = Stamp::from_secs(self.tolerance_secs).nanos().unsigned_abs();
        (nearest.stamp.abs_diff(wanted) <= tolerance).then_some(nearest)
    }

    /// Memory for a new observation, best handed back by [`Memory::remember`].
    pub fn take_spare(&mut self) -> Observation {
        std::mem::take(&mut self.spare)
    }

    /// Keeps an observation; of too many, the oldest goes.
    pub fn remember(&mut self, observation: Observation) {
        let place = self.observations.partition_point(|known| known.stamp <= observation.stamp);
        self.observations.insert(place, observation);
        if self.observations.len() > MAX_OBSERVATIONS {
            self.spare = self.observations.pop_front().unwrap_or_default();
        }
    }
}
