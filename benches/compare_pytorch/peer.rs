//! Forecloud's side of the comparison: one pass for each line of standard input.
//!
//! `write FILE --tokens N --width D` writes a problem; `serve FILE` (`serve FILE --recompute`: with
//! activations computed again in the backward pass) answers commands, a line each:
//! `forward` → milliseconds; `train` → milliseconds and the loss before the step (m); `check FILE`
//! → writes output, loss and gradients at the present weights; `reset` → the weights as read.
//! `torch_peer.py` speaks the same. `layers --tokens N --width D --runs R` compares local layers:
//! see `layers.rs`.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use forecloud::engine::model::{Engine, Gradients, Mode};
use forecloud::engine::ops::charbonnier::charbonnier;
use forecloud::engine::ops::motion_head::{motion_head_backward, motion_head_forward};
use forecloud::engine::step_graph::StepGraph;
use forecloud_train::adamw::{AdamW, AdamWConfig};

mod layers;
mod problem;
#[path = "../support/mod.rs"]
mod support;

use problem::{NamedTensor, Problem, floats, save};
use support::{LEARNING_RATE, LOSS_SCALE};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run(&args, std::io::stdin().lock(), std::io::stdout())
}

/// Runs the command line `args` (without the program's name).
pub fn run(args: &[&str], input: impl BufRead, output: impl Write) -> anyhow::Result<()> {
    match args {
        ["write", path, "--tokens", n, "--width", width] => {
            let problem = Problem::new(&support::Demo::open()?, n.parse()?, width.parse()?)?;
            problem.write(Path::new(path), None)
        }
        ["serve", path] => serve(path, Mode::Training, input, output),
        ["serve", path, "--recompute"] => serve(path, Mode::TrainingRecompute, input, output),
        ["layers", "--tokens", n, "--width", width, "--runs", runs] => {
            layers::run(n.parse()?, width.parse()?, runs.parse()?, output)
        }
        _ => bail!(
            "usage: write FILE --tokens N --width D | serve FILE [--recompute] | \
             layers --tokens N --width D --runs R"
        ),
    }
}

/// Answers commands until the input ends.
fn serve(
    path: &str,
    mode: Mode,
    input: impl BufRead,
    mut output: impl Write,
) -> anyhow::Result<()> {
    let problem = Problem::read(Path::new(path))?;
    let graph = problem.graph()?;
    let (mut inference, mut training) = (None, None);
    writeln!(output, "ready")?;
    output.flush()?;
    for line in input.lines() {
        let line = line?;
        // Made at their first command, so that a process which only infers holds no more than that.
        let new_engine = || Engine::new(problem.config, Mode::Inference);
        let new_training = || Training::new(&problem, mode);
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["forward"] => {
                let engine = inference.get_or_insert_with(new_engine);
                let start = Instant::now();
                let n = problem.n_tokens();
                engine.forward(&problem.weights, &problem.features, &graph, n)?;
                writeln!(output, "{}", milliseconds(start))?;
            }
            ["train"] => {
                let training = training.get_or_insert_with(new_training);
                let start = Instant::now();
                let loss = training.step(&problem, &graph)?;
                writeln!(output, "{} {loss}", milliseconds(start))?;
            }
            ["check", path] => {
                let training = training.get_or_insert_with(new_training);
                training.check(&problem, &graph, Path::new(path))?;
                writeln!(output, "written")?;
            }
            ["reset"] => {
                training = None;
                writeln!(output, "reset")?;
            }
            _ => bail!("unknown command '{line}': forward, train, check FILE or reset"),
        }
        output.flush()?;
    }
    Ok(())
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// A training run: what `Trainer` does with a window of one pass, on a graph that is there, but that each
/// step's displacement has a loss of its own, and sigma has none.
struct Training {
    engine: Engine,
    weights: Vec<f32>,
    optimizer: AdamW,
    gradients: Gradients,
    gradient: Vec<f32>,
    head: Vec<f32>,
    displacements: Vec<[f32; 3]>,
    d_displacements: Vec<[f32; 3]>,
    d_candidates: Vec<[f32; 3]>,
    d_output: Vec<f32>,
    d_features: Vec<f32>,
}

impl Training {
    fn new(problem: &Problem, mode: Mode) -> Self {
        let engine = Engine::new(problem.config, mode);
        let (n, n_params) = (problem.n_tokens(), problem.weights.len());
        let n_rows = problem.n_rows();
        Self {
            gradients: Gradients::new(engine.layout()),
            weights: problem.weights.clone(),
            optimizer: AdamW::new(AdamWConfig::default(), n_params),
            gradient: vec![0.0; n_params],
            head: Vec::new(),
            displacements: vec![[0.0; 3]; n_rows],
            d_displacements: vec![[0.0; 3]; n_rows],
            d_candidates: vec![[0.0; 3]; problem.candidates.len()],
            d_output: vec![0.0; n * problem.config.n_outputs],
            d_features: vec![0.0; problem.features.len()],
            engine,
        }
    }

    /// One step of AdamW; the loss before it (m).
    fn step(&mut self, problem: &Problem, graph: &StepGraph) -> forecloud::Result<f64> {
        let loss = self.differentiate(problem, graph)?;
        self.optimizer.update(&mut self.weights, &mut self.gradient, LEARNING_RATE);
        Ok(loss)
    }

    /// Forward pass, motion head, loss, and back; the loss (m).
    fn differentiate(&mut self, problem: &Problem, graph: &StepGraph) -> forecloud::Result<f64> {
        let Problem { features, candidates, .. } = problem;
        self.engine.forward(&self.weights, features, graph, problem.n_tokens())?;
        self.head.clear();
        self.head.extend_from_slice(self.engine.output());
        let width = problem.n_row_outputs();
        motion_head_forward(&mut self.head, width, candidates, &mut self.displacements);
        self.d_displacements.fill([0.0; 3]);
        let loss = charbonnier(
            &self.displacements,
            &problem.targets,
            &problem.point_weights,
            LOSS_SCALE,
            &mut self.d_displacements,
        );
        motion_head_backward(
            &self.head,
            width,
            candidates,
            &self.d_displacements,
            &mut self.d_output,
            &mut self.d_candidates,
        );
        self.gradients.clear();
        self.engine.backward(
            &self.weights,
            features,
            graph,
            &self.d_output,
            &mut self.gradients,
            &mut self.d_features,
        )?;
        self.gradient.fill(0.0);
        self.gradients.add_to(&mut self.gradient);
        Ok(loss)
    }

    /// Writes outputs, loss and gradients.
    fn check(&mut self, problem: &Problem, graph: &StepGraph, path: &Path) -> anyhow::Result<()> {
        let loss = self.differentiate(problem, graph)?;
        let (n, n_outputs) = (problem.n_tokens(), problem.config.n_outputs);
        let mut tensors: Vec<NamedTensor> = vec![
            ("output".into(), vec![n, n_outputs], floats(self.engine.output())),
            ("loss".into(), vec![1], floats(&[loss as f32])),
        ];
        for tensor in &self.engine.layout().tensors {
            let gradient = floats(tensor.span.of(&self.gradient));
            tensors.push((format!("gradient.{}", tensor.name), tensor.shape.clone(), gradient));
        }
        save(path, &tensors, None).with_context(|| format!("{}", path.display()))
    }
}
