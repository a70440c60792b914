//! What a depth camera measures of a scene whose exact depth images are known.
//!
//! A camera that triangulates (stereo, structured light) measures disparities `f b / z`. Errors
//! and steps of the disparity that are the same everywhere grow in depth with z² (Khoshelham and
//! Elberink 2012, Accuracy and resolution of Kinect depth data, Eq. 8 to 10). Disparity noise,
//! rounded to steps, is the sensor model of Barron and Malik 2013 (Intrinsic scene properties from
//! a single RGB-D image) and of Handa et al. 2014 (A benchmark for RGB-D visual odometry). That
//! depth fails at edges and on surfaces seen at a grazing angle was measured by Nguyen, Izadi and
//! Lovell 2012 (Modeling Kinect sensor noise). What only one of the two imagers sees can't be
//! triangulated at all.

mod field;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::random::{draw, uniform};
use crate::base::simd::vectorized;
use crate::message::{CameraInfo, Image};
use crate::vision::camera::{Camera, DepthImage, write_depths};
use crate::vision::frames::{Frame, View};
use field::{Field, Holes};

/// Image width that lengths in pixels are given for.
const WIDTH_PX: f32 = 320.0;
/// Tangent of the angle of incidence from which on surfaces may not be measured: 72°.
const GRAZING_TAN: f32 = 3.0;
/// Streams of the draws of a pixel, a lattice point or a cell.
const WHITE: u64 = 0;
const LATTICE: u64 = 1;
const EDGE: u64 = 2;
const HOLE: u64 = 3;
/// Stream of the draw of a recording's strength.
const STRENGTH: u64 = 4;

/// Noise of depth images; applied to exact ones it gives what a camera would have measured.
///
/// The default is a RealSense D435 (848 columns, 90°) before textured surfaces, as its maker
/// describes it: an error of 3.8 mm · (z / 1 m)² (standard deviation) in steps of 1.5 mm ·
/// (z / 1 m)². A D415 or D455 is near a strength of 0.4. Draws are by counter of (seed, stamp,
/// camera and pixel), each frame's apart from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SensorNoise {
    /// Scales errors, steps and probabilities: 0 leaves images as they are, 1 is the camera that
    /// the other fields describe.
    pub strength: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Distance between the two imagers (or imager and projector), m.
    pub baseline_m: f32,
    /// Focal length at the resolution at which disparities are measured, pixels.
    pub focal_px: f32,
    /// Standard deviation of the disparity, pixels at that resolution.
    pub disparity_sigma_px: f32,
    /// Step of the disparity, pixels at that resolution.
    pub disparity_step_px: f32,
    /// Share of the disparity's variance that neighbouring pixels have in common, 0..1.
    pub correlated_share: f32,
    /// Distance over which they do, in pixels of an image of 320 columns.
    pub correlation_px: f32,
    /// Jump of the depth beyond the surface's slope that counts as an edge, m.
    pub edge_m: f32,
    /// Probability that a pixel at an edge is not measured, at 1 m; it grows with the depth.
    pub edge_missing: f32,
    /// Probability that a pixel at an edge gets a depth between those of both sides.
    pub edge_flying: f32,
    /// Probability that a surface is not measured as the angle of incidence nears 90°; 0 up to 72°.
    pub grazing_missing: f32,
    /// Share of the pixels that lie in round holes.
    pub hole_share: f32,
    /// Largest radius of a hole, in pixels of an image of 320 columns.
    pub hole_radius_px: f32,
}

impl Default for SensorNoise {
    fn default() -> Self {
        Self {
            strength: 1.0,
            seed: 0,
            baseline_m: 0.05,
            focal_px: 424.0,
            disparity_sigma_px: 0.08,
            disparity_step_px: 1.0 / 32.0,
            correlated_share: 0.5,
            correlation_px: 3.0,
            edge_m: 0.01,
            edge_missing: 0.3,
            edge_flying: 0.15,
            grazing_missing: 0.8,
            hole_share: 0.003,
            hole_radius_px: 5.0,
        }
    }
}

/// A depth image on its way through the model.
struct Picture {
    size: [usize; 2],
    /// Focal length of the image, pixels.
    focal_px: f32,
    /// Inverse depths, 1/m, in which planes are linear; NaN where nothing was measured.
    inverse: Vec<f32>,
}

impl SensorNoise {
    /// What `strength` may be.
    pub const STRENGTH: RangeInclusive<f32> = 0.0..=10.0;

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the first one that makes no sense.
    pub fn validate(&self) -> Result<()> {
        let probability = 0.0..=1.0;
        let length = 1.0..=100.0;
        let fields = [
            ("strength", self.strength, Self::STRENGTH),
            ("baseline_m", self.baseline_m, 1e-3..=10.0),
            ("focal_px", self.focal_px, 1.0..=1e5),
            ("disparity_sigma_px", self.disparity_sigma_px, 0.0..=10.0),
            ("disparity_step_px", self.disparity_step_px, 0.0..=10.0),
            ("correlated_share", self.correlated_share, probability.clone()),
            ("correlation_px", self.correlation_px, length.clone()),
            ("edge_m", self.edge_m, 1e-4..=10.0),
            ("edge_missing", self.edge_missing, probability.clone()),
            ("edge_flying", self.edge_flying, probability.clone()),
            ("grazing_missing", self.grazing_missing, probability),
            // Holes don't overlap: there is no room for many.
            ("hole_share", self.hole_share, 0.0..=Holes::MAX_SHARE),
            ("hole_radius_px", self.hole_radius_px, length),
        ];
        match fields.into_iter().find(|(_, value, range)| !range.contains(value)) {
            None => Ok(()),
            Some((name, value, range)) => {
                let (low, high) = range.into_inner();
                let problem = format!("{value} is not in {low}..={high}");
                Err(Error::Config { key: format!("sensor_noise.{name}"), problem })
            }
        }
    }

    /// The same with draws of its own for the recording at `path`, by its name alone: recordings
    /// can have the same stamps.
    pub fn of_recording(self, path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let seed = name.iter().fold(self.seed, |seed, &byte| draw(seed, 0, u64::from(byte), 0));
        Self { seed, ..self }
    }

    /// The same of a strength between 0 and twice its own, drawn by the seed.
    pub fn with_drawn_strength(self) -> Self {
        Self { strength: 2.0 * self.strength * uniform(draw(self.seed, 0, 0, STRENGTH)), ..self }
    }

    /// Standard deviation of a depth of `depth_m`, m; without steps.
    pub fn sigma_m(&self, depth_m: f32) -> f32 {
        self.strength * self.disparity_sigma_px * depth_m * depth_m
            / (self.focal_px * self.baseline_m)
    }

    /// Replaces the depth images of `frame` by what the camera would have measured, in their
    /// encodings; point clouds stay as they are.
    ///
    /// # Errors
    /// As [`crate::vision::cloud::Cloud::from_cameras`], for images that can't be read.
    pub fn apply(&self, frame: &mut Frame) -> Result<()> {
        for camera in &mut frame.cameras {
            if let View::Depth { depth, info, .. } = &mut camera.view {
                self.apply_to(depth, info, camera.camera)?;
            }
        }
        Ok(())
    }

    /// The same for the depth image of camera number `camera`.
    ///
    /// # Errors
    /// As [`SensorNoise::apply`].
    pub fn apply_to(&self, image: &mut Image, info: &CameraInfo, camera: usize) -> Result<()> {
        if self.strength <= 0.0 {
            return Ok(());
        }
        let picture = Picture::new(image, info)?;
        let stamp_ns = image.header.stamp.nanos();
        let bits = |stream: u64, index: usize| {
            draw(self.seed, stamp_ns, (camera as u64) << 32 | index as u64, stream)
        };
        let mut inverse = picture.inverse.clone();
        self.hide_from_one_imager(&picture, &mut inverse);
        self.disturb_edges(&picture, &mut inverse, |pixel| bits(EDGE, pixel));
        self.punch_holes(&picture, &mut inverse, |cell| bits(HOLE, cell));
        self.disturb_disparities(&picture, &mut inverse, bits);
        // 1 / NaN is NaN.
        inverse.iter_mut().for_each(|inverse| *inverse = 1.0 / *inverse);
        write_depths(image, &inverse)
    }

    /// Removes what a nearer surface hides from the imager to the right.
    fn hide_from_one_imager(&self, picture: &Picture, out: &mut [f32]) {
        let disparity_px = self.strength * self.baseline_m * picture.focal_px;
        let width = picture.size[0];
        let rows = picture.inverse.chunks_exact(width).zip(out.chunks_exact_mut(width));
        for (row, out) in rows {
            // Columns of the right image, from the right: those already taken hide what is behind.
            let mut taken = f32::INFINITY;
            for (u, (inverse, out)) in row.iter().zip(out).enumerate().rev() {
                let column = u as f32 - disparity_px * inverse;
                if column > taken {
                    *out = f32::NAN;
                }
                taken = taken.min(column);
            }
        }
    }

    /// Removes pixels at edges and on grazing surfaces, and lets some at edges fly.
    fn disturb_edges(&self, picture: &Picture, out: &mut [f32], bits: impl Fn(usize) -> u64) {
        let [width, height] = picture.size;
        let mut shapes = vec![Shape::Plain; width];
        // The outermost pixels have no neighbours on both sides.
        for v in 1..height.saturating_sub(1) {
            let rows = &picture.inverse[(v - 1) * width..(v + 2) * width];
            find_shapes(rows, [self.edge_m, picture.focal_px], &mut shapes);
            for (u, shape) in shapes.iter().enumerate().filter(|(_, s)| **s != Shape::Plain) {
                let pixel = v * width + u;
                let depth_m = 1.0 / picture.inverse[pixel];
                let (missing, flying) = if *shape == Shape::Edge {
                    (self.edge_missing * depth_m, self.edge_flying)
                } else {
                    let tan = picture.focal_px * depth_m * picture.slope(pixel);
                    (self.grazing_missing * (1.0 - GRAZING_TAN / tan), 0.0)
                };
                let bits = bits(pixel);
                let (fate, between) = (uniform(bits), uniform(bits << 32));
                if fate < self.strength * missing {
                    out[pixel] = f32::NAN;
                } else if fate < self.strength * (missing + flying) && !out[pixel].is_nan() {
                    let [far, near] = picture.range(pixel);
                    out[pixel] = far + between * (near - far);
                }
            }
        }
    }

    fn punch_holes(&self, picture: &Picture, out: &mut [f32], bits: impl Fn(usize) -> u64) {
        let scale = picture.size[0] as f32 / WIDTH_PX;
        let radius_px = (self.hole_radius_px * scale).max(1.0);
        Holes { radius_px, share: self.strength * self.hole_share }.punch(picture.size, out, bits);
    }

    /// Adds the error of the disparities and rounds them.
    fn disturb_disparities(
        &self,
        picture: &Picture,
        out: &mut [f32],
        bits: impl Fn(u64, usize) -> u64,
    ) {
        let [width, height] = picture.size;
        let px = self.focal_px * self.baseline_m;
        let sigma = self.strength * self.disparity_sigma_px / px;
        let step = self.strength * self.disparity_step_px / px;
        let spacing = (self.correlation_px * width as f32 / WIDTH_PX).max(1.0);
        let field = Field::new(picture.size, spacing, |i| nearly_normal(bits(LATTICE, i)));
        let own = sigma * (1.0 - self.correlated_share).sqrt();
        let common = sigma * self.correlated_share.sqrt();
        let (mut errors, mut smooth) = (vec![0.0; width], vec![0.0; width]);
        for v in 0..height {
            field.row(v, &mut smooth);
            for (u, error) in errors.iter_mut().enumerate() {
                *error = own * nearly_normal(bits(WHITE, v * width + u)) + common * smooth[u];
            }
            round_to_steps(&mut out[v * width..][..width], &errors, step);
        }
    }
}

vectorized! {
    /// Adds errors to a row of inverse depths, and rounds the sums to steps.
    fn round_to_steps(inverse: &'a mut [f32], errors: &'a [f32], step: f32) {
        for (inverse, error) in inverse.iter_mut().zip(errors) {
            let noisy = *inverse + error;
            let rounded = if step > 0.0 { (noisy / step).round_ties_even() * step } else { noisy };
            // No disparity is left: as far as infinity. NaN stays NaN.
            *inverse = if rounded > 0.0 { rounded } else { f32::NAN };
        }
    }
}

vectorized! {
    /// Shapes of the pixels of the middle one of three `rows` of inverse depths, which are as long
    /// as `shapes`; those of a plain surface where a neighbour has no measurement.
    fn find_shapes(rows: &'a [f32], camera: [f32; 2], shapes: &'a mut [Shape]) {
        let width = shapes.len();
        let [edge_m, focal_px] = camera;
        let (above, rest) = rows.split_at(width);
        let (here, below) = rest.split_at(width);
        for u in 1..width.saturating_sub(1) {
            let (own, left, right) = (here[u], here[u - 1], here[u + 1]);
            // Comparisons with NaN are false.
            let columns = (left + right - 2.0 * own).abs();
            let rows = (above[u] + below[u] - 2.0 * own).abs();
            let jump = edge_m * own * own;
            let slopes = (right - left) * (right - left) + (below[u] - above[u]) * (below[u] - above[u]);
            let steepest = 2.0 * GRAZING_TAN * own / focal_px;
            shapes[u] = if columns > jump || rows > jump {
                Shape::Edge
            } else if slopes > steepest * steepest {
                Shape::Grazing
            } else {
                Shape::Plain
            };
        }
    }
}

/// Sum of four uniform numbers, scaled to mean 0 and variance 1 (Irwin and Hall): close to normal
/// up to 3.4, and several times as fast.
#[inline(always)]
fn nearly_normal(bits: u64) -> f32 {
    let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    // Variance of one: 2³² / 12.
    (sum as u32 as f32 - 131_070.0) * (1.732_050_8 / 65_536.0)
}

/// What inverse depth looks like around a pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Plain,
    /// A surface seen at a grazing angle.
    Grazing,
    /// The depth jumps.
    Edge,
}

impl Picture {
    fn new(image: &Image, info: &CameraInfo) -> Result<Self> {
        let depth = DepthImage::new(image)?;
        let size = depth.size();
        let mut inverse = Vec::with_capacity(size[0] as usize * size[1] as usize);
        for v in 0..size[1] {
            inverse.extend(depth.row(v).map(|depth_m| 1.0 / depth_m));
        }
        let focal_px = Camera::new(info)?.focal[0] as f32;
        Ok(Self { size: size.map(|n| n as usize), focal_px, inverse })
    }

    /// The pixel and its four neighbours.
    fn around(&self, pixel: usize) -> [f32; 5] {
        let width = self.size[0];
        [pixel, pixel - 1, pixel + 1, pixel - width, pixel + width].map(|i| self.inverse[i])
    }

    /// Change of inverse depth per pixel, 1/m.
    fn slope(&self, pixel: usize) -> f32 {
        let [_, left, right, above, below] = self.around(pixel);
        0.5 * (right - left).hypot(below - above)
    }

    /// Least and greatest inverse depth around a pixel.
    fn range(&self, pixel: usize) -> [f32; 2] {
        // `min` and `max` leave out NaN.
        let around = self.around(pixel);
        [around.into_iter().fold(f32::NAN, f32::min), around.into_iter().fold(f32::NAN, f32::max)]
    }
}
