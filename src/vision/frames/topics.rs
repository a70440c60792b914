//! Which topics carry what.

use super::depth;
use crate::base::error::{Error, Result};
use crate::message::{CameraInfo, CompressedImage, Image, JointState, JointTrajectory};
use crate::message::{PointCloud2, Stamp, StringMessage, TfMessage};
use std::borrow::Cow;
use std::sync::Arc;

/// What a camera's driver publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CameraInput {
    /// Colour and depth images.
    #[default]
    Images,
    /// Colour and depth images, compressed.
    Compressed,
    /// Point clouds.
    Points,
    /// Colour compressed, depth not.
    ColorCompressed,
    /// Depth compressed, colour not.
    DepthCompressed,
    /// Depth images alone, with their own calibration: points are grey.
    DepthOnly,
    /// The same, compressed.
    CompressedDepthOnly,
}

impl CameraInput {
    /// Inputs by their names.
    pub const ALL: [(&str, Self); 7] = [
        ("images", Self::Images),
        ("compressed", Self::Compressed),
        ("points", Self::Points),
        ("color_compressed", Self::ColorCompressed),
        ("depth_compressed", Self::DepthCompressed),
        ("depth_only", Self::DepthOnly),
        ("compressed_depth_only", Self::CompressedDepthOnly),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, input)| *input == self).map_or("", |(name, _)| name)
    }

    /// Whether it has colour images.
    pub fn has_color(self) -> bool {
        !matches!(self, Self::Points | Self::DepthOnly | Self::CompressedDepthOnly)
    }

    /// Whether its colour images are compressed.
    pub fn is_color_compressed(self) -> bool {
        matches!(self, Self::Compressed | Self::ColorCompressed)
    }

    /// Whether its depth images are compressed.
    pub fn is_depth_compressed(self) -> bool {
        matches!(self, Self::Compressed | Self::DepthCompressed | Self::CompressedDepthOnly)
    }

    /// The input of each of `n_cameras` cameras: `names` has one for all, or one for each.
    ///
    /// # Errors
    /// [`Error::Config`] of `key` if a name is none of [`CameraInput::ALL`], or if there are
    /// neither one nor `n_cameras`.
    pub fn of_cameras(key: &str, names: &[String], n_cameras: usize) -> Result<Vec<Self>> {
        let wrong = |problem| Error::Config { key: key.to_owned(), problem };
        let input = |name: &String| {
            let found = Self::ALL.into_iter().find(|(known, _)| known == name);
            found.map(|(_, input)| input).ok_or_else(|| {
                let known = Self::ALL.map(|(name, _)| name).join(", ");
                wrong(format!("'{name}' is no input; these are: {known}"))
            })
        };
        let inputs = names.iter().map(input).collect::<Result<Vec<_>>>()?;
        match inputs[..] {
            [one] => Ok(vec![one; n_cameras]),
            _ if inputs.len() == n_cameras => Ok(inputs),
            _ => Err(wrong(format!(
                "{} inputs for {n_cameras} cameras: name one for all, or one for each",
                inputs.len()
            ))),
        }
    }
}

/// Topics of one RGB-D camera; only those of its input are subscribed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CameraTopics {
    /// Name of the camera in reports.
    pub name: String,
    /// Which of the topics below it sends.
    pub input: CameraInput,
    /// Whether each pixel of the depth image shows what the same pixel of the colour image does.
    pub depth_registered: bool,
    /// Colour: `sensor_msgs/msg/Image`, or `sensor_msgs/msg/CompressedImage`.
    pub color: String,
    /// Depth, likewise.
    pub depth: String,
    /// `sensor_msgs/msg/CameraInfo` of the colour image, and of depth that is registered to it.
    pub color_info: String,
    /// `sensor_msgs/msg/CameraInfo` of depth that is not registered.
    pub depth_info: String,
    /// `sensor_msgs/msg/PointCloud2`.
    pub points: String,
}

/// How a topic is subscribed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Large and frequent: the next one makes up for a lost one.
    Images,
    /// Small and frequent.
    States,
    /// Sent once, also before the subscription.
    Latched,
}

/// One topic that frames are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Name of the topic.
    pub name: String,
    /// ROS name of its message type.
    pub message_type: &'static str,
    /// How it is subscribed.
    pub role: Role,
    /// Whether there is no frame without it.
    pub required: bool,
}

/// Topics that frames are made of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Topics {
    /// The cameras; the first one's depth image (or cloud) sets the stamp of a frame.
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
    /// Point cloud of a camera.
    Points {
        /// Index into [`Topics::cameras`].
        camera: usize,
        /// The cloud.
        cloud: PointCloud2,
    },
    /// Calibration of a camera's colour image, and of depth that is registered to it.
    ColorInfo {
        /// Index into [`Topics::cameras`].
        camera: usize,
        /// The calibration.
        info: Arc<CameraInfo>,
    },
    /// Calibration of a camera's depth image that is not registered.
    DepthInfo {
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

impl Input {
    /// The stamp of an image, a cloud or a joint state.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Color { image, .. } | Self::Depth { image, .. } => Some(image.header.stamp),
            Self::Points { cloud, .. } => Some(cloud.header.stamp),
            Self::JointState(state) => Some(state.header.stamp),
            _ => None,
        }
    }
}

impl CameraTopics {
    /// The images that a driver in the namespace `name` publishes, depth registered to colour.
    pub fn of(name: &str) -> Self {
        Self::new(name, CameraInput::Images, true)
    }

    /// The topics that a driver in the namespace `name` publishes.
    pub fn new(name: &str, input: CameraInput, depth_registered: bool) -> Self {
        let color = if input.is_color_compressed() { "/compressed" } else { "" };
        let depth = if input.is_depth_compressed() { "/compressedDepth" } else { "" };
        Self {
            name: name.into(),
            input,
            depth_registered,
            color: format!("/{name}/color/image_raw{color}"),
            depth: format!("/{name}/depth/image_raw{depth}"),
            color_info: format!("/{name}/color/camera_info"),
            depth_info: format!("/{name}/depth/camera_info"),
            points: format!("/{name}/points"),
        }
    }

    /// The topic whose stamps are those of what this camera saw: depth, or clouds.
    pub fn timing(&self) -> &str {
        if self.input == CameraInput::Points { &self.points } else { &self.depth }
    }

    /// The topics that this camera sends, with their message types; the first ones are images.
    fn sends(&self) -> Vec<(&str, &'static str)> {
        const INFO: &str = "sensor_msgs/msg/CameraInfo";
        if self.input == CameraInput::Points {
            return vec![(&self.points, "sensor_msgs/msg/PointCloud2")];
        }
        let image = |is_compressed| match is_compressed {
            true => "sensor_msgs/msg/CompressedImage",
            false => "sensor_msgs/msg/Image",
        };
        let depth: (&str, _) = (&self.depth, image(self.input.is_depth_compressed()));
        if !self.input.has_color() {
            return vec![depth, (&self.depth_info, INFO)];
        }
        let color: (&str, _) = (&self.color, image(self.input.is_color_compressed()));
        let mut topics = vec![color, depth, (&self.color_info, INFO)];
        if !self.depth_registered {
            topics.push((&self.depth_info, INFO));
        }
        topics
    }

    /// Decodes a message of this camera, number `camera`.
    fn decode(&self, camera: usize, topic: &str, data: Cow<[u8]>) -> Result<Input> {
        if self.input == CameraInput::Points {
            return PointCloud2::decode(data).map(|cloud| Input::Points { camera, cloud });
        }
        let data = &data[..];
        let image = |is_compressed, data| match is_compressed {
            true => CompressedImage::decode(data),
            false => Image::decode(data),
        };
        let info = |data| CameraInfo::decode(data).map(Arc::new);
        let (input, has_color) = (self.input, self.input.has_color());
        if topic == self.color && has_color {
            let image = image(input.is_color_compressed(), data);
            image.map(|image| Input::Color { camera, image })
        } else if topic == self.depth {
            let image = image(input.is_depth_compressed(), data).map(depth::in_known_units);
            image.map(|image| Input::Depth { camera, image })
        } else if topic == self.color_info && has_color {
            info(data).map(|info| Input::ColorInfo { camera, info })
        } else {
            info(data).map(|info| Input::DepthInfo { camera, info })
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
    /// Every topic that frames may be made of; see [`super::FramesConfig::specs`] for which of the
    /// robot's are.
    pub fn specs(&self) -> Vec<TopicSpec> {
        let spec = |name: &str, message_type, role, required| TopicSpec {
            name: name.to_owned(),
            message_type,
            role,
            required,
        };
        let cameras = self.cameras.iter().flat_map(CameraTopics::sends);
        let mut specs: Vec<_> =
            cameras.map(|(name, kind)| spec(name, kind, Role::Images, true)).collect();
        let plan = "trajectory_msgs/msg/JointTrajectory";
        let states = Role::States;
        specs.push(spec(&self.joint_states, "sensor_msgs/msg/JointState", states, false));
        specs.push(spec(&self.planned_joints, plan, states, false));
        specs.push(spec(&self.tf, "tf2_msgs/msg/TFMessage", states, false));
        specs.push(spec(&self.tf_static, "tf2_msgs/msg/TFMessage", Role::Latched, false));
        specs.push(spec(&self.robot_description, "std_msgs/msg/String", Role::Latched, false));
        specs
    }

    /// Reads `to` wherever a topic is named `from`, with or without the leading slash; whether
    /// there is one.
    pub fn remap(&mut self, from: &str, to: &str) -> bool {
        let plain = |name: &str| name.trim_start_matches('/').to_owned();
        let (from, to) = (plain(from), format!("/{}", plain(to)));
        let cameras = self.cameras.iter_mut().flat_map(|camera| {
            let CameraTopics { color, depth, color_info, depth_info, points, .. } = camera;
            [color, depth, color_info, depth_info, points]
        });
        let Self { joint_states, planned_joints, tf, tf_static, robot_description, .. } = self;
        let others = [joint_states, planned_joints, tf, tf_static, robot_description];
        let mut found = false;
        for name in cameras.chain(others).filter(|name| plain(name) == from) {
            name.clone_from(&to);
            found = true;
        }
        found
    }

    /// Decodes a serialized message of `topic`; `None` if the topic is none of these. Clouds keep the
    /// message, so it is best given away.
    pub fn decode<'a>(&self, topic: &str, data: impl Into<Cow<'a, [u8]>>) -> Option<Result<Input>> {
        let data = data.into();
        let mut cameras = self.cameras.iter().enumerate();
        let sends = |camera: &CameraTopics| camera.sends().iter().any(|(name, _)| *name == topic);
        if let Some((i, camera)) = cameras.find(|(_, camera)| sends(camera)) {
            return Some(camera.decode(i, topic, data));
        }
        let data = &data[..];
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
        self.specs().iter().any(|spec| spec.name == topic)
    }
}
