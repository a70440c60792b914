//! What is remembered of a frame: its particles, and the robot's; and where the robot will be.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::PredictorConfig;
use crate::frames::Frame;
use crate::kinematics::{JointOrder, Robot, Spread};
use crate::message::{JointTrajectory, Stamp};
use crate::model::{ModelConfig, Scene};
use crate::particles::{ParticleSampler, Particles, Sampling};
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

/// What is known at one frame of where the robot will go.
#[derive(Debug, Default, Clone)]
pub struct Course {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Measured joints (rad or m), in the robot's order.
    pub joints: Vec<f64>,
    /// Their velocities over the last step (rad/s or m/s).
    pub joint_velocities: Vec<f64>,
    /// The plans that the frame carries.
    pub plan: Vec<Arc<JointTrajectory>>,
}

impl Course {
    /// Kinematic particles at each step ahead, where `plan` leads `robot`: `rows` `[n_steps]`;
    /// `joints_ahead` is scratch.
    ///
    /// # Errors
    /// As [`plan::forecast`] and [`Robot::place`].
    pub fn place_ahead(
        &self,
        plan: &[Arc<JointTrajectory>],
        robot: &mut Robot,
        horizon: &Horizon,
        joints_ahead: &mut Vec<f64>,
        rows: &mut [Vec<[f32; 3]>],
    ) -> Result<()> {
        let (names, velocities) = (robot.joint_names(), Some(&self.joint_velocities[..]));
        plan::forecast(&self.joints, names, velocities, plan, self.stamp, horizon, joints_ahead)?;
        let ahead = joints_ahead.chunks_exact(self.joints.len().max(1));
        ahead.zip(rows).try_for_each(|(joints, row)| robot.place(joints, row))
    }
}

/// Makes observations of frames.
pub struct Observer {
    model: ModelConfig,
    config: PredictorConfig,
    robot: Option<Robot>,
    /// The robot as it came, for snapshots to share.
    shared_robot: Option<Arc<Robot>>,
    order: Option<(Arc<[String]>, JointOrder)>,
    course: Course,
    joints_ahead: Vec<f64>,
}

impl Observer {
    /// An observer for a model and its settings.
    pub fn new(model: ModelConfig, config: PredictorConfig) -> Self {
        Self {
            model,
            config,
            robot: None,
            shared_robot: None,
            order: None,
            course: Course::default(),
            joints_ahead: Vec::new(),
        }
    }

    /// Takes new settings, from the next frame on.
    pub fn set_config(&mut self, config: PredictorConfig) {
        self.config = config;
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        let n = self.model.n_robot();
        let robot = Robot::with_spread(urdf, n, world_frame, Spread::Tips)?;
        self.order = None;
        self.shared_robot = Some(Arc::new(robot.clone()));
        Ok(&self.robot.insert(robot).warnings)
    }

    /// The robot, once its description has come.
    pub fn robot(&self) -> Option<&Arc<Robot>> {
        self.shared_robot.as_ref()
    }

    /// Checks that the robot is known where the model needs it.
    ///
    /// # Errors
    /// [`Error::NoRobot`].
    pub fn check_robot(&self) -> Result<()> {
        let missing = self.model.n_kinematic > 0 && self.robot.is_none();
        if missing { Err(Error::NoRobot) } else { Ok(()) }
    }

    /// Where the robot will go, as known at the last frame that was forecast.
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// Frame → cloud in the world frame → `n` particles, which `sampler` draws, and the robot's, into
    /// `out`.
    ///
    /// # Errors
    /// [`Error::NoRobot`] before [`Observer::set_robot`], [`Error::TooFewPoints`], what makes
    /// images or joints unusable, and what the sampler returns.
    pub fn observe(
        &mut self,
        frame: &Frame,
        n: usize,
        sampler: &mut dyn ParticleSampler,
        out: &mut Observation,
    ) -> Result<()> {
        out.stamp = frame.stamp;
        out.cameras.clear();
        out.cameras.extend(frame.camera_numbers());
        let sampling = Sampling {
            seed: self.config.seed,
            stamp_ns: frame.stamp.nanos(),
            workspace: self.config.workspace_of(&self.model),
            support_stride: self.model.support_stride,
        };
        // One draw: the particles are part of the denser sample.
        let samples = [(&mut out.particles, n), (&mut out.cloud, self.model.n_motion)];
        sampler.sample(&frame.cameras, &sampling, samples)?;
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
    /// leads, into `scene`: `[horizon + 2]` rows, and the links.
    ///
    /// # Errors
    /// As [`plan::forecast`] and [`Robot::place`].
    pub fn forecast(
        &mut self,
        history: &Observation,
        now: &Observation,
        frame: &Frame,
        scene: &mut Scene,
    ) -> Result<()> {
        let rows = &mut scene.kinematic;
        scene.start.kinematic_links.clear();
        scene.start.kinematic_stride = self.model.kinematic_detail;
        rows.resize_with(self.config.horizon + 2, Vec::new);
        rows[0].clone_from(&history.kinematic);
        rows[1].clone_from(&now.kinematic);
        let Some(robot) = self.robot.as_mut().filter(|_| self.model.n_kinematic > 0) else {
            return Ok(());
        };
        scene.start.kinematic_links.extend(robot.links());
        let course = &mut self.course;
        course.stamp = now.stamp;
        course.joints.clone_from(&now.joints);
        course.plan.clone_from(&frame.plan);
        let elapsed_secs = now.stamp.secs_since(history.stamp);
        let velocities = &mut course.joint_velocities;
        plan::velocities(&now.joints, &history.joints, elapsed_secs, velocities)?;
        let horizon = self.model.horizon(self.config.horizon);
        self.course.place_ahead(
            &frame.plan,
            robot,
            &horizon,
            &mut self.joints_ahead,
            &mut rows[2..],
        )
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

    /// Forgets all; returns how many observations there were.
    pub fn clear(&mut self) -> usize {
        self.observations.drain(..).count()
    }

    /// Finds observations within another tolerance from now on.
    pub fn set_tolerance(&mut self, tolerance_secs: f64) {
        self.tolerance_secs = tolerance_secs;
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

    /// Whether there would be an observation one step before `now` if cameras did not matter.
    pub fn is_one_step_back(&self, now: Stamp) -> bool {
        let wanted = now.plus_secs(-self.step_secs);
        let tolerance = Stamp::from_secs(self.tolerance_secs).nanos().unsigned_abs();
        self.observations.iter().any(|o| o.stamp.abs_diff(wanted) <= tolerance)
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
