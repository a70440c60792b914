//! The rays of all pixels of a camera with distortion.

use super::Camera;
use crate::base::error::{Error, Result};
use crate::message::MAX_PIXELS;
use rayon::prelude::*;

/// [`Camera::ray`] of every pixel of an image: made once per calibration, for cameras whose rays
/// take an iteration each.
#[derive(Debug, Clone, PartialEq)]
pub struct RayTable {
    camera: Camera,
    size: [u32; 2],
    /// x and y at depth 1 m, row by row.
    rays: Vec<[f32; 2]>,
}

impl RayTable {
    /// Of an image of `size` (width, height), pixels.
    ///
    /// # Errors
    /// [`Error::Shape`] above [`MAX_PIXELS`].
    pub fn new(camera: Camera, size: [u32; 2]) -> Result<Self> {
        let [width, height] = size;
        let n_pixels = u64::from(width) * u64::from(height);
        if n_pixels > MAX_PIXELS {
            let (expected, got) = (MAX_PIXELS as usize, n_pixels as usize);
            return Err(Error::Shape { what: "pixels of a camera, at most", expected, got });
        }
        let mut rays = vec![[0.0; 2]; n_pixels as usize];
        let rows = rays.par_chunks_mut(width.max(1) as usize);
        rows.zip(0u32..height).for_each(|(row, v)| {
            for (ray, u) in row.iter_mut().zip(0u32..) {
                let [x, y, _] = camera.ray([f64::from(u), f64::from(v)]);
                *ray = [x as f32, y as f32];
            }
        });
        Ok(Self { camera, size, rays })
    }

    /// Whether this is the table of `camera` with images of `size` (width, height).
    pub fn is_of(&self, camera: &Camera, size: [u32; 2]) -> bool {
        self.camera == *camera && self.size == size
    }

    /// x and y, at depth 1 m, of each column of row `v`; NaN where [`Camera::ray`] has none. No
    /// values if there is no such row.
    pub fn row(&self, v: u32) -> &[[f32; 2]] {
        let width = self.size[0] as usize;
        self.rays.get(v as usize * width..).and_then(|rays| rays.get(..width)).unwrap_or(&[])
    }

    /// x and y, at depth 1 m, of all pixels, row by row.
    pub(crate) fn rays(&self) -> &[[f32; 2]] {
        &self.rays
    }

    /// Pixels without a ray.
    pub fn n_without_ray(&self) -> usize {
        self.rays.iter().filter(|ray| ray[0].is_nan()).count()
    }
}
