//! The node's parameters: one table of names, types, ranges, defaults and descriptions, from which
//! the parameter services, config/forecloud.yaml, config/advanced.yaml and the checks follow.

mod declare;
mod set;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use r2r::ParameterValue;

use declare::{Value, parameters, put};
use forecloud::engine::backend::Device;
use forecloud::engine::model::ModelConfig;
use forecloud::predict::config::PredictorConfig;
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::frames::{CameraInput, CameraTopics, FramesConfig, Topics};

pub use declare::{Declaration, Range, When};
pub use set::{Scope, configure, set};

parameters! {
    /// Parameters of the node.
    ///
    /// `AtStart` parameters are read once; `AnyTime` ones may be set while the node runs and count
    /// from the next frame on. `in Basic` are those of config/forecloud.yaml, `in Advanced` those of
    /// config/advanced.yaml. The doc comments are the descriptions that users read.
    #[derive(Debug, Clone, PartialEq)]
    pub struct NodeConfig {
        in Basic {
            /// Model file. Empty: the one that comes with the package.
            AtStart model: String = String::new();
            /// Names of the cameras. Each camera publishes `<name>/color/image_raw`,
            /// `<name>/depth/image_raw` and `<name>/color/camera_info`, in the node's namespace
            /// unless its name begins with a slash; remap topics that have other names.
            AtStart cameras: Vec<String> = default_cameras();
            /// What the cameras send: `images`, `compressed` (image_transport's compressed and
            /// compressedDepth), `points` (`<name>/points`), `color_compressed` or `depth_compressed` (only
            /// one of the two), `depth_only` or `compressed_depth_only` (no colour;
            /// `<name>/depth/camera_info`). One for all cameras, or one for each.
            AtStart camera_inputs: Vec<String> = vec!["images".into()];
            /// Whether depth images are registered to the colour images: the same pixel of both
            /// shows the same point. If not, the node also subscribes to
            /// `<name>/depth/camera_info`.
            AtStart depth_registered: bool = true;
            /// Frame of the predictions: fixed to the ground, z up.
            AtStart world_frame: String = FramesConfig::default().world_frame;
            /// Whether to place a single camera by what it sees, if no transform places it within
            /// 2 s: the largest plane in view (table or floor) is taken as level. Other nodes are told
            /// on `/tf_static` 5 s later; once another node places the camera, its word counts.
            AtStart level_camera: bool = FramesConfig::default().level_camera;
            /// Whether there is a robot. `required`: predict only once its description and joint
            /// states have come. `optional`: predict without it until they have. `none`: subscribe
            /// to nothing of it.
            AtStart robot: String = "optional".into();
            /// Folders to search for the robot's meshes, before the sourced workspaces. Each is a
            /// ROS package, or holds packages.
            AtStart mesh_paths: Vec<String> = Vec::new();
            /// Number of steps to predict. A step of the shipped model takes 0.1 s.
            AnyTime horizon: usize = PredictorConfig::default().horizon,
                in PredictorConfig::HORIZON;
            /// Number of particles in a prediction. 0: as many as the model was trained with.
            AnyTime n_particles: usize = PredictorConfig::default().n_particles,
                in PredictorConfig::N_PARTICLES;
            /// Lower corner (x, y, z) of the box to predict in: world frame, metres, such as
            /// [-0.5, -0.5, 0.0]. Empty: the model's box; if less than a quarter of what the cameras
            /// see lies in that, a box around what they see in the first frame. Changing the box
            /// discards the frames so far.
            AnyTime workspace_min: Vec<f64> = Vec::new();
            /// Upper corner of that box, such as [0.5, 0.5, 0.6]. Empty: as for `workspace_min`.
            AnyTime workspace_max: Vec<f64> = Vec::new();
            /// Where the model runs: `cpu`, `cuda`, `cuda:INDEX`, or `auto` (a GPU if one answers,
            /// otherwise the CPU).
            AtStart device: String = Device::default().to_string();
            /// Threads of the predictor. 0: one per CPU.
            AtStart threads: usize = 0, in 0..=MAX_THREADS;
            /// Time from when a frame is whole (images, joint states and transforms are there) to the end of
            /// its prediction, at most.
            /// 0: no deadline. A late prediction gets fewer steps; if that is not enough, the next
            /// ones get fewer particles until there is time again. With more than one step of the
            /// model (0.1 s), the first predicted step is over before it is published.
            AnyTime deadline_secs: f64 = 0.1,
                in PredictorConfig::DEADLINE_SECS;
            /// Largest difference between the stamps of images in one frame; joint states may be
            /// this late, too.
            AnyTime tolerance_secs: f64 = FramesConfig::default().tolerance_secs,
                in FramesConfig::TOLERANCE_SECS;
            /// Whether to take ROS time from `/clock`. Predictions follow the stamps of the messages
            /// either way.
            AnyTime use_sim_time: bool = false;
        }
        in Advanced {
            /// Time without images, calibration or transform, by the other cameras' stamps, after which a
            /// camera is left out of the frames. It is taken back when it has them again.
            AnyTime camera_timeout_secs: f64 = FramesConfig::default().camera_timeout_secs,
                in FramesConfig::CAMERA_TIMEOUT_SECS;
            /// Time that images wait for joint states and transforms. Then the frame goes without the robot,
            /// or is dropped with `robot` `required`. It does not count for `deadline_secs`.
            AnyTime patience_secs: f64 = FramesConfig::DEFAULT_PATIENCE_SECS,
                in FramesConfig::PATIENCE_SECS;
            /// Time from a command in the plan to the robot being there. -1: as the model file says (0.05 s
            /// in the shipped one).
            AtStart plan_lag_secs: f64 = -1.0, in -1.0..=2.0;
            /// Seed of the random choice of particles.
            AnyTime seed: u64 = PredictorConfig::default().seed;
            /// Whether to hold static points still until something that moves, or the robot, comes
            /// within 5 cm. Overrides the model.
            AnyTime hold_at_rest: bool = PredictorConfig::default().hold_at_rest;
            /// Whether points that lie on a link of the robot move with it, as planned. Overrides
            /// the model. Links whose meshes can't be read carry nothing.
            AnyTime carry_robot: bool = PredictorConfig::default().carry_robot;
            /// Threads that roll out candidate plans for `~/predict`; `~/evaluate` and `~/plan` get
            /// as many again. They come on top of `threads`.
            AtStart plan_threads: usize = 1, in 1..=MAX_THREADS;
            /// A prediction compares a frame with the one a step earlier: how far the earlier one's
            /// stamp may be from that.
            AnyTime history_tolerance_secs: f64 = PredictorConfig::default().history_tolerance_secs,
                in PredictorConfig::HISTORY_TOLERANCE_SECS;
            /// If the stamps of a topic, or `/clock`, go back by at least this much, the node starts
            /// anew: time was reset.
            AnyTime time_jump_secs: f64 = FramesConfig::default().time_jump_secs,
                in FramesConfig::TIME_JUMP_SECS;
            /// Frame of tf that `workspace_min` and `workspace_max` are given in, such as base_link of a mobile
            /// base: the box goes with it, while predictions stay in `world_frame`. Empty: `world_frame`.
            AtStart workspace_frame: String = String::new();
            /// Smallest motion over all steps for which a particle gets an arrow in `~/motion`.
            AtStart motion_min_m: f64 = 0.01, in 0.0..=10.0;
            /// Distance of what is seen from a link's surface that counts as a contact in `~/contact`.
            AtStart contact_distance_m: f64 = 0.005, in 0.001..=0.5;
            /// Probability from which on a contact to come slows down (`~/speed_scale`).
            AtStart slow_probability: f64 = 0.5, in 0.0..=1.0;
            /// Time to a contact at which `~/speed_scale` is 0.
            AtStart slow_stop_secs: f64 = 0.2, in 0.0..=10.0;
            /// Time to a contact at which `~/speed_scale` is 1; in between it is proportional.
            AtStart slow_secs: f64 = 0.5, in 0.0..=10.0;
            /// Links whose contacts are wanted, such as fingers: `~/contact` has them, and they don't slow down.
            AtStart slow_ignored_links: Vec<String> = Vec::new();
            /// Age of a prediction, from when its last image came, at which `~/speed_scale` becomes 0,
            /// `~/contact` stale, and from which on objects have no frames (`object_frames_secs`). By a steady clock, not by `/clock`.
            AtStart slow_timeout_secs: f64 = 0.3, in 0.01..=10.0;
            /// How far ahead `~/occupied_points` looks. 0: as far as the prediction.
            AtStart occupied_secs: f64 = 0.0, in 0.0..=10.0;
            /// Side of the voxels of `~/occupied_points`: each has one point at most, with its earliest time.
            AtStart occupied_voxel_m: f64 = 0.02, in 0.001..=1.0;
            /// Frames of the objects in tf: how far ahead, such as [0.0, 0.5] for `forecloud/object_3/now` and
            /// `forecloud/object_3/in_0.5s` (s). Four times at most. Empty: no frames.
            AtStart object_frames_secs: Vec<f64> = Vec::new();
            /// What the names of the robot's links begin with in tf, such as `robot_1/`: `frame_prefix` of its
            /// robot_state_publisher. If the world frame is a link of the robot, name that with the prefix, too.
            AtStart frame_prefix: String = FramesConfig::default().frame_prefix;
            /// Whether the node configures and activates itself when it starts. If not, a lifecycle manager
            /// does it, or `ros2 lifecycle set`.
            AtStart autostart: bool = true;
            /// Whether to compute nothing while nobody subscribes to predictions or asks for them.
            AnyTime idle_without_subscribers: bool = true;
        }
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
            workspace_frame: self.workspace_frame().map(str::to_owned),
            frame_prefix: self.frame_prefix.clone(),
            robot: self.robot_mode()?,
            level_camera: self.level_camera,
            tolerance_secs: self.tolerance_secs,
            time_jump_secs: self.time_jump_secs,
            patience_secs: Some(self.patience_secs),
            camera_timeout_secs: self.camera_timeout_secs,
            ..FramesConfig::default()
        };
        config.validate()?;
        Ok(config)
    }

    /// The frame that the workspace is given in, where it is not the predictions'.
    pub fn workspace_frame(&self) -> Option<&str> {
        Some(&*self.workspace_frame).filter(|name| !name.is_empty())
    }

    /// As [`FramesConfig::world_link`].
    pub fn world_link(&self) -> String {
        let Self { world_frame, frame_prefix, .. } = self.clone();
        let frames = FramesConfig { world_frame, frame_prefix, ..FramesConfig::default() };
        frames.world_link().to_owned()
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
        let min = corner("workspace_min", &self.workspace_min)?;
        let max = corner("workspace_max", &self.workspace_max)?;
        let config = PredictorConfig {
            horizon: self.horizon,
            n_particles: self.n_particles,
            seed: self.seed,
            device: self.device.parse()?,
            robot: self.robot_mode()?,
            workspace: model.workspace.with_corners([min, max]),
            origin: [0.0; 3],
            hold_at_rest: self.hold_at_rest,
            carry_robot: self.carry_robot,
            history_tolerance_secs: self.history_tolerance_secs,
            deadline_secs: self.deadline_secs,
            plan_lag_secs: (self.plan_lag_secs >= 0.0).then_some(self.plan_lag_secs),
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
                "parameters: `model` is not set, and the package has no {SHIPPED_MODEL}. \
                 Remedy: set `model` to a file that `forecloud train` wrote"
            )
        })
    }
}

/// Where the package installs its model.
const SHIPPED_MODEL: &str = "share/forecloud/models/small.safetensors";

fn corner(name: &str, given: &[f64]) -> anyhow::Result<Option<[f32; 3]>> {
    match *given {
        [] => Ok(None),
        [x, y, z] => Ok(Some([x, y, z].map(|coordinate| coordinate as f32))),
        _ => bail!("`{name}` must be three numbers (x, y, z) or empty, not {}", given.len()),
    }
}
