//! Tokens, motion, and whole roll-outs against the CPU's.

use super::super::forward::Forward;
use super::super::memory::{Arena, Pinned};
use super::super::model::{DeviceModel, Precision, unsupported};
use super::super::rollout::{Counts, Rollout, checked_sizes, stage};
use super::super::step::{Buffers, Sizes};
use super::*;
use crate::Error;
use crate::engine::graph;
use crate::engine::model::Inputs;
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::tests::{ONE, state};
use crate::engine::model::tokens::{N_FEATURES, Tokens};
use crate::engine::model::weights::initial_weights;
use crate::engine::model::{self, InterlacerConfig, LayersConfig, Layout, Mode, ModelConfig};
use crate::engine::ops::check::{assert_close, f64s, numbers};
use crate::engine::ops::motion_head::motion_head_forward;
use crate::engine::rollout_input::RolloutInput;
use crate::vision::motion::N_BODY_FEATURES;

pub(super) fn config(width: usize, n_heads: usize, n_blocks: usize) -> RolloutConfig {
    let interlacer = InterlacerConfig {
        n_features: N_FEATURES,
        width,
        n_heads,
        n_blocks,
        k: 3,
        n_hops: 3,
        n_outputs: N_OUTPUTS,
        layers: LayersConfig::default(),
    };
    let mask = crate::engine::step_graph::MaskConfig::default();
    RolloutConfig { interlacer, mask, tokens: ONE, replan_interval: 1 }
}

/// A seeded scene of `n` and `h` particles and `k` points on the robot, whose links turn and shift for
/// `n_steps`, each at its own speed; with extrapolated motion and bodies.
pub(super) fn scene([n, h, k]: [usize; 3], n_steps: usize) -> RolloutInput {
    let mut start = state(n, h, k, 3);
    start.extrapolated_motion =
        numbers(3 * n, 9).as_chunks::<3>().0.iter().map(|m| m.map(|m| 0.02 * m)).collect();
    start.bodies = numbers(N_BODY_FEATURES * n, 10).as_chunks().0.to_vec();
    let place = |t: usize| {
        let points = start.kinematic[1].iter().zip(&start.kinematic_links);
        let turned = points.map(|(p, &link)| {
            let (sin, cos) = (0.05 * t as f32 * (1.0 + link as f32)).sin_cos();
            [cos * p[0] - sin * p[1] + 0.01 * t as f32, sin * p[0] + cos * p[1], p[2]]
        });
        turned.collect()
    };
    let kinematic = (0..n_steps + 2).map(place).collect();
    RolloutInput { start, kinematic, ..RolloutInput::default() }
}

/// Sizes of one step of `scene`.
fn sizes_of(scene: &RolloutInput) -> Sizes {
    checked_sizes(scene, 1, 0, 0).unwrap()
}

pub(super) fn weights(config: &RolloutConfig) -> Vec<f32> {
    let mut weights = initial_weights(&Layout::new(config.interlacer), 5);
    weights.iter_mut().zip(numbers(1 << 20, 6)).for_each(|(w, r)| *w += 0.02 * r);
    weights
}

#[test]
fn tokens_are_the_cpus() {
    let cases =
        [([37, 11, 5], 2), ([1, 0, 0], 0), ([130, 3, 0], 1), ([3, 0, 70], 1), ([90, 51, 259], 8)];
    for (i, (sizes, stride)) in cases.into_iter().enumerate() {
        let config = config(8, 2, 1);
        let mut scene = scene(sizes, 1);
        scene.start.kinematic_stride = stride;
        if i % 2 == 1 {
            scene.start.extrapolated_motion.clear();
            scene.start.bodies.clear();
        }
        if sizes[2] > 240 {
            // As near as earlier points, on other links.
            scene.kinematic.iter_mut().for_each(|row| row.copy_within(..40, 201));
        }
        let mut start = scene.start.clone();
        start.kinematic = scene.kinematic[..3].to_vec();
        let mut expected = Tokens::default();
        expected.encode(&start, &ONE).unwrap();

        let mut memory = Memory::new();
        let (buffers, _arena) = uploaded(&mut memory, &config, &scene, sizes_of(&scene));
        memory.gpu.encode(&buffers.step(&config)).unwrap();
        assert_eq!(memory.get(buffers.forward.token_positions), expected.positions.as_flattened());
        assert_close(&memory.get(buffers.forward.features), &f64s(&expected.features), 2e-6);
        let candidates = expected.candidates.as_flattened();
        assert_close(&memory.get(buffers.candidates), &f64s(candidates), 1e-6);
        assert_eq!(memory.get(buffers.counters), [0, 0]);
    }
}

#[test]
fn many_tokens_have_the_same_neighbors() {
    let (config, scene) = (config(8, 2, 1), scene([8195, 0, 0], 1));
    let sizes = sizes_of(&scene);
    let mut memory = Memory::new();
    let (buffers, _arena) = uploaded(&mut memory, &config, &scene, sizes);
    let mut buffers = buffers.forward;
    buffers.token_positions = memory.put(scene.start.positions.as_flattened());
    let (gpu, weights) = (&memory.gpu, weights(&config));
    let model = DeviceModel::new(gpu, config, &weights, Precision::Full).unwrap();
    let (model, buffers) = (&model, &buffers);
    Forward { gpu, model, buffers, only: None }.neighbors().unwrap();
    let mut graph = graph::KnnGraph::default();
    graph.rebuild(&scene.start.positions, 3).unwrap();
    let expected = (0..graph.len()).flat_map(|i| graph.neighbors(i)).copied();
    assert!(expected.eq(memory.get(buffers.neighbors)));
}

/// Buffers with the scene in them.
fn uploaded(
    memory: &mut Memory,
    config: &RolloutConfig,
    scene: &RolloutInput,
    sizes: Sizes,
) -> (Buffers, Arena) {
    let mut arena = Arena::new(memory.gpu.clone());
    let (buffers, _) =
        arena.lay_out(|places| Buffers::take(config, Precision::Full, sizes, places)).unwrap();
    let mut pinned = Pinned::new(memory.gpu.clone());
    pinned.reserve(sizes.n_uploaded()).unwrap();
    stage(scene, &sizes, 1, &mut Vec::new(), pinned.get_mut(sizes.n_uploaded()));
    memory.gpu.upload(&pinned, buffers.uploaded).unwrap();
    memory.gpu.clear(buffers.counters).unwrap();
    memory.gpu.synchronize().unwrap();
    (buffers, arena)
}

#[test]
fn motion_is_the_cpus_and_what_was_the_scene_becomes_the_history() {
    let (config, scene) = (config(8, 2, 1), scene([131, 50, 2], 1));
    let sizes = sizes_of(&scene);
    let mut memory = Memory::new();
    let (buffers, _arena) = uploaded(&mut memory, &config, &scene, sizes);
    let (y, candidates) = (numbers(131 * N_OUTPUTS, 1), numbers(131 * 12, 2));
    let mut step = buffers.step(&config);
    step.outputs = memory.put(&y).address();
    step.candidates = memory.put(&candidates).address();
    step.token_positions = memory.put(scene.start.positions.as_flattened()).address();
    memory.gpu.move_particles(&step).unwrap();
    memory.gpu.end_step(&step).unwrap();

    let (mut saved, mut expected) = (y, vec![[0.0; 3]; 131]);
    let (vectors, _) = candidates.as_chunks();
    motion_head_forward(&mut saved, N_OUTPUTS, vectors, &mut expected);
    let displacements = memory.get(buffers.displacements);
    assert_close(&displacements, &f64s(expected.as_flattened()), 2e-6);
    assert_eq!(memory.get(buffers.counters), [1, 0]);
    let state = memory.get(buffers.uploaded);
    let positions = scene.start.positions.as_flattened();
    for i in 0..3 * 131 {
        assert_eq!(state[i], positions[i] + displacements[i]);
        assert_eq!(state[3 * 131 + i], displacements[i]);
    }
    assert!(state[6 * 131..7 * 131].iter().all(|&known| known == 1.0));
    let colors = &state[7 * 131..10 * 131];
    for j in 0..50 {
        let from = j * 131 / 50;
        let at = 10 * 131 + 3 * j;
        assert_eq!(state[at..at + 3], positions[3 * from..][..3]);
        assert_eq!(state[at + 150..at + 153], colors[3 * from..][..3]);
    }
}

/// Holds a roll-out of the device to the CPU's.
fn check(rollout: &mut Rollout, config: RolloutConfig, scene: &RolloutInput, n_steps: usize) {
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights(&config), scene, n_steps).unwrap();
    rollout.run_while(scene, n_steps, &mut |_| true).unwrap();
    assert_eq!(rollout.n_steps(), n_steps);
    for t in 0..n_steps {
        let (got, expected) = (rollout.displacements(t), cpu.displacements(t));
        assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
    }
}

#[test]
fn rollouts_are_the_cpus_on_every_card() {
    let n_cards = if standin::load() { 3 } else { 1 };
    for ordinal in 0..n_cards {
        let config = config(24, 4, 2);
        let mut rollout =
            Rollout::new(open(ordinal), config, &weights(&config), Precision::Full).unwrap();
        check(&mut rollout, config, &scene([45, 22, 6], 3), 3);
    }
    // Of the default width; without a robot.
    let config = config(64, 4, 1);
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Full).unwrap();
    check(&mut rollout, config, &scene([70, 0, 0], 2), 2);
}

/// What is written beyond a place for nothing, the sanitizer sees.
#[test]
fn a_scene_without_particles_has_no_displacements() {
    let config = config(64, 4, 1);
    for precision in [Precision::Full, Precision::Half] {
        let mut rollout = Rollout::new(gpu(), config, &weights(&config), precision).unwrap();
        rollout.run_while(&scene([0, 20, 4], 2), 2, &mut |_| true).unwrap();
        assert!(rollout.displacements(1).is_empty());
    }
}

#[test]
fn rollouts_on_tensor_cores_are_the_cpus() {
    let config = config(64, 4, 2);
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Half).unwrap();
    check(&mut rollout, config, &scene([70, 20, 3], 2), 2);
}

#[test]
fn the_same_scene_gives_the_same_bits_without_anything_new() {
    let config = config(16, 2, 1);
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Full).unwrap();
    let of = |rollout: &Rollout| -> Vec<_> {
        (0..rollout.n_steps()).flat_map(|t| rollout.displacements(t)).copied().collect()
    };
    let (large, small) = (scene([40, 20, 4], 4), scene([33, 7, 4], 4));
    check(&mut rollout, config, &large, 4);
    let (first, counts) = (of(&rollout), rollout.counts());
    assert_eq!(counts.captures, 1);
    // Shorter ones replay the same graph, and end where they are told to.
    rollout.run_while(&large, 4, &mut |n_done| n_done < 2).unwrap();
    assert_eq!(of(&rollout), first[..2 * 40]);
    rollout.run_while(&large, 3, &mut |_| true).unwrap();
    assert_eq!(of(&rollout), first[..3 * 40]);
    assert_eq!(rollout.counts(), counts);
    // Other sizes take another graph, but no memory where there is enough.
    check(&mut rollout, config, &small, 4);
    assert_eq!(rollout.counts(), Counts { captures: 2, ..counts });
    check(&mut rollout, config, &large, 4);
    assert_eq!(of(&rollout), first);
    assert_eq!(rollout.counts(), Counts { captures: 3, ..counts });
}

#[test]
fn what_is_not_finite_is_told_and_forgotten() {
    let config = config(16, 2, 1);
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Full).unwrap();
    let good = scene([40, 20, 4], 2);
    let mut bad = good.clone();
    bad.start.positions[17][2] = f32::NAN;
    let told = |rollout: &mut Rollout, scene: &RolloutInput| {
        rollout.run_while(scene, 2, &mut |_| true).unwrap_err().to_string()
    };
    assert!(told(&mut rollout, &bad).contains("positions"));
    let mut bad = good.clone();
    bad.start.velocities[3][0] = f32::INFINITY;
    assert!(told(&mut rollout, &bad).contains("predicted motion"));
    check(&mut rollout, config, &good, 2);
}

#[test]
fn what_does_not_belong_together_or_does_not_run_here_is_refused() {
    let config = config(16, 2, 1);
    let weights = weights(&config);
    assert!(matches!(
        Rollout::new(gpu(), config, &weights[1..], Precision::Full),
        Err(Error::Shape { .. })
    ));
    let mut rollout = Rollout::new(gpu(), config, &weights, Precision::Full).unwrap();
    let mut refused =
        |scene: &RolloutInput| rollout.run_while(scene, 2, &mut |_| true).unwrap_err();
    assert!(matches!(refused(&scene([10, 2, 1], 1)), Error::Shape { .. }));
    assert!(matches!(refused(&scene([2, 1, 0], 2)), Error::TooFewPoints { .. }));
    let mut broken = scene([10, 2, 1], 2);
    broken.start.velocities.pop();
    assert!(matches!(refused(&broken), Error::Shape { .. }));
    let mut broken = scene([10, 2, 5], 2);
    broken.start.kinematic_links[4] = 9;
    assert!(matches!(refused(&broken), Error::Shape { .. }));

    assert_eq!(unsupported(&config), None);
    let mut wide = config;
    wide.interlacer.width = 512;
    assert!(unsupported(&wide).unwrap().contains("512"));
}

#[test]
fn other_widths_of_the_mlp_are_the_cpus() {
    let mut config = config(16, 2, 1);
    config.interlacer.layers.mlp_ratio = 3;
    let mut rollout = Rollout::new(gpu(), config, &weights(&config), Precision::Half).unwrap();
    check(&mut rollout, config, &scene([40, 20, 9], 2), 2);
}

/// A model of the usual sizes, over several steps of a scene with a robot in full detail.
#[test]
fn rollouts_of_the_usual_sizes_are_the_cpus() {
    let (inputs, tells_sigma) = (Inputs::First, false);
    let model =
        ModelConfig { inputs, tells_sigma, ..ModelConfig::default().with_steps_per_pass(1) };
    let (config, detail) = (model.rollout(), model.kinematic_detail);
    let weights = weights(&config);
    let mut scene = scene([90, 41, 31 * detail + 3], 4);
    scene.start.kinematic_stride = detail;
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights, &scene, 4).unwrap();
    for precision in [Precision::Full, Precision::Half] {
        let mut gpu = Rollout::new(gpu(), config, &weights, precision).unwrap();
        gpu.run_while(&scene, 4, &mut |_| true).unwrap();
        for t in 0..4 {
            let (got, expected) = (gpu.displacements(t), cpu.displacements(t));
            assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
        }
    }
}
