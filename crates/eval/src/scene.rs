//! A rendered scene whose geometry is known: a box before a wall, seen by a pinhole camera.
//!
//! All of it in the camera's optical frame (m), which lies askew in the world.

use std::sync::Arc;

use nalgebra::{Isometry3, Point3, Translation3, UnitQuaternion};

use forecloud::base::geometry::Vec3;
use forecloud::message::{CameraInfo, Header, Image, Stamp};
use forecloud::vision::frames::{CameraFrame, Frame, View};

pub const WALL_M: f64 = 1.2;
const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;
const FOCAL: [f64; 2] = [150.0, 142.0];
const CENTER: [f64; 2] = [78.3, 61.6];

/// A box before a wall at depth [`WALL_M`].
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    pub min: [f64; 3],
    pub max: [f64; 3],
}

/// What a pixel shows.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Position (world frame, m).
    pub point: Vec3,
    pub on_box: bool,
}

impl Default for Scene {
    fn default() -> Self {
        Self { min: [-0.25, -0.1, 0.8], max: [-0.1, 0.05, 0.95] }
    }
}

pub fn world_from_camera() -> Isometry3<f64> {
    let rotation = UnitQuaternion::from_euler_angles(0.4, -0.9, 2.2);
    Isometry3::from_parts(Translation3::new(0.3, -0.2, 0.6), rotation)
}

/// An optical position in the world.
pub fn to_world(optical: [f64; 3]) -> Vec3 {
    (world_from_camera() * Point3::from(optical)).coords.cast::<f32>().into()
}

/// An optical displacement in the world.
pub fn way(optical: [f64; 3]) -> Vec3 {
    (world_from_camera().rotation * nalgebra::Vector3::from(optical)).cast::<f32>().into()
}

impl Scene {
    /// The box moved by `way` (optical frame, m).
    pub fn moved(&self, way: [f64; 3]) -> Self {
        let add = |x: [f64; 3]| std::array::from_fn(|axis| x[axis] + way[axis]);
        Self { min: add(self.min), max: add(self.max) }
    }

    /// Depth of the first surface along the ray (x, y, 1), and whether it is the box's.
    pub fn cast(&self, x: f64, y: f64) -> (f64, bool) {
        let ray = [x, y, 1.0];
        let (mut enter, mut leave) = (0.0f64, f64::INFINITY);
        for (axis, along) in ray.into_iter().enumerate() {
            let [a, b] = [self.min[axis], self.max[axis]].map(|bound| bound / along);
            (enter, leave) = (enter.max(a.min(b)), leave.min(a.max(b)));
        }
        if enter < leave { (enter, true) } else { (WALL_M, false) }
    }

    /// Where a point (world frame, m) lies in the image: its ray, and its depth.
    pub fn locate(point: &Vec3) -> ([f64; 2], f64) {
        let local = world_from_camera().inverse() * Point3::from(point.map(f64::from));
        ([local.x / local.z, local.y / local.z], local.z)
    }

    /// All pixels, row by row.
    pub fn pixels(&self) -> Vec<Seen> {
        let pixels = (0..HEIGHT).flat_map(|v| (0..WIDTH).map(move |u| [u, v]));
        let see = |pixel: [u32; 2]| {
            let [x, y] = ray(pixel.map(f64::from));
            let (depth, on_box) = self.cast(x, y);
            Seen { point: to_world([x * depth, y * depth, depth]), on_box }
        };
        pixels.map(see).collect()
    }

    /// What lies within `pixels` of the ray (x, y, 1): lowest and highest depth.
    pub fn depths_around(&self, [x, y]: [f64; 2], pixels: f64) -> [f64; 2] {
        let offsets = (-8..=8).map(|i| f64::from(i) / 8.0 * pixels);
        let offsets = offsets.clone().flat_map(|dx| offsets.clone().map(move |dy| [dx, dy]));
        let depth = |[dx, dy]: [f64; 2]| self.cast(x + dx / FOCAL[0], y + dy / FOCAL[1]).0;
        let depths = offsets.map(depth);
        depths.fold([f64::INFINITY, 0.0], |[low, high], d| [low.min(d), high.max(d)])
    }

    /// The camera's frame at `secs`.
    pub fn frame(&self, secs: f64) -> Frame {
        let stamp = Stamp::from_secs(secs);
        let header = Header { stamp, frame_id: "optical".into() };
        let pixels = (0..HEIGHT).flat_map(|v| (0..WIDTH).map(move |u| [u, v]));
        let depths = pixels.map(|pixel| {
            let [x, y] = ray(pixel.map(f64::from));
            self.cast(x, y).0 as f32
        });
        let depth = Image {
            header: header.clone(),
            height: HEIGHT,
            width: WIDTH,
            encoding: "32FC1".into(),
            is_bigendian: false,
            step: 4 * WIDTH,
            data: depths.flat_map(f32::to_le_bytes).collect(),
        };
        let [[fx, fy], [cx, cy]] = [FOCAL, CENTER];
        let info = CameraInfo {
            header,
            height: HEIGHT,
            width: WIDTH,
            distortion_model: String::new(),
            d: Vec::new(),
            k: [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
            r: [0.0; 9],
            p: [0.0; 12],
        };
        let camera = CameraFrame {
            camera: 0,
            view: View::Depth { depth, info: Arc::new(info), color: None },
            world_from_camera: world_from_camera(),
        };
        let (robot, plan, robot_description) = (None, Vec::new(), None);
        Frame {
            stamp,
            cameras: vec![camera],
            robot,
            plan,
            robot_description,
            world_from_workspace: None,
        }
    }
}

fn ray(pixel: [f64; 2]) -> [f64; 2] {
    std::array::from_fn(|i| (pixel[i] - CENTER[i]) / FOCAL[i])
}

/// Points and what is added to them.
pub fn plus(points: &[Vec3], way: Vec3) -> Vec<Vec3> {
    points.iter().map(|x| std::array::from_fn(|axis| x[axis] + way[axis])).collect()
}
