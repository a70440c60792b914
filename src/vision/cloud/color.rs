//! Colours of points from an image that their depth is not registered to.

use super::GREY;
use super::optics::Rays;
use crate::base::geometry::Rigid;
use crate::vision::camera::{Camera, ColorImage, DepthImage};
use nalgebra::Isometry3;

/// How far a point may lie behind what the colour camera sees there: metres, and as a share of its
/// distance. More than the noise of depth and the slant of a surface within a cell explain.
const SLACK_M: f32 = 0.02;
const SLACK_SHARE: f32 = 0.02;

/// Half of a depth pixel's width in the buffer, and some more.
const OVERLAP: f64 = 0.6;

/// What the colour camera sees nearest in each cell of its image, by the depth image: points
/// behind it are hidden, and their pixel shows what hides them.
#[derive(Debug, Clone, Default)]
pub(super) struct DepthBuffer {
    /// Pixels of a cell's side: about as many as a pixel of the depth image covers.
    cell: u32,
    /// Cells of a row.
    width: usize,
    /// Least distances along the optical axis, metres, row by row.
    nearest: Vec<f32>,
}

impl DepthBuffer {
    /// Fills the buffer for a colour image of `size` (width, height) from all of a depth image
    /// with the given focal length (pixels); `rays` lead into the colour camera's frame.
    pub(super) fn fill(
        &mut self,
        depth: &DepthImage,
        rays: &impl Rays,
        camera: &Camera,
        size: [u32; 2],
        depth_focal: f64,
    ) {
        self.cell = (camera.focal[0] / depth_focal).clamp(1.0, 64.0) as u32;
        let [width, height] = size.map(|n| n.div_ceil(self.cell) as usize);
        self.width = width;
        self.nearest.clear();
        self.nearest.resize(width * height, f32::INFINITY);
        let per_cell = 1.0 / f64::from(self.cell);
        // A pixel of the depth image hides what it covers, with some overlap for slanted surfaces.
        let reach = (OVERLAP * camera.focal[0] / depth_focal * per_cell).min(2.0);
        for v in 0..depth.size()[1] {
            let row = rays.row(v);
            for (u, measured) in (0u32..).zip(depth.row(v)) {
                let point = rays.point(&row, u, measured);
                let Some(pixel) = camera.project(point.map(f64::from)) else { continue };
                let center = pixel.map(|p| (p + 0.5) * per_cell - 0.5);
                // Cells whose centres are covered; conversions saturate beside the image.
                let [columns, rows] = [(center[0], width), (center[1], height)].map(|(p, n)| {
                    (p - reach).ceil() as usize..((p + reach + 1.0).floor() as usize).min(n)
                });
                for y in rows {
                    for x in columns.clone() {
                        let nearest = &mut self.nearest[y * width + x];
                        *nearest = nearest.min(point[2]);
                    }
                }
            }
        }
    }

    /// Gives points (world frame, m) the colours of the pixels that see them, and [`GREY`] to
    /// those that no pixel sees; how many these are.
    pub(super) fn colorize<'a>(
        &self,
        points: impl Iterator<Item = (&'a [f32; 3], &'a mut [u8; 3])>,
        color_from_world: &Isometry3<f64>,
        camera: &Camera,
        image: &ColorImage,
    ) -> usize {
        let rigid = Rigid::from_isometry(color_from_world);
        let mut n_unseen = 0;
        for (position, color) in points {
            let seen = self.pixel(rigid.apply(position), camera, image.size());
            let seen = seen.and_then(|pixel| image.pixel(pixel));
            n_unseen += usize::from(seen.is_none());
            *color = seen.unwrap_or(GREY);
        }
        n_unseen
    }

    /// The pixel that sees a point of the colour camera's frame.
    fn pixel(&self, point: [f32; 3], camera: &Camera, size: [u32; 2]) -> Option<[u32; 2]> {
        let [x, y] = camera.project(point.map(f64::from))?.map(f64::round);
        let is_inside = x >= 0.0 && y >= 0.0 && x < f64::from(size[0]) && y < f64::from(size[1]);
        let [u, v] = is_inside.then_some([x as u32, y as u32])?;
        let cell = (v / self.cell) as usize * self.width + (u / self.cell) as usize;
        let nearest = *self.nearest.get(cell)?;
        (point[2] <= nearest * (1.0 + SLACK_SHARE) + SLACK_M).then_some([u, v])
    }
}
