//! The engine against PyTorch's golden values, layer by layer, and against itself on more threads.

mod layers;

use super::*;
use crate::engine::model::weights::initial_weights;
use crate::engine::model::{LayersConfig, LocalLayer, MaskConfig, StepGraph};
use crate::engine::ops::check::{Golden, assert_close, assert_close_of, numbers};

fn config() -> InterlacerConfig {
    InterlacerConfig {
        n_features: 11,
        width: 16,
        n_heads: 4,
        n_blocks: 2,
        k: 3,
        n_hops: 3,
        n_outputs: 7,
        layers: LayersConfig::default(),
    }
}

const N_SCENE: usize = 21;

fn golden_graph(golden: &Golden) -> StepGraph {
    let positions = golden.vectors("positions");
    let mut graph = StepGraph::default();
    graph.knn.rebuild(&positions, 3).unwrap();
    graph.loads.rebuild(&graph.knn, 3).unwrap();
    graph.transposed.rebuild(&graph.loads);
    graph
}

fn golden_weights(golden: &Golden, layout: &Layout) -> Vec<f32> {
    let mut weights = vec![0.0; layout.n_params()];
    for tensor in &layout.tensors {
        tensor.span.of_mut(&mut weights).copy_from_slice(&golden.f32(&tensor.name));
    }
    weights
}

#[test]
fn graph_and_loads_are_those_of_the_golden_file() {
    let golden = Golden::read("interlacer");
    let graph = golden_graph(&golden);
    let neighbors: Vec<f64> = (0..37)
        .flat_map(|i| graph.knn.neighbors(i).iter().map(|&j| f64::from(j)).collect::<Vec<_>>())
        .collect();
    assert_eq!(neighbors, golden.f64("neighbours"));
    let mut powers = vec![0.0; 4 * 37 * 37];
    for i in 0..37 {
        let row = graph.loads.row(i);
        for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(4)) {
            (0..4).for_each(|t| powers[(t * 37 + i) * 37 + j as usize] = c[t]);
        }
    }
    assert_close(&powers, &golden.f64("hop_matrices"), 1e-6);
}

#[test]
fn forward_equals_pytorch_layer_by_layer() {
    let golden = Golden::read("interlacer");
    let graph = golden_graph(&golden);
    let mut engine = Engine::new(config(), Mode::Training);
    let weights = golden_weights(&golden, engine.layout());
    engine.forward(&weights, &golden.f32("features"), &graph, N_SCENE).unwrap();
    let activations = &engine.activations[0];
    for (b, mixers) in activations.mixers.chunks_exact(2).enumerate() {
        let [global, local] = mixers else { unreachable!("two mixers a block") };
        let name = |layer: &str| golden.f64(&format!("act.blocks.{b}.{layer}"));
        let of = |layer: &str| format!("blocks.{b}.{layer}");
        let (global_out, local_out) = (name("global.attention"), name("local.attention"));
        assert_close_of(of("global.attention"), &global.out, &global_out, 1e-5);
        assert_close_of(of("local.attention"), &local.out, &local_out, 1e-5);
        // The normalised rows pin the residual stream behind the layer before.
        let normalized = |x: &[f64]| -> Vec<f64> {
            crate::engine::ops::plain::layer_norm(x, &[1.0; 16], &[0.0; 16])
        };
        assert_close_of(of("global"), &local.normalized, &normalized(&name("global")), 1e-5);
        let mlp = activations.mlp.normalized.chunks_exact(37 * 16).nth(b).unwrap();
        assert_close_of(of("local"), mlp, &normalized(&name("local")), 1e-5);
    }
    assert_close_of("blocks.1.mlp", &engine.x, &golden.f64("act.blocks.1.mlp"), 1e-5);
    assert_close_of("head", engine.output(), &golden.f64("act.head"), 1e-5);
}

#[test]
fn gradients_equal_pytorch() {
    let golden = Golden::read("interlacer");
    let graph = golden_graph(&golden);
    let mut engine = Engine::new(config(), Mode::Training);
    let weights = golden_weights(&golden, engine.layout());
    let features = golden.f32("features");
    engine.forward(&weights, &features, &graph, N_SCENE).unwrap();
    let mut gradients = Gradients::new(engine.layout());
    let mut d_features = vec![0.0; features.len()];
    let d_output = golden.f32("loss_weight");
    engine
        .backward(&weights, &features, &graph, &d_output, &mut gradients, &mut d_features)
        .unwrap();
    assert_close_of("features", &d_features, &golden.f64("grad.features"), 2e-5);
    let mut gradient = vec![0.0; weights.len()];
    gradients.add_to(&mut gradient);
    for tensor in &engine.layout().tensors {
        let want = golden.f64(&format!("grad.{}", tensor.name));
        // The head's biases aside, a tensor's own magnitude sets its tolerance.
        assert_close_of(&tensor.name, tensor.span.of(&gradient), &want, 2e-5);
    }
}

fn positions(n: usize) -> Vec<[f32; 3]> {
    numbers(3 * n, 8).chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect()
}

fn random_scene(n: usize) -> (StepGraph, Vec<f32>) {
    let positions = positions(n);
    let mut graph = StepGraph::default();
    graph.knn.rebuild(&positions, 3).unwrap();
    graph.loads.rebuild(&graph.knn, 3).unwrap();
    graph.transposed.rebuild(&graph.loads);
    (graph, numbers(n * config().n_features, 9))
}

/// What a registered local layer of `config` reads of tokens at `positions`; nothing of others.
fn rebuild_registered(graph: &mut StepGraph, positions: &[[f32; 3]], config: &InterlacerConfig) {
    if let LocalLayer::Registered(kind) = config.layers.local {
        let (mask, seed) = (MaskConfig::default(), Default::default());
        graph.rebuild_registered(kind, positions, config, &mask, seed, true).unwrap();
    }
}

/// Outputs, gradient of the weights, gradient of the features.
type Bits = (Vec<f32>, Vec<f32>, Vec<f32>);

/// Runs a model of `config` on `n` random tokens, on one thread and on several, with activations
/// kept and computed again; and in inference.
fn assert_same_bits(config: InterlacerConfig, n: usize) -> Bits {
    // A first block, a last one, and one between that is computed again from its start.
    let config = InterlacerConfig { n_blocks: 3, ..config };
    let (mut graph, features) = random_scene(n);
    rebuild_registered(&mut graph, &positions(n), &config);
    let mut weights = initial_weights(Engine::new(config, Mode::Training).layout(), 3);
    weights.iter_mut().zip(numbers(1 << 20, 4)).for_each(|(w, r)| *w += 0.05 * r);
    let run = |mode: Mode, threads: usize| -> Bits {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut engine = Engine::new(config, mode);
            engine.forward(&weights, &features, &graph, n / 2).unwrap();
            let output = engine.output().to_vec();
            let mut gradients = Gradients::new(engine.layout());
            let mut d_features = vec![0.0; features.len()];
            let d_output = numbers(output.len(), 6);
            engine
                .backward(&weights, &features, &graph, &d_output, &mut gradients, &mut d_features)
                .unwrap();
            let mut gradient = vec![0.0; weights.len()];
            gradients.add_to(&mut gradient);
            (output, gradient, d_features)
        })
    };
    let one = run(Mode::Training, 1);
    for threads in [2, 5] {
        assert!(one == run(Mode::Training, threads), "bits differ with the number of threads");
    }
    for threads in [1, 2, 5] {
        assert!(one == run(Mode::TrainingRecompute, threads), "recomputed, {threads} threads");
    }
    assert!(one.0.iter().chain(&one.1).chain(&one.2).all(|x| x.is_finite()));
    let mut engine = Engine::new(config, Mode::Inference);
    for _ in 0..2 {
        engine.forward(&weights, &features, &graph, n / 2).unwrap();
        assert_eq!(engine.output(), one.0);
    }
    one
}

#[test]
fn threads_do_not_change_a_bit_and_inference_equals_training() {
    // More rows than one task of the loads, and no multiple of a chunk.
    assert_same_bits(config(), 2 * 1024 + 77);
}

#[test]
fn passes_are_differentiated_in_any_order_and_more_than_once() {
    let config = InterlacerConfig { n_blocks: 3, ..config() };
    let n = CHUNK + 9;
    let (graph, features) = random_scene(n);
    let mut weights = initial_weights(Engine::new(config, Mode::Training).layout(), 3);
    weights.iter_mut().zip(numbers(1 << 20, 4)).for_each(|(w, r)| *w += 0.05 * r);
    // The tokens of a pass are all of its own.
    let features = [features.clone(), features.iter().rev().copied().collect()];
    let run = |mode: Mode| -> Vec<Bits> {
        let mut engine = Engine::new(config, mode);
        for (pass, features) in features.iter().enumerate() {
            engine.select(pass);
            engine.forward(&weights, features, &graph, n / 2).unwrap();
        }
        let one = |pass: usize| {
            engine.select(pass);
            let output = engine.output().to_vec();
            let mut gradients = Gradients::new(engine.layout());
            let (d_output, mut d_features) = (numbers(output.len(), 6), features[pass].clone());
            let given = (&features[pass], &d_output);
            engine
                .backward(&weights, given.0, &graph, given.1, &mut gradients, &mut d_features)
                .unwrap();
            let mut gradient = vec![0.0; weights.len()];
            gradients.add_to(&mut gradient);
            (output, gradient, d_features)
        };
        [1, 1, 0, 1, 0].map(one).into()
    };
    let kept = run(Mode::Training);
    assert!(kept == run(Mode::TrainingRecompute));
    assert!(kept[0] == kept[1] && kept[0] == kept[3] && kept[2] == kept[4] && kept[0] != kept[2]);
}

#[test]
fn refuses_arguments_that_do_not_belong_together() {
    let (graph, features) = random_scene(50);
    let mut engine = Engine::new(config(), Mode::Inference);
    let weights = vec![0.0; engine.layout().n_params()];
    assert!(engine.forward(&weights[1..], &features, &graph, 9).is_err());
    assert!(engine.forward(&weights, &features[11..], &graph, 9).is_err());
    assert!(engine.forward(&weights, &features, &graph, 51).is_err());
    assert!(engine.forward(&weights, &features, &graph, 9).is_ok());
}
