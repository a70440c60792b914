//! Roll-outs of models whose tokens the host makes, against the CPU's.

use super::super::model::{Precision, unsupported};
use super::super::pass_rollout::PassRollout;
use super::super::rollout::{Counts, Rollout};
use super::rollout::{config, scene, weights};
use super::*;
use crate::Error;
use crate::engine::backend::{Backend, Device, Rollouts};
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::tests::{ONE, THREE};
use crate::engine::model::{self, Inputs, Mode, Model, ModelConfig, TokenConfig};
use crate::engine::ops::check::{assert_close, f64s};
use crate::engine::rollout_input::RolloutInput;

/// Models of `width` and `tokens`, with `n_more` outputs a step than the head's.
pub(super) fn of(width: usize, tokens: TokenConfig, n_more: usize) -> RolloutConfig {
    let mut config =
        RolloutConfig { tokens, replan_interval: tokens.steps_per_pass, ..config(width, 2, 2) };
    config.interlacer.n_features = tokens.n_features();
    config.interlacer.n_outputs = tokens.steps_per_pass * (N_OUTPUTS + n_more);
    config
}

/// Passes of three steps, of a model with the second inputs that tells sigma.
fn threes(width: usize) -> RolloutConfig {
    of(width, THREE, 1)
}

/// A scene whose particles are of bodies above a plane, so that the second inputs tell of contacts.
pub(super) fn with_bodies(sizes: [usize; 3], n_steps: usize) -> RolloutInput {
    let mut scene = scene(sizes, n_steps);
    scene.start.body_of = (0..sizes[0] as u32).map(|i| i % 3).collect();
    scene.start.support_m = Some(-0.1);
    scene
}

fn device(config: RolloutConfig, precision: Precision) -> PassRollout {
    PassRollout::new(gpu(), config, &weights(&config), precision).unwrap()
}

/// Holds `n_steps` of a roll-out of the device to the CPU's.
fn check(rollout: &mut PassRollout, config: RolloutConfig, scene: &RolloutInput, n_steps: usize) {
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights(&config), scene, n_steps).unwrap();
    rollout.run_while(scene, n_steps, &mut |_| true).unwrap();
    assert_eq!(rollout.n_steps(), n_steps);
    for t in 0..n_steps {
        let (got, expected) = (rollout.displacements(t), cpu.displacements(t));
        assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
        assert_eq!(rollout.sigmas(t).is_some(), config.tells_sigma());
        if let (Some(got), Some(expected)) = (rollout.sigmas(t), cpu.sigmas(t)) {
            assert_close(got, &f64s(expected), 1e-4);
        }
    }
}

#[test]
fn passes_of_three_steps_with_second_inputs_and_sigma_are_the_cpus() {
    for precision in [Precision::Full, Precision::Half] {
        let config = threes(24);
        // The fifth step is within the second pass.
        check(&mut device(config, precision), config, &with_bodies([45, 22, 6], 6), 5);
    }
}

/// The model that is shipped, over its passes of a scene with a robot in full detail.
#[test]
fn rollouts_of_the_shipped_model_are_the_cpus() {
    let model = Model::load("models/small.safetensors".as_ref()).unwrap();
    let (config, detail) = (model.config.rollout(), model.config.kinematic_detail);
    let n_steps = config.tokens.steps_per_pass + 1;
    let mut scene = with_bodies([90, 41, 31 * detail + 3], model.config.reach(n_steps));
    scene.start.kinematic_stride = detail;
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&model.weights, &scene, n_steps).unwrap();
    for precision in [Precision::Full, Precision::Half] {
        let mut gpu = PassRollout::new(gpu(), config, &model.weights, precision).unwrap();
        gpu.run_while(&scene, n_steps, &mut |_| true).unwrap();
        for t in 0..n_steps {
            let (got, expected) = (gpu.displacements(t), cpu.displacements(t));
            assert_close(got.as_flattened(), &f64s(expected.as_flattened()), 1e-4);
        }
    }
}

#[test]
fn each_setting_alone_is_the_cpus_and_so_are_the_longest_passes() {
    let sigma = of(16, ONE, 1);
    let second = of(16, TokenConfig { inputs: Inputs::Second, ..ONE }, 0);
    let pairs = of(16, TokenConfig { steps_per_pass: 2, ..ONE }, 0);
    let longest = of(16, TokenConfig { steps_per_pass: model::MAX_STEPS_PER_PASS, ..THREE }, 1);
    // More outputs than two tiles of a dense layer have columns.
    assert!(longest.interlacer.n_outputs == 160 && longest.interlacer.n_features > 400);
    for (config, n_steps) in [(sigma, 2), (second, 2), (pairs, 3), (longest, 20_usize)] {
        let n_ahead = n_steps.next_multiple_of(config.tokens.steps_per_pass);
        check(
            &mut device(config, Precision::Half),
            config,
            &with_bodies([37, 11, 5], n_ahead),
            n_steps,
        );
    }
    let alone = with_bodies([70, 0, 0], 3);
    check(&mut device(threes(64), Precision::Half), threes(64), &alone, 3);
}

#[test]
fn a_run_ends_behind_the_pass_that_it_is_told_to() {
    let (config, scene) = (threes(16), with_bodies([40, 20, 4], 6));
    let mut rollout = device(config, Precision::Full);
    check(&mut rollout, config, &scene, 6);
    let of = |rollout: &PassRollout, t| {
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
    let (large, small) = (with_bodies([40, 20, 4], 6), with_bodies([33, 7, 2], 6));
    check(&mut rollout, config, &large, 6);
    let counts = rollout.counts();
    assert_eq!(counts.captures, 1);
    check(&mut rollout, config, &large, 6);
    check(&mut rollout, config, &large, 3);
    assert_eq!(rollout.counts(), counts);
    check(&mut rollout, config, &small, 6);
    check(&mut rollout, config, &large, 6);
    assert_eq!(rollout.counts(), Counts { captures: 3, ..counts });
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
    let mut bad = good.clone();
    bad.start.history_positions[17][2] = f32::NAN;
    assert!(matches!(told(&bad, 5), Error::NonFinite { what: "positions of the k-NN graph" }));
    let mut bad = good.clone();
    bad.start.velocities[3][0] = f32::INFINITY;
    assert!(told(&bad, 5).to_string().contains("predicted motion"));
    let mut bad = good.clone();
    bad.start.colors.pop();
    assert!(matches!(told(&bad, 5), Error::Shape { .. }));
    // The plan ends within the last pass.
    assert!(matches!(told(&good, 7), Error::Shape { .. }));
    assert!(matches!(told(&with_bodies([2, 1, 0], 6), 5), Error::TooFewPoints { .. }));
    check(&mut rollout, config, &good, 5);

    let mut other = config;
    other.interlacer.n_features -= 1;
    let mut rollout = device(other, Precision::Full);
    let refused = rollout.run_while(&good, 3, &mut |_| true).unwrap_err();
    assert!(matches!(refused, Error::Shape { what: "features", .. }), "{refused}");
    // The kernels of whole steps are not for such models, nor for other features than they write.
    let mut narrow = super::rollout::config(16, 2, 1);
    narrow.interlacer.n_features -= 1;
    for config in [config, narrow] {
        let made = Rollout::new(gpu(), config, &weights(&config), Precision::Full);
        let message = made.unwrap_err().to_string();
        assert!(message.contains("one step per pass"), "{message}");
    }
}

#[test]
fn such_models_are_tried_and_run_where_the_usual_ones_do() {
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
