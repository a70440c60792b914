//! Cameras with and without distortion, and the readings of their images.
//!
//! Optical frame: x right, y down, z forward, metres (REP 103). Pixel centres lie at integer
//! coordinates.

mod distortion;
mod images;
mod polynomial;
mod rays;
#[cfg(test)]
mod tests;

use crate::base::error::{Error, Result};
use crate::message::CameraInfo;
use distortion::Distortion;

pub use images::{ColorImage, DEPTH_RANGE_M, DepthImage};
pub use images::{Layout, check_size, write_depths};
pub use rays::RayTable;

/// Intrinsic parameters of a camera.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Camera {
    /// Focal lengths: x, y; pixels.
    pub focal: [f64; 2],
    /// Principal point: column, row; pixels.
    pub center: [f64; 2],
    distortion: Option<Distortion>,
}

impl Camera {
    /// The camera of the raw image that `info` describes, read from its matrix `k` and its
    /// distortion `d`.
    ///
    /// Models: `plumb_bob` and `rational_polynomial` (4, 5 or 8 coefficients; 12 or 14 if those
    /// of thin prisms and tilt are zero), `equidistant` and `fisheye` (4). Coefficients that are
    /// all zero mean no distortion, whatever the model, as in ROS's `image_geometry`.
    ///
    /// # Errors
    /// [`Error::Camera`] if the distortion is of another model, or `k` is not that of a camera.
    pub fn new(info: &CameraInfo) -> Result<Self> {
        let error = |problem| Error::Camera { frame_id: info.header.frame_id.clone(), problem };
        let [fx, skew, cx, _, fy, cy, ..] = info.k;
        let is_focal = |f: f64| f.is_finite() && f > 0.0;
        if !is_focal(fx) || !is_focal(fy) || !cx.is_finite() || !cy.is_finite() || skew != 0.0 {
            return Err(error(format!("matrix k {:?} is not that of a pinhole camera", info.k)));
        }
        let distortion = Distortion::new(&info.distortion_model, &info.d).map_err(error)?;
        Ok(Self { focal: [fx, fy], center: [cx, cy], distortion })
    }

    /// Whether there is no distortion: rays are linear in the pixel, and no [`RayTable`] is
    /// needed.
    pub fn is_pinhole(&self) -> bool {
        self.distortion.is_none()
    }

    /// Point at depth 1 m behind the pixel (column, row), optical frame.
    ///
    /// x and y are NaN if no point within the range of the distortion model is seen there, or if
    /// the inverse of the distortion has not converged: with a result, [`Camera::project`] leads
    /// back to the pixel within 1e-6 pixels.
    pub fn ray(&self, pixel: [f64; 2]) -> [f64; 3] {
        let axis = |i: usize| (pixel[i] - self.center[i]) / self.focal[i];
        let image = [axis(0), axis(1)];
        let [x, y] = match &self.distortion {
            None => image,
            Some(distortion) => distortion.undistort(image).unwrap_or([f64::NAN; 2]),
        };
        [x, y, 1.0]
    }

    /// Pixel (column, row) that sees `point` (optical frame, m), in the image or beside it.
    ///
    /// `None` behind the camera, and beyond the range of the distortion model: where its
    /// polynomials fold back, points far outside would land in the image.
    pub fn project(&self, point: [f64; 3]) -> Option<[f64; 2]> {
        let [x, y, z] = point;
        if z <= 0.0 || z.is_nan() {
            return None;
        }
        let image = match &self.distortion {
            None => [x / z, y / z],
            Some(distortion) => distortion.distort([x / z, y / z])?,
        };
        Some([0, 1].map(|i| self.focal[i] * image[i] + self.center[i]))
    }
}
