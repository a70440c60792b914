//! Cards and drivers in which something is wrong.

use super::rollout::{config, of, scene, weights};
use super::sampler::{PLAIN, sampling};
use super::*;
use crate::engine::backend::cuda::kernels::{Kernel, SHARED_BYTES};
use crate::engine::backend::cuda::launch::Argument;
use crate::engine::backend::cuda::{Precision, Rollout, Sampler};
use crate::engine::backend::{Backend, Device, Other, Rollouts};
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::model::tokens::TokenConfig;
use crate::engine::model::tokens::tests::THREE;
use crate::engine::model::{self, Mode};
use crate::engine::rollout_input::RolloutInput;
use crate::vision::particles::{CpuSampler, ParticleSampler, Particles};
use crate::{Error, Result};

#[test]
fn cards_that_are_not_there_or_too_old_are_named_with_a_remedy() {
    if !has_faulty_cards() {
        return;
    }
    let told = |ordinal| match Gpu::open(ordinal) {
        Err(error @ Error::Device { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let message = told(99);
    assert!(message.starts_with("cuda:99: ") && message.contains("knows 11 cards"), "{message}");
    let message = told(3);
    assert!(message.contains("compute capability 7.5, 8.0 is needed"), "{message}");
    assert!(message.contains("device: cpu"), "{message}");
    assert_eq!(open(1).name(), "cuda:1 (Stand-in of Hopper)");
}

#[test]
fn too_little_memory_is_told_and_another_run_may_fit() {
    if !has_faulty_cards() {
        return;
    }
    let (config, gpu) = (config(8, 2, 1), open(4));
    let mut rollout = Rollout::new(gpu, config, &weights(&config), Precision::Full).unwrap();
    let mut run = |scene: &RolloutInput| Rollouts::run_while(&mut rollout, scene, 2, &mut |_| true);
    let message = run(&scene([3000, 20, 4], 2)).unwrap_err().to_string();
    assert!(message.contains("Stand-in of a small memory): allocating"), "{message}");
    assert!(message.contains("out of memory: take fewer particles"), "{message}");
    run(&scene([20, 5, 2], 2)).unwrap();
}

#[test]
fn a_card_that_gets_lost_is_an_error_from_then_on() {
    if !has_faulty_cards() {
        return;
    }
    let (config, gpu) = (config(8, 2, 1), open(5));
    let mut rollout = Rollout::new(gpu, config, &weights(&config), Precision::Full).unwrap();
    let scene = scene([20, 5, 2], 9);
    let mut run = || Rollouts::run_while(&mut rollout, &scene, 9, &mut |_| true);
    for _ in 0..2 {
        let message = run().unwrap_err().to_string();
        assert!(message.starts_with("cuda:5 (Stand-in that gets lost): "), "{message}");
        assert!(message.contains("unspecified launch failure: the card is lost"), "{message}");
    }
}

/// Roll-outs and particles on card `ordinal`.
fn backend(device: Device, ordinal: usize, config: RolloutConfig, weights: &[f32]) -> Backend {
    let rollouts = Rollout::new(open(ordinal), config, weights, Precision::Full).unwrap();
    let rollouts = Box::new(rollouts);
    let cpu = model::Rollout::new(config, Mode::Inference);
    let sampler = Box::new(Sampler::new(open(ordinal)));
    let other = Some(Other { rollouts, sampler });
    let cpu_sampler = CpuSampler::default();
    Backend { device, cpu, cpu_sampler, other, fallback: None, is_missed: false }
}

#[test]
fn where_auto_loses_its_card_while_it_draws_the_cpu_draws_the_same() {
    if !has_faulty_cards() {
        return;
    }
    let config = config(8, 2, 1);
    let (weights, cameras) = (weights(&config), [PLAIN.frame(1)]);
    let draw = |sampler: &mut dyn ParticleSampler| {
        let [mut few, mut many] = [Particles::default(), Particles::default()];
        sampler.sample(&cameras, &sampling(1, 8), [(&mut few, 50), (&mut many, 200)])?;
        Ok((few.sources, few.eyes, many.positions, many.eyes, many.support_m))
    };
    let expected: Result<_> = draw(&mut CpuSampler::default());
    let expected = expected.unwrap();
    let mut asked_for = backend(Device::Cuda(8), 8, config, &weights);
    let mut auto = backend(Device::Auto, 9, config, &weights);
    // The first frame is the card's, the second one takes more launches than it lives for.
    assert_eq!(draw(&mut asked_for).unwrap(), expected);
    assert!(matches!(draw(&mut asked_for), Err(Error::Device { .. })));
    assert_eq!(draw(&mut auto).unwrap(), expected);
    assert_eq!(auto.name(), "cuda:9 (Stand-in that gets lost)");
    for _ in 0..2 {
        assert_eq!(draw(&mut auto).unwrap(), expected);
        assert_eq!((auto.name(), auto.missed()), ("cpu", auto.fallback()));
        assert!(auto.fallback().unwrap().contains("lost"), "{:?}", auto.fallback());
    }
}

#[test]
fn where_auto_loses_its_card_the_cpu_takes_over_within_the_run() {
    if !has_faulty_cards() {
        return;
    }
    let config = config(8, 2, 1);
    let (weights, scene) = (weights(&config), scene([20, 5, 2], 9));
    let backend = |device, ordinal| backend(device, ordinal, config, &weights);
    let mut asked_for = backend(Device::Cuda(6), 6);
    assert!(asked_for.run_while(&weights, &scene, 9, |_| true).is_err());
    let mut auto = backend(Device::Auto, 7);
    assert_eq!(auto.name(), "cuda:7 (Stand-in that gets lost)");
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights, &scene, 9).unwrap();
    for _ in 0..2 {
        auto.run_while(&weights, &scene, 9, |_| true).unwrap();
        assert_eq!((auto.n_steps(), auto.name()), (9, "cpu"));
        assert!((0..9).all(|t| auto.displacements(t) == cpu.displacements(t)));
        assert!(auto.fallback().unwrap().contains("lost"), "{:?}", auto.fallback());
        assert_eq!(auto.missed(), auto.fallback());
    }
}

/// As above, of a model of several steps a pass.
#[test]
fn where_auto_loses_its_card_between_passes_the_cpu_takes_over_too() {
    if !has_faulty_cards() {
        return;
    }
    let config = of(8, TokenConfig { steps_per_pass: 2, ..THREE }, 1);
    let (weights, scene) = (weights(&config), scene([20, 5, 2], 10));
    let mut auto = backend(Device::Auto, 10, config, &weights);
    assert_eq!(auto.name(), "cuda:10 (Stand-in that gets lost)");
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights, &scene, 10).unwrap();
    let mut n_passes = 0;
    for _ in 0..2 {
        let goes_on = |_| {
            n_passes += 1;
            true
        };
        auto.run_while(&weights, &scene, 10, goes_on).unwrap();
        assert_eq!((auto.n_steps(), auto.name()), (10, "cpu"));
        for t in 0..10 {
            assert_eq!(auto.displacements(t), cpu.displacements(t));
            assert_eq!(auto.sigmas(t), cpu.sigmas(t));
        }
        assert!(auto.missed().unwrap().contains("lost"), "{:?}", auto.missed());
    }
    // Some on the card, and five on the CPU in either run.
    assert!((11..15).contains(&n_passes), "{n_passes}");
}

/// Whatever the card is: nothing is launched.
#[test]
fn kernels_are_given_what_they_take_or_nothing_runs() {
    let gpu = gpu();
    let told = |block, shared_bytes, arguments: &[Argument<'_>]| {
        // SAFETY: never launched.
        let launched =
            unsafe { gpu.launch(Kernel::SortBlocks, [1, 1], block, shared_bytes, arguments) };
        launched.unwrap_err().to_string()
    };
    let address = Argument::Address(0);
    for message in [
        told(512, 0, &[]),
        told(512, 0, &[7.into()]),
        told(512, 0, &[address, address]),
        told(0, 0, &[address]),
        told(1025, 0, &[address]),
        told(512, SHARED_BYTES + 1, &[address]),
    ] {
        assert!(message.contains("sort_blocks takes [Address], 1024 threads"), "{message}");
    }
}
