//! The coloured point cloud of all cameras, in the world frame.

use crate::camera::{ColorImage, DepthImage, Pinhole, check_size};
use crate::error::{Error, Result};
use crate::frames::{CameraFrame, ColorView, View};
use crate::graph::random::{draw, normal_pair, uniform};
use crate::message::{CameraInfo, Image, PointCloud2, Stamp};
use nalgebra::Isometry3;

/// Cameras of one cloud at most: a source keeps the camera in 8 bits.
pub const MAX_CAMERAS: usize = 1 << 8;
/// Pixels of one camera at most: a source keeps the pixel in 24 bits.
pub const MAX_PIXELS: u64 = 1 << 24;

/// Colour of points whose colour is not known.
pub const GREY: [u8; 3] = [128; 3];

/// Box in the world frame outside of which points are dropped; metres.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Lowest x, y, z.
    pub min: [f32; 3],
    /// Highest x, y, z.
    pub max: [f32; 3],
}

impl Default for Workspace {
    fn default() -> Self {
        Self { min: [-0.45, -0.5, -0.015], max: [0.55, 0.5, 0.65] }
    }
}

impl Workspace {
    /// Checks that the box is one.
    ///
    /// # Errors
    /// [`Error::Config`] unless every lowest coordinate is below the highest one, both finite.
    pub fn validate(&self) -> Result<()> {
        let axes = self.min.iter().zip(&self.max);
        if axes.clone().all(|(min, max)| min < max && (max - min).is_finite()) {
            return Ok(());
        }
        let problem = format!("min {:?} is not below max {:?} on every axis", self.min, self.max);
        Err(Error::Config { key: "workspace".into(), problem })
    }

    /// Whether `position` (world frame, m) lies in the box, its faces included; false for NaN.
    pub fn contains(&self, position: [f32; 3]) -> bool {
        (0..3).all(|i| (self.min[i]..=self.max[i]).contains(&position[i]))
    }
}

/// Noise of a depth sensor, added on loading: used in training and to test robustness.
///
/// Draws are by counter of (seed, stamp, camera and pixel): reading a frame again gives the same.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepthNoise {
    /// Seed of the draws.
    pub seed: u64,
    /// Standard deviation of the depth at distance 0, metres.
    pub sigma_base_m: f32,
    /// Growth of the standard deviation with the square of the depth, 1/m.
    pub sigma_quadratic: f32,
    /// Probability that a pixel is not measured, 0..1.
    pub missing_probability: f32,
}

impl DepthNoise {
    /// Streams of the draws of one pixel: missing, and error.
    const MISSING: u64 = 0;
    const ERROR: u64 = 1;

    /// The reading of a pixel at depth `depth_m`; NaN if it is missing.
    pub fn apply(&self, depth_m: f32, stamp: Stamp, source: u32) -> f32 {
        let bits = |stream| draw(self.seed, stamp.nanos(), u64::from(source), stream);
        if uniform(bits(Self::MISSING)) < self.missing_probability {
            return f32::NAN;
        }
        let sigma = self.sigma_base_m + self.sigma_quadratic * depth_m * depth_m;
        depth_m + sigma * normal_pair(bits(Self::ERROR))[0]
    }
}

/// What became of the pixels of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct CloudCounts {
    /// Pixels of all cameras.
    pub n_pixels: usize,
    /// Pixels with a valid depth.
    pub n_measured: usize,
    /// Points in the workspace: the points of the cloud.
    pub n_kept: usize,
}

/// Points in the world frame; the three vectors are equally long.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cloud {
    /// x, y, z of each point, metres.
    pub positions: Vec<[f32; 3]>,
    /// Red, green, blue of each point.
    pub colors: Vec<[u8; 3]>,
    /// Where each point was seen: camera << 24 | pixel (row * width + column); unique.
    pub sources: Vec<u32>,
}

impl Cloud {
    /// Number of points.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Removes the points and keeps the memory.
    pub fn clear(&mut self) {
        self.positions.clear();
        self.colors.clear();
        self.sources.clear();
    }

    /// Replaces the cloud by what `cameras` see in `workspace`, camera by camera, row by row.
    ///
    /// A frame without a valid depth gives a cloud without points, which the counts tell.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::ImageSize`] or [`Error::Camera`] if an image can't be read, a
    /// camera has distortion, there are more than [`MAX_CAMERAS`], or one has more than
    /// [`MAX_PIXELS`]. The cloud then has no points.
    pub fn from_cameras(
        &mut self,
        cameras: &[CameraFrame],
        workspace: &Workspace,
        noise: Option<&DepthNoise>,
    ) -> Result<CloudCounts> {
        self.clear();
        let mut counts = CloudCounts::default();
        for camera in cameras {
            let added = match &camera.view {
                View::Depth { depth, info, color } => {
                    let images = (depth, info.as_ref(), color.as_ref());
                    self.add_depth(camera, images, workspace, noise, &mut counts)
                }
                View::Points(cloud) => self.add_points(camera, cloud, workspace, &mut counts),
            };
            if let Err(error) = added {
                self.clear();
                return Err(error);
            }
        }
        counts.n_kept = self.len();
        Ok(counts)
    }

    fn add_depth(
        &mut self,
        camera: &CameraFrame,
        (depth_image, info, color): (&Image, &CameraInfo, Option<&ColorView>),
        workspace: &Workspace,
        noise: Option<&DepthNoise>,
        counts: &mut CloudCounts,
    ) -> Result<()> {
        let depth = DepthImage::new(depth_image)?;
        let [width, height] = depth.size();
        if color.is_some_and(|color| color.color_from_depth.is_some()) {
            let problem = "depth that is not registered is not read yet".to_owned();
            return Err(Error::Camera { frame_id: info.header.frame_id.clone(), problem });
        }
        let color =
            color.map(|color| ColorImage::new(&color.image, [width, height])).transpose()?;
        check_size(
            "camera info",
            &info.header.frame_id,
            [width, height],
            [info.width, info.height],
        )?;
        let n_pixels = u64::from(width) * u64::from(height);
        check_source(camera.camera, n_pixels, &depth_image.header.frame_id)?;
        let rays = WorldRays::new(&Pinhole::new(info)?, &camera.world_from_camera);
        let stamp = depth_image.header.stamp;
        counts.n_pixels += n_pixels as usize;
        for v in 0..height {
            let first_source = ((camera.camera as u32) << 24) | (v * width);
            let row_ray = rays.row(v);
            let mut colors = color.map(|color| color.row(v));
            for (u, measured) in (0u32..).zip(depth.row(v)) {
                let rgb = colors.as_mut().map_or(GREY, |row| row.next().unwrap_or(GREY));
                if measured.is_nan() {
                    continue;
                }
                let source = first_source + u;
                let depth_m = noise.map_or(measured, |noise| noise.apply(measured, stamp, source));
                counts.n_measured += usize::from(depth_m > 0.0);
                let position = rays.point(&row_ray, u, depth_m);
                if depth_m > 0.0 && workspace.contains(position) {
                    self.positions.push(position);
                    self.colors.push(rgb);
                    self.sources.push(source);
                }
            }
        }
        Ok(())
    }

    fn add_points(
        &mut self,
        camera: &CameraFrame,
        cloud: &PointCloud2,
        workspace: &Workspace,
        counts: &mut CloudCounts,
    ) -> Result<()> {
        let n_pixels = u64::from(cloud.width) * u64::from(cloud.height);
        check_source(camera.camera, n_pixels, &cloud.header.frame_id)?;
        counts.n_pixels += n_pixels as usize;
        let first_source = (camera.camera as u32) << 24;
        let world_from_camera = camera.world_from_camera.cast::<f32>();
        cloud.for_each(|index, point, rgb| {
            counts.n_measured += 1;
            let position = (world_from_camera * nalgebra::Point3::from(point)).coords.into();
            if workspace.contains(position) {
                self.positions.push(position);
                self.colors.push(if cloud.has_color() { rgb } else { GREY });
                self.sources.push(first_source | index);
            }
        });
        Ok(())
    }
}

fn check_source(camera: usize, n_pixels: u64, frame_id: &str) -> Result<()> {
    let problem = if camera >= MAX_CAMERAS {
        format!("camera {camera} of a cloud: at most {MAX_CAMERAS} are supported")
    } else if n_pixels > MAX_PIXELS {
        format!("an image of {n_pixels} pixels: at most {MAX_PIXELS} are supported")
    } else {
        return Ok(());
    };
    Err(Error::Camera { frame_id: frame_id.to_owned(), problem })
}

/// Rays of the pixels of a camera turned into the world frame: `point = origin + depth * ray`,
/// `ray = first + u * per_column + v * per_row`.
struct WorldRays {
    origin: [f32; 3],
    first: [f64; 3],
    per_column: [f32; 3],
    per_row: [f64; 3],
}

impl WorldRays {
    fn new(camera: &Pinhole, world_from_camera: &Isometry3<f64>) -> Self {
        let rotation = world_from_camera.rotation.to_rotation_matrix();
        let column = |i: usize| rotation.matrix().column(i).into_owned();
        let first = rotation * nalgebra::Vector3::from(camera.ray([0.0, 0.0]));
        Self {
            origin: world_from_camera.translation.vector.cast::<f32>().into(),
            first: first.into(),
            per_column: (column(0) / camera.focal[0]).cast::<f32>().into(),
            per_row: (column(1) / camera.focal[1]).into(),
        }
    }

    /// Ray of column 0 of row `v`.
    fn row(&self, v: u32) -> [f32; 3] {
        std::array::from_fn(|i| (self.first[i] + f64::from(v) * self.per_row[i]) as f32)
    }

    #[inline]
    fn point(&self, row_ray: &[f32; 3], u: u32, depth_m: f32) -> [f32; 3] {
        let u = u as f32;
        std::array::from_fn(|i| self.origin[i] + depth_m * (row_ray[i] + u * self.per_column[i]))
    }
}

#[cfg(test)]
mod tests;
