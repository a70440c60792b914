//! What frames are, and what became of the messages.

use super::joints::Joints;
use super::topics::Topics;
use crate::message::{CameraInfo, Image, JointTrajectory, Stamp};
use nalgebra::Isometry3;
use std::sync::Arc;

/// How messages are made into frames.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FramesConfig {
    /// Where the messages come from.
    pub topics: Topics,
    /// Frame that the camera poses are given in.
    pub world_frame: String,
    /// Seconds by which the images of one frame, and a late joint state, may differ.
    pub tolerance_secs: f64,
    /// Images of one topic that may wait for their partners.
    pub max_pending: usize,
    /// Seconds that a topic's stamps must go back to count as time being set back.
    pub time_jump_secs: f64,
}

/// What one camera saw.
#[derive(Debug, Clone)]
pub struct CameraFrame {
    /// The colour image.
    pub color: Image,
    /// The depth image, as large as the colour image and registered to it.
    pub depth: Image,
    /// Calibration of both.
    pub info: Arc<CameraInfo>,
    /// Maps points of the optical frame into the world frame; metres.
    pub world_from_camera: Isometry3<f64>,
}

/// All that is known of one time.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Stamp of the first camera's depth image.
    pub stamp: Stamp,
    /// One per camera of [`Topics::cameras`].
    pub cameras: Vec<CameraFrame>,
    /// Measured joints at the stamp.
    pub joints: Joints,
    /// The last plans that start no later than 50 ms after the stamp: at most 8, ascending.
    pub plan: Vec<Arc<JointTrajectory>>,
}

/// What became of the messages; see [`super::Frames::last_problem`] for the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct FrameCounts {
    /// Frames that were complete.
    pub frames: u64,
    /// Images without partners within the tolerance.
    pub dropped_unpaired: u64,
    /// Frames without calibration of a camera.
    pub dropped_no_info: u64,
    /// Frames without the pose of a camera.
    pub dropped_no_tf: u64,
    /// Frames without measured joints.
    pub dropped_no_joints: u64,
    /// Frames whose images and calibration differ in size.
    pub dropped_mismatched: u64,
    /// Frames not newer than the last one.
    pub dropped_late: u64,
    /// Times that a topic's stamps went back.
    pub time_jumps: u64,
    /// Messages that could not be decoded or used.
    pub bad_messages: u64,
}

impl FrameCounts {
    /// Frames that were dropped, images without partners, and messages that could not be used.
    pub fn n_dropped(&self) -> u64 {
        self.dropped_unpaired
            + self.dropped_no_info
            + self.dropped_no_tf
            + self.dropped_no_joints
            + self.dropped_mismatched
            + self.dropped_late
            + self.bad_messages
    }
}

impl Default for FramesConfig {
    fn default() -> Self {
        Self {
            topics: Topics::default(),
            world_frame: "world".into(),
            tolerance_secs: 0.02,
            max_pending: 8,
            time_jump_secs: 1.0,
        }
    }
}
