//! What rays should see, and how far off what they see is.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use forecloud_video::{Picture, Ray, RayGradient, Rendered, Traced};

/// Rays, and what each should see: what lies beyond the farthest depth is white.
pub(crate) struct Targets {
    far_m: f32,
    pub(crate) rays: Vec<Ray>,
    wanted: Vec<Rendered>,
}

impl Targets {
    pub(crate) fn new(far_m: f32) -> Self {
        Self { far_m, rays: Vec::new(), wanted: Vec::new() }
    }

    /// Adds the ray of a pixel; false where no depth was measured.
    pub(crate) fn add(&mut self, picture: &Picture, pixel: usize, rng: &mut ChaCha8Rng) -> bool {
        let (depth_m, shift) = (picture.depths_m[pixel], rng.random());
        if depth_m.is_nan() {
            return false;
        }
        let color = match depth_m > self.far_m {
            true => [1.0; 3],
            false => picture.colors[pixel].map(|c| f32::from(c) / 255.0),
        };
        self.rays.push(picture.ray(pixel, shift));
        self.wanted.push(Rendered { color, depth_m });
        true
    }

    /// Adds rays of random pixels until there are `n`, where so many are found.
    pub(crate) fn add_random(&mut self, pictures: &[Picture], n: usize, rng: &mut ChaCha8Rng) {
        // Bounded: there may be no measured pixel.
        for _ in 0..4 * n {
            if self.rays.len() >= n || pictures.is_empty() {
                break;
            }
            let picture = &pictures[rng.random_range(0..pictures.len())];
            self.add(picture, rng.random_range(0..picture.n_pixels()), rng);
        }
    }

    /// Mean over the rays of the squared errors of colour and, times `depth_weight` (1/m²), of depth;
    /// and its gradients, times `scale`.
    pub(crate) fn loss(
        &self,
        traced: &Traced,
        depth_weight: f32,
        scale: f32,
    ) -> (f32, Vec<RayGradient>) {
        let per_ray = 1.0 / self.rays.len().max(1) as f32;
        let mut loss = 0.0;
        let seen = traced.rays().zip(&self.wanted);
        let gradients = seen.map(|(seen, wanted)| {
            let depth_m = seen.depth_m - wanted.depth_m.min(self.far_m);
            let off: [f32; 3] = std::array::from_fn(|c| seen.color[c] - wanted.color[c]);
            let squares = off.iter().map(|x| x * x).sum::<f32>();
            loss += per_ray * (squares + depth_weight * depth_m * depth_m);
            let slope = 2.0 * scale * per_ray;
            RayGradient { color: off.map(|x| slope * x), depth: slope * depth_weight * depth_m }
        });
        let gradients = gradients.collect();
        (loss, gradients)
    }
}
