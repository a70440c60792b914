//! Boxes on a tiled floor, ray by ray, as depth cameras see them.

use std::sync::Arc;

use forecloud::message::{CameraInfo, Header, Image, Stamp};
use forecloud::vision::frames::{CameraFrame, ColorView, Frame, View};
use nalgebra::{Isometry3, Point3, Vector3};

const WIDTH: u32 = 240;
const HEIGHT: u32 = 180;
const FOCAL: f64 = 220.0;

/// A box of `size` (m) about `center`, and its colour.
#[derive(Clone, Copy)]
pub struct Block {
    pub center: [f64; 3],
    pub size: f64,
    pub rgb: [u8; 3],
}

/// What the floor (z = 0) looks like at x, y (m).
pub type Floor = fn(f64, f64) -> [u8; 3];

/// One colour everywhere.
pub fn plain(_: f64, _: f64) -> [u8; 3] {
    [110, 110, 100]
}

/// A camera at `eye` that looks at `target` (m).
pub fn looking(eye: [f64; 3], target: [f64; 3]) -> Isometry3<f64> {
    Isometry3::face_towards(&eye.into(), &target.into(), &-Vector3::z())
}

/// Distance along a ray at which it meets the floor or a block, and the colour there.
fn hit(
    eye: &Point3<f64>,
    ray: &Vector3<f64>,
    (floor, blocks): (Floor, &[Block]),
) -> (f64, [u8; 3]) {
    let below = if ray.z < -1e-6 { -eye.z / ray.z } else { f64::INFINITY };
    let mut found = (below, floor(eye.x + below * ray.x, eye.y + below * ray.y));
    for block in blocks {
        let (mut enters, mut leaves) = (0.0f64, f64::INFINITY);
        for axis in 0..3 {
            let to = |side: f64| (block.center[axis] + side * block.size - eye[axis]) / ray[axis];
            let (a, b) = (to(-0.5), to(0.5));
            (enters, leaves) = (enters.max(a.min(b)), leaves.min(a.max(b)));
        }
        if enters < leaves && enters < found.0 {
            found = (enters, block.rgb);
        }
    }
    found
}

/// A camera at `pose`, `secs` after the start.
pub fn camera(
    number: usize,
    secs: f64,
    pose: Isometry3<f64>,
    scene: (Floor, &[Block]),
) -> CameraFrame {
    let header = Header { stamp: stamp(secs), frame_id: "camera".into() };
    let k = [FOCAL, 0.0, 119.5, 0.0, FOCAL, 89.5, 0.0, 0.0, 1.0];
    let p = [FOCAL, 0.0, 119.5, 0.0, 0.0, FOCAL, 89.5, 0.0, 0.0, 0.0, 1.0, 0.0];
    let info = Arc::new(CameraInfo {
        header: header.clone(),
        height: HEIGHT,
        width: WIDTH,
        distortion_model: "plumb_bob".into(),
        d: vec![],
        k,
        r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p,
    });
    let image = |encoding: &str, step: u32, data: Vec<u8>| Image {
        header: header.clone(),
        height: HEIGHT,
        width: WIDTH,
        encoding: encoding.into(),
        is_bigendian: false,
        step,
        data,
    };
    let eye = Point3::from(pose.translation.vector);
    let (mut depth, mut color) = (Vec::new(), Vec::new());
    for pixel in 0..WIDTH * HEIGHT {
        let (u, v) = (f64::from(pixel % WIDTH), f64::from(pixel / WIDTH));
        let ray = pose * Vector3::new((u - 119.5) / FOCAL, (v - 89.5) / FOCAL, 1.0);
        let (z, rgb) = hit(&eye, &ray, scene);
        let millimetres = if z < 3.0 { (1000.0 * z).round() as u16 } else { 0 };
        depth.extend(millimetres.to_le_bytes());
        color.extend(rgb);
    }
    let color = image("rgb8", 3 * WIDTH, color);
    let color = ColorView { image: color, info: info.clone(), color_from_depth: None };
    let depth = image("16UC1", 2 * WIDTH, depth);
    let view = View::Depth { depth, info, color: Some(color) };
    CameraFrame { camera: number, view, world_from_camera: pose }
}

fn stamp(secs: f64) -> Stamp {
    Stamp::from_secs(1000.0).plus_secs(secs)
}

/// What `cameras` see, `secs` after the start, without a robot.
pub fn seen(secs: f64, cameras: Vec<CameraFrame>) -> Frame {
    Frame {
        stamp: stamp(secs),
        cameras,
        robot: None,
        plan: vec![],
        robot_description: None,
        world_from_workspace: None,
    }
}

/// What two cameras that stand still see of `blocks` on a plain floor, `secs` after the start.
pub fn frame(secs: f64, blocks: &[Block]) -> Frame {
    let at = |number: usize, side: f64| {
        camera(number, secs, looking([0.9, side, 0.6], [0.1, 0.0, 0.05]), (plain, blocks))
    };
    seen(secs, vec![at(0, -0.5), at(1, 0.5)])
}
