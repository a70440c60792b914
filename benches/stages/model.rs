//! The model: forward passes, and whole steps of training.

use anyhow::{Context, ensure};
use criterion::{BenchmarkId, Criterion};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::model::tokens::Tokens;
use forecloud::engine::model::{Engine, Layout, Mode, ModelConfig, StepGraph};

use super::support::{Demo, Training, Turning, weights};
use super::{SIZES, set_size};

const WIDTHS: [usize; 2] = [64, 128];

fn sizes() -> impl Iterator<Item = (ModelConfig, usize)> {
    let config = |width| ModelConfig { width, ..ModelConfig::default() };
    WIDTHS.into_iter().flat_map(move |width| SIZES.map(|n| (config(width), n)))
}

/// The forward pass: finite, and the same on one thread as on all.
pub fn forward(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut group = criterion.benchmark_group("forward");
    for (config, n) in sizes() {
        let (rollout, interlacer) = (config.rollout(), config.interlacer());
        let weights = weights(&Layout::new(interlacer));
        let state = Turning::new(demo, n, &config)?.state;
        let mut tokens = Tokens::default();
        tokens.encode(&state, &rollout.tokens)?;
        let mut graph = StepGraph::default();
        let (k, n_hops) = (config.k, config.n_hops);
        graph.rebuild(&tokens.positions, k, n_hops, &config.mask, WalkSeed::default())?;
        let mut engine = Engine::new(interlacer, Mode::Inference);
        one_thread.install(|| engine.forward(&weights, &tokens.features, &graph, n))?;
        let output = engine.output().to_vec();
        engine.forward(&weights, &tokens.features, &graph, n)?;
        ensure!(engine.output() == output, "one thread gives another result than all");
        ensure!(output.iter().all(|y| y.is_finite()), "an output is not finite");
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::new(format!("d{}", config.width), n), |bencher| {
            bencher.iter(|| engine.forward(&weights, &tokens.features, &graph, n));
        });
    }
    group.finish();
    Ok(())
}

/// Steps of training: the gradient is finite and the same on one thread as on all, and the loss falls.
pub fn train_step(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut group = criterion.benchmark_group("train_step");
    for (config, n) in sizes() {
        let mut training = Training::new(demo, n, &config)?;
        one_thread.install(|| training.differentiate())?;
        let gradient = training.gradient.clone();
        let mut losses = vec![training.differentiate()?];
        ensure!(training.gradient == gradient, "one thread gives another gradient than all");
        ensure!(gradient.iter().all(|g| g.is_finite()), "a gradient is not finite");
        for _ in 0..3 {
            losses.push(training.step()?);
        }
        ensure!(losses[3] < losses[0], "the loss does not fall: {losses:?}");
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::new(format!("d{}", config.width), n), |bencher| {
            bencher.iter(|| training.step());
        });
        training.step().context("training failed while it was timed")?;
    }
    group.finish();
    Ok(())
}
