//! Models of other layers against PyTorch's golden values, and against themselves on more threads.

use std::collections::BTreeSet;

use super::*;
use crate::engine::lab::layers::MESSAGE_PASSING;
use crate::engine::lab::masks::MaskKind;
use crate::engine::model::GlobalLayer;
use crate::engine::ops::check::{assert_close_of, f64s};

/// Every golden file of layers: its name, and the layers that it says it is of.
fn variants() -> Vec<(String, LayersConfig)> {
    let layers = |name: &String| Golden::read(&format!("layers_{name}")).setting("layers");
    let named = |name: String| (name.clone(), layers(&name));
    Golden::names("layers_").into_iter().map(named).collect()
}

#[test]
fn every_layer_and_map_has_golden_values() {
    let mut variants: Vec<LayersConfig> =
        variants().into_iter().map(|(_, layers)| layers).collect();
    // `interlacer.safetensors`.
    variants.push(LayersConfig::default());
    let names = |of: fn(&LayersConfig) -> &'static str| -> BTreeSet<&str> {
        variants.iter().map(of).collect()
    };
    let missing = |all: &[&'static str], of| -> Vec<&str> {
        all.iter().copied().filter(|name| !names(of).contains(name)).collect()
    };
    let none: [&str; 0] = [];
    let how = "add a row to VARIANTS of tests/golden/generate.py and run it with --only";
    let maps = FeatureMap::ALL.map(FeatureMap::name);
    assert_eq!(missing(&maps, |layers| layers.feature_map.name()), none, "{how}");
    let global: Vec<&str> = GlobalLayer::all().into_iter().map(GlobalLayer::name).collect();
    assert_eq!(missing(&global, |l| l.global.name()), none, "{how}");
    // Masks have dense versions of their own; attention under them is held to PyTorch's in ops.
    let is_mask = |layer: &LocalLayer| MaskKind::from_name(layer.name()).is_some();
    let local = LocalLayer::all().into_iter().filter(|layer| !is_mask(layer));
    let local: Vec<&str> = local.map(LocalLayer::name).collect();
    assert_eq!(missing(&local, |l| l.local.name()), none, "{how}");
}

/// Names of the tensors of each mixer begin so.
fn mixer_names(layers: &LayersConfig, n_blocks: usize) -> Vec<String> {
    let mut names = Vec::new();
    for b in 0..n_blocks {
        if layers.global != GlobalLayer::None {
            names.push(format!("blocks.{b}.global"));
        }
        match layers.local {
            LocalLayer::None => {}
            layer if layer == MESSAGE_PASSING => {
                names.extend(["anchors", "rest"].map(|step| format!("blocks.{b}.local.{step}")));
            }
            _ => names.push(format!("blocks.{b}.local")),
        }
    }
    names
}

struct Run {
    golden: Golden,
    engine: Engine,
    graph: StepGraph,
    weights: Vec<f32>,
    features: Vec<f32>,
}

/// A forward pass on the golden file's inputs.
fn run(name: &str, layers: LayersConfig) -> Run {
    let golden = Golden::read(&format!("layers_{name}"));
    let mut graph = golden_graph(&golden);
    let config = InterlacerConfig { width: 8, n_heads: 2, layers, ..config() };
    rebuild_registered(&mut graph, &golden.vectors("positions"), &config);
    config.validate().unwrap();
    let mut engine = Engine::new(config, Mode::Training);
    if let FeatureMap::Favor { .. } = layers.feature_map {
        let names = mixer_names(&layers, config.n_blocks);
        for (i, (ours, name)) in engine.projections.iter_mut().zip(names).enumerate() {
            let head_width = if i % 2 == 0 { 4.0f32 } else { 8.0 };
            let given = golden.f32(&format!("projection.{name}"));
            assert_eq!(ours.len(), given.len());
            *ours = given.iter().map(|w| w / head_width.powf(0.25)).collect();
        }
    }
    let (weights, features) = (golden_weights(&golden, engine.layout()), golden.f32("features"));
    engine.forward(&weights, &features, &graph, N_SCENE).unwrap();
    Run { golden, engine, graph, weights, features }
}

#[test]
fn other_layers_equal_pytorch_one_by_one() {
    for (name, layers) in variants() {
        let Run { golden, engine, .. } = run(&name, layers);
        let names = mixer_names(&layers, 2);
        assert_eq!(names.len(), engine.layout.mixers.len(), "{name}");
        let normalized = |x: &[f64]| -> Vec<f64> {
            crate::engine::ops::plain::layer_norm(x, &[1.0; 8], &[0.0; 8])
        };
        // The residual stream before each layer, pinned by what its LayerNorm kept.
        let mut before = golden.f64("act.embed");
        for (i, mixer) in names.iter().enumerate() {
            if i > 0 && names[i - 1][..8] != mixer[..8] {
                before = golden.f64(&format!("act.{}.mlp", &names[i - 1][..8]));
            }
            let buffers = &engine.activations[0].mixers[i];
            let of = |what: &str| format!("{name}: {what} {mixer}");
            let before_it = normalized(&before);
            assert_close_of(of("what enters"), &buffers.normalized, &before_it, 2e-5);
            let mixed = golden.f64(&format!("act.{mixer}.attention"));
            assert_close_of(of("attention of"), &buffers.out, &mixed, 2e-5);
            before = golden.f64(&format!("act.{mixer}"));
        }
        let of = |what: &str| format!("{name}: act.{what}");
        let last = "blocks.1.mlp";
        assert_close_of(of(last), &engine.x, &golden.f64("act.blocks.1.mlp"), 2e-5);
        assert_close_of(of("head"), engine.output(), &golden.f64("act.head"), 2e-5);
    }
}

#[test]
fn gradients_through_other_layers_equal_pytorch() {
    for (name, layers) in variants() {
        let Run { golden, mut engine, graph, weights, features } = run(&name, layers);
        let mut gradients = Gradients::new(engine.layout());
        let mut d_features = vec![0.0; features.len()];
        let d_output = golden.f32("loss_weight");
        engine
            .backward(&weights, &features, &graph, &d_output, &mut gradients, &mut d_features)
            .unwrap();
        let want = golden.f64("grad.features");
        assert_close_of(format!("{name}: grad.features"), &d_features, &want, 5e-5);
        let mut gradient = vec![0.0; weights.len()];
        gradients.add_to(&mut gradient);
        for tensor in &engine.layout().tensors {
            let want = golden.f64(&format!("grad.{}", tensor.name));
            let of = format!("{name}: grad.{}", tensor.name);
            assert_close_of(of, tensor.span.of(&gradient), &want, 5e-5);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit_of_other_layers() {
    for (_, layers) in variants() {
        assert_same_bits(InterlacerConfig { layers, ..config() }, 1024 + 77);
    }
}

fn masked(kind: MaskKind) -> LocalLayer {
    LocalLayer::Registered(kind.layer())
}

#[test]
fn threads_do_not_change_a_bit_under_any_mask() {
    for kind in MaskKind::all() {
        let layers = LayersConfig { local: masked(kind), ..LayersConfig::default() };
        assert_same_bits(InterlacerConfig { layers, ..config() }, 2 * CHUNK + 77);
    }
}

/// The GRF attention with all walks is attention under the power series of its graph: of one head, the
/// two models have the same tensors in the same places.
#[test]
fn the_grf_model_is_that_under_the_power_series() {
    let series = MaskKind::from_name("series").unwrap();
    let of = |local: LocalLayer| {
        let layers = LayersConfig { local, ..LayersConfig::default() };
        assert_same_bits(InterlacerConfig { n_heads: 1, layers, ..config() }, CHUNK + 77)
    };
    let (fused, general) = (of(LocalLayer::Grf), of(masked(series)));
    assert_close_of("outputs", &general.0, &f64s(&fused.0), 1e-4);
    assert_close_of("gradient of the weights", &general.1, &f64s(&fused.1), 1e-4);
    assert_close_of("gradient of the features", &general.2, &f64s(&fused.2), 1e-4);
}

#[test]
fn a_last_chunk_of_one_token_is_an_anchor_without_a_rest() {
    let layers = LayersConfig { local: MESSAGE_PASSING, ..LayersConfig::default() };
    assert_same_bits(InterlacerConfig { layers, ..config() }, 2 * CHUNK + 1);
    // Anchors farther apart than a chunk is long would leave chunks without any.
    let layers = LayersConfig { anchor_stride: 64, ..layers };
    assert_same_bits(InterlacerConfig { layers, ..config() }, CHUNK + 3);
}

#[test]
fn a_graph_that_lacks_what_the_layers_read_is_refused() {
    let (graph, features) = random_scene(50);
    let layers = |local| LayersConfig { local, ..LayersConfig::default() };
    let positions: Vec<[f32; 3]> = (0..50).map(|i| [i as f32, 0.0, 0.0]).collect();
    let only = |layers| {
        let mut graph = StepGraph::default();
        rebuild_registered(&mut graph, &positions, &InterlacerConfig { layers, ..config() });
        graph
    };
    let [mask, other_mask] = [0, 1].map(|i| layers(masked(MaskKind::all()[i])));
    let (messages, none) = (layers(MESSAGE_PASSING), layers(LocalLayer::None));
    let (only_mask, only_anchors, empty) = (only(mask), only(messages), StepGraph::default());
    let mut only_loads = StepGraph::default();
    only_loads.loads = graph.loads;
    for (layers, good, bad) in [
        (mask, &only_mask, Some(&only_loads)),
        (other_mask, &only(other_mask), Some(&only_mask)),
        (LayersConfig::default(), &only_loads, Some(&only_anchors)),
        (messages, &only_anchors, Some(&only_loads)),
        (none, &empty, None),
    ] {
        let mut engine = Engine::new(InterlacerConfig { layers, ..config() }, Mode::Inference);
        let weights = vec![0.0; engine.layout().n_params()];
        assert!(engine.forward(&weights, &features, good, 9).is_ok());
        if let Some(bad) = bad {
            assert!(engine.forward(&weights, &features, bad, 9).is_err());
        }
    }
}
