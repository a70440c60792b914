//! Models that do not run on a GPU.

use super::rollout::scene;
use super::*;
use crate::engine::backend::{Backend, Device};
use crate::engine::graph::EdgeWeights;
use crate::engine::graph::walks::{Halting, Sampler, WalkConfig};
use crate::engine::lab::encodings::BOTH;
use crate::engine::lab::layers::{K_MIP, MESSAGE_PASSING, SOFTMAX};
use crate::engine::model::weights::initial_weights;
use crate::engine::model::{
    self, FeatureMap, GlobalLayer, LayersConfig, Layout, LocalLayer, MaskConfig, Mode,
};
use crate::engine::model::{Model, ModelConfig};

/// A model's other settings, by what tells of them.
fn other_models() -> Vec<(ModelConfig, &'static str)> {
    let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
    let layers = |layers| ModelConfig { layers, ..usual };
    let mask = |mask| ModelConfig { mask, ..usual };
    let (default, walks) = (
        LayersConfig::default(),
        WalkConfig {
            sampler: Sampler::Repelling,
            n_walks: 4,
            halting: Halting::Hops(3),
            importance: true,
        },
    );
    let distance = EdgeWeights::Distance { bandwidth_m: 0.1 };
    let favor = FeatureMap::Favor { n_features: 24, seed: 5 };
    vec![
        (
            layers(LayersConfig { local: MESSAGE_PASSING, ..default }),
            "layers.local message_passing",
        ),
        (layers(LayersConfig { local: LocalLayer::Linear, ..default }), "layers.local linear"),
        (layers(LayersConfig { local: LocalLayer::None, ..default }), "layers.local none"),
        (layers(LayersConfig { global: SOFTMAX, ..default }), "layers.global softmax"),
        (layers(LayersConfig { global: K_MIP, ..default }), "layers.global k_mip"),
        (layers(LayersConfig { global: GlobalLayer::None, ..default }), "layers.global none"),
        (
            layers(LayersConfig { feature_map: FeatureMap::Elu, ..default }),
            "layers.feature_map elu",
        ),
        (
            layers(LayersConfig { feature_map: FeatureMap::Squared, ..default }),
            "layers.feature_map squared",
        ),
        (layers(LayersConfig { feature_map: favor, ..default }), "layers.feature_map {\"favor\""),
        (mask(MaskConfig { walks: Some(walks), ..Default::default() }), "sampled walks"),
        (
            mask(MaskConfig { edge_weights: distance, ..Default::default() }),
            "edge_weights {\"distance\"",
        ),
        (ModelConfig { encodings: BOTH, ..usual }, "encodings"),
        (ModelConfig { width: 266, ..usual }, "width 266"),
        (ModelConfig { width: 264, n_heads: 2, ..usual }, "width 264"),
        (ModelConfig { width: 34, n_heads: 17, ..usual }, "17 heads"),
    ]
}

#[test]
fn models_that_do_not_run_here_are_named_and_auto_takes_the_cpu() {
    standin::load();
    for (config, told) in other_models() {
        let weights = initial_weights(&Layout::new(config.interlacer()), 1);
        let model = Model::new(config, weights).unwrap();
        let Err(error) = Backend::new(&model, Device::Cuda(0)) else { panic!("{told} runs") };
        let message = error.to_string();
        assert!(message.starts_with("cuda:0 (") && message.contains(told), "{told}: {message}");
        assert!(message.contains("device: cpu"), "{message}");

        let mut auto = Backend::new(&model, Device::Auto).unwrap();
        assert_eq!((auto.name(), auto.missed()), ("cpu", Some(&*message)));
        let scene = scene([20, 5, 4], config.steps_per_pass);
        auto.run_while(&model.weights, &scene, 1, |_| true).unwrap();
        let mut cpu = model::Rollout::new(config.rollout(), Mode::Inference);
        cpu.run(&model.weights, &scene, 1).unwrap();
        assert_eq!(auto.displacements(0), cpu.displacements(0));
    }
}
