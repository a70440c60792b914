//! From pictures to particles that carry features, and from these to pictures as they will be.

use super::{Encoded, Encoder, Picture, Ray, Rendered, Renderer, Scene, VideoModel};
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::base::random::draw;

/// Draws of particles, apart from those of the predictor.
const STREAM: u64 = 0x0076_6964_656f;

/// Particles drawn from pictures: where they are, and which pixel of which picture saw them.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Positions (world frame, m).
    pub positions: Vec<Vec3>,
    /// Number of the picture, and of its pixel.
    pub pixels: Vec<(usize, usize)>,
}

impl Seen {
    /// At most `n` of the points from `near_m` to `far_m` that `pictures` measured, all alike: the ones
    /// whose hash of (seed, stamp, picture, pixel) is lowest.
    pub fn draw(
        pictures: &[Picture],
        n: usize,
        range_m: [f32; 2],
        (seed, stamp_ns): (u64, i64),
    ) -> Self {
        let mut keys = Vec::new();
        for (number, picture) in pictures.iter().enumerate() {
            let measured = (0..picture.n_pixels())
                .filter(|&pixel| (range_m[0]..=range_m[1]).contains(&picture.depths_m[pixel]));
            let key = |pixel| {
                (draw(seed, stamp_ns, ((number << 32) | pixel) as u64, STREAM), number, pixel)
            };
            keys.extend(measured.map(key));
        }
        if keys.len() > n {
            keys.select_nth_unstable(n);
            keys.truncate(n);
        }
        keys.sort_unstable_by_key(|(_, number, pixel)| (*number, *pixel));
        let mut seen = Self::default();
        for (_, number, pixel) in keys {
            if let Some(point) = pictures[number].point(pixel, range_m) {
                seen.positions.push(point);
                seen.pixels.push((number, pixel));
            }
        }
        seen
    }

    /// Features of the particles, `[n, n_features]`.
    pub fn features(&self, pictures: &[Picture], encoded: &[Encoded], n: usize) -> Vec<f32> {
        let rows = self.pixels.iter().map(|&(number, pixel)| {
            let row = encoded[number].row_of(pictures[number].place_of(pixel));
            &encoded[number].features()[row * n..][..n]
        });
        rows.flatten().copied().collect()
    }

    /// Gradients of the pictures' features from those of the particles'.
    pub fn features_backward(
        &self,
        pictures: &[Picture],
        encoded: &[Encoded],
        d_particles: &[f32],
        n: usize,
    ) -> Vec<Vec<f32>> {
        let mut d: Vec<Vec<f32>> =
            encoded.iter().map(|encoded| vec![0.0; encoded.features().len()]).collect();
        for (&(number, pixel), d_particle) in self.pixels.iter().zip(d_particles.chunks_exact(n)) {
            let row = encoded[number].row_of(pictures[number].place_of(pixel));
            let to = &mut d[number][row * n..][..n];
            to.iter_mut().zip(d_particle).for_each(|(to, d)| *to += d);
        }
        d
    }
}

/// One frame as it can be drawn: its particles with what they carry.
pub struct Drawing<'a> {
    model: &'a VideoModel,
    /// The particles, where the frame saw them.
    pub seen: Seen,
    features: Vec<f32>,
}

impl<'a> Drawing<'a> {
    /// Encodes `pictures` of a frame of this stamp, by themselves, and draws its particles.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn new(
        model: &'a VideoModel,
        pictures: &[Picture],
        seed: u64,
        stamp_ns: i64,
    ) -> Result<Self> {
        let config = &model.layout.config;
        let range_m = [config.near_m, config.far_m];
        let seen = Seen::draw(pictures, config.n_particles, range_m, (seed, stamp_ns));
        let encoder = Encoder::new(&model.layout, &model.weights);
        let encode = |picture: &Picture| encoder.encode(picture, &[]);
        let encoded = pictures.iter().map(encode).collect::<Result<Vec<Encoded>>>()?;
        let features = seen.features(pictures, &encoded, config.n_features);
        Ok(Self { model, seen, features })
    }

    /// What its particles carry, `[n, n_features]`.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// What the camera of `picture` sees when the particles are at `positions` (world frame, m), one for
    /// each of [`Self::seen`]: pixel by pixel.
    ///
    /// # Errors
    /// As [`Scene::new`].
    pub fn draw(&self, positions: &[Vec3], picture: &Picture) -> Result<Vec<Rendered>> {
        let scene = Scene::new(&self.model.layout, positions, &self.features)?;
        let rays: Vec<Ray> = (0..picture.n_pixels()).map(|pixel| picture.ray(pixel, 0.5)).collect();
        Ok(Renderer::new(&self.model.layout, &self.model.weights).draw(&scene, &rays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VideoConfig, VideoLayout, of_tiny_push};
    use nalgebra::Point3;

    fn pictures() -> Vec<Picture> {
        of_tiny_push([40, 30])
    }

    #[test]
    fn points_of_pixels_lie_on_their_rays() {
        let pictures = pictures();
        assert_eq!(pictures.len(), 2);
        for picture in &pictures {
            assert!(picture.size[0] <= 40 && picture.size[1] <= 30 && picture.size[0] > 20);
            let mut n_measured = 0;
            for pixel in 0..picture.n_pixels() {
                let Some(point) = picture.point(pixel, [0.1, 5.0]) else { continue };
                let [u, v] = picture.place_of(pixel);
                let camera =
                    picture.world_from_camera.inverse() * Point3::from(point.map(f64::from));
                let back = picture.lens.project(camera.into()).unwrap();
                assert!(
                    (back[0] - f64::from(u)).abs() < 1e-2 && (back[1] - f64::from(v)).abs() < 1e-2
                );
                n_measured += 1;
            }
            assert!(2 * n_measured > picture.n_pixels(), "{n_measured} of {}", picture.n_pixels());
        }
    }

    #[test]
    fn particles_carry_the_features_of_their_pixels() {
        let pictures = pictures();
        let config = VideoConfig { n_particles: 300, ..VideoConfig::default() };
        let layout = VideoLayout::new(config).unwrap();
        let model = VideoModel { weights: layout.initial_weights(1), layout };
        let drawing = Drawing::new(&model, &pictures, 4, 5).unwrap();
        assert_eq!(drawing.seen.positions.len(), 300);
        let encoder = Encoder::new(&model.layout, &model.weights);
        let encoded: Vec<Encoded> =
            pictures.iter().map(|p| encoder.encode(p, &[]).unwrap()).collect();
        // The gradient of Σ d·features is d, summed where a pixel has it.
        let d = vec![1.0; drawing.features.len()];
        let back = drawing.seen.features_backward(&pictures, &encoded, &d, 16);
        assert_eq!(back.iter().flatten().sum::<f32>(), d.len() as f32);
        let all: f32 = drawing.features.iter().sum();
        let product = back.iter().zip(&encoded);
        let product: f32 =
            product.flat_map(|(d, e)| d.iter().zip(e.features())).map(|(d, f)| d * f).sum();
        assert!((all - product).abs() < 1e-2 * all.abs().max(1.0), "{all}, {product}");
        let drawn = drawing.draw(&drawing.seen.positions, &pictures[1]).unwrap();
        assert_eq!(drawn.len(), pictures[1].n_pixels());
        let again = Drawing::new(&model, &pictures, 4, 5).unwrap();
        assert_eq!(again.seen.pixels, drawing.seen.pixels);
        assert_ne!(Drawing::new(&model, &pictures, 5, 5).unwrap().seen.pixels, drawing.seen.pixels);
    }
}
