//! Windows that begin where the first pass of a roll-out has led: what its later passes start from.
//!
//! A model that has only ever started from what was seen is told less in a second pass (no bodies, and of
//! motion only what it predicted itself), from places that are off. To learn it, a window is led on by the
//! model as it stands, without a gradient, and trained on from there ("pushforward", Brandstetter,
//! Worrall and Welling 2022).

use super::dataset::Window;
use forecloud::engine::model::{Mode, Rollout, RolloutConfig};
use forecloud::engine::scene::StepState;
use forecloud::{Error, Result};

/// Leads windows on; keeps its buffers. What the cameras saw stays as it is: pixels don't teach beside it
/// ([`super::config::TrainConfig::validate`]).
#[derive(Debug)]
pub(super) struct SecondLook {
    first: Rollout,
    stride: usize,
}

impl SecondLook {
    /// For models of `config`.
    pub(super) fn new(config: RolloutConfig) -> Self {
        Self { first: Rollout::new(config, Mode::Inference), stride: config.stride }
    }

    /// Steps by which windows are led on.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Has `window` begin where the second pass of its roll-out by `weights` would, with the targets from
    /// there on.
    ///
    /// # Errors
    /// [`Error::Shape`] for a window of no more steps than that; as [`Rollout::run`].
    pub(super) fn lead_on(&mut self, weights: &[f32], window: &mut Window) -> Result<()> {
        let stride = self.stride;
        if window.targets.len() <= stride {
            let (expected, got) = (stride + 1, window.targets.len());
            return Err(Error::Shape { what: "steps of a window that is led on", expected, got });
        }
        self.first.run(weights, &window.scene, stride)?;
        let mut start = StepState::default();
        self.first.lead_on(&mut start);
        let before = std::mem::replace(&mut window.scene.start, start);
        // One step back from there.
        window.back = match stride {
            1 => before.positions,
            _ => window.targets[stride - 2].clone(),
        };
        window.scene.kinematic.drain(..stride);
        window.scene.n_planned = window.scene.n_planned.saturating_sub(stride);
        window.scene.walk_seed = window.scene.walk_seed.step(1);
        window.targets.drain(..stride);
        window.weights.drain(..stride);
        window.moving.drain(..stride);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::super::config::DatasetConfig;
    use super::super::dataset::Dataset;
    use super::*;
    use forecloud::engine::model::{Layout, ModelConfig, weights::initial_weights};
    use forecloud::vision::frames::FramesConfig;

    fn model(stride: usize) -> ModelConfig {
        ModelConfig {
            width: 16,
            n_heads: 2,
            n_blocks: 1,
            n_particles: 256,
            n_history: 64,
            n_motion: 1024,
            n_kinematic: 32,
            chunk: 2,
            stride: Some(stride),
            ..ModelConfig::default()
        }
    }

    /// A window of three steps.
    fn window(model: ModelConfig) -> Window {
        let mut data = Dataset::new(DatasetConfig::default(), model, FramesConfig::default());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny_push");
        assert!(data.add(&path, "test").unwrap());
        let (mut rng, mut window) = (ChaCha8Rng::seed_from_u64(1), Window::default());
        assert!(data.get(0, &mut rng, 3, &mut window));
        window
    }

    #[test]
    fn what_is_led_on_is_trained_from_where_the_second_pass_starts() {
        for stride in [1, 2] {
            let (config, seen) = (model(stride).rollout(), window(model(stride)));
            let weights = initial_weights(&Layout::new(config.interlacer), 3);
            let run = |scene: &forecloud::engine::scene::Scene, mode, n_steps| {
                let mut rollout = Rollout::new(config, mode);
                rollout.run(&weights, scene, n_steps).unwrap();
                rollout
            };
            let mut led = seen.clone();
            SecondLook::new(config).lead_on(&weights, &mut led).unwrap();
            let whole = run(&seen.scene, Mode::Inference, 3);
            let on = run(&led.scene, Mode::Training, 3 - stride);
            for t in 0..stride.min(3 - stride) {
                let same = on.displacements(t) == whole.displacements(stride + t);
                assert!(same, "stride {stride}, step {t}");
            }
            assert!(on.displacements(0) != whole.displacements(0));
            assert!(led.targets == seen.targets[stride..]);
            assert_eq!((led.weights.len(), led.moving.len()), (3 - stride, 3 - stride));
            assert!(led.moving == seen.moving[stride..]);
            let back = [&seen.scene.start.positions, &seen.targets[0]][stride - 1];
            assert!(&led.back == back);
        }
    }

    #[test]
    fn a_window_that_ends_before_is_refused() {
        let (config, mut seen) = (model(2).rollout(), window(model(2)));
        let weights = initial_weights(&Layout::new(config.interlacer), 3);
        seen.targets.truncate(2);
        let refused = SecondLook::new(config).lead_on(&weights, &mut seen);
        assert!(refused.unwrap_err().to_string().contains("led on"));
    }
}
