//! Which points of the robot a depth camera should see, and what it sees there.

use nalgebra::{Isometry3, Point3, Vector3};

use crate::Result;
use crate::robot::kinematics::SurfacePoint;
use crate::vision::camera::{Camera, DepthImage};
use crate::vision::frames::{CameraFrame, View};

/// How far off a depth may be to show the point (m): what depth and calibration are good for, and what
/// grows with the square of the distance.
const SEEN_M: f32 = 0.012;
const SEEN_PER_M2: f32 = 0.006;
/// Cells of the buffer of nearest points: this many times as wide as points lie apart, so that no cell
/// within the robot is empty; in pixels at least and at most.
const CELL: f64 = 2.0;
const CELL_PX: [f64; 2] = [3.0, 48.0];
/// Points nearer to a camera are not looked at (m): it measures nothing there.
const NEAREST_M: f32 = 0.15;
/// Least part of the surface's normal along the ray: depth of surfaces seen from the side is bad.
const LEAST_FACING: f32 = 0.35;

/// A depth camera of a frame.
pub(super) struct Eye<'a> {
    /// Its number.
    pub(super) number: usize,
    pub(super) camera: Camera,
    pub(super) depth: DepthImage<'a>,
    pub(super) world_from_camera: Isometry3<f64>,
}

/// What is seen of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A surface at its depth.
    Seen,
    /// Something before it.
    Hidden,
    /// What lies behind it: it is not there.
    Through,
    /// No depth was measured there.
    Unknown,
}

/// A point that should be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glance {
    /// Its number among the surface's points.
    pub(super) point: usize,
    pub(super) fate: Fate,
    /// How much farther along its ray the surface lies that is seen (camera depth, m); NaN where nothing is.
    pub(super) beyond_m: f32,
    /// Where that is (camera frame, m): the point times this.
    pub(super) stretch: f32,
}

/// Memory of looks.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    size: [usize; 2],
    /// Number and depth of the nearest point of each cell.
    nearest: Vec<(u32, f32)>,
    /// Of each point: camera frame (m), and pixel.
    local: Vec<([f32; 3], [f32; 2])>,
    /// The last look's.
    pub(super) glances: Vec<Glance>,
}

impl<'a> Eye<'a> {
    /// The camera of a frame, if it gives depth images.
    ///
    /// # Errors
    /// As [`Camera::new`] and [`DepthImage::new`].
    pub(super) fn of(frame: &'a CameraFrame) -> Result<Option<Self>> {
        let View::Depth { depth, info, .. } = &frame.view else { return Ok(None) };
        let (camera, depth) = (Camera::new(info)?, DepthImage::new(depth)?);
        let world_from_camera = frame.world_from_camera;
        Ok(Some(Self { number: frame.camera, camera, depth, world_from_camera }))
    }

    /// Where the camera sees a point of its frame (m); none beside the image.
    pub(super) fn pixel(&self, p: [f32; 3]) -> Option<[f32; 2]> {
        let [u, v] = self.camera.project(p.map(f64::from))?;
        let [width, height] = self.depth.size().map(f64::from);
        let is_inside = u >= 0.5 && v >= 0.5 && u < width - 1.5 && v < height - 1.5;
        is_inside.then_some([u as f32, v as f32])
    }

    /// What is measured about a pixel: the depth in the middle of all, and the one nearest to `wanted_m`.
    fn about(&self, [u, v]: [f32; 2], wanted_m: f32) -> Option<[f32; 2]> {
        let (u, v) = (u.round() as u32, v.round() as u32);
        let mut found = [f32::NAN; 9];
        let mut n = 0;
        for (du, dv) in (0..9).map(|i| (i % 3, i / 3)) {
            let depth_m = self.depth.at([(u + du).saturating_sub(1), (v + dv).saturating_sub(1)]);
            if !depth_m.is_nan() {
                found[n] = depth_m;
                n += 1;
            }
        }
        let found = &mut found[..n];
        found.sort_unstable_by(f32::total_cmp);
        let off = |m: &&f32| (**m - wanted_m).abs();
        let nearest = found.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
        Some([*found.get(n / 2)?, *nearest])
    }
}

impl Buffer {
    /// Looks at the robot's `points`, which lie about `spacing_m` apart, with `eye`; what should be seen is
    /// in `glances` then. Returns how many points are in the picture.
    pub(super) fn look(&mut self, eye: &Eye, points: &[SurfacePoint], spacing_m: f64) -> usize {
        self.glances.clear();
        let camera_from_world = eye.world_from_camera.inverse().cast::<f32>();
        self.local.clear();
        let mut depths = Vec::new();
        for point in points {
            let p = (camera_from_world * Point3::from(point.position)).coords;
            let pixel = (p.z > NEAREST_M).then(|| eye.pixel(p.into())).flatten();
            if pixel.is_some() {
                depths.push(p.z);
            }
            self.local.push((p.into(), pixel.unwrap_or([f32::NAN; 2])));
        }
        if depths.is_empty() {
            return 0;
        }
        let n = depths.len();
        let (_, middle, _) = depths.select_nth_unstable_by(n / 2, f32::total_cmp);
        let cell_px = CELL * spacing_m * eye.camera.focal[0] / f64::from(*middle);
        let cell_px = cell_px.clamp(CELL_PX[0], CELL_PX[1]) as f32;
        self.fill(eye, cell_px);
        let focal = eye.camera.focal[0] as f32;
        for cell in 0..self.nearest.len() {
            let (point, depth_m) = self.nearest[cell];
            if point == u32::MAX || self.is_behind(cell, depth_m, cell_px * depth_m / focal) {
                continue;
            }
            let point = point as usize;
            let (p, pixel) = self.local[point];
            let normal = camera_from_world.rotation * Vector3::from(points[point].normal);
            let p = Vector3::from(p);
            if normal.dot(&p).abs() >= LEAST_FACING * p.norm() {
                self.glances.push(glance(eye, point, depth_m, pixel));
            }
        }
        n
    }

    fn fill(&mut self, eye: &Eye, cell_px: f32) {
        self.size = eye.depth.size().map(|n| (n as f32 / cell_px) as usize + 1);
        self.nearest.clear();
        self.nearest.resize(self.size[0] * self.size[1], (u32::MAX, f32::INFINITY));
        for (i, (p, [u, v])) in (0..).zip(&self.local) {
            if u.is_nan() {
                continue;
            }
            let cell = (v / cell_px) as usize * self.size[0] + (u / cell_px) as usize;
            if p[2] < self.nearest[cell].1 {
                self.nearest[cell] = (i, p[2]);
            }
        }
    }

    /// Whether a neighbour of a cell is nearer than a surface would be that is seen from the front: the
    /// cell's own point is another part's, or of the back.
    fn is_behind(&self, cell: usize, depth_m: f32, cell_m: f32) -> bool {
        let [width, height] = self.size;
        let (x, y) = (cell % width, cell / width);
        let (xs, ys) = (
            x.saturating_sub(1)..=(x + 1).min(width - 1),
            y.saturating_sub(1)..=(y + 1).min(height - 1),
        );
        ys.flat_map(|y| xs.clone().map(move |x| y * width + x))
            .any(|other| self.nearest[other].1 < depth_m - 1.5 * cell_m)
    }
}

fn glance(eye: &Eye, point: usize, depth_m: f32, pixel: [f32; 2]) -> Glance {
    let Some([middle_m, nearest_m]) = eye.about(pixel, depth_m) else {
        let nothing = f32::NAN;
        return Glance { point, fate: Fate::Unknown, beyond_m: nothing, stretch: nothing };
    };
    let off_m = nearest_m - depth_m;
    let near_m = SEEN_M + SEEN_PER_M2 * depth_m * depth_m;
    let fate = match off_m {
        off if off.abs() <= near_m => Fate::Seen,
        off if off < 0.0 => Fate::Hidden,
        _ => Fate::Through,
    };
    Glance { point, fate, beyond_m: middle_m - depth_m, stretch: middle_m / depth_m }
}
