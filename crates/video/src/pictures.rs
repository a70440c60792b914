//! What cameras saw, at the size that is encoded and drawn: colours, depths, rays.

use nalgebra::{Isometry3, Point3};

use super::Ray;
use forecloud::Result;
use forecloud::base::geometry::{Rigid, Vec3};
use forecloud::vision::camera::{Camera, ColorImage, check_size};
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::{CameraFrame, View};

/// How far behind the nearest of a pixel's measurements another may lie to be of the same surface:
/// metres, and as a share of its depth.
const SLACK_M: f64 = 0.02;
const SLACK_SHARE: f64 = 0.02;

/// A camera's colour image, reduced, and its depths.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Which camera, as in [`CameraFrame::camera`].
    pub camera: usize,
    /// Width and height, pixels.
    pub size: [u32; 2],
    /// Red, green and blue, row by row.
    pub colors: Vec<[u8; 3]>,
    /// Depths along the optical axis (m); NaN where nothing was measured.
    pub depths_m: Vec<f32>,
    /// What gave each depth, as [`Cloud::sources`]; empty once they were kept ([`super::Spool`]).
    pub sources: Vec<u32>,
    pub(super) lens: Camera,
    pub(super) world_from_camera: Isometry3<f64>,
}

impl Picture {
    /// Pictures of the `cameras` that have colour, at most `most` (width, height) pixels large: the means
    /// of as many pixels as it takes a side. Each pixel's depth is that of the measurement next to its
    /// middle, of those that nothing hides; `cloud` is scratch.
    ///
    /// # Errors
    /// As [`Cloud::from_cameras`].
    pub fn of_cameras(
        cameras: &[CameraFrame],
        most: [u32; 2],
        cloud: &mut Cloud,
    ) -> Result<Vec<Self>> {
        let mut pictures = Vec::new();
        for camera in cameras {
            let View::Depth { color: Some(color), .. } = &camera.view else { continue };
            let image = ColorImage::new(&color.image)?;
            let (size, info) = (image.size(), &color.info);
            check_size("camera info", &info.header.frame_id, size, [info.width, info.height])?;
            let shares = [0, 1].map(|axis| size[axis].div_ceil(most[axis]).max(1));
            let factor = shares[0].max(shares[1]);
            let size = size.map(|n| n / factor);
            if size.contains(&0) {
                continue;
            }
            let mut lens = Camera::new(info)?;
            // Pixel centres lie at whole numbers, before and after.
            let reduced = |x: f64| (x + 0.5) / f64::from(factor) - 0.5;
            lens.focal = lens.focal.map(|f| f / f64::from(factor));
            lens.center = lens.center.map(reduced);
            let color_from_depth = color.color_from_depth.unwrap_or_else(Isometry3::identity);
            let world_from_camera = camera.world_from_camera * color_from_depth.inverse();
            let n_pixels = size[0] as usize * size[1] as usize;
            let mut picture = Self {
                camera: camera.camera,
                size,
                colors: reduce(&image, factor, size),
                depths_m: vec![f32::NAN; n_pixels],
                sources: vec![0; n_pixels],
                lens,
                world_from_camera,
            };
            cloud.from_cameras(std::slice::from_ref(camera), &Workspace::EVERYWHERE)?;
            picture.measure(cloud);
            pictures.push(picture);
        }
        Ok(pictures)
    }

    /// Takes the depths of a cloud.
    fn measure(&mut self, cloud: &Cloud) {
        let camera_from_world = self.world_from_camera.inverse();
        let [width, height] = self.size.map(f64::from);
        let place = |position: &Vec3| {
            let point = camera_from_world * Point3::from(position.map(f64::from));
            let [u, v] = self.lens.project(point.into())?;
            let [column, row] = [u.round(), v.round()];
            let is_inside = column >= 0.0 && row >= 0.0 && column < width && row < height;
            let pixel = row as usize * self.size[0] as usize + column as usize;
            let off = (u - column).powi(2) + (v - row).powi(2);
            is_inside.then_some((pixel, off, point.z))
        };
        let places: Vec<_> = cloud.positions.iter().map(place).collect();
        let mut nearest = vec![(f64::INFINITY, f64::INFINITY); self.depths_m.len()];
        for (pixel, _, depth_m) in places.iter().flatten() {
            nearest[*pixel].0 = nearest[*pixel].0.min(*depth_m);
        }
        for (place, &source) in places.iter().zip(&cloud.sources) {
            let Some((pixel, off, depth_m)) = *place else { continue };
            let (least_m, best) = &mut nearest[pixel];
            if depth_m <= *least_m * (1.0 + SLACK_SHARE) + SLACK_M && off < *best {
                *best = off;
                self.depths_m[pixel] = depth_m as f32;
                self.sources[pixel] = source;
            }
        }
    }

    /// Number of pixels.
    pub fn n_pixels(&self) -> usize {
        self.colors.len()
    }

    /// Column and row of pixel number `pixel`.
    pub fn place_of(&self, pixel: usize) -> [u32; 2] {
        let pixel = pixel as u32;
        [pixel % self.size[0], pixel / self.size[0]]
    }

    /// Colours from 0 to 1.
    pub fn unit_colors(&self) -> Vec<[f32; 3]> {
        self.colors.iter().map(|color| color.map(|c| f32::from(c) / 255.0)).collect()
    }

    /// The same as they can be drawn: white where what was measured lies beyond `far_m`, as the
    /// renderer's background is.
    pub fn drawable_colors(&self, far_m: f32) -> Vec<[f32; 3]> {
        let colors = self.unit_colors().into_iter().zip(&self.depths_m);
        colors.map(|(color, depth_m)| if *depth_m > far_m { [1.0; 3] } else { color }).collect()
    }

    /// The ray of a pixel; without direction (NaN) where the lens sees nothing.
    pub fn ray(&self, pixel: usize, shift: f32) -> Ray {
        let rigid = Rigid::from_isometry(&self.world_from_camera);
        let direction = self.lens.ray(self.place_of(pixel).map(f64::from)).map(|x| x as f32);
        Ray { origin: rigid.translation(), direction: rigid.turn(&direction), shift }
    }

    /// The point (world frame, m) that was measured at a pixel; none where there is none from `near_m`
    /// to `far_m`.
    pub fn point(&self, pixel: usize, [near_m, far_m]: [f32; 2]) -> Option<Vec3> {
        let depth_m = self.depths_m[pixel];
        if !(near_m..=far_m).contains(&depth_m) {
            return None;
        }
        let Ray { origin, direction, .. } = self.ray(pixel, 0.0);
        let point: Vec3 = std::array::from_fn(|axis| origin[axis] + depth_m * direction[axis]);
        point.iter().all(|x| x.is_finite()).then_some(point)
    }
}

/// Means of `factor`² pixels each, rounded.
fn reduce(image: &ColorImage, factor: u32, [width, height]: [u32; 2]) -> Vec<[u8; 3]> {
    let mut colors = Vec::with_capacity((width * height) as usize);
    for v in 0..height {
        let mut sums = vec![[0u32; 3]; width as usize];
        for row in v * factor..(v + 1) * factor {
            let used = image.row(row).take((width * factor) as usize);
            for (u, color) in (0u32..).zip(used) {
                let sum = &mut sums[(u / factor) as usize];
                sum.iter_mut().zip(color).for_each(|(sum, c)| *sum += u32::from(c));
            }
        }
        let n = factor * factor;
        colors.extend(sums.iter().map(|sum| sum.map(|sum| ((sum + n / 2) / n) as u8)));
    }
    colors
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use forecloud::vision::frames::FramesConfig;
    use forecloud_bag::recording::Recording;

    /// Those of the first frame of a small recording.
    pub(crate) fn of_tiny_push(most: [u32; 2]) -> Vec<Picture> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tiny_push");
        let recording = Recording::open(path.as_ref(), FramesConfig::default()).unwrap();
        let mut pictures = Vec::new();
        let _ = recording.play(|frame, _| {
            pictures = Picture::of_cameras(&frame.cameras, most, &mut Cloud::default()).unwrap();
            Err(())
        });
        pictures
    }
}
