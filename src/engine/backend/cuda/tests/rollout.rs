//! Roll-outs, and the models that they are of, against the CPU's.

use super::super::forward::{Buffers, Extent, Forward};
use super::super::memory::Arena;
use super::super::model::{DeviceModel, Precision, unsupported};
use super::super::rollout::{Counts, Rollout};
use super::*;
use crate::Error;
use crate::base::geometry::{RigidMotion, Vec3, add, minus};
use crate::engine::backend::{Backend, Device, Rollouts};
use crate::engine::graph;
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::tests::{ONE, THREE, state};
use crate::engine::model::weights::initial_weights;
use crate::engine::model::{
    self, Inputs, InterlacerConfig, LayersConfig, Layout, Mode, Model, ModelConfig, TokenConfig,
};
use crate::engine::ops::check::{assert_close, f64s, numbers};
use crate::engine::rollout_input::RolloutInput;
use crate::vision::motion::{N_BODY_FEATURES, NO_BODY};

/// Models of `tokens`, with `n_more` outputs a step than the head's.
pub(super) fn of(width: usize, tokens: TokenConfig, n_more: usize) -> RolloutConfig {
    let interlacer = InterlacerConfig {
        n_features: tokens.n_features(),
        width,
        n_heads: 2,
        n_blocks: 2,
        k: 3,
        n_hops: 3,
        n_outputs: tokens.steps_per_pass * (N_OUTPUTS + n_more),
        layers: LayersConfig::default(),
    };
    let mask = crate::engine::step_graph::MaskConfig::default();
    RolloutConfig { interlacer, mask, tokens, replan_interval: tokens.steps_per_pass }
}

/// Passes of one step, of a model without sigma.
pub(super) fn config(width: usize, n_heads: usize, n_blocks: usize) -> RolloutConfig {
    let mut config = of(width, ONE, 0);
    (config.interlacer.n_heads, config.interlacer.n_blocks) = (n_heads, n_blocks);
    config
}

/// Passes of three steps, of a model that tells sigma.
pub(super) fn threes(width: usize) -> RolloutConfig {
    of(width, THREE, 1)
}

/// A seeded scene of `n` and `h` particles and `k` points on the robot, whose links turn and shift for
/// `n_steps`, each at its own speed; with extrapolated motion and what is told of bodies.
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

/// The same above a plane, with bodies: one that turns, one whose motion is not known, one half of which
/// rests, and one of two particles; some particles are of none.
pub(super) fn with_bodies(sizes: [usize; 3], n_steps: usize) -> RolloutInput {
    let mut scene = scene(sizes, n_steps);
    let start = &mut scene.start;
    start.support_m = Some(-0.15);
    let body = |i: usize| match i {
        0 | 5 => 4,
        _ if i % 7 == 3 => NO_BODY,
        _ => [0, 1, 2][i % 3],
    };
    start.body_of = (0..sizes[0]).map(body).collect();
    for (i, v) in start.velocities.iter_mut().enumerate().filter(|(i, _)| i % 3 == 2) {
        if i % 2 == 0 {
            *v = [0.0; 3];
        }
    }
    start.velocity_known = (0..sizes[0]).map(|i| [1.0, 0.7, 0.0, 1.0, 0.5][i % 5]).collect();
    let from = [[0.1, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1], [-0.1, 0.0, 0.02]];
    let to = from.map(|[x, y, z]| [0.96 * x - 0.28 * y + 0.03, 0.28 * x + 0.96 * y, z + 0.01]);
    start.body_motions = vec![Some(RigidMotion::fit(&from, &to)), None];
    scene
}

pub(super) fn weights(config: &RolloutConfig) -> Vec<f32> {
    let mut weights = initial_weights(&Layout::new(config.interlacer), 5);
    weights.iter_mut().zip(numbers(1 << 20, 6)).for_each(|(w, r)| *w += 0.02 * r);
    weights
}

fn device(config: RolloutConfig, precision: Precision) -> Rollout {
    Rollout::new(gpu(), config, &weights(&config), precision).unwrap()
}

/// Holds `n_steps` of a roll-out of the device to the CPU's.
fn check(rollout: &mut Rollout, config: RolloutConfig, scene: &RolloutInput, n_steps: usize) {
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights(&config), scene, n_steps).unwrap();
    rollout.run_while(scene, n_steps, &mut |_| true).unwrap();
    assert_eq!(rollout.n_steps(), n_steps);
    for t in 0..n_steps {
        let (got, expected) = (rollout.displacements(t), cpu.displacements(t));
        assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
        assert_eq!(rollout.sigmas(t).is_some(), config.tells_sigma());
        let [got, expected] = [rollout.sigmas(t), cpu.sigmas(t)].map(Option::unwrap_or_default);
        assert_close(got, &f64s(expected), 1e-4);
    }
}

#[test]
fn many_tokens_have_the_same_neighbors() {
    let (config, positions) = (config(8, 2, 1), scene([8195, 0, 0], 1).start.positions);
    let mut memory = Memory::new();
    let extent = Extent { n_scenes: 1, n_tokens: 8195, n_particles: 8195 };
    let mut arena = Arena::new(memory.gpu.clone());
    let take = |places: &mut _| Buffers::take(&config, Precision::Full, extent, places);
    let (mut buffers, _) = arena.lay_out(take).unwrap();
    buffers.token_positions = memory.put(positions.as_flattened());
    let (gpu, weights) = (&memory.gpu, weights(&config));
    let model = DeviceModel::new(gpu, config, &weights, Precision::Full).unwrap();
    let (model, buffers) = (&model, &buffers);
    Forward { gpu, model, buffers, only: None }.neighbors().unwrap();
    let mut graph = graph::KnnGraph::default();
    graph.rebuild(&positions, 3).unwrap();
    let expected = (0..graph.len()).flat_map(|i| graph.neighbors(i)).copied();
    assert!(expected.eq(memory.get(buffers.neighbors)));
}

#[test]
fn rollouts_are_the_cpus_on_every_card() {
    let n_cards = if standin::load() { 3 } else { 1 };
    for ordinal in 0..n_cards {
        let config = config(24, 4, 2);
        let mut rollout =
            Rollout::new(open(ordinal), config, &weights(&config), Precision::Full).unwrap();
        check(&mut rollout, config, &with_bodies([45, 22, 6], 3), 3);
    }
    // Of the default width; without a robot and bodies.
    let config = config(64, 4, 1);
    check(&mut device(config, Precision::Full), config, &scene([70, 0, 0], 2), 2);
}

#[test]
fn rollouts_on_tensor_cores_are_the_cpus() {
    let config = config(64, 4, 2);
    check(&mut device(config, Precision::Half), config, &with_bodies([70, 20, 3], 2), 2);
}

#[test]
fn passes_of_three_steps_with_sigma_are_the_cpus() {
    for precision in [Precision::Full, Precision::Half] {
        let config = threes(24);
        // The fifth step is within the second pass.
        check(&mut device(config, precision), config, &with_bodies([45, 22, 6], 6), 5);
        // Each pass looks again at steps of the one before.
        let config = RolloutConfig { replan_interval: 1, ..config };
        check(&mut device(config, precision), config, &with_bodies([45, 22, 6], 7), 5);
    }
}

/// The bounds of [`rollouts_of_the_shipped_model_are_the_cpus`]: median and p99 of how far off positions
/// are behind all steps (m).
const BOUNDS_M: [f32; 2] = [5e-5, 1e-3];

/// The model that is shipped, over passes of a scene with a robot in full detail.
#[test]
fn rollouts_of_the_shipped_model_are_the_cpus() {
    let model = Model::load("models/small.safetensors".as_ref()).unwrap();
    let (config, detail) = (model.config.rollout(), model.config.kinematic_detail);
    let n_steps = 2 * config.replan_interval + 1;
    let mut scene = with_bodies([190, 41, 31 * detail + 3], model.config.reach(n_steps));
    scene.start.kinematic_stride = detail;
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&model.weights, &scene, n_steps).unwrap();
    for precision in [Precision::Full, Precision::Half] {
        let mut gpu = Rollout::new(gpu(), config, &model.weights, precision).unwrap();
        gpu.run_while(&scene, n_steps, &mut |_| true).unwrap();
        let mut off = vec![[0.0; 3]; 190];
        for t in 0..n_steps {
            let (got, expected) = (gpu.displacements(t), cpu.displacements(t));
            let both = off.iter_mut().zip(got.iter().zip(expected));
            both.for_each(|(off, (got, expected))| add(off, &minus(got, expected)));
            let [got, expected] = [gpu.sigmas(t), cpu.sigmas(t)].map(Option::unwrap);
            assert_close(got, &f64s(expected), 1e-3);
        }
        let mut off: Vec<f32> = off.iter().map(crate::base::geometry::length).collect();
        off.sort_by(f32::total_cmp);
        let shares = [0.5, 0.99].map(|share| off[(share * (off.len() - 1) as f64) as usize]);
        assert!(
            shares[0] <= BOUNDS_M[0] && shares[1] <= BOUNDS_M[1],
            "{precision:?}: {shares:?} m"
        );
    }
}

#[test]
fn each_setting_alone_is_the_cpus_and_so_are_the_longest_passes() {
    let sigma = of(16, ONE, 1);
    let pairs = of(16, TokenConfig { steps_per_pass: 2, ..ONE }, 0);
    let paper = of(16, TokenConfig { inputs: Inputs::Paper, ..THREE }, 1);
    let longest = of(16, TokenConfig { steps_per_pass: model::MAX_STEPS_PER_PASS, ..THREE }, 1);
    for (config, n_steps) in [(sigma, 2usize), (pairs, 4), (paper, 6), (longest, 1)] {
        let n_ahead = n_steps.next_multiple_of(config.tokens.steps_per_pass);
        check(
            &mut device(config, Precision::Full),
            config,
            &with_bodies([37, 11, 5], n_ahead),
            n_steps,
        );
    }
    let alone = with_bodies([70, 0, 0], 3);
    check(&mut device(threes(64), Precision::Half), threes(64), &alone, 3);
}

/// What is written beyond a place for nothing, the sanitizer sees.
#[test]
fn a_scene_without_particles_has_no_displacements() {
    for config in [config(64, 4, 1), threes(16)] {
        for precision in [Precision::Full, Precision::Half] {
            let mut rollout = device(config, precision);
            rollout.run_while(&scene([0, 20, 4], 3), 2, &mut |_| true).unwrap();
            assert!(rollout.displacements(1).is_empty());
        }
    }
}

#[test]
fn a_run_ends_behind_the_pass_that_it_is_told_to() {
    let (config, scene) = (threes(16), with_bodies([40, 20, 4], 6));
    let mut rollout = device(config, Precision::Full);
    check(&mut rollout, config, &scene, 6);
    let of = |rollout: &Rollout, t| {
        (rollout.displacements(t).to_vec(), rollout.sigmas(t).map(<[f32]>::to_vec))
    };
    let all: Vec<_> = (0..6).map(|t| of(&rollout, t)).collect();
    let mut told = Vec::new();
    let mut goes_on = |n_done| {
        told.push(n_done);
        false
    };
    rollout.run_while(&scene, 5, &mut goes_on).unwrap();
    assert_eq!((told, rollout.n_steps()), (vec![3], 3));
    assert!((0..3).all(|t| of(&rollout, t) == all[t]));
    // Within the last pass as well: it is whole, but no more is told than was asked for.
    rollout.run_while(&scene, 2, &mut |_| true).unwrap();
    assert!(rollout.n_steps() == 2 && (0..2).all(|t| of(&rollout, t) == all[t]));
}

#[test]
fn other_sizes_take_another_graph_and_the_same_ones_nothing_new() {
    let config = threes(16);
    let mut rollout = device(config, Precision::Full);
    let of = |rollout: &Rollout| -> Vec<Vec3> {
        (0..rollout.n_steps()).flat_map(|t| rollout.displacements(t)).copied().collect()
    };
    let (large, small) = (with_bodies([40, 20, 4], 6), with_bodies([33, 7, 2], 6));
    check(&mut rollout, config, &large, 6);
    let (first, counts) = (of(&rollout), rollout.counts());
    assert_eq!(counts.captures, 1);
    check(&mut rollout, config, &large, 3);
    // Other bodies, and none.
    let mut other = large.clone();
    other.start.body_of[7] = 11;
    check(&mut rollout, config, &other, 6);
    check(&mut rollout, config, &scene([40, 20, 4], 6), 6);
    check(&mut rollout, config, &large, 6);
    assert_eq!(of(&rollout), first);
    assert_eq!(rollout.counts(), counts);
    check(&mut rollout, config, &small, 6);
    check(&mut rollout, config, &large, 6);
    assert_eq!(of(&rollout), first);
    assert_eq!(rollout.counts(), Counts { captures: 3, ..counts });
    // More bodies than there was room for.
    let mut many = with_bodies([130, 20, 4], 6);
    many.start.body_of.iter_mut().enumerate().for_each(|(i, body)| *body = i as u32);
    check(&mut rollout, config, &many, 6);
}

#[test]
fn what_is_wrong_is_told_as_on_the_cpu_and_forgotten() {
    let config = threes(16);
    let mut rollout = device(config, Precision::Full);
    let good = with_bodies([40, 20, 4], 6);
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    let mut told = |scene: &RolloutInput, n_steps: usize| {
        let expected = cpu.run(&weights(&config), scene, n_steps).unwrap_err();
        let error = rollout.run_while(scene, n_steps, &mut |_| true).unwrap_err();
        let kinds = [&expected, &error].map(std::mem::discriminant);
        assert!(kinds[0] == kinds[1], "{expected} on the CPU, {error} on the device");
        error
    };
    let with = |spoil: fn(&mut RolloutInput)| {
        let mut bad = good.clone();
        spoil(&mut bad);
        bad
    };
    for spoil in [
        |bad: &mut RolloutInput| bad.start.history_positions[17][2] = f32::NAN,
        |bad: &mut RolloutInput| bad.start.positions[2][0] = f32::INFINITY,
    ] {
        let error = told(&with(spoil), 5);
        assert!(matches!(error, Error::NonFinite { what: "positions of the k-NN graph" }));
    }
    let bad = with(|bad| bad.start.velocities[3][0] = f32::INFINITY);
    assert!(told(&bad, 5).to_string().contains("predicted motion"));
    for spoil in [
        |bad: &mut RolloutInput| bad.start.colors.truncate(39),
        |bad: &mut RolloutInput| bad.start.velocities.truncate(39),
        |bad: &mut RolloutInput| bad.start.body_of[3] = 40,
        |bad: &mut RolloutInput| bad.start.kinematic_links[3] = 9,
        |bad: &mut RolloutInput| bad.kinematic[2].truncate(3),
    ] {
        assert!(matches!(told(&with(spoil), 5), Error::Shape { .. }));
    }
    let mut broken = weights(&config);
    broken[7] = f32::NAN;
    let mut spoilt = Rollout::new(gpu(), config, &broken, Precision::Full).unwrap();
    let error = spoilt.run_while(&good, 5, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("check the model file"), "{error}");
    // The plan ends within the last pass.
    assert!(matches!(told(&good, 7), Error::Shape { .. }));
    assert!(matches!(told(&scene([2, 1, 0], 6), 5), Error::TooFewPoints { .. }));
    check(&mut rollout, config, &good, 5);
}

#[test]
fn models_of_other_sizes_are_refused() {
    let config = threes(16);
    let refused = |config: RolloutConfig, weights: &[f32]| {
        Rollout::new(gpu(), config, weights, Precision::Full).unwrap_err()
    };
    let weights = weights(&config);
    let (mut narrow, mut silent, mut wide) = (config, config, config);
    narrow.interlacer.n_features -= 1;
    silent.interlacer.n_outputs = 3 * (N_OUTPUTS - 1);
    wide.interlacer.width = 512;
    for (config, weights, told) in [
        (config, &weights[1..], "weights"),
        (narrow, &weights, "features"),
        (silent, &weights, "outputs"),
        (wide, &weights, "512"),
    ] {
        let message = refused(config, weights).to_string();
        assert!(message.contains(told), "{message}");
    }
    assert_eq!(unsupported(&config), None);
    assert!(unsupported(&wide).unwrap().contains("512"));
}

#[test]
fn other_widths_of_the_mlp_are_the_cpus() {
    let mut config = config(16, 2, 1);
    config.interlacer.layers.mlp_ratio = 3;
    check(&mut device(config, Precision::Half), config, &scene([40, 20, 9], 2), 2);
}

#[test]
fn models_are_tried_and_run_where_backends_open_them() {
    standin::load();
    let usual = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
    let silent = ModelConfig { tells_sigma: false, ..usual.with_steps_per_pass(1) };
    for config in [usual.with_steps_per_pass(5), silent] {
        assert_eq!(unsupported(&config.rollout()), None);
        let model = Model::new(config, weights(&config.rollout())).unwrap();
        let mut backend = Backend::new(&model, Device::Cuda(0)).unwrap();
        let scene = with_bodies([20, 5, 4], 5);
        backend.run_while(&model.weights, &scene, 5, |_| true).unwrap();
        let mut cpu = model::Rollout::new(config.rollout(), Mode::Inference);
        cpu.run(&model.weights, &scene, 5).unwrap();
        assert!(backend.name().starts_with("cuda:0 (") && backend.n_steps() == 5);
        for t in 0..5 {
            let [got, expected] = [backend.displacements(t), cpu.displacements(t)];
            assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
            assert_eq!(backend.sigmas(t).is_some(), config.tells_sigma);
            let [got, expected] = [backend.sigmas(t), cpu.sigmas(t)].map(Option::unwrap_or_default);
            assert_close(got, &f64s(expected), 1e-4);
        }
    }
}
