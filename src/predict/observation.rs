//! What is remembered of a frame: its particles, and the robot's.

use std::sync::Arc;

use crate::engine::model::ModelConfig;
use crate::engine::rollout_input::RolloutInput;
use crate::message::Stamp;
use crate::predict::config::PredictorConfig;
use crate::predict::last_miss::Outlook;
use crate::predict::moving_camera::Looked;
use crate::predict::moving_world::Sights;
use crate::predict::outlines::Outline;
use crate::predict::robot_forecast::{LinksAhead, RobotForecast};
use crate::robot::kinematics::{
    JointOrder, MeshSearch, Mount, Robot, RobotMode, RobotOptions, Spread,
};
use crate::vision::cloud::Place;
use crate::vision::frames::{Frame, RobotState};
use crate::vision::particles::{ParticleSampler, Particles, Sampling};
use crate::{Error, Result};

/// All that predictions need of a frame, in the world frame (m).
#[derive(Debug, Default, Clone)]
pub struct Observation {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Numbers of the cameras that saw it, ascending.
    pub cameras: Vec<usize>,
    /// Where these looked.
    pub looked: Looked,
    /// What these saw, whether in the box or not.
    pub sights: Sights,
    /// Scene particles.
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
    /// How what hangs together ends, in it and in those before; empty where nothing was predicted from it.
    pub outlines: Vec<Outline>,
    /// Measured joints in the robot's order.
    pub(super) joints: Vec<f64>,
    /// What else tells where the robot is.
    pub(super) mount: Mount,
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
    robot_forecast: RobotForecast,
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
            robot_forecast: RobotForecast::default(),
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
    pub fn robot_forecast(&self) -> &RobotForecast {
        &self.robot_forecast
    }

    /// Frame → cloud in the world frame → `n` particles in the box of `place`, which `sampler` draws, and the
    /// robot's, into `out`.
    ///
    /// # Errors
    /// [`Error::NoRobot`] if the settings require one that is not known, [`Error::TooFewPoints`],
    /// what makes images or joints unusable, and what the sampler returns.
    pub fn observe(
        &mut self,
        frame: &Frame,
        (place, n): (&Place, usize),
        sampler: &mut dyn ParticleSampler,
        out: &mut Observation,
    ) -> Result<()> {
        out.stamp = frame.stamp;
        out.outlook.clear();
        out.outlines.clear();
        out.cameras.clear();
        out.cameras.extend(frame.camera_numbers());
        out.looked.take(&frame.cameras, &place.workspace);
        out.sights.take(&frame.cameras);
        let sampling = Sampling {
            seed: self.config.seed,
            stamp_ns: frame.stamp.nanos(),
            workspace: place.workspace,
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
    /// The poses of the links into `links`.
    ///
    /// # Errors
    /// As [`RobotForecast::place_robot`], and what joints that don't fit the robot say.
    pub fn forecast(
        &mut self,
        history: &Observation,
        now: &Observation,
        (frame, place): (&Frame, &Place),
        scene: &mut RolloutInput,
        links: &mut LinksAhead,
    ) -> Result<()> {
        links.clear();
        scene.start.kinematic_stride = self.model.kinematic_detail;
        let horizon = self.model.horizon(self.config.horizon);
        let (forecast, both) = (&mut self.robot_forecast, [history, now]);
        forecast.set_places(both);
        let Some(robot) = self.robot.as_mut().filter(|_| forecast.has_robot()) else {
            scene.on_links.clear();
            scene.start.kinematic_links.clear();
            scene.n_planned = 0;
            scene.kinematic.resize_with(horizon.n_steps + 2, Vec::new);
            scene.kinematic.iter_mut().for_each(Vec::clear);
            return Ok(());
        };
        let joints_ahead = &mut self.joints_ahead;
        forecast.set_motion(both, &frame.plan, robot, &self.model, joints_ahead)?;
        let workspace = &place.workspace;
        forecast.place_robot(&frame.plan, robot, &horizon, workspace, joints_ahead, scene)?;
        // Also where it is too far off for the model: then nothing of the scene is near to it.
        links.robot.clone_from(&self.shared_robot);
        forecast.place_links(robot, joints_ahead, links)
    }
}
