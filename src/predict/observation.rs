//! What is remembered of a frame: its particles, and the robot's; and where the robot will be.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::geometry::Vec3;
use crate::engine::model::ModelConfig;
use crate::engine::rollout_input::RolloutInput;
use crate::message::{JointTrajectory, Stamp};
use crate::predict::config::PredictorConfig;
use crate::predict::last_miss::Outlook;
use crate::robot::kinematics::{
    JointOrder, MeshSearch, Mount, Robot, RobotMode, RobotOptions, Spread,
};
use crate::robot::plan::{self, Horizon, JointsNow, Present};
use crate::vision::cloud::Workspace;
use crate::vision::frames::{Frame, RobotState};
use crate::vision::particles::{ParticleSampler, Particles, Sampling};
use crate::{Error, Result};

/// Observations kept to find the one a step back: at 60 frames/s, a step of a quarter second.
const MAX_OBSERVATIONS: usize = 16;
/// Half a period of frames whose stamps are not quite regular.
const HALF_A_PERIOD: f64 = 0.55;
/// A robot all of whose particles stay farther than this outside of the workspace (m) is left out:
/// it touches nothing that is predicted, yet the model would let it matter.
const FAR_M: f32 = 0.2;

/// All that predictions need of a frame, in the world frame (m).
#[derive(Debug, Default, Clone)]
pub struct Observation {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Numbers of the cameras that saw it, ascending.
    pub cameras: Vec<usize>,
    /// RolloutInput particles.
    pub particles: Particles,
    /// A denser sample, to estimate motion from.
    pub cloud: Particles,
    /// Kinematic particles at the measured joints; none without a robot.
    pub kinematic: Vec<[f32; 3]>,
    /// Number of the robot's link that each particle lies on, as [`RolloutInput::on_links`]; none without a
    /// robot.
    pub on_links: Vec<u32>,
    /// What was predicted from it.
    pub outlook: Outlook,
    /// Measured joints in the robot's order.
    joints: Vec<f64>,
    /// What else tells where the robot is.
    mount: Mount,
}

/// What is known at one frame of where the robot will go.
#[derive(Debug, Default, Clone)]
pub struct RobotForecast {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Measured joints (rad or m), in the robot's order.
    pub joints: Vec<f64>,
    /// Their velocities over the last step (rad/s or m/s).
    pub joint_velocities: Vec<f64>,
    /// What else tells where the robot is, one step back and now.
    mounts: [Mount; 2],
    /// A step's share of the time between the two.
    steps_of_history: f64,
    /// Kinematic particles one step back and now (world frame, m); none without a robot.
    placed: [Vec<Vec3>; 2],
    /// The plans that the frame carries.
    pub plan: Vec<Arc<JointTrajectory>>,
}

impl RobotForecast {
    /// Whether the robot was there.
    pub fn has_robot(&self) -> bool {
        !self.placed[1].is_empty()
    }

    /// Puts the root of `robot`, and what else tf places, where they are now.
    ///
    /// # Errors
    /// As [`Robot::set_mount`].
    pub fn mount(&self, robot: &mut Robot) -> Result<()> {
        robot.set_mount(&self.mounts[1])
    }

    /// What candidate plans of `robot` are held against.
    pub fn present<'a>(&'a self, robot: &'a Robot) -> Present<'a> {
        Present {
            stamp: self.stamp,
            joint_names: robot.joint_names(),
            joints: &self.joints,
            limits: robot.limits(),
        }
    }

    /// Kinematic particles one step back, now, and at each step ahead, where `plan` leads `robot`,
    /// into `scene`: `[n_steps + 2]` rows, and the links; none where the robot stays far outside of
    /// `workspace`. `joints_ahead` is scratch.
    ///
    /// # Errors
    /// As [`plan::forecast`], [`Robot::set_mount`] and [`Robot::place`].
    pub fn place_robot(
        &self,
        plan: &[Arc<JointTrajectory>],
        robot: &mut Robot,
        horizon: &Horizon,
        workspace: &Workspace,
        joints_ahead: &mut Vec<f64>,
        scene: &mut RolloutInput,
    ) -> Result<()> {
        let (names, limits) = (robot.joint_names(), robot.limits());
        let (positions, velocities) = (&self.joints[..], Some(&self.joint_velocities[..]));
        let joints = JointsNow { names, limits, positions, velocities };
        plan::forecast(&joints, plan, self.stamp, horizon, joints_ahead)?;
        scene.n_planned = plan::n_planned(names, plan, self.stamp, horizon);
        let rows = &mut scene.kinematic;
        rows.resize_with(horizon.n_steps + 2, Vec::new);
        rows[0].clone_from(&self.placed[0]);
        rows[1].clone_from(&self.placed[1]);
        let n_joints = self.joints.len();
        for (step, row) in rows[2..].iter_mut().enumerate() {
            let times = (step + 1) as f64 * self.steps_of_history;
            robot.set_mount(&self.mounts[1].extrapolated(&self.mounts[0], times))?;
            robot.place(&joints_ahead[step * n_joints..][..n_joints], row)?;
        }
        link(scene, robot, workspace);
        Ok(())
    }
}

/// Takes the links of the particles of `robot`, which stand in `scene`; where it stays far outside of
/// `workspace` all the time, its particles go.
pub fn link(scene: &mut RolloutInput, robot: &Robot, workspace: &Workspace) {
    scene.start.kinematic_links.clear();
    if is_far(&scene.kinematic, workspace) {
        scene.kinematic.iter_mut().for_each(Vec::clear);
    } else {
        scene.start.kinematic_links.extend(robot.links());
    }
}

/// Whether all points lie far outside of the workspace.
fn is_far(rows: &[Vec<Vec3>], workspace: &Workspace) -> bool {
    let near =
        Workspace { min: workspace.min.map(|x| x - FAR_M), max: workspace.max.map(|x| x + FAR_M) };
    !rows.iter().flatten().any(|point| near.contains(*point))
}

/// Makes observations of frames.
pub struct Observer {
    model: ModelConfig,
    config: PredictorConfig,
    meshes: MeshSearch,
    robot: Option<Robot>,
    /// The robot as it came, for snapshots to share.
    shared_robot: Option<Arc<Robot>>,
    order: Option<(Arc<[String]>, JointOrder)>,
    course: RobotForecast,
    joints_ahead: Vec<f64>,
}

impl Observer {
    /// An observer for a model and its settings.
    pub fn new(model: ModelConfig, config: PredictorConfig) -> Self {
        Self {
            model,
            config,
            meshes: MeshSearch::default(),
            robot: None,
            shared_robot: None,
            order: None,
            course: RobotForecast::default(),
            joints_ahead: Vec::new(),
        }
    }

    /// Takes new settings, from the next frame on.
    pub fn set_config(&mut self, config: PredictorConfig) {
        self.config = config;
    }

    /// Where the meshes of robots that come from now on are looked for; else as
    /// [`MeshSearch::default`].
    pub fn set_meshes(&mut self, meshes: MeshSearch) {
        self.meshes = meshes;
    }

    /// Takes the robot's description; its warnings are worth logging.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str) -> Result<&[String]> {
        let (n_points, spread, meshes) = (self.model.n_robot(), Spread::Tips, &self.meshes);
        let options = RobotOptions { n_points, spread, world_frame, meshes };
        let robot = Robot::with_options(urdf, &options)?;
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
        let is_required = self.model.n_kinematic > 0 && self.config.robot == RobotMode::Required;
        if is_required && self.robot.is_none() { Err(Error::NoRobot) } else { Ok(()) }
    }

    /// The robot of `frame`, if one is to be placed.
    fn robot_of<'a>(&self, frame: &'a Frame) -> Option<&'a RobotState> {
        let takes_robot = self.model.n_kinematic > 0 && self.config.robot != RobotMode::None;
        let robot = self.robot.as_ref().filter(|_| takes_robot)?;
        frame.robot.as_ref().filter(|state| robot.fits(&state.mount))
    }

    /// Whether an observation of `frame` has the robot.
    pub fn sees_robot(&self, frame: &Frame) -> bool {
        self.robot_of(frame).is_some()
    }

    /// Where the robot will go, as known at the last frame that was forecast.
    pub fn course(&self) -> &RobotForecast {
        &self.course
    }

    /// Frame → cloud in the world frame → `n` particles, which `sampler` draws, and the robot's, into
    /// `out`.
    ///
    /// # Errors
    /// [`Error::NoRobot`] if the settings require one that is not known, [`Error::TooFewPoints`],
    /// what makes images or joints unusable, and what the sampler returns.
    pub fn observe(
        &mut self,
        frame: &Frame,
        n: usize,
        sampler: &mut dyn ParticleSampler,
        out: &mut Observation,
    ) -> Result<()> {
        out.stamp = frame.stamp;
        out.outlook.clear();
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
        self.place(frame, out)
    }

    /// Puts the robot's particles where it was measured; none if it is not there.
    fn place(&mut self, frame: &Frame, out: &mut Observation) -> Result<()> {
        out.kinematic.clear();
        out.on_links.clear();
        out.joints.clear();
        self.check_robot()?;
        let (Some(state), Some(robot)) = (self.robot_of(frame), self.robot.as_mut()) else {
            return Ok(());
        };
        let names = &state.joints.names;
        if self.order.as_ref().is_none_or(|(known, _)| known != names) {
            self.order = Some((names.clone(), robot.order(names)?));
        }
        if let Some((_, order)) = &self.order {
            order.apply(&state.joints.positions, &mut out.joints)?;
        }
        out.mount.clone_from(&state.mount);
        robot.set_mount(&out.mount)?;
        robot.place(&out.joints, &mut out.kinematic)?;
        robot.links_at(&out.particles.positions, &mut out.on_links);
        Ok(())
    }

    /// Kinematic particles one step back, now, and at each step ahead, where the plan of `frame`
    /// leads, into `scene`: two rows and one for each step of all passes, and the links; all empty without a robot.
    ///
    /// # Errors
    /// As [`RobotForecast::place_robot`].
    pub fn forecast(
        &mut self,
        history: &Observation,
        now: &Observation,
        frame: &Frame,
        scene: &mut RolloutInput,
    ) -> Result<()> {
        scene.start.kinematic_stride = self.model.kinematic_detail;
        let horizon = self.model.horizon(self.config.horizon);
        let course = &mut self.course;
        course.placed[0].clone_from(&history.kinematic);
        course.placed[1].clone_from(&now.kinematic);
        if !have_robot([history, now]) {
            course.placed.iter_mut().for_each(Vec::clear);
            scene.on_links.clear();
        }
        let Some(robot) = self.robot.as_mut().filter(|_| course.has_robot()) else {
            scene.start.kinematic_links.clear();
            scene.n_planned = 0;
            scene.kinematic.resize_with(horizon.n_steps + 2, Vec::new);
            scene.kinematic.iter_mut().for_each(Vec::clear);
            return Ok(());
        };
        course.stamp = now.stamp;
        course.joints.clone_from(&now.joints);
        course.mounts[0].clone_from(&history.mount);
        course.mounts[1].clone_from(&now.mount);
        course.plan.clone_from(&frame.plan);
        let elapsed_secs = now.stamp.secs_since(history.stamp);
        course.steps_of_history = steps_of(&self.model, elapsed_secs);
        let velocities = &mut course.joint_velocities;
        let limits = robot.limits();
        plan::velocities(&now.joints, &history.joints, limits, elapsed_secs, velocities)?;
        if course.steps_of_history != 1.0 {
            // Where the robot was a step ago, not at the history frame.
            let back = now.joints.iter().zip(&*velocities);
            self.joints_ahead.clear();
            self.joints_ahead.extend(back.map(|(q, v)| q - v * self.model.step_secs));
            let mount = course.mounts[1].extrapolated(&course.mounts[0], -course.steps_of_history);
            robot.set_mount(&mount)?;
            robot.place(&self.joints_ahead, &mut course.placed[0])?;
        }
        let workspace = self.config.workspace_of(&self.model);
        let joints_ahead = &mut self.joints_ahead;
        self.course.place_robot(&frame.plan, robot, &horizon, &workspace, joints_ahead, scene)
    }
}

/// Whether the robot was there at both: if not, predictions go without it.
fn have_robot(observations: [&Observation; 2]) -> bool {
    observations.iter().all(|observation| !observation.kinematic.is_empty())
}

/// How many times as long a step is as `elapsed_secs`: what moved so long is scaled by it. To the bit 1
/// where they are the same, but for rounding.
pub(crate) fn steps_of(model: &ModelConfig, elapsed_secs: f64) -> f64 {
    let ratio = if elapsed_secs > 0.0 { model.step_secs / elapsed_secs } else { 1.0 };
    if (ratio - 1.0).abs() < 1e-5 { 1.0 } else { ratio }
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
    /// A memory in which the observation `step_secs` back is found within `tolerance_secs`, or within half
    /// the time between two frames.
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

    /// The observation by the same `cameras` that lies nearest to one step before `now`, within the tolerance:
    /// with or without the robot as now, if there is one, else the other way (joints may come more slowly than
    /// images).
    ///
    /// Where a camera falls out or comes back, surfaces that only it sees vanish or appear, and
    /// those that it shares get sparser or denser: differences that would be taken for motion. So
    /// there is no history across such a change: the next prediction comes one step later.
    pub fn one_step_back(
        &self,
        now: Stamp,
        cameras: impl Iterator<Item = usize> + Clone,
        has_robot: bool,
    ) -> Option<&Observation> {
        let wanted = now.plus_secs(-self.step_secs);
        let tolerance = self.tolerance(now);
        let is_alike = |o: &&Observation| {
            o.cameras.iter().copied().eq(cameras.clone()) && o.stamp.abs_diff(wanted) <= tolerance
        };
        let alike = self.observations.iter().filter(is_alike);
        alike.min_by_key(|o| (o.kinematic.is_empty() == has_robot, o.stamp.abs_diff(wanted)))
    }

    /// The observation that was predicted from and lies nearest to one step before `now`, within half a step, and
    /// how many steps it lies back.
    pub fn predicted(&self, now: Stamp) -> Option<(&Observation, f64)> {
        let steps = |o: &&Observation| now.secs_since(o.stamp) / self.step_secs;
        let is_near = |o: &&Observation| o.outlook.is_some() && (0.5..=1.5).contains(&steps(o));
        let off = |o: &&Observation| (steps(o) - 1.0).abs();
        let near = self.observations.iter().filter(is_near);
        near.min_by(|a, b| off(a).total_cmp(&off(b))).map(|o| (o, steps(&o)))
    }

    /// Whether there would be an observation one step before `now` if cameras did not matter.
    pub fn is_one_step_back(&self, now: Stamp) -> bool {
        let wanted = now.plus_secs(-self.step_secs);
        let tolerance = self.tolerance(now);
        self.observations.iter().any(|o| o.stamp.abs_diff(wanted) <= tolerance)
    }

    /// Nanoseconds by which an observation may miss one step before `now`: what the settings say, and half the
    /// frames' period, as no frame of a regular camera is nearer; up to half a step.
    fn tolerance(&self, now: Stamp) -> u64 {
        let before = || self.observations.iter().map(|o| o.stamp).filter(|stamp| *stamp < now);
        let (mut gaps, mut n_gaps) = ([0; MAX_OBSERVATIONS], 0);
        let pairs = before().zip(before().skip(1).chain([now]));
        for (gap, (earlier, later)) in gaps.iter_mut().zip(pairs) {
            *gap = later.abs_diff(earlier);
            n_gaps += 1;
        }
        let gaps = &mut gaps[..n_gaps];
        let middle = gaps.len().saturating_sub(1) / 2;
        let period = if gaps.is_empty() { 0 } else { *gaps.select_nth_unstable(middle).1 };
        let half = (HALF_A_PERIOD * period as f64).min(5e8 * self.step_secs);
        Stamp::from_secs(self.tolerance_secs).nanos().unsigned_abs().max(half as u64)
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
