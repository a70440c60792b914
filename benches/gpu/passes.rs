//! Passes of the family that ships (ten steps a pass, all inputs, sigma) at the sizes asked for: against the
//! CPU, timed from scenes with a robot to displacements, and beside PyTorch on the same points.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use forecloud::engine::backend::Rollouts;
use forecloud::engine::backend::cuda::measure::StageTime;
use forecloud::engine::backend::cuda::{Gpu, Precision, Rollout};
use forecloud::engine::model::{self, Engine, Layout, Mode, Model, ModelConfig};
use forecloud::engine::rollout_input::RolloutInput;

use crate::demo::Demo;
use crate::problem::Problem;
use crate::support::{self, Turning};
use crate::{Table, larger, percentiles, pytorch, row};

/// Largest difference from the CPU's, relative to the largest number: sums in another order, over weights that
/// are no trained model's.
const TOLERANCE: f32 = 1e-3;

/// The family that ships, of this width.
fn family(width: usize) -> anyhow::Result<ModelConfig> {
    Ok(ModelConfig { width, ..Model::load("models/small.safetensors".as_ref())?.config })
}

/// Whole passes over `n_tokens` tokens of the demo with its robot: tokens, model, displacements, sigmas.
pub fn whole(
    gpu: &Arc<Gpu>,
    demo: &Demo,
    n_tokens: usize,
    width: usize,
    n_runs: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let model = family(width)?;
    let (config, n_steps) = (model.rollout(), model.steps_per_pass);
    let weights = support::weights(&Layout::new(config.interlacer));
    let scene = demo.scene(n_tokens, &model, model.reach(n_steps))?;
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(&weights, &scene, 1)?;
    for precision in [Precision::Full, Precision::Half] {
        let about = format!("{n_tokens} tokens with a robot, d {width}, {precision:?}");
        let mut rollout = Rollout::new(gpu.clone(), config, &weights, precision)?;
        rollout.run_while(&scene, 1, &mut |_| true)?;
        let off = difference(
            rollout.displacements(0).as_flattened(),
            cpu.displacements(0).as_flattened(),
        );
        row(table, format!("{about}: off the CPU, relative"), format!("{off:.1e}"));
        let mut passes = rollout.measure_passes(&scene, n_steps, n_runs)?;
        row(table, format!("{about}: a pass on the device, p50 / p99"), percentiles(&mut passes));
        let mut with_copies = (0..n_runs.min(100))
            .map(|_| {
                let start = Instant::now();
                rollout.run_while(&scene, n_steps, &mut |_| true)?;
                Ok(start.elapsed().as_secs_f64() * 1e3)
            })
            .collect::<forecloud::Result<Vec<_>>>()?;
        let what = format!(
            "{about}: {n_steps} steps ({} passes) from scene to displacements, p50 / p99",
            n_steps.div_ceil(config.replan_interval)
        );
        row(table, what, percentiles(&mut with_copies));
        let megabytes = rollout.device_bytes() as f64 / 1e6;
        row(table, format!("{about}: device memory"), format!("{megabytes:.0} MB"));
        println!("{about}, stage by stage (a pass; least of ten replays):");
        rollout.measure_stages(&scene, 20, 10)?.iter().for_each(print_stage);
        // NaN is no small difference.
        ensure!(off <= TOLERANCE, "{about}: off the CPU by {off:e}");
    }
    Ok(())
}

fn print_stage(time: &StageTime) {
    let StageTime { stage, ms, flops, bytes } = time;
    println!(
        "  {:12} {ms:8.4} ms {:8.2} TFLOP/s {:8.0} GB/s at least",
        format!("{stage:?}"),
        flops / ms / 1e9,
        bytes / ms / 1e6
    );
}

/// Passes over `n_tokens` points of the demo without a robot, tokens and graph made on the device; and PyTorch,
/// which is given both, from features to outputs.
pub fn beside_pytorch(
    gpu: &Arc<Gpu>,
    demo: &Demo,
    n_tokens: usize,
    width: usize,
    n_runs: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let model = ModelConfig { n_kinematic: 0, ..family(width)? };
    let mut points = Turning::of(demo.particles(n_tokens)?, &model);
    points.state.kinematic = vec![vec![]; model.steps_per_pass + 2];
    let scene = RolloutInput {
        start: points.state.clone(),
        kinematic: points.state.kinematic.clone(),
        ..RolloutInput::default()
    };
    let problem = Problem::of(points, &model)?;
    let (config, weights) = (model.rollout(), &problem.weights);
    let mut cpu = model::Rollout::new(config, Mode::Inference);
    cpu.run(weights, &scene, 1)?;
    let mut rollout = Rollout::new(gpu.clone(), config, weights, Precision::Half)?;
    rollout.run_while(&scene, 1, &mut |_| true)?;
    let off =
        difference(rollout.displacements(0).as_flattened(), cpu.displacements(0).as_flattened());
    let mut on_device = rollout.measure_passes(&scene, 1, n_runs)?;
    let about = format!(
        "a pass of {} features and {} outputs, {n_tokens} points, no robot, d {width}",
        problem.config.n_features, problem.config.n_outputs
    );
    row(table, format!("{about}: off the CPU, relative"), format!("{off:.1e}"));
    row(table, format!("{about}: on the device, p50 / p99"), percentiles(&mut on_device));
    let megabytes = rollout.device_bytes() as f64 / 1e6;
    row(table, format!("{about}: device memory"), format!("{megabytes:.0} MB"));
    ensure!(off <= TOLERANCE, "{about}: off the CPU by {off:e}");
    let p50 = on_device[on_device.len().div_ceil(2) - 1];
    let mut engine = Engine::new(problem.config, Mode::Inference);
    engine.forward(weights, &problem.features, &problem.graph()?, n_tokens)?;
    pytorch::beside(&problem, engine.output(), [p50, megabytes], table)
}

/// Largest difference, relative to the largest number expected.
fn difference(got: &[f32], expected: &[f32]) -> f32 {
    let scale = expected.iter().fold(1e-12f32, |most, e| most.max(e.abs()));
    got.iter().zip(expected).map(|(g, e)| (g - e).abs()).fold(0.0, larger) / scale
}
