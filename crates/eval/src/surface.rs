//! What the depth images of a frame measured: the surfaces that points are held against.
//!
//! The only place in the evaluation that knows how frames hold camera data.

use nalgebra::{Isometry3, Point3};

use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::message::{CameraInfo, Image};
use forecloud::vision::camera::{Camera, DepthImage, check_size};
use forecloud::vision::frames::{CameraFrame, Frame, View};

/// Tolerance at depth 0 (m): registration of the cameras to each other, and half a pixel of a
/// slanted surface.
pub const TOLERANCE_BASE_M: f32 = 0.005;
/// Growth of the tolerance with the square of the depth (1/m).
///
/// A disparity that is off by a fixed part of a pixel is off in depth by a multiple of z²: the
/// standard deviation of a Kinect is 1.4 mm · (z / 1 m)², that of a D435 about 4 mm · (z / 1 m)².
pub const TOLERANCE_QUADRATIC: f32 = 0.005;

/// Deviation up to which a point lies on a surface measured at `depth_m`.
pub fn tolerance_m(depth_m: f32) -> f32 {
    TOLERANCE_BASE_M + TOLERANCE_QUADRATIC * depth_m * depth_m
}

/// Where a point lies along a camera's ray, compared with the surface that the camera measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sight {
    /// Before the surface, in what the camera saw to be free: by so much along the optical axis
    /// (m).
    InFront(f32),
    /// On the surface, within the tolerance.
    Agrees,
    /// Behind the surface: hidden, nothing is known.
    Behind,
}

/// The depth image of one camera.
#[derive(Debug, Clone)]
pub struct DepthSurface {
    camera: Camera,
    camera_from_world: Isometry3<f64>,
    width: usize,
    /// Depths along the optical axis (m), row by row; NaN where nothing was measured.
    depths_m: Vec<f32>,
}

/// The depth images of all cameras of a frame.
#[derive(Debug, Clone, Default)]
pub struct Surfaces {
    cameras: Vec<DepthSurface>,
    /// Cameras that give clouds without depth images: nothing can be projected into them.
    pub n_without_depth: usize,
}

impl Surfaces {
    /// The surfaces that the cameras of `frame` measured.
    ///
    /// # Errors
    /// As [`forecloud::vision::cloud::Cloud::from_cameras`].
    pub fn new(frame: &Frame) -> Result<Self> {
        let mut surfaces = Self::default();
        for camera in &frame.cameras {
            match &camera.view {
                View::Depth { depth, info, .. } => {
                    surfaces.cameras.push(DepthSurface::new(camera, depth, info)?);
                }
                View::Points(_) => surfaces.n_without_depth += 1,
            }
        }
        Ok(surfaces)
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.cameras.is_empty()
    }

    /// What all cameras together say of `point` (world frame, m); none where no camera has a
    /// measurement.
    ///
    /// One camera that sees through a point is enough: it is in front, by the shortest way of
    /// those cameras. It is behind if no camera has it on its surface.
    pub fn look(&self, point: &Vec3) -> Option<Sight> {
        self.cameras.iter().filter_map(|camera| camera.look(point)).reduce(|a, b| match (a, b) {
            (Sight::InFront(a), Sight::InFront(b)) => Sight::InFront(a.min(b)),
            (Sight::InFront(_), _) | (Sight::Agrees, Sight::Behind) => a,
            (_, Sight::InFront(_)) | (Sight::Behind, _) => b,
            (Sight::Agrees, Sight::Agrees) => a,
        })
    }
}

impl DepthSurface {
    fn new(frame: &CameraFrame, depth: &Image, info: &CameraInfo) -> Result<Self> {
        let image = DepthImage::new(depth)?;
        let [width, height] = image.size();
        let size = [info.width, info.height];
        check_size("camera info", &info.header.frame_id, [width, height], size)?;
        Ok(Self {
            camera: Camera::new(info)?,
            camera_from_world: frame.world_from_camera.inverse(),
            width: width as usize,
            depths_m: (0..height).flat_map(|v| image.row(v)).collect(),
        })
    }

    /// Compares `point` (world frame, m) with the pixel it falls on and the eight around it; none
    /// unless it falls on a pixel with a measurement.
    ///
    /// It agrees if it lies on the surface of one of the nine: a projection is only as exact as
    /// the calibration, and depth jumps at edges. It is in front if it lies before all.
    pub fn look(&self, point: &Vec3) -> Option<Sight> {
        let local = self.camera_from_world * Point3::from(point.map(f64::from));
        let [u, v] = self.camera.project(local.coords.into())?;
        let height = self.depths_m.len() / self.width.max(1);
        let column = pixel(u, self.width)?;
        let row = pixel(v, height)?;
        if self.depths_m[row * self.width + column].is_nan() {
            return None;
        }
        let depth_m = local.z as f32;
        let (mut agrees, mut is_behind, mut ahead_m) = (false, false, f32::INFINITY);
        for v in row.saturating_sub(1)..=(row + 1).min(height - 1) {
            for u in column.saturating_sub(1)..=(column + 1).min(self.width - 1) {
                let measured_m = self.depths_m[v * self.width + u];
                if measured_m.is_nan() {
                    continue;
                }
                let (gap_m, tolerance_m) = (measured_m - depth_m, tolerance_m(measured_m));
                agrees |= gap_m.abs() <= tolerance_m;
                is_behind |= gap_m < -tolerance_m;
                ahead_m = ahead_m.min(gap_m);
            }
        }
        Some(match (agrees, is_behind) {
            (true, _) => Sight::Agrees,
            (false, true) => Sight::Behind,
            (false, false) => Sight::InFront(ahead_m),
        })
    }
}

/// Index of the pixel, of `n` in a row or column, whose centre lies nearest to `coordinate`.
fn pixel(coordinate: f64, n: usize) -> Option<usize> {
    let nearest = coordinate.round();
    (nearest >= 0.0 && nearest < n as f64).then_some(nearest as usize)
}

#[cfg(test)]
mod tests;
