//! Named settings of a training run.

use super::config::{Schedule, TrainConfig};
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig};
use forecloud::engine::model::{Inputs, ModelConfig};
use forecloud::engine::step_graph::MaskConfig;

/// Model and training by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// What `Default` says: for one machine's CPU.
    #[default]
    Default,
    /// The GRF Interlacer of GRF masking (ICLR 2025, section 4.4, appendix C.3), as far as the paper
    /// tells and recordings allow.
    ///
    /// Its own: one step a pass, with nothing told but places, colours, times and the robot's particles, and
    /// no word for how sure it is; k = 3, 27 repelling walks of 3 hops, one head and ReLU features in the local layer,
    /// 32,768 particles a time step, drawn uniformly; AdamW, batch 16, weight decay 1e-3, gradient norm clipped to
    /// 0.01, roll-outs of 6 steps, learning rate 3e-4 until step 1,000, then 1e-4, 100,000 steps.
    /// Not told, so as in [`Preset::Default`]: width, blocks, heads of the global layer, kinematic
    /// particles, AdamW's decays. Ours: the loss (true flow; rendered images, 128 rays a step, beside it or
    /// alone where [`super::pixels`] teach) and steps of 0.1 s.
    Paper,
}

impl Preset {
    /// All presets and their names.
    pub const ALL: [(&str, Self); 2] = [("default", Self::Default), ("paper", Self::Paper)];

    /// The model.
    pub fn model(self) -> ModelConfig {
        let default = ModelConfig::default();
        match self {
            Self::Default => default,
            Self::Paper => ModelConfig {
                k: 3,
                n_hops: 3,
                n_particles: 32_768,
                n_history: 32_768,
                support_stride: 1,
                mask: MaskConfig {
                    walks: Some(WalkConfig {
                        sampler: Sampler::Repelling,
                        n_walks: 27,
                        halting: Halting::Hops(3),
                        importance: true,
                    }),
                    ..MaskConfig::default()
                },
                steps_per_pass: 1,
                replan_interval: None,
                inputs: Inputs::Paper,
                tells_sigma: false,
                ..default
            },
        }
    }

    /// How it is trained.
    pub fn train(self) -> TrainConfig {
        let mut config = TrainConfig::default();
        if self == Self::Paper {
            config.steps = 100_000;
            config.batch = 16;
            config.learning_rate = 3e-4;
            config.warm_up = 0;
            config.schedule = Schedule::Drop { step: 1000, factor: 1.0 / 3.0 };
            config.curriculum = vec![(0.0, 6)];
            config.step_discount = 0.0;
            config.second_looks = 0.0;
            config.average_decay = 0.0;
            config.adamw.weight_decay = 1e-3;
            config.adamw.max_norm = 0.01;
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_the_default_is_default() {
        for (name, preset) in Preset::ALL {
            preset.model().validate().unwrap_or_else(|e| panic!("{name}: {e}"));
            preset.train().validate().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        assert_eq!(Preset::Default.model(), ModelConfig::default());
        assert_eq!(Preset::Default.train(), TrainConfig::default());
    }

    #[test]
    fn what_the_papers_have_does_not_hang_on_defaults() {
        let (model, train) = (Preset::Paper.model(), Preset::Paper.train());
        assert_eq!(
            (model.steps_per_pass, model.replan_interval, model.inputs),
            (1, None, Inputs::Paper)
        );
        assert!(!model.tells_sigma);
        assert_eq!((train.step_discount, train.second_looks), (0.0, 0.0));
    }

    #[test]
    fn the_papers_rate_drops_to_a_third_after_a_thousand_steps() {
        let config = Preset::Paper.train();
        assert_eq!(config.learning_rate(0), 3e-4);
        assert_eq!(config.learning_rate(999), 3e-4);
        assert!((config.learning_rate(1000) - 1e-4).abs() < 1e-10);
        assert!((config.learning_rate(99_999) - 1e-4).abs() < 1e-10);
        assert_eq!([0, 50_000, 99_999].map(|step| config.horizon(step)), [6; 3]);
    }
}
