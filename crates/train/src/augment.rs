//! What is done to a window on loading: the draw of its particles, rotation.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::config::DatasetConfig;
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::ModelConfig;

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
#[derive(Debug, Clone, Copy)]
pub(super) struct Augmentation {
    center: Vec3,
    sin_cos: (f32, f32),
    mirror: bool,
}

impl Augmentation {
    pub(super) fn draw(rng: &mut ChaCha8Rng, config: &DatasetConfig, model: &ModelConfig) -> Self {
        let bound = config.rotation_rad;
        let angle = if bound > 0.0 { rng.random_range(-bound..bound) } else { 0.0 };
        let center = model.rollout().tokens.frame.center_m;
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
