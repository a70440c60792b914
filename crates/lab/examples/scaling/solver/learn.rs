//! Weights learnt: by least squares, and by gradient.

use super::layers::{Example, Kept, Layer, Layers};
use super::trial::{DEMANDS, Family, NODES, S, TASKS, Task, Trial, trial};
use anyhow::{Context, Result};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

/// (I - δL)^l ψ, l up to `layers`, as columns, of demand `demand`.
pub fn powers(trial: &Trial, demand: usize, layers: usize) -> DMatrix<f64> {
    let mut power: Vec<f32> = trial.demands.iter().skip(demand).step_by(DEMANDS).copied().collect();
    let mut product = vec![0.0; NODES];
    let delta = trial.laplacian.step();
    let mut columns = DMatrix::zeros(NODES, layers);
    for l in 0..layers {
        columns.column_mut(l).iter_mut().zip(&power).for_each(|(to, &x)| *to = f64::from(x));
        trial.laplacian.apply(&power, &mut product);
        power.iter_mut().zip(&product).for_each(|(x, y)| *x -= delta * y);
    }
    columns
}

/// What each layer adds, by least squares over the trials' first demands.
pub fn least_squares(trials: &[Trial], task: usize, layers: usize) -> Result<DVector<f64>> {
    let mut rows = DMatrix::zeros(trials.len() * NODES, layers);
    let mut wanted = DVector::zeros(trials.len() * NODES);
    for (at, trial) in trials.iter().enumerate() {
        // In units of the step, which flow and embedding grow with; each answer weighs the same.
        let delta = f64::from(trial.laplacian.step());
        let unit = match TASKS[task].0 {
            Task::Flow => delta,
            Task::Embedding => delta.sqrt(),
            Task::Heat => 1.0,
        };
        let answer = trial.answers[task].column(0) / unit;
        let norm = answer.norm();
        rows.rows_mut(at * NODES, NODES).copy_from(&(powers(trial, 0, layers) / norm));
        wanted.rows_mut(at * NODES, NODES).copy_from(&(answer / norm));
    }
    rows.svd(true, true).solve(&wanted, 1e-9).map_err(anyhow::Error::msg).context("fit")
}

/// Fresh graphs of a step of the gradient.
const BATCH: u64 = 4;
/// Step of a product, in units of the trace.
const STEP: f64 = 3.0;
/// Adam's rate, first and last; it falls by the same factor in each step.
const RATES: [f64; 2] = [3e-2, 1e-6];
const BETAS: [f64; 2] = [0.9, 0.99];

/// Where the gradient begins: the weights of Lemmas 1 and 2, steps in units of the trace; for heat, whose
/// series of Lemma 3 grows far before it falls, Euler's steps.
fn start(task: Task, n_layers: usize, unit: f64) -> Layers {
    let mut alpha = 1.0;
    let layer = |l: usize| -> Layer {
        match task {
            // Y ← Y + δ (P - M Y)
            Task::Flow => [1.0, 0.0, 1.0, 0.0, STEP, 1.0, 0.0, 0.0, 0.0, -STEP],
            // Y ← Y + α P, P ← (I - δ M) P
            Task::Embedding => {
                alpha *= if l == 0 { 1.0 } else { (2 * l - 1) as f64 / (2 * l) as f64 };
                [1.0, 0.0, 1.0, 0.0, alpha, 1.0, -STEP, 0.0, 0.0, 0.0]
            }
            // P, Y ← (I - s M / layers) P
            Task::Heat => {
                let step = (S * unit / n_layers as f64).min(STEP);
                [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, -step, 0.0, -step, 0.0]
            }
        }
    };
    Layers { layers: (0..n_layers).map(layer).collect(), unit }
}

/// Layers on their way to one task.
struct Learner {
    task: usize,
    layers: Layers,
    moments: [Vec<Layer>; 2],
    scratch: Vec<Kept>,
}

impl Learner {
    /// A step of Adam on the batch's mean loss.
    fn step(&mut self, examples: &[[Example; 3]], keep_graph: bool, at: usize, rate: f64) {
        let mut gradient = vec![[0.0; 10]; self.layers.layers.len()];
        for example in examples {
            self.layers.gradient(&example[self.task], &mut self.scratch, &mut gradient);
        }
        if keep_graph {
            gradient.iter_mut().for_each(|layer| layer[..2].fill(0.0));
        }
        let [first, second] = &mut self.moments;
        let corrections = BETAS.map(|beta| 1.0 - beta.powi(at as i32 + 1));
        let numbers = self.layers.layers.iter_mut().flatten();
        let moments = first.iter_mut().flatten().zip(second.iter_mut().flatten());
        for ((x, (first, second)), d) in numbers.zip(moments).zip(gradient.iter().flatten()) {
            let d = d / examples.len() as f64;
            *first = BETAS[0] * *first + (1.0 - BETAS[0]) * d;
            *second = BETAS[1] * *second + (1.0 - BETAS[1]) * d * d;
            let size = (*second / corrections[1]).sqrt() + 1e-30;
            *x -= rate * *first / corrections[0] / size;
        }
    }
}

/// Layers learnt by Adam in `n_steps` steps on fresh graphs, from the graph `first` on: of each task and
/// number of layers; with `keep_graph` the graph goes through the layers unchanged.
pub fn by_gradient(
    family: Family,
    depths: &[usize],
    n_steps: usize,
    keep_graph: bool,
    seed: u64,
    first: u64,
) -> Result<[Vec<Layers>; 3]> {
    let batch = |step: usize| -> Result<Vec<Trial>> {
        let index = first + step as u64 * BATCH;
        (index..index + BATCH).map(|index| trial(family, seed, index)).collect()
    };
    // The unit of the first layer: the trace of a graph like these.
    let traces = batch(0)?.into_iter().map(|trial| trial.eigenvalues.iter().sum::<f64>());
    let unit = traces.sum::<f64>() / BATCH as f64;
    let mut learners: Vec<Learner> = (0..TASKS.len())
        .flat_map(|task| depths.iter().map(move |&depth| (task, depth)))
        .map(|(task, depth)| {
            let moments = [(); 2].map(|()| vec![[0.0; 10]; depth]);
            let layers = start(TASKS[task].0, depth, unit);
            Learner { task, layers, moments, scratch: Vec::new() }
        })
        .collect();
    for step in 0..n_steps {
        let trials = batch(step)?;
        let example = |trial: &Trial| TASKS.map(|(task, _)| Example::new(trial, task, unit));
        let examples: Vec<[Example; 3]> = trials.iter().map(example).collect();
        let rate = RATES[0] * (RATES[1] / RATES[0]).powf(step as f64 / n_steps as f64);
        learners.par_iter_mut().for_each(|learner| learner.step(&examples, keep_graph, step, rate));
    }
    let mut learnt = learners.into_iter().map(|learner| learner.layers);
    Ok([(); 3].map(|()| learnt.by_ref().take(depths.len()).collect()))
}

#[cfg(test)]
mod tests {
    use super::super::trial::loss;
    use super::*;

    /// A few steps leave a tenth of the loss on graphs that were not learnt from.
    #[test]
    fn layers_learn() {
        let mean = |layers: &Layers, task: usize| {
            let tests = (0..40).map(|index| trial(Family::Full, 3, index).unwrap());
            tests.map(|test| loss(&layers.answers(&test), &test.answers[task])).sum::<f64>() / 40.0
        };
        let learnt = by_gradient(Family::Full, &[4], 600, false, 3, 40).unwrap();
        for (task, learnt) in learnt.iter().enumerate() {
            let before = mean(&start(TASKS[task].0, 4, learnt[0].unit), task);
            let after = mean(&learnt[0], task);
            assert!(after < 0.1 * before, "{:?}: {before}, then {after}", TASKS[task].0);
        }
    }
}
