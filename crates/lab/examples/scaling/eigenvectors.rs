//! Layers of the linear transformer that learn eigenvectors of the Laplacian: losses against the layers.

mod layers;

use crate::solver::trial::{Family, trial};
use anyhow::Result;
use forecloud::base::random::{draw, normal_pair};
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use layers::{Graph, Matrix, NODES, OF_LAYER, OF_MATRIX, run};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt::Write;

/// Loss of a graph's eigenvectors, learnt by the linear transformer, against layers
///
/// As figure 2 of "Graph Transformers Dream of Electric Flow" (Cheng, Carin and Sra): random graphs of ten
/// nodes as for `solver`; loss_i is the squared distance of the i-th column from the eigenvector of the i-th
/// smallest eigenvalue, of either sign. Layers are the paper's efficient ones (its equation (7), any matrices
/// W), each column of length one after each (its equation (6)); they and the columns that they start from are
/// learnt by Adam on the mean of loss_1 to loss_5, or to loss_10, and tested on other graphs. The first weights
/// are those of Corollary 7's product, with some noise.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Layers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16])]
    layers: Vec<usize>,
    /// Graphs to test on
    #[arg(long, default_value_t = 500)]
    trials: usize,
    /// Graphs that teach
    #[arg(long, default_value_t = 8192)]
    graphs: usize,
    /// Steps of the gradient, of 8 graphs each
    #[arg(long, default_value_t = 30_000)]
    steps: usize,
}

const BATCH: usize = 8;
/// Adam's rate at first, of up to eight layers (by the square of their number beyond), and at last; it falls by
/// the same factor in each step.
const RATES: [f64; 2] = [2e-3, 1e-5];
const BETAS: [f64; 2] = [0.9, 0.99];
/// Of the first weights' noise.
const NOISE: f64 = 0.01;
/// Of the product at first; M's trace is 1.
const STEP: f64 = 3.0;

#[derive(Serialize)]
struct Row {
    graphs: Family,
    /// Taught the eigenvectors of so many smallest eigenvalues.
    taught: usize,
    layers: usize,
    /// Mean of those taught.
    loss: f64,
    /// loss_1 to loss_10.
    losses: [f64; NODES],
}

fn graph(family: Family, seed: u64, index: u64) -> Result<Graph> {
    let laplacian = trial(family, seed, index)?.laplacian.dense();
    let m = Matrix::from_iterator(laplacian.iter().copied());
    let eigen = m.symmetric_eigen();
    let mut order: [usize; NODES] = std::array::from_fn(|i| i);
    order.sort_by(|&a, &b| eigen.eigenvalues[a].total_cmp(&eigen.eigenvalues[b]));
    let eigenvectors = Matrix::from_fn(|i, c| eigen.eigenvectors[(i, order[c])]);
    Ok(Graph { m: m / m.trace(), eigenvectors })
}

fn initial(n_layers: usize, seed: u64) -> Vec<f64> {
    let normal = |at: usize| f64::from(normal_pair(draw(seed, 0, at as u64, 21))[0]);
    let mut numbers: Vec<f64> = (0..OF_MATRIX + n_layers * OF_LAYER).map(normal).collect();
    for layer in numbers[OF_MATRIX..].chunks_exact_mut(OF_LAYER) {
        layer.iter_mut().for_each(|x| *x *= NOISE);
        layer[1] += 1.0;
        (0..NODES).for_each(|i| layer[3 + i * NODES + i] -= STEP);
    }
    numbers
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--layers", &self.layers, 1..=64)?;
        crate::ensure_within("--trials", &[self.trials], 16..=1 << 16)?;
        crate::ensure_within("--graphs", &[self.graphs], 16..=1 << 16)?;
        crate::ensure_within("--steps", &[self.steps], 1..=1 << 20)?;
        let mut rows = Vec::new();
        for graphs in [Family::Full, Family::SkipLinks] {
            let n = (self.trials + self.graphs) as u64;
            let set: Result<Vec<Graph>> =
                (0..n).map(|index| graph(graphs, output.seed, index)).collect();
            let set = set?;
            let (tests, teach) = set.split_at(self.trials);
            let kinds = [5, NODES].iter().flat_map(|&n| self.layers.iter().map(move |&l| (n, l)));
            let kinds: Vec<(usize, usize)> = kinds.collect();
            let row = |&(taught, layers): &(usize, usize)| {
                let numbers = self.learn(teach, taught, layers, output.seed);
                let mut losses = [0.0; NODES];
                for graph in tests {
                    let of = run(&numbers, graph, taught, None);
                    losses.iter_mut().zip(of).for_each(|(sum, x)| *sum += x / tests.len() as f64);
                }
                let loss = losses[..taught].iter().sum::<f64>() / taught as f64;
                Row { graphs, taught, layers, loss, losses }
            };
            rows.extend(kinds.par_iter().map(row).collect::<Vec<Row>>());
        }
        output.give("eigenvectors", self, &rows, &table(&rows), &self.panels(&rows))
    }

    /// Numbers of the columns and layers after all steps.
    fn learn(&self, teach: &[Graph], taught: usize, n_layers: usize, seed: u64) -> Vec<f64> {
        let mut numbers = initial(n_layers, seed);
        let mut moments = vec![[0.0; 2]; numbers.len()];
        let mut gradient = vec![0.0; numbers.len()];
        let first_rate = RATES[0] * (8.0 / n_layers as f64).min(1.0).powi(2);
        for step in 0..self.steps {
            gradient.fill(0.0);
            for at in 0..BATCH {
                let graph = &teach[(step * BATCH + at) % teach.len()];
                run(&numbers, graph, taught, Some(&mut gradient));
            }
            let fallen = step as f64 / self.steps as f64;
            let rate = first_rate * (RATES[1] / first_rate).powf(fallen);
            let corrections = BETAS.map(|beta| 1.0 - beta.powi(step as i32 + 1));
            for ((x, d), [first, second]) in numbers.iter_mut().zip(&gradient).zip(&mut moments) {
                let d = d / BATCH as f64;
                *first = BETAS[0] * *first + (1.0 - BETAS[0]) * d;
                *second = BETAS[1] * *second + (1.0 - BETAS[1]) * d * d;
                *x -= rate * *first / corrections[0] / ((*second / corrections[1]).sqrt() + 1e-12);
            }
        }
        numbers
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let last = self.layers.iter().copied().max().unwrap_or(1).max(2) as f64;
        let panel = |(graphs, title): (Family, &str)| {
            let curve = |(color, taught): (usize, usize)| {
                let of = rows.iter().filter(|row| row.graphs == graphs && row.taught == taught);
                let points = of.map(|row| [row.layers as f64, row.loss.max(1e-6)]);
                Curve::new(format!("loss 1 to {taught}"), color, Line::Solid, points.collect())
            };
            Panel {
                title: title.into(),
                x: Axis { name: "layers", range: [1.0, last], log: false },
                y: Axis { name: "loss", range: [1e-4, 2.0], log: true },
                curves: [5, NODES].into_iter().enumerate().map(curve).collect(),
                legend: Legend::LowerLeft,
            }
        };
        [(Family::Full, "all edges"), (Family::SkipLinks, "skip links")].map(panel).into()
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = format!("{:<11} {:>6} {:>6} {:>7} ", "graphs", "taught", "layers", "loss");
    (1..=NODES).for_each(|i| {
        let _ = write!(out, " {:>7}", format!("loss_{i}"));
    });
    out.push('\n');
    for row in rows {
        let graphs = if row.graphs == Family::Full { "all edges" } else { "skip links" };
        let Row { taught, layers, loss, losses, .. } = row;
        let _ = write!(out, "{graphs:<11} {taught:>6} {layers:>6} {loss:>7.1e} ");
        for loss in &losses[..*taught] {
            let _ = write!(out, " {loss:>7.1e}");
        }
        out.push('\n');
    }
    out
}
