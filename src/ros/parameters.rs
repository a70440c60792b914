//! The node's parameters: one table of names, types, ranges, defaults and descriptions, from which
//! the parameter services, config/forecloud.yaml and the checks follow.

mod declare;
mod set;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use r2r::ParameterValue;

use crate::engine::backend::Device;
use crate::engine::model::ModelConfig;
use crate::predict::config::PredictorConfig;
use crate::robot::kinematics::RobotMode;
use crate::vision::cloud::Workspace;
use crate::vision::frames::{CameraInput, CameraTopics, FramesConfig, Topics};
use declare::{Value, parameters, put};

pub use declare::{Declaration, Range, When};
pub use set::{configure, set};

parameters! {
    /// Parameters of the node.
    ///
    /// `AtStart` parameters are read once; `AnyTime` ones may be set while the node runs and count
    /// from the next frame on. The doc comments are the descriptions that users read.
    #[derive(Debug, Clone, PartialEq)]
    pub struct NodeConfig {
        /// Model file; empty takes the one that comes with the package.
        AtStart model: String = String::new();
        /// Names of the cameras: `<name>/color/image_raw`, `<name>/depth/image_raw` and
        /// `<name>/color/camera_info` are subscribed, in the node's namespace unless the name
        /// begins with a slash (remap them where they differ).
        AtStart cameras: Vec<String> = default_cameras();
        /// What the cameras send: `images`, `compressed` (image_transport's compressed and
        /// compressedDepth) or `points` (`<name>/points`); one for all, or one for each.
        AtStart camera_inputs: Vec<String> = vec!["images".into()];
        /// Whether each pixel of a depth image shows what the same pixel of the colour image does;
        /// if not, `<name>/depth/camera_info` is subscribed too.
        AtStart depth_registered: bool = true;
        /// Seconds (of the other cameras' stamps) after which a silent camera is left out of the
        /// frames; it is taken back when it sends again.
        AnyTime camera_timeout_secs: f64 = FramesConfig::default().camera_timeout_secs,
            in FramesConfig::CAMERA_TIMEOUT_SECS;
        /// Frame of the predictions, fixed to the ground, z up.
        AtStart world_frame: String = FramesConfig::default().world_frame;
        /// Whether an only camera that no transform places within 2 s is placed by the largest plane
        /// that it sees (table or floor), which is taken for level. The node then publishes that on
        /// `/tf_static`, so leave it false where another node will.
        AtStart level_camera: bool = FramesConfig::default().level_camera;
        /// Whether there is a robot: `required` (no prediction without its description and joints),
        /// `optional` (taken up as soon as both have come, predictions go on without it until
        /// then) or `none` (nothing of it is subscribed).
        AtStart robot: String = "optional".into();
        /// Folders in which the robot's meshes are looked for, before the sourced workspaces: each a
        /// ROS package or one of packages.
        AtStart mesh_paths: Vec<String> = Vec::new();
        /// Steps to predict.
        AnyTime horizon: usize = PredictorConfig::default().horizon, in PredictorConfig::HORIZON;
        /// Particles of a prediction; 0 takes the number that the model was trained with.
        AnyTime n_particles: usize = PredictorConfig::default().n_particles,
            in PredictorConfig::N_PARTICLES;
        /// Seed of the particles' draw.
        AnyTime seed: u64 = PredictorConfig::default().seed;
        /// Lower corner of the box that is predicted (world frame, m), such as [-0.5, -0.5, 0.0];
        /// empty takes the model's, or, where less than a quarter of what the cameras see lies in
        /// that, a box around what they see in the first frame. Another box forgets the frames so
        /// far.
        AnyTime workspace_min: Vec<f64> = Vec::new();
        /// Upper corner, such as [0.5, 0.5, 0.6], likewise.
        AnyTime workspace_max: Vec<f64> = Vec::new();
        /// Whether what rests is held at rest until something comes near (5 cm) that moves, or the
        /// robot, whatever the model says.
        AnyTime hold_at_rest: bool = PredictorConfig::default().hold_at_rest;
        /// Whether what lies on a link of the robot goes with it as the plan leads it, whatever the
        /// model says. Links whose meshes can't be read hold nothing.
        AnyTime carry_robot: bool = PredictorConfig::default().carry_robot;
        /// What predictions run and plans are rolled out on: `auto` (a GPU where one answers, else
        /// the CPU), `cpu`, `cuda` or `cuda:INDEX`.
        AtStart device: String = Device::default().to_string();
        /// Threads of the predictor; 0 takes one per CPU.
        AtStart threads: usize = 0, in 0..=MAX_THREADS;
        /// Threads that roll out candidate plans (`~/predict`; `~/evaluate` and `~/plan` have as many
        /// more), beside those of the predictor.
        AtStart plan_threads: usize = 1, in 1..=MAX_THREADS;
        /// Seconds by which the images of one frame, and a late joint state, may differ.
        AnyTime tolerance_secs: f64 = FramesConfig::default().tolerance_secs,
            in FramesConfig::TOLERANCE_SECS;
        /// Seconds by which the history frame may miss one step back.
        AnyTime history_tolerance_secs: f64 = PredictorConfig::default().history_tolerance_secs,
            in PredictorConfig::HISTORY_TOLERANCE_SECS;
        /// Seconds from the arrival of a frame's last image within which its prediction is to end;
        /// 0 for no deadline. After a step of the model (0.1 s) what it says of the first step has
        /// happened already. Roll-outs are cut short for it, and where the shortest ones are late
        /// too, particles are given up until there is time again.
        AnyTime deadline_secs: f64 = 0.1,
            in PredictorConfig::DEADLINE_SECS;
        /// Steps that a roll-out keeps however late it is.
        AnyTime min_horizon: usize = PredictorConfig::default().min_horizon,
            in PredictorConfig::HORIZON;
        /// Particles that a prediction keeps however late it is.
        AnyTime min_particles: usize = PredictorConfig::default().min_particles,
            in PredictorConfig::N_PARTICLES;
        /// Seconds that a topic's stamps, or `/clock`, must go back to count as time being set
        /// back.
        AnyTime time_jump_secs: f64 = FramesConfig::default().time_jump_secs,
            in FramesConfig::TIME_JUMP_SECS;
        /// Motion over all steps (m) from which on a particle gets an arrow in `~/motion`.
        AtStart motion_min_m: f64 = 0.01, in 0.0..=10.0;
        /// Whether nothing is computed while nobody subscribes predictions or asks for them.
        AnyTime idle_without_subscribers: bool = true;
        /// Whether ROS time comes from `/clock`. Predictions go by the stamps of the messages
        /// either way.
        AnyTime use_sim_time: bool = false;
    }
}

/// More threads than that are a typing error.
const MAX_THREADS: usize = 1024;

fn default_cameras() -> Vec<String> {
    Topics::default().cameras.into_iter().map(|camera| camera.name).collect()
}

impl NodeConfig {
    /// How messages become frames, for a node in `namespace` (`/` is none).
    ///
    /// # Errors
    /// Inputs that are none, and as [`FramesConfig::validate`].
    pub fn frames(&self, namespace: &str) -> anyhow::Result<FramesConfig> {
        let n_cameras = self.cameras.len();
        let inputs = CameraInput::of_cameras("camera_inputs", &self.camera_inputs, n_cameras)?;
        let full = |name: &str| {
            if name.starts_with('/') {
                return name.to_owned();
            }
            format!("{}/{name}", namespace.trim_end_matches('/'))
        };
        let camera = |(name, input): (&String, CameraInput)| {
            let path = full(name);
            let of = CameraTopics::new(path.trim_start_matches('/'), input, self.depth_registered);
            CameraTopics { name: name.clone(), ..of }
        };
        // Transforms are the same for all robots of a system, and so are their topics.
        let topics = Topics {
            cameras: self.cameras.iter().zip(inputs).map(camera).collect(),
            joint_states: full("joint_states"),
            planned_joints: full("planned_joints"),
            robot_description: full("robot_description"),
            ..Topics::default()
        };
        let config = FramesConfig {
            topics,
            world_frame: self.world_frame.clone(),
            robot: self.robot_mode()?,
            level_camera: self.level_camera,
            tolerance_secs: self.tolerance_secs,
            time_jump_secs: self.time_jump_secs,
            camera_timeout_secs: self.camera_timeout_secs,
            ..FramesConfig::default()
        };
        config.validate()?;
        Ok(config)
    }

    /// Whether there is a robot.
    ///
    /// # Errors
    /// As [`RobotMode::of`].
    pub fn robot_mode(&self) -> anyhow::Result<RobotMode> {
        Ok(RobotMode::of("robot", &self.robot)?)
    }

    /// How `model` is run.
    ///
    /// # Errors
    /// A corner of the workspace that is not three numbers, and as
    /// [`PredictorConfig::validate_for`].
    pub fn predictor(&self, model: &ModelConfig) -> anyhow::Result<PredictorConfig> {
        let min = corner("workspace_min", &self.workspace_min, model.workspace.min)?;
        let max = corner("workspace_max", &self.workspace_max, model.workspace.max)?;
        let is_models = self.workspace_min.is_empty() && self.workspace_max.is_empty();
        let config = PredictorConfig {
            horizon: self.horizon,
            n_particles: self.n_particles,
            seed: self.seed,
            device: self.device.parse()?,
            robot: self.robot_mode()?,
            workspace: (!is_models).then_some(Workspace { min, max }),
            origin: [0.0; 3],
            hold_at_rest: self.hold_at_rest,
            carry_robot: self.carry_robot,
            history_tolerance_secs: self.history_tolerance_secs,
            deadline_secs: self.deadline_secs,
            min_horizon: self.min_horizon,
            min_particles: self.min_particles,
        };
        config.validate_for(model)?;
        Ok(config)
    }

    /// The model file.
    ///
    /// # Errors
    /// None is named, and none comes with the package.
    pub fn model(&self) -> anyhow::Result<PathBuf> {
        if !self.model.is_empty() {
            return Ok(PathBuf::from(&self.model));
        }
        // lib/forecloud/forecloud_node → share/forecloud/models, wherever the package is installed.
        let program = std::env::current_exe().context("the path of this program")?;
        let shipped = program.ancestors().nth(3).map(|prefix| prefix.join(SHIPPED_MODEL));
        shipped.filter(|path| path.is_file()).ok_or_else(|| {
            anyhow!(
                "parameters: `model` is not set, and no {SHIPPED_MODEL} comes with the package. \
                 Remedy: set `model` to a file that `forecloud train` wrote"
            )
        })
    }
}

/// Where the package installs its model.
const SHIPPED_MODEL: &str = "share/forecloud/models/small.safetensors";

fn corner(name: &str, given: &[f64], models: [f32; 3]) -> anyhow::Result<[f32; 3]> {
    match *given {
        [] => Ok(models),
        [x, y, z] => Ok([x, y, z].map(|coordinate| coordinate as f32)),
        _ => bail!("`{name}` must be three numbers (x, y, z) or none, not {}", given.len()),
    }
}
