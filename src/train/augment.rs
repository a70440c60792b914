//! What is done to a window on loading: noise of the cameras, the draw of its particles, rotation.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::dataset::{DatasetConfig, Sample, distance};
use crate::graph::random::normal_pair;
use crate::model::ModelConfig;
use crate::particles::Particles;

type Vec3 = [f32; 3];

/// Noise of one window's cameras: error along each point's ray.
pub(super) struct Noise {
    base_m: f32,
    quadratic: f32,
}

impl Noise {
    pub(super) fn draw(rng: &mut ChaCha8Rng, config: &DatasetConfig) -> Self {
        let strength = rng.random_range(0.0..2.0f32);
        Self {
            base_m: strength * config.noise_base_m,
            quadratic: strength * config.noise_quadratic,
        }
    }

    /// The sample's points with noise on each.
    pub(super) fn cloud(&self, rng: &mut ChaCha8Rng, sample: &Sample, out: &mut Particles) {
        out.positions.clear();
        out.colors.clear();
        for (i, p) in sample.positions.iter().enumerate() {
            let center = sample.camera_centers[usize::from(sample.cameras[i])];
            let range = distance(p, &center);
            let sigma = self.base_m + self.quadratic * range * range;
            let error = sigma * normal_pair(rng.random())[0] / range.max(1e-3);
            out.positions.push(std::array::from_fn(|a| p[a] + error * (p[a] - center[a])));
            out.colors.push(sample.colors[i].map(|c| f32::from(c) / 255.0));
        }
    }
}

/// Draws `n` of `total` places uniformly, ascending (selection sampling: Knuth, algorithm S).
pub(super) fn choose(rng: &mut ChaCha8Rng, total: usize, n: usize, chosen: &mut Vec<u32>) {
    chosen.clear();
    for i in 0..total {
        let (left, wanted) = (total - i, n.min(total) - chosen.len());
        if rng.random_range(0..left) < wanted {
            chosen.push(i as u32);
        }
    }
}

/// A rotation about the workspace's vertical axis, perhaps mirrored.
pub(super) struct Augmentation {
    center: Vec3,
    sin_cos: (f32, f32),
    mirror: bool,
}

impl Augmentation {
    pub(super) fn draw(rng: &mut ChaCha8Rng, config: &DatasetConfig, model: &ModelConfig) -> Self {
        let bound = config.rotation_rad;
        let angle = if bound > 0.0 { rng.random_range(-bound..bound) } else { 0.0 };
        let center = model.rollout().frame.center_m;
        Self { center, sin_cos: angle.sin_cos(), mirror: rng.random_bool(0.5) }
    }

    pub(super) fn apply(&self, positions: &mut [Vec3]) {
        let (sin, cos) = self.sin_cos;
        for p in positions {
            let (x, mut y) = (p[0] - self.center[0], p[1] - self.center[1]);
            if self.mirror {
                y = -y;
            }
            p[0] = self.center[0] + cos * x - sin * y;
            p[1] = self.center[1] + sin * x + cos * y;
        }
    }
}
