//! Windows that begin where the first pass of a roll-out has led: what its later passes start from.
//!
//! A model that has only ever started from what was seen is told less in a second pass (no bodies, and of
//! motion only what it predicted itself), from places that are off. To learn it, a window is led on by the
//! model as it stands, without a gradient, and trained on from there ("pushforward", Brandstetter,
//! Worrall and Welling 2022).

use super::dataset::Window;
use forecloud::engine::model::{Mode, Rollout, RolloutConfig};
use forecloud::engine::rollout_input::StepState;
use forecloud::{Error, Result};

/// Leads windows on; keeps its buffers. What the cameras saw stays as it is: pixels don't teach beside it
/// ([`super::config::TrainConfig::validate`]).
#[derive(Debug)]
pub(super) struct SecondLook {
    first: Rollout,
    replan_interval: usize,
}

impl SecondLook {
    /// For models of `config`.
    pub(super) fn new(config: RolloutConfig) -> Self {
        Self {
            first: Rollout::new(config, Mode::Inference),
            replan_interval: config.replan_interval,
        }
    }

    /// Steps by which windows are led on.
    pub(super) fn replan_interval(&self) -> usize {
        self.replan_interval
    }

    /// Has `window` begin where the second pass of its roll-out by `weights` would, with the targets from
    /// there on.
    ///
    /// # Errors
    /// [`Error::Shape`] for a window of no more steps than that; as [`Rollout::run`].
    pub(super) fn lead_on(&mut self, weights: &[f32], window: &mut Window) -> Result<()> {
        let replan_interval = self.replan_interval;
        if window.targets.len() <= replan_interval {
            let (expected, got) = (replan_interval + 1, window.targets.len());
            return Err(Error::Shape { what: "steps of a window that is led on", expected, got });
        }
        self.first.run(weights, &window.scene, replan_interval)?;
        let mut start = StepState::default();
        self.first.lead_on(&mut start);
        let before = std::mem::replace(&mut window.scene.start, start);
        // One step back from there.
        window.back = match replan_interval {
            1 => before.positions,
            _ => window.targets[replan_interval - 2].clone(),
        };
        window.scene.kinematic.drain(..replan_interval);
        window.scene.n_planned = window.scene.n_planned.saturating_sub(replan_interval);
        window.scene.walk_seed = window.scene.walk_seed.step(1);
        window.targets.drain(..replan_interval);
        window.weights.drain(..replan_interval);
        window.moving.drain(..replan_interval);
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

    fn model(replan_interval: usize) -> ModelConfig {
        ModelConfig {
            width: 16,
            n_heads: 2,
            n_blocks: 1,
            n_particles: 256,
            n_history: 64,
            n_motion: 1024,
            n_kinematic: 32,
            steps_per_pass: 2,
            replan_interval: Some(replan_interval),
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
        for replan_interval in [1, 2] {
            let (config, seen) = (model(replan_interval).rollout(), window(model(replan_interval)));
            let weights = initial_weights(&Layout::new(config.interlacer), 3);
            let run = |scene: &forecloud::engine::rollout_input::RolloutInput, mode, n_steps| {
                let mut rollout = Rollout::new(config, mode);
                rollout.run(&weights, scene, n_steps).unwrap();
                rollout
            };
            let mut led = seen.clone();
            SecondLook::new(config).lead_on(&weights, &mut led).unwrap();
            let whole = run(&seen.scene, Mode::Inference, 3);
            let on = run(&led.scene, Mode::Training, 3 - replan_interval);
            for t in 0..replan_interval.min(3 - replan_interval) {
                let same = on.displacements(t) == whole.displacements(replan_interval + t);
                assert!(same, "stride {replan_interval}, step {t}");
            }
            assert!(on.displacements(0) != whole.displacements(0));
            assert!(led.targets == seen.targets[replan_interval..]);
            assert_eq!(
                (led.weights.len(), led.moving.len()),
                (3 - replan_interval, 3 - replan_interval)
            );
            assert!(led.moving == seen.moving[replan_interval..]);
            let back = [&seen.scene.start.positions, &seen.targets[0]][replan_interval - 1];
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
