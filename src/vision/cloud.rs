//! The coloured point cloud of all cameras, in the world frame.

mod color;
mod depth;
mod level;
mod moved;
mod noise;
mod optics;
mod points;
mod proposal;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "read by devices beside the CPU"))]
pub(crate) mod raw;

use crate::base::error::{Error, Result};
pub use crate::message::MAX_PIXELS;
use crate::vision::frames::{CameraFrame, View};
pub use level::{Leveled, level_camera};
use nalgebra::Isometry3;
pub use noise::SensorNoise;
pub(crate) use optics::Optics;
pub use proposal::Place;
use rayon::prelude::*;

/// Cameras of one cloud at most: a source keeps the camera in 8 bits.
pub const MAX_CAMERAS: usize = 1 << 8;

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
    /// As good as no box: what is farther off was not measured.
    pub const EVERYWHERE: Self = Self { min: [-1e6; 3], max: [1e6; 3] };

    /// The box with these corners, where at least one is given; the other is this one's.
    pub fn with_corners(self, [min, max]: [Option<[f32; 3]>; 2]) -> Option<Self> {
        let is_given = min.is_some() || max.is_some();
        is_given.then(|| Self { min: min.unwrap_or(self.min), max: max.unwrap_or(self.max) })
    }

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

/// What became of the pixels of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct CloudCounts {
    /// Pixels of all cameras, and points of their clouds.
    pub n_pixels: usize,
    /// Pixels with a valid depth, and points that were measured.
    pub n_measured: usize,
    /// Points in the workspace: the points of the cloud.
    pub n_kept: usize,
    /// Of these: grey ones, because the colour camera does not see them or there is none.
    pub n_uncolored: usize,
}

/// Points in the world frame; the three vectors are equally long.
#[derive(Debug, Clone, Default)]
pub struct Cloud {
    /// x, y, z of each point, metres.
    pub positions: Vec<[f32; 3]>,
    /// Red, green, blue of each point.
    pub colors: Vec<[u8; 3]>,
    /// Where each point was seen: camera << 24 | pixel (row * width + column), or index in the
    /// camera's cloud; unique.
    pub sources: Vec<u32>,
    /// Where each camera stands that sends depth images, by its number, metres; NaN for others,
    /// whose clouds need not be seen from their frame's origin. No part of the value.
    pub eyes: Vec<[f32; 3]>,
    /// No part of the value.
    pub(crate) optics: Optics,
    /// What the parts of a view give, side by side: memory.
    pub(crate) parts: Vec<Part>,
}

/// Points of a part of a view.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    positions: Vec<[f32; 3]>,
    colors: Vec<[u8; 3]>,
    sources: Vec<u32>,
    n_measured: usize,
}

/// Parts of a view.
const N_PARTS: usize = 16;

impl PartialEq for Cloud {
    fn eq(&self, other: &Self) -> bool {
        self.positions == other.positions
            && self.colors == other.colors
            && self.sources == other.sources
    }
}

/// What the points of one cloud have in common.
struct Scan<'a> {
    /// The camera's number in the points' sources.
    camera: usize,
    world_from_camera: &'a Isometry3<f64>,
    workspace: &'a Workspace,
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
        self.eyes.clear();
    }

    /// Replaces the cloud by what `cameras` see in `workspace`, camera by camera, row by row.
    ///
    /// Depth that is not registered is coloured with what the colour camera sees at each point;
    /// points outside its image, or more than 2 cm and 2 % of their distance behind what it sees
    /// there, are [`GREY`]. A frame without a valid depth gives a cloud without points, which the
    /// counts tell. No allocation once the vectors have grown, while calibrations stay.
    ///
    /// # Errors
    /// [`Error::Encoding`], [`Error::ImageSize`] or [`Error::Camera`] if an image can't be read, a
    /// camera's distortion is of an unknown model, its number is not below [`MAX_CAMERAS`], or it
    /// has more than [`MAX_PIXELS`]. The cloud then has no points.
    pub fn from_cameras(
        &mut self,
        cameras: &[CameraFrame],
        workspace: &Workspace,
    ) -> Result<CloudCounts> {
        self.clear();
        let mut counts = CloudCounts::default();
        // Taken out, so that it can be used beside the points.
        let mut optics = std::mem::take(&mut self.optics);
        let added = cameras.iter().try_for_each(|camera| {
            let world_from_camera = &camera.world_from_camera;
            let (camera, view) = (camera.camera, &camera.view);
            let scan = Scan { camera, world_from_camera, workspace };
            match view {
                View::Points(points) => self.add_points(points, &scan, &mut counts),
                View::Depth { depth, info, color } => {
                    let color = color.as_ref();
                    self.add_depth((depth, info, color), &scan, &mut optics, &mut counts)?;
                    raw::add_eye(&mut self.eyes, camera, world_from_camera);
                    Ok(())
                }
            }
        });
        self.optics = optics;
        if added.is_err() {
            self.clear();
        }
        counts.n_kept = self.len();
        added.map(|()| counts)
    }

    /// Adds the points of a view, in the order of its `n` points or rows: `see` gives those of a range of
    /// them.
    fn add(
        &mut self,
        n: usize,
        counts: &mut CloudCounts,
        see: impl Fn(std::ops::Range<usize>, &mut Part) + Sync,
    ) {
        self.parts.resize_with(N_PARTS, Part::default);
        let of = n.div_ceil(N_PARTS).max(1);
        self.parts.par_iter_mut().enumerate().for_each(|(i, part)| {
            part.clear();
            see((i * of).min(n)..((i + 1) * of).min(n), part);
        });
        for part in &self.parts {
            self.positions.extend_from_slice(&part.positions);
            self.colors.extend_from_slice(&part.colors);
            self.sources.extend_from_slice(&part.sources);
            counts.n_measured += part.n_measured;
        }
    }
}

impl Part {
    fn clear(&mut self) {
        self.positions.clear();
        self.colors.clear();
        self.sources.clear();
        self.n_measured = 0;
    }

    fn push(&mut self, position: [f32; 3], color: [u8; 3], source: u32) {
        self.positions.push(position);
        self.colors.push(color);
        self.sources.push(source);
    }
}

/// Source of pixel or point 0 of a camera.
///
/// # Errors
/// [`Error::Camera`] if the sources have no room for the camera or its `n_pixels`.
fn first_source(camera: usize, n_pixels: u64, frame_id: &str) -> Result<u32> {
    let problem = if camera >= MAX_CAMERAS {
        format!("camera {camera} of a cloud: at most {MAX_CAMERAS} are supported")
    } else if n_pixels > MAX_PIXELS {
        format!("{n_pixels} pixels: at most {MAX_PIXELS} are supported")
    } else {
        return Ok((camera as u32) << 24);
    };
    Err(Error::Camera { frame_id: frame_id.to_owned(), problem })
}

#[cfg(test)]
mod tests;
