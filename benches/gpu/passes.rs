//! Passes of the family that ships (ten steps a pass, all inputs, sigma) at the sizes of the steps:
//! against the CPU, timed, and beside PyTorch on the same tokens.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use forecloud::engine::backend::Forwards;
use forecloud::engine::backend::cuda::{Gpu, PassForward, Precision};
use forecloud::engine::model::tokens::Tokens;
use forecloud::engine::model::{Engine, Mode, Model, ModelConfig};

use crate::demo::Demo;
use crate::problem::Problem;
use crate::support::Turning;
use crate::{Table, larger, percentiles, pytorch, row};

/// Largest difference of an output from the CPU's, relative to the largest output: sums in another order, over
/// weights that are no trained model's.
const TOLERANCE: f32 = 1e-3;

/// A pass over `n_tokens` points of the demo without a robot: [`PassForward`] with tokens on the host and
/// on the device, and PyTorch with the graph given.
pub fn compare(
    gpu: &Arc<Gpu>,
    demo: &Demo,
    n_tokens: usize,
    width: usize,
    n_runs: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let shipped = Model::load("models/small.safetensors".as_ref())?.config;
    let model = ModelConfig { width, n_kinematic: 0, ..shipped };
    let mut points = Turning::of(demo.particles(n_tokens)?, &model);
    points.state.kinematic = vec![vec![]; model.steps_per_pass + 2];
    let mut tokens = Tokens::default();
    tokens.encode(&points.state, &model.rollout().tokens)?;
    let problem = Problem::of(points, &model)?;
    let mut engine = Engine::new(problem.config, Mode::Inference);
    engine.forward(&problem.weights, &problem.features, &problem.graph()?, n_tokens)?;

    let (config, weights) = (model.rollout(), &problem.weights);
    let mut forward = PassForward::new(gpu.clone(), config, weights, Precision::Half)?;
    let mut outputs = Vec::new();
    let mut with_copies = Vec::new();
    for _ in 0..=n_runs.min(100) {
        let start = Instant::now();
        forward.run(&[&tokens], &mut [&mut outputs])?;
        with_copies.push(start.elapsed().as_secs_f64() * 1e3);
    }
    // The first one captures the graph.
    with_copies.remove(0);
    let most = engine.output().iter().fold(1e-12f32, |most, x| most.max(x.abs()));
    let differences = outputs.iter().zip(engine.output()).map(|(a, b)| (a - b).abs());
    let off = differences.fold(0.0, larger) / most;
    let mut on_device = forward.measure(&[&tokens], n_runs)?;
    let about = format!(
        "a pass of {} steps, {} features, {} outputs, {n_tokens} points, d {width}",
        model.steps_per_pass, problem.config.n_features, problem.config.n_outputs
    );
    row(table, format!("{about}: off the CPU, relative"), format!("{off:.1e}"));
    row(table, format!("{about}: on the device, p50 / p99"), percentiles(&mut on_device));
    row(table, format!("{about}: with copies, p50 / p99"), percentiles(&mut with_copies));
    let megabytes = forward.device_bytes() as f64 / 1e6;
    row(table, format!("{about}: device memory"), format!("{megabytes:.0} MB"));
    let equal = outputs.len() == engine.output().len() && off <= TOLERANCE;
    ensure!(equal, "{about}: off the CPU by {off:e}, {} outputs", outputs.len());
    let p50 = on_device[on_device.len().div_ceil(2) - 1];
    pytorch::beside(&problem, " of the shipped family", [p50, megabytes], table)
}
