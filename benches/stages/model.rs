//! The model: forward passes, and whole steps of training.

use anyhow::{Context, ensure};
use criterion::{BenchmarkId, Criterion};
use forecloud::graph::walks::WalkSeed;
use forecloud::model::tokens::Tokens;
use forecloud::model::{Engine, Gradients, Layout, Mode, ModelConfig, Rollout, Scene, StepGraph};
use forecloud::ops::charbonnier::charbonnier;
use forecloud::train::adamw::{AdamW, AdamWConfig};

use super::support::{Demo, Turning, weights};
use super::{SIZES, set_size};

const WIDTHS: [usize; 2] = [64, 128];
/// As early in the warm-up of `TrainConfig`.
const LEARNING_RATE: f32 = 1e-4;
/// As in training: gradients of centimetres.
const LOSS_SCALE: f32 = 100.0;

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
        tokens.encode(&state, rollout.frame, rollout.step_secs)?;
        let mut graph = StepGraph::default();
        let (k, n_hops) = (config.k, config.n_hops);
        graph.rebuild(&tokens.positions, k, n_hops, &config.mask, WalkSeed::default())?;
        let mut engine = Engine::new(interlacer, Mode::Inference);
        one_thread.install(|| engine.forward(&weights, &tokens.features, &graph.loads, n))?;
        let output = engine.output().to_vec();
        engine.forward(&weights, &tokens.features, &graph.loads, n)?;
        ensure!(engine.output() == output, "one thread gives another result than all");
        ensure!(output.iter().all(|y| y.is_finite()), "an output is not finite");
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::new(format!("d{}", config.width), n), |bencher| {
            bencher.iter(|| engine.forward(&weights, &tokens.features, &graph.loads, n));
        });
    }
    group.finish();
    Ok(())
}

/// Tokens, graph, forward pass, loss, backward pass and AdamW, as `Trainer` does for one window of
/// one step: the gradient is finite and the same on one thread as on all, and the loss falls.
pub fn train_step(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut group = criterion.benchmark_group("train_step");
    for (config, n) in sizes() {
        let mut training = Training::new(demo, n, config)?;
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

struct Training {
    rollout: Rollout,
    scene: Scene,
    targets: Vec<[f32; 3]>,
    point_weights: Vec<f32>,
    weights: Vec<f32>,
    optimizer: AdamW,
    gradients: Gradients,
    gradient: Vec<f32>,
    d_positions: Vec<Vec<[f32; 3]>>,
}

impl Training {
    fn new(demo: &Demo, n: usize, config: ModelConfig) -> anyhow::Result<Self> {
        let Turning { state, targets } = Turning::new(demo, n, &config)?;
        let layout = Layout::new(config.interlacer());
        Ok(Self {
            rollout: Rollout::new(config.rollout(), Mode::Training),
            // One step looks at the robot one back, now, and one ahead: there is none.
            scene: Scene { start: state, kinematic: vec![vec![]; 3], ..Scene::default() },
            targets,
            point_weights: vec![1.0; n],
            weights: weights(&layout),
            optimizer: AdamW::new(AdamWConfig::default(), layout.n_params()),
            gradients: Gradients::new(&layout),
            gradient: vec![0.0; layout.n_params()],
            d_positions: vec![vec![[0.0; 3]; n]],
        })
    }

    /// Leaves the gradient; the loss (m).
    fn differentiate(&mut self) -> forecloud::Result<f64> {
        self.rollout.run(&self.weights, &self.scene, 1)?;
        self.d_positions[0].fill([0.0; 3]);
        // As the displacements are the new positions less the old ones, their gradients are equal.
        let loss = charbonnier(
            self.rollout.displacements(0),
            &self.targets,
            &self.point_weights,
            LOSS_SCALE,
            &mut self.d_positions[0],
        );
        self.gradients.clear();
        self.rollout.backward(&self.weights, &self.d_positions, &mut self.gradients)?;
        self.gradient.fill(0.0);
        self.gradients.add_to(&mut self.gradient);
        Ok(loss)
    }

    /// One step of AdamW; the loss before it (m).
    fn step(&mut self) -> anyhow::Result<f64> {
        let loss = self.differentiate()?;
        let norm = self.optimizer.update(&mut self.weights, &mut self.gradient, LEARNING_RATE);
        ensure!(norm.is_finite(), "the gradient's norm is {norm}");
        Ok(loss)
    }
}
