//! What frames are, and what became of the messages.

use super::robot::RobotState;
use super::topics::{TopicSpec, Topics};
use crate::message::{CameraInfo, Image, JointTrajectory, PointCloud2, Stamp};
use crate::robot::kinematics::RobotMode;
use crate::{Error, Result};
use nalgebra::Isometry3;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Cameras at most: a particle's source keeps the camera in 8 bits.
pub const MAX_CAMERAS: usize = 255;
/// Images of one topic that may wait, at most: all of them are held in memory.
const MAX_PENDING: usize = 1024;

/// How messages are made into frames.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FramesConfig {
    /// Where the messages come from.
    pub topics: Topics,
    /// Whether the cameras that a recording names take the place of those in `topics`; the node
    /// takes no notice.
    pub cameras_of_recording: bool,
    /// Frame that the camera poses are given in.
    pub world_frame: String,
    /// Frame that the box to predict in is given in, where that is another one: it may move, as that of a
    /// robot's base does. Each frame then tells where it is ([`Frame::world_from_workspace`]).
    pub workspace_frame: Option<String>,
    /// What the names of the robot's links begin with in tf, as `frame_prefix` of robot_state_publisher.
    pub frame_prefix: String,
    /// Whether an only camera that no transform places is offered to be placed by what it sees: see
    /// [`super::Frames::take_unplaced`].
    pub level_camera: bool,
    /// Whether frames need the robot's joints.
    pub robot: RobotMode,
    /// Seconds (of the messages' arrival) that complete images wait for joints and transforms; then the frame
    /// goes without the robot, or is dropped where that is required. None: all messages are there before the
    /// images, as a recording has them, so that nothing is waited for; the node has a time.
    pub patience_secs: Option<f64>,
    /// Seconds by which the images of one frame, and a late joint state, may differ.
    pub tolerance_secs: f64,
    /// Images of one topic that may wait for their partners.
    pub max_pending: usize,
    /// Seconds that a topic's stamps must go back to count as time being set back.
    pub time_jump_secs: f64,
    /// Seconds (of the other cameras' stamps) after which a camera that is silent, or whose calibration or
    /// transform does not come, is left out of the frames; it is taken back when it sends, or has them.
    pub camera_timeout_secs: f64,
}

/// What one camera saw.
#[derive(Debug, Clone)]
pub struct CameraFrame {
    /// Which one: index into [`Topics::cameras`].
    pub camera: usize,
    /// Its images, or its cloud.
    pub view: View,
    /// Maps points of the depth image's optical frame, or of the cloud's frame, into the world
    /// frame; metres.
    pub world_from_camera: Isometry3<f64>,
}

/// What a camera sends.
#[derive(Debug, Clone)]
pub enum View {
    /// A depth image and what it is coloured with.
    Depth {
        /// The depth image.
        depth: Image,
        /// Calibration of the depth image.
        info: Arc<CameraInfo>,
        /// None: the points are grey.
        color: Option<ColorView>,
    },
    /// A point cloud.
    Points(PointCloud2),
}

/// The colour image that a depth image is coloured with.
#[derive(Debug, Clone)]
pub struct ColorView {
    /// The colour image.
    pub image: Image,
    /// Calibration of the colour image.
    pub info: Arc<CameraInfo>,
    /// Maps points of the depth image's optical frame into the colour image's; metres. None: depth
    /// is registered to this image, pixel by pixel.
    pub color_from_depth: Option<Isometry3<f64>>,
}

impl CameraFrame {
    /// Stamp of the depth image or of the cloud.
    pub fn stamp(&self) -> Stamp {
        match &self.view {
            View::Depth { depth, .. } => depth.header.stamp,
            View::Points(cloud) => cloud.header.stamp,
        }
    }

    /// Width and height of the depth image, if there is one.
    pub fn image_size(&self) -> Option<[u32; 2]> {
        match &self.view {
            View::Depth { depth, .. } => Some([depth.width, depth.height]),
            View::Points(_) => None,
        }
    }

    /// Stamp of the colour image, if there is one.
    pub fn color_stamp(&self) -> Option<Stamp> {
        match &self.view {
            View::Depth { color, .. } => color.as_ref().map(|color| color.image.header.stamp),
            View::Points(_) => None,
        }
    }
}

/// All that is known of one time.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Stamp of the depth image (or cloud) of the first camera that is there.
    pub stamp: Stamp,
    /// The cameras of [`Topics::cameras`] that are there, in that order.
    pub cameras: Vec<CameraFrame>,
    /// The robot at the stamp; none where there is none, or nothing of it has come
    /// ([`FramesConfig::robot`]).
    pub robot: Option<RobotState>,
    /// The last 8 plans that have started, and up to 8 that start within [`super::PLAN_AHEAD_SECS`];
    /// ascending starts.
    pub plan: Vec<Arc<JointTrajectory>>,
    /// The newest robot description at that time; none before one has come.
    pub robot_description: Option<Arc<str>>,
    /// Maps points of the frame that the box to predict in is given in into the world frame; metres. None: it
    /// is given in the world frame.
    pub world_from_workspace: Option<Isometry3<f64>>,
}

impl Frame {
    /// Numbers of the cameras that are there, ascending.
    pub fn camera_numbers(&self) -> impl Iterator<Item = usize> + Clone {
        self.cameras.iter().map(|view| view.camera)
    }
}

/// What became of the messages; see [`super::Frames::last_problem`] for the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct FrameCounts {
    /// Frames that were complete.
    pub frames: u64,
    /// Images without partners within the tolerance, where partners should have been.
    pub dropped_unpaired: u64,
    /// Images left over because their partners come at a lower rate: no problem.
    pub images_surplus: u64,
    /// Frames without calibration of a camera.
    pub dropped_no_info: u64,
    /// Frames without the pose of a camera.
    pub dropped_no_tf: u64,
    /// Frames without measured joints.
    pub dropped_no_joints: u64,
    /// Frames whose images and calibration don't belong together, by their sizes or frames.
    pub dropped_mismatched: u64,
    /// Frames not newer than the last one.
    pub dropped_late: u64,
    /// Times that a topic's stamps went back.
    pub time_jumps: u64,
    /// Messages that could not be decoded or used.
    pub bad_messages: u64,
    /// Of the frames: those in which a camera is missing that was silent for too long.
    pub frames_without_camera: u64,
    /// Times that a camera was left out because it was silent, or not placed or calibrated, for too long.
    pub cameras_left_out: u64,
    /// Of the frames: those without the robot, unless it was said that there is none.
    pub frames_without_robot: u64,
    /// Of these: those whose joints or transforms had not come within the patience.
    pub frames_robot_late: u64,
    /// Positions that are no numbers, in joint states, of joints that the robot lacks: ignored.
    pub joints_ignored: u64,
    /// Joint states that contradict others of the same joint: two sources publish it.
    pub joint_contradictions: u64,
    /// Times that another robot description took the place of the one before.
    pub robot_changes: u64,
}

impl FrameCounts {
    /// Frames that were dropped, images without partners, and messages that could not be used.
    pub fn n_dropped(&self) -> u64 {
        self.losses().map(|(n, _)| n).sum()
    }

    /// The same by cause, in words; nothing that did not happen.
    pub fn losses(&self) -> impl Iterator<Item = (u64, &'static str)> + use<> {
        let all = [
            (self.dropped_unpaired, "images without partners"),
            (self.dropped_no_info, "frames without calibration"),
            (self.dropped_no_tf, "frames without a camera's pose"),
            (self.dropped_no_joints, "frames without joints"),
            (self.dropped_mismatched, "frames whose images and calibration don't fit"),
            (self.dropped_late, "frames that came late"),
            (self.bad_messages, "messages that can't be used"),
        ];
        all.into_iter().filter(|(n, _)| *n > 0)
    }
}

impl std::ops::AddAssign for FrameCounts {
    fn add_assign(&mut self, other: Self) {
        // All fields, so that none is forgotten.
        let Self {
            frames,
            dropped_unpaired,
            images_surplus,
            dropped_no_info,
            dropped_no_tf,
            dropped_no_joints,
            dropped_mismatched,
            dropped_late,
            time_jumps,
            bad_messages,
            frames_without_camera,
            cameras_left_out,
            frames_without_robot,
            frames_robot_late,
            joints_ignored,
            joint_contradictions,
            robot_changes,
        } = other;
        self.frames += frames;
        self.dropped_unpaired += dropped_unpaired;
        self.images_surplus += images_surplus;
        self.dropped_no_info += dropped_no_info;
        self.dropped_no_tf += dropped_no_tf;
        self.dropped_no_joints += dropped_no_joints;
        self.dropped_mismatched += dropped_mismatched;
        self.dropped_late += dropped_late;
        self.time_jumps += time_jumps;
        self.bad_messages += bad_messages;
        self.frames_without_camera += frames_without_camera;
        self.cameras_left_out += cameras_left_out;
        self.frames_without_robot += frames_without_robot;
        self.frames_robot_late += frames_robot_late;
        self.joints_ignored += joints_ignored;
        self.joint_contradictions += joint_contradictions;
        self.robot_changes += robot_changes;
    }
}

impl FramesConfig {
    /// Seconds that make sense for each of the times.
    pub const TOLERANCE_SECS: RangeInclusive<f64> = 0.0..=10.0;
    /// See [`FramesConfig::time_jump_secs`].
    pub const TIME_JUMP_SECS: RangeInclusive<f64> = 0.001..=3600.0;
    /// See [`FramesConfig::camera_timeout_secs`].
    pub const CAMERA_TIMEOUT_SECS: RangeInclusive<f64> = 0.05..=3600.0;
    /// See [`FramesConfig::patience_secs`].
    pub const PATIENCE_SECS: RangeInclusive<f64> = 0.0..=10.0;
    /// One step of the shipped model.
    pub const DEFAULT_PATIENCE_SECS: f64 = 0.1;

    /// The topics that are read: of the robot's, those that its mode asks for.
    pub fn specs(&self) -> Vec<TopicSpec> {
        let Topics { joint_states, planned_joints, robot_description, .. } = &self.topics;
        let mut specs = self.topics.specs();
        match self.robot {
            RobotMode::Required => {
                for spec in specs.iter_mut().filter(|spec| spec.name == *joint_states) {
                    spec.required = true;
                }
            }
            RobotMode::Optional => {}
            RobotMode::None => specs.retain(|TopicSpec { name, .. }| {
                ![joint_states, planned_joints, robot_description].contains(&name)
            }),
        }
        specs
    }

    /// The world frame as the robot's description would name it: what [`crate::robot::kinematics::Robot`] takes
    /// for it. Empty, which is no link's name, if the robot's frames have a prefix that it lacks.
    pub fn world_link(&self) -> &str {
        let [world, prefix] =
            [&self.world_frame, &self.frame_prefix].map(|name| name.trim_start_matches('/'));
        world.strip_prefix(prefix).unwrap_or_default()
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed: cameras that are none, too many or
    /// named twice, a topic that serves two purposes, times that make no sense.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem| Err(Error::Config { key: key.into(), problem });
        let names: Vec<&str> = self.topics.cameras.iter().map(|c| c.name.as_str()).collect();
        let mut different = names.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() != names.len() || !(1..=MAX_CAMERAS).contains(&names.len()) {
            let problem = format!("must be 1 to {MAX_CAMERAS} different names, not {names:?}");
            return wrong("cameras", problem);
        }
        let mut topics: Vec<String> = self.topics.specs().into_iter().map(|s| s.name).collect();
        topics.sort_unstable();
        if let Some(pair) = topics.windows(2).find(|pair| pair[0] == pair[1]) {
            let problem = format!("{} serves two purposes: remap one of them", pair[0]);
            return wrong("topics", problem);
        }
        if self.workspace_frame.as_deref().is_some_and(|name| name.trim_matches('/').is_empty()) {
            return wrong(
                "workspace_frame",
                "names no frame: leave it out, or name one of tf".into(),
            );
        }
        for (key, secs, allowed) in [
            ("tolerance_secs", self.tolerance_secs, Self::TOLERANCE_SECS),
            ("time_jump_secs", self.time_jump_secs, Self::TIME_JUMP_SECS),
            ("camera_timeout_secs", self.camera_timeout_secs, Self::CAMERA_TIMEOUT_SECS),
            ("patience_secs", self.patience_secs.unwrap_or(0.0), Self::PATIENCE_SECS),
        ] {
            if !allowed.contains(&secs) {
                return wrong(key, format!("{secs} s is not in {allowed:?}"));
            }
        }
        if !(1..=MAX_PENDING).contains(&self.max_pending) {
            let problem = format!("{} is not in 1..={MAX_PENDING}", self.max_pending);
            return wrong("max_pending", problem);
        }
        Ok(())
    }
}

impl Default for FramesConfig {
    fn default() -> Self {
        Self {
            topics: Topics::default(),
            cameras_of_recording: true,
            world_frame: "world".into(),
            workspace_frame: None,
            frame_prefix: String::new(),
            level_camera: false,
            robot: RobotMode::default(),
            patience_secs: Some(Self::DEFAULT_PATIENCE_SECS),
            tolerance_secs: 0.02,
            max_pending: 8,
            time_jump_secs: 1.0,
            camera_timeout_secs: 1.0,
        }
    }
}
