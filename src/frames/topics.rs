//! Which topics carry what.

use crate::error::Result;
use crate::message::{CameraInfo, Image, JointState, JointTrajectory, StringMessage, TfMessage};
use std::sync::Arc;

/// Topics of one RGB-D camera; its depth is registered to its colour image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CameraTopics {
    /// Name of the camera in reports.
    pub name: String,
    /// `sensor_msgs/msg/Image`, colour.
    pub color: String,
    /// `sensor_msgs/msg/Image`, depth.
    pub depth: String,
    /// `sensor_msgs/msg/CameraInfo` of both.
    pub info: String,
}

/// Topics that frames are made of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Topics {
    /// The cameras; the first one's depth image sets the stamp of a frame.
    pub cameras: Vec<CameraTopics>,
    /// `sensor_msgs/msg/JointState`, measured.
    pub joint_states: String,
    /// `trajectory_msgs/msg/JointTrajectory`, what the robot is about to do.
    pub planned_joints: String,
    /// `tf2_msgs/msg/TFMessage`, moving transforms.
    pub tf: String,
    /// `tf2_msgs/msg/TFMessage`, fixed transforms.
    pub tf_static: String,
    /// `std_msgs/msg/String`, URDF.
    pub robot_description: String,
}

/// A decoded message of one of the [`Topics`].
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Colour image of a camera.
    Color {
        /// Index into [`Topics::cameras`].
        camera: usize,
        /// The image.
        image: Image,
    },
    /// Depth image of a camera.
    Depth {
        /// Index into [`Topics::cameras`].
        camera: usize,
        /// The image.
        image: Image,
    },
    /// Calibration of a camera.
    Info {
        /// Index into [`Topics::cameras`].
        camera: usize,
        /// The calibration.
        info: Arc<CameraInfo>,
    },
    /// Measured joints.
    JointState(JointState),
    /// Planned joints.
    Plan(JointTrajectory),
    /// Moving transforms.
    Tf(TfMessage),
    /// Fixed transforms.
    TfStatic(TfMessage),
    /// URDF of the robot.
    RobotDescription(String),
}

impl CameraTopics {
    /// The topics that a driver in the namespace `name` publishes.
    pub fn of(name: &str) -> Self {
        Self {
            name: name.into(),
            color: format!("/{name}/color/image_raw"),
            depth: format!("/{name}/depth/image_raw"),
            info: format!("/{name}/color/camera_info"),
        }
    }
}

impl Default for Topics {
    fn default() -> Self {
        Self {
            cameras: vec![CameraTopics::of("camera_left"), CameraTopics::of("camera_right")],
            joint_states: "/joint_states".into(),
            planned_joints: "/planned_joints".into(),
            tf: "/tf".into(),
            tf_static: "/tf_static".into(),
            robot_description: "/robot_description".into(),
        }
    }
}

impl Topics {
    /// Decodes a serialized message of `topic`; `None` if the topic is none of these.
    pub fn decode(&self, topic: &str, data: &[u8]) -> Option<Result<Input>> {
        for (camera, topics) in self.cameras.iter().enumerate() {
            if topic == topics.color {
                return Some(Image::decode(data).map(|image| Input::Color { camera, image }));
            }
            if topic == topics.depth {
                return Some(Image::decode(data).map(|image| Input::Depth { camera, image }));
            }
            if topic == topics.info {
                let info = CameraInfo::decode(data).map(Arc::new);
                return Some(info.map(|info| Input::Info { camera, info }));
            }
        }
        if topic == self.joint_states {
            Some(JointState::decode(data).map(Input::JointState))
        } else if topic == self.planned_joints {
            Some(JointTrajectory::decode(data).map(Input::Plan))
        } else if topic == self.tf {
            Some(TfMessage::decode(data).map(Input::Tf))
        } else if topic == self.tf_static {
            Some(TfMessage::decode(data).map(Input::TfStatic))
        } else if topic == self.robot_description {
            Some(StringMessage::decode(data).map(|text| Input::RobotDescription(text.data)))
        } else {
            None
        }
    }

    /// Whether `topic` is one of these: the filter to read a recording with.
    pub fn contains(&self, topic: &str) -> bool {
        let camera = |c: &CameraTopics| topic == c.color || topic == c.depth || topic == c.info;
        self.cameras.iter().any(camera)
            || [&self.joint_states, &self.planned_joints, &self.tf, &self.tf_static]
                .into_iter()
                .chain([&self.robot_description])
                .any(|other| other == topic)
    }
}
