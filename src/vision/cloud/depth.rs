//! Points of depth images.

use super::color::DepthBuffer;
use super::optics::{Lenses, LinearRays, Optics, Rays, TableRays};
use super::{Cloud, CloudCounts, GREY, Scan, first_source};
use crate::base::error::Result;
use crate::message::{CameraInfo, Image};
use crate::vision::camera::{ColorImage, DepthImage, check_size};
use crate::vision::frames::ColorView;
use nalgebra::Isometry3;
use std::sync::Arc;

/// A depth image and what its points are coloured with.
struct Pictures<'a> {
    depth: DepthImage<'a>,
    /// Focal length of the depth image, pixels.
    focal: f64,
    color: Option<&'a ColorView>,
    first_source: u32,
}

/// The depth image of camera number `camera`, and the source of its first pixel.
///
/// # Errors
/// As [`DepthImage::new`], [`check_size`] and [`first_source`].
pub(super) fn checked_depth<'a>(
    image: &'a Image,
    info: &CameraInfo,
    camera: usize,
) -> Result<(DepthImage<'a>, u32)> {
    let depth = DepthImage::new(image)?;
    check_size("camera info", &info.header.frame_id, depth.size(), [info.width, info.height])?;
    let n_pixels = u64::from(image.width) * u64::from(image.height);
    Ok((depth, first_source(camera, n_pixels, &image.header.frame_id)?))
}

impl Cloud {
    /// Adds the points of a depth image, coloured with a registered image or another camera's.
    pub(super) fn add_depth(
        &mut self,
        (image, info, color): (&Image, &Arc<CameraInfo>, Option<&ColorView>),
        scan: &Scan,
        optics: &mut Optics,
        counts: &mut CloudCounts,
    ) -> Result<()> {
        let (depth, first_source) = checked_depth(image, info, scan.camera)?;
        counts.n_pixels += image.width as usize * image.height as usize;
        let Optics { depth: lenses, color: color_lenses, buffer } = optics;
        let lens = lenses.of(scan.camera, info)?;
        let camera = lens.camera;
        let pictures = Pictures { depth, focal: camera.focal[0], color, first_source };
        match lens.table()? {
            None => {
                let rays = |pose: &Isometry3<f64>| LinearRays::new(&camera, pose);
                self.add_pictures(&pictures, rays, scan, (color_lenses, buffer), counts)
            }
            Some(table) => {
                let rays = |pose: &Isometry3<f64>| TableRays::new(table, pose);
                self.add_pictures(&pictures, rays, scan, (color_lenses, buffer), counts)
            }
        }
    }

    fn add_pictures<R: Rays + Sync>(
        &mut self,
        pictures: &Pictures,
        rays: impl Fn(&Isometry3<f64>) -> R,
        scan: &Scan,
        (color_lenses, buffer): (&mut Lenses, &mut DepthBuffer),
        counts: &mut CloudCounts,
    ) -> Result<()> {
        let Pictures { depth, color, .. } = pictures;
        let (start, world) = (self.len(), rays(scan.world_from_camera));
        let grey = |_| std::iter::repeat(GREY);
        let Some(color) = color else {
            self.add_rows(pictures, &world, grey, scan, counts);
            counts.n_uncolored += self.len() - start;
            return Ok(());
        };
        let image = ColorImage::new(&color.image)?;
        let Some(color_from_depth) = &color.color_from_depth else {
            let frame_id = &color.image.header.frame_id;
            check_size("colour image", frame_id, depth.size(), image.size())?;
            self.add_rows(pictures, &world, |v| image.row(v), scan, counts);
            return Ok(());
        };
        let camera = color_lenses.of(scan.camera, &color.info)?.camera;
        self.add_rows(pictures, &world, grey, scan, counts);
        buffer.fill(depth, &rays(color_from_depth), &camera, image.size(), pictures.focal);
        let color_from_world = color_from_depth * scan.world_from_camera.inverse();
        let points = self.positions[start..].iter().zip(&mut self.colors[start..]);
        counts.n_uncolored += buffer.colorize(points, &color_from_world, &camera, &image);
        Ok(())
    }

    fn add_rows<R: Rays + Sync, C: Iterator<Item = [u8; 3]>>(
        &mut self,
        pictures: &Pictures,
        rays: &R,
        colors: impl Fn(u32) -> C + Sync,
        scan: &Scan,
        counts: &mut CloudCounts,
    ) {
        let Pictures { depth, first_source, .. } = pictures;
        let [width, height] = depth.size();
        self.add(height as usize, counts, |rows, part| {
            for v in rows.start as u32..rows.end as u32 {
                let row = rays.row(v);
                for (u, (depth_m, color)) in (0u32..).zip(depth.row(v).zip(colors(v))) {
                    if depth_m.is_nan() {
                        continue;
                    }
                    part.n_measured += 1;
                    let position = rays.point(&row, u, depth_m);
                    if scan.workspace.contains(position) {
                        part.push(position, color, first_source + v * width + u);
                    }
                }
            }
        });
    }
}
