//! What a robot with two cameras sends, as serialized messages: a floor, a box that slides over
//! it, an arm of two joints. Small, so that thousands of frames take seconds.
#![allow(dead_code)] // Shared by tests and an example, neither of which uses all of it.

#[path = "../../../../src/message/encode.rs"]
mod encode;

use encode::CdrWriter;
use std::f64::consts::FRAC_1_SQRT_2;

use forecloud::engine::model::{Layout, Model, ModelConfig, weights::initial_weights};
use forecloud::vision::cloud::Workspace;

pub const COLOR: [&str; 2] = ["/camera_left/color/image_raw", "/camera_right/color/image_raw"];
pub const DEPTH: [&str; 2] = ["/camera_left/depth/image_raw", "/camera_right/depth/image_raw"];
pub const INFO: [&str; 2] = ["/camera_left/color/camera_info", "/camera_right/color/camera_info"];
pub const JOINTS: &str = "/joint_states";
pub const PLAN: &str = "/planned_joints";
pub const TF: &str = "/tf";
pub const TF_STATIC: &str = "/tf_static";
pub const ROBOT: &str = "/robot_description";
/// Topics of which each frame has messages.
pub const EACH_FRAME: [&str; 9] =
    [TF, JOINTS, PLAN, INFO[0], INFO[1], COLOR[0], DEPTH[0], COLOR[1], DEPTH[1]];

/// Optical frames; the left one is fixed, the right one moves with its mast.
pub const OPTICAL: [&str; 2] = ["left_optical", "right_optical"];
pub const JOINT_NAMES: [&str; 2] = ["turn", "slide"];
pub const START_NS: i64 = 1_700_000_000_000_000_000;
pub const PERIOD_NS: i64 = 100_000_000;
pub const WIDTH: u32 = 32;
pub const HEIGHT: u32 = 24;
const FOCAL_PX: f64 = 24.0;
const CAMERA_HEIGHT_M: f64 = 1.0;
/// Points from the optical frame of a camera that looks down into the world, x to x: x y z w.
const LOOKS_DOWN: [f64; 4] = [1.0, 0.0, 0.0, 0.0];

/// A serialized message and its topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub topic: &'static str,
    pub bytes: Vec<u8>,
}

impl Message {
    fn new(topic: &'static str, writer: CdrWriter) -> Self {
        Self { topic, bytes: writer.finish() }
    }

    /// The same with another stamp (of its first header).
    pub fn at(mut self, nanos: i64) -> Self {
        // A header is what these messages begin with; `/tf` counts its transforms first.
        let start = if self.topic.starts_with("/tf") { 8 } else { 4 };
        let (sec, nanosec) = parts(nanos);
        self.bytes[start..start + 4].copy_from_slice(&sec.to_le_bytes());
        self.bytes[start + 4..start + 8].copy_from_slice(&nanosec.to_le_bytes());
        self
    }

    pub fn is_image(&self) -> bool {
        COLOR.contains(&self.topic) || DEPTH.contains(&self.topic)
    }
}

/// A model small enough to predict a thousand frames a second.
pub fn model() -> Model {
    let config = ModelConfig {
        width: 8,
        n_heads: 2,
        n_blocks: 1,
        n_particles: 64,
        n_history: 32,
        n_motion: 256,
        n_kinematic: 16,
        workspace: Workspace { min: [-0.6, -0.5, -0.05], max: [0.6, 0.5, 0.8] },
        ..ModelConfig::default()
    };
    let weights = initial_weights(&Layout::new(config.interlacer()), 1);
    Model::new(config, weights).expect("weights of this configuration")
}

/// Stamp of frame `i`.
pub fn stamp(i: u64) -> i64 {
    START_NS + i as i64 * PERIOD_NS
}

/// What is sent once, at the start.
pub fn start() -> Vec<Message> {
    let pose = [0.0, 0.0, CAMERA_HEIGHT_M];
    vec![robot_description(), transform(TF_STATIC, "world", OPTICAL[0], pose, START_NS)]
}

/// What belongs to frame `i`, in the order of time; its last message is an image.
pub fn frame(i: u64) -> Vec<Message> {
    let now = stamp(i);
    let mut messages = vec![mast(now)];
    for step in (0..5).rev() {
        messages.push(joint_state(now - step * PERIOD_NS / 5));
    }
    messages.push(plan(now));
    for camera in 0..2 {
        messages.push(camera_info(camera, [WIDTH, HEIGHT], FOCAL_PX, now));
        messages.push(color_image(camera, [WIDTH, HEIGHT], now));
        messages.push(depth_image(camera, [WIDTH, HEIGHT], now));
    }
    messages
}

/// The right camera's pose: it sways by a centimetre.
pub fn mast(nanos: i64) -> Message {
    let x = 0.01 * secs(nanos).sin();
    transform(TF, "world", OPTICAL[1], [x, 0.0, CAMERA_HEIGHT_M], nanos)
}

pub fn transform(
    topic: &'static str,
    parent: &str,
    child: &str,
    translation: [f64; 3],
    nanos: i64,
) -> Message {
    rotated_transform(topic, parent, child, translation, LOOKS_DOWN, nanos)
}

/// `quaternion`: x y z w.
pub fn rotated_transform(
    topic: &'static str,
    parent: &str,
    child: &str,
    translation: [f64; 3],
    quaternion: [f64; 4],
    nanos: i64,
) -> Message {
    let writer = header(CdrWriter::new(false).u32(1), nanos, parent).string(child);
    Message::new(topic, writer.f64_array(&translation).f64_array(&quaternion))
}

pub fn joint_state(nanos: i64) -> Message {
    let t = secs(nanos);
    joints(nanos, &JOINT_NAMES, &[t.sin(), 0.1 * t.cos()])
}

pub fn joints(nanos: i64, names: &[&str], positions: &[f64]) -> Message {
    let writer = header(CdrWriter::new(false), nanos, "").strings(names);
    Message::new(JOINTS, writer.f64s(positions).f64s(&[]).f64s(&[]))
}

/// Where the joints will be over the next half second.
pub fn plan(nanos: i64) -> Message {
    let mut writer = header(CdrWriter::new(false), nanos, "").strings(&JOINT_NAMES).u32(6);
    for step in 0..6 {
        let t = secs(nanos) + 0.1 * f64::from(step);
        writer = writer.f64s(&[t.sin(), 0.1 * t.cos()]).f64s(&[]).f64s(&[]).f64s(&[]);
        writer = writer.i32(0).u32(step * 100_000_000);
    }
    Message::new(PLAN, writer)
}

pub fn camera_info(camera: usize, size: [u32; 2], focal_px: f64, nanos: i64) -> Message {
    let [cx, cy] = size.map(|n| f64::from(n - 1) / 2.0);
    let k = [focal_px, 0.0, cx, 0.0, focal_px, cy, 0.0, 0.0, 1.0];
    let writer = header(CdrWriter::new(false), nanos, OPTICAL[camera]).u32(size[1]).u32(size[0]);
    let writer = writer.string("plumb_bob").f64s(&[]).f64_array(&k).f64_array(&[0.0; 9]);
    let writer = writer.f64_array(&[0.0; 12]);
    let writer = (0..6).fold(writer, |writer, _| writer.u32(0)).u8(0);
    Message::new(INFO[camera], writer)
}

pub fn color_image(camera: usize, size: [u32; 2], nanos: i64) -> Message {
    let pixels = pixels(size).flat_map(|u| if on_box(u, nanos) { [200, 40, 40] } else { [90; 3] });
    image(COLOR[camera], "rgb8", size, 3, &pixels.collect::<Vec<u8>>(), nanos)
}

pub fn depth_image(camera: usize, size: [u32; 2], nanos: i64) -> Message {
    let depths_mm = pixels(size).map(|u| if on_box(u, nanos) { 900u16 } else { 1000 });
    let bytes: Vec<u8> = depths_mm.flat_map(u16::to_le_bytes).collect();
    image(DEPTH[camera], "16UC1", size, 2, &bytes, nanos)
}

pub fn image(
    topic: &'static str,
    encoding: &str,
    size: [u32; 2],
    bytes_per_pixel: u32,
    data: &[u8],
    nanos: i64,
) -> Message {
    let camera = usize::from(topic.starts_with("/camera_right"));
    let writer = header(CdrWriter::new(false), nanos, OPTICAL[camera]).u32(size[1]).u32(size[0]);
    let writer = writer.string(encoding).u8(0).u32(size[0].wrapping_mul(bytes_per_pixel));
    Message::new(topic, writer.u8s(data))
}

pub fn robot_description() -> Message {
    text(ROBOT, &urdf())
}

pub fn text(topic: &'static str, text: &str) -> Message {
    Message::new(topic, CdrWriter::new(false).string(text))
}

fn urdf() -> String {
    let link = |name: &str| {
        format!(
            r#"<link name="{name}"><collision><geometry><box size="0.1 0.05 0.05"/></geometry>
            </collision></link>"#
        )
    };
    let joint = |name: &str, kind: &str, parent: &str, child: &str| {
        format!(
            r#"<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
            <origin xyz="0.1 0 0.1"/><axis xyz="0 0 1"/>
            <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>"#
        )
    };
    [
        r#"<robot name="arm"><link name="world"/>"#.to_owned(),
        link("upper"),
        link("lower"),
        joint("turn", "revolute", "world", "upper"),
        joint("slide", "prismatic", "upper", "lower"),
        "</robot>".to_owned(),
    ]
    .concat()
}

/// Column of each pixel in units of the full size, row by row.
fn pixels([width, height]: [u32; 2]) -> impl Iterator<Item = u32> {
    (0..width * height).map(move |i| i % width * WIDTH / width)
}

/// The box is a stripe of six columns, which goes back and forth.
fn on_box(column: u32, nanos: i64) -> bool {
    let left = 13.0 + 8.0 * (secs(nanos) * FRAC_1_SQRT_2).sin();
    (left..left + 6.0).contains(&f64::from(column))
}

/// Seconds since the start.
fn secs(nanos: i64) -> f64 {
    (nanos - START_NS) as f64 * 1e-9
}

fn header(writer: CdrWriter, nanos: i64, frame_id: &str) -> CdrWriter {
    let (sec, nanosec) = parts(nanos);
    writer.header(sec, nanosec, frame_id)
}

/// The fields of `builtin_interfaces/msg/Time`.
fn parts(nanos: i64) -> (i32, u32) {
    let sec = nanos.div_euclid(1_000_000_000);
    (i32::try_from(sec).expect("a stamp"), nanos.rem_euclid(1_000_000_000) as u32)
}
