//! An image of depths and colours, thinned.

use nalgebra::{Isometry3, Point3};

use crate::base::geometry::Vec3;
use crate::vision::camera::{Camera, ColorImage, DepthImage};
use crate::vision::frames::{CameraFrame, View};

/// Columns of an image that are kept, at most.
const COLUMNS: u32 = 320;
/// Kept pixels from an outline within which points are asked: farther inside of a surface, none tells.
const OUTLINE: usize = 4;
/// Farthest points that are asked (m): farther off, a small turn is a long way.
const FAR_M: f32 = 4.0;
/// Depths are the same where they differ by no more than this (m) and this share of them; one is behind another
/// where it is greater by more than the second.
const SAME: [f32; 2] = [0.005, 0.015];
const BEHIND: [f32; 2] = [0.02, 0.03];
/// Colours are the same where each channel differs by no more than this (0..255), others where one does by more than
/// the second: noise is less.
const SAME_COLOR: u8 = 10;
const OTHER_COLOR: u8 = 24;

/// Depths and colours of one image.
#[derive(Debug, Clone)]
pub(super) struct SeenImage {
    /// Number of its camera.
    pub camera: usize,
    pub world_from_camera: Isometry3<f64>,
    lens: Camera,
    /// Columns and rows that are kept, and pixels of the image between two of them.
    size: [usize; 2],
    every: u32,
    /// Row by row (mm); 0 where nothing was measured.
    depths_mm: Vec<u16>,
    /// Row by row; empty where colours are of another camera.
    colors: Vec<[u8; 3]>,
}

/// What a kept pixel sees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixel {
    pub depth_m: f32,
    color: Option<[u8; 3]>,
}

/// What another image says of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It saw that point there.
    Seen,
    /// It saw another.
    Other,
    /// It did not see that place, or is not sure.
    Nothing,
}

impl SeenImage {
    /// What `frame` sees, in the memory of `spare`; none of a camera that sends clouds.
    pub fn take(frame: &CameraFrame, spare: Option<Self>) -> Option<Self> {
        let View::Depth { depth, info, color } = &frame.view else { return None };
        // What can't be used was refused where points were made.
        let (lens, depth) = (Camera::new(info).ok()?, DepthImage::new(depth).ok()?);
        let color = color.as_ref().filter(|color| color.color_from_depth.is_none());
        let color = color.and_then(|color| ColorImage::new(&color.image).ok());
        let color = color.filter(|color| color.size() == depth.size());
        let [width, height] = depth.size();
        let every = width.div_ceil(COLUMNS).max(1);
        let size = [width, height].map(|n| n.div_ceil(every) as usize);
        let (mut depths_mm, mut colors) =
            spare.map(|spare| (spare.depths_mm, spare.colors)).unwrap_or_default();
        depths_mm.clear();
        colors.clear();
        for v in (0..height).step_by(every as usize) {
            // The conversion saturates, and makes NaN 0.
            let row = depth.row(v).step_by(every as usize);
            depths_mm.extend(row.map(|depth_m| (1e3 * depth_m + 0.5) as u16));
            if let Some(color) = &color {
                colors.extend(color.row(v).step_by(every as usize));
            }
        }
        let (camera, world_from_camera) = (frame.camera, frame.world_from_camera);
        Some(Self { camera, world_from_camera, lens, size, every, depths_mm, colors })
    }

    /// Kept pixels (column, row) close to where something is seen behind their surface, or to another colour.
    pub fn outlines(&self) -> impl Iterator<Item = [usize; 2]> {
        let [width, height] = self.size;
        let inside = |n: usize| OUTLINE..n.saturating_sub(OUTLINE);
        inside(height)
            .flat_map(move |v| inside(width).map(move |u| [u, v]))
            .filter(|at| self.is_at_outline(*at))
    }

    fn is_at_outline(&self, [u, v]: [usize; 2]) -> bool {
        let Some(here) = self.pixel(u, v) else { return false };
        let beside =
            [[u + OUTLINE, v], [u - OUTLINE, v], [u, v + OUTLINE], [u, v - OUTLINE]].into_iter();
        let mut beside = beside.filter_map(|[u, v]| self.pixel(u, v));
        beside.any(|beside| is_behind(beside.depth_m, here.depth_m) || here.is_other(&beside))
    }

    /// The point (world frame, m) that a kept pixel sees.
    pub fn point(&self, [u, v]: [usize; 2]) -> Option<(Vec3, Pixel)> {
        let seen = self.pixel(u, v)?;
        let pixel = [u, v].map(|at| at as f64 * f64::from(self.every));
        let ray = self.lens.ray(pixel).map(|x| x * f64::from(seen.depth_m));
        let p = Vec3::from((self.world_from_camera * Point3::from(ray)).coords.cast());
        (seen.depth_m <= FAR_M && p.iter().all(|x| x.is_finite())).then_some((p, seen))
    }

    fn pixel(&self, u: usize, v: usize) -> Option<Pixel> {
        let at = v * self.size[0] + u;
        let depth_m = f32::from(*self.depths_mm.get(at)?) / 1e3;
        (depth_m > 0.0).then(|| Pixel { depth_m, color: self.colors.get(at).copied() })
    }

    /// What this image, of a camera that `camera_from_world` leads to, tells of a point of the world that looks as
    /// `wanted`.
    pub fn tells(&self, camera_from_world: &Isometry3<f64>, p: &Vec3, wanted: &Pixel) -> Told {
        let p = camera_from_world * Point3::from(p.map(f64::from));
        let Some(pixel) = self.lens.project(p.coords.into()) else { return Told::Nothing };
        let [u, v] = pixel.map(|at| (at / f64::from(self.every)).round());
        let is_inside = |at: f64, size: usize| at >= 1.0 && at + 2.0 <= size as f64;
        if !is_inside(u, self.size[0]) || !is_inside(v, self.size[1]) {
            return Told::Nothing;
        }
        let (u, v, depth_m) = (u as usize, v as usize, p.z as f32);
        let mut told = Told::Other;
        // A pixel more or less does not tell: all about it must be another.
        for (u, v) in (v - 1..=v + 1).flat_map(|v| (u - 1..=u + 1).map(move |u| (u, v))) {
            let Some(seen) = self.pixel(u, v) else { return Told::Nothing };
            let is_there = (seen.depth_m - depth_m).abs() <= SAME[0] + SAME[1] * depth_m;
            if is_there && wanted.is_same(&seen) {
                return Told::Seen;
            }
            let is_other = is_behind(seen.depth_m, depth_m) || is_there && wanted.is_other(&seen);
            told = if is_other { told } else { Told::Nothing };
        }
        told
    }
}

impl Pixel {
    fn is_same(&self, other: &Self) -> bool {
        self.contrast(other).is_none_or(|contrast| contrast <= SAME_COLOR)
    }

    fn is_other(&self, other: &Self) -> bool {
        self.contrast(other).is_some_and(|contrast| contrast > OTHER_COLOR)
    }

    /// The greatest difference of a channel; none where there are no colours.
    fn contrast(&self, other: &Self) -> Option<u8> {
        let channels = self.color?.into_iter().zip(other.color?);
        channels.map(|(a, b)| a.abs_diff(b)).max()
    }
}

fn is_behind(seen_m: f32, depth_m: f32) -> bool {
    seen_m - depth_m > BEHIND[0] + BEHIND[1] * depth_m
}
