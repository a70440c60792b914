//! Layers of the linear transformer as solvers of the Laplacian: errors against the number of layers.

use crate::plot::{Axis, Curve, Line, Panel};
use anyhow::{Context, Result};
use clap::ValueEnum;
use forecloud::graph::WeightedGraph;
use forecloud::graph::solver::{Laplacian, electric_flow, heat_kernel, resistive_embedding};
use forecloud::random::{draw, normal_pair, uniform};
use nalgebra::{DMatrix, DVector};
use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;
use std::fmt::Write;

/// Loss of electric flow, resistive embedding and heat kernel against layers
///
/// As figure 1 of "Graph Transformers Dream of Electric Flow" (Cheng, Carin and Sra): random graphs of ten
/// nodes, edge resistances e^u with u even in -2..2; loss is the squared distance of the answer from the
/// true one, both of length one. "lemma": the weights of lemmas 1, 2 and 3, step 1 / (2 · largest
/// degree). "learnt": the same layers with the number that each adds fitted to training graphs by least
/// squares, tested on other graphs. The heat kernel is exp(-0.5 L).
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Layers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 12, 16, 32, 64])]
    layers: Vec<usize>,
    /// Graphs to test on, and as many to learn from
    #[arg(long, default_value_t = 500)]
    trials: usize,
}

const NODES: usize = 10;

#[derive(Clone, Copy, PartialEq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Family {
    /// All edges.
    Full,
    /// A ring with skip links of one length, 2, 4, 6 or 8.
    SkipLinks,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Task {
    Flow,
    Embedding,
    Heat,
}

const S: f64 = 0.5;
const TASKS: [(Task, &str); 3] =
    [(Task::Flow, "electric flow"), (Task::Embedding, "embedding"), (Task::Heat, "heat kernel")];

#[derive(Serialize)]
struct Row {
    graphs: Family,
    task: Task,
    layers: usize,
    lemma: f64,
    learnt: f64,
}

/// One graph, a demand, and the true answers.
struct Trial {
    laplacian: Laplacian,
    demand: Vec<f32>,
    answers: [DVector<f64>; 3],
}

fn trial(family: Family, seed: u64, index: u64) -> Result<Trial> {
    let chance = |at: u64| uniform(draw(seed, index as i64, at, 1));
    let skip = 2 + 2 * (4.0 * chance(1000)) as usize;
    let pairs = (0..NODES).flat_map(|i| (i + 1..NODES).map(move |j| (i, j)));
    let is_edge = |&(i, j): &(usize, usize)| {
        let way = (j - i).min(NODES - (j - i));
        family == Family::Full || way == 1 || way == skip.min(NODES - skip)
    };
    let conductance = |(i, j): (usize, usize)| {
        let u = 4.0 * chance((i * NODES + j) as u64) - 2.0;
        (i as u32, j as u32, (-u).exp())
    };
    let edges: Vec<_> = pairs.filter(is_edge).map(conductance).collect();
    let laplacian = Laplacian::new(&WeightedGraph::from_edges(NODES, &edges, false)?)?;
    let mut demand: Vec<f32> =
        (0..NODES as u64).map(|i| normal_pair(draw(seed, index as i64, i, 2))[0]).collect();
    laplacian.center(&mut demand);
    let eigen = laplacian.dense().symmetric_eigen();
    let psi = DVector::from_iterator(NODES, demand.iter().map(|&x| f64::from(x)));
    let along = eigen.eigenvectors.transpose() * psi;
    let answer = |task: Task| {
        let mapped = along.zip_map(&eigen.eigenvalues, |x, value| match task {
            _ if value < 1e-9 => 0.0,
            Task::Flow => x / value,
            Task::Embedding => x / value.sqrt(),
            Task::Heat => x * (-S * value).exp(),
        });
        &eigen.eigenvectors * mapped
    };
    let answers = TASKS.map(|(task, _)| answer(task));
    Ok(Trial { laplacian, demand, answers })
}

/// (I - δL)^l ψ, l up to `layers`, as columns.
fn powers(trial: &Trial, layers: usize) -> DMatrix<f64> {
    let (mut power, mut product) = (trial.demand.clone(), vec![0.0; NODES]);
    let delta = trial.laplacian.step();
    let mut columns = DMatrix::zeros(NODES, layers);
    for l in 0..layers {
        columns.column_mut(l).iter_mut().zip(&power).for_each(|(to, &x)| *to = f64::from(x));
        trial.laplacian.apply(&power, &mut product);
        power.iter_mut().zip(&product).for_each(|(x, y)| *x -= delta * y);
    }
    columns
}

fn loss(answer: &DVector<f64>, exact: &DVector<f64>) -> f64 {
    let norm = answer.norm();
    if norm > 0.0 { (answer / norm - exact.normalize()).norm_squared() } else { 1.0 }
}

/// What each layer adds, by least squares over the trials.
fn learn(trials: &[Trial], task: usize, layers: usize) -> Result<DVector<f64>> {
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
        let answer = &trial.answers[task] / unit;
        let norm = answer.norm();
        rows.rows_mut(at * NODES, NODES).copy_from(&(powers(trial, layers) / norm));
        wanted.rows_mut(at * NODES, NODES).copy_from(&(answer / norm));
    }
    rows.svd(true, true).solve(&wanted, 1e-9).map_err(anyhow::Error::msg).context("fit")
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--layers", &self.layers, 1..=1024)?;
        crate::ensure_within("--trials", &[self.trials], 16..=1 << 16)?;
        let mut rows = Vec::new();
        for graphs in [Family::Full, Family::SkipLinks] {
            let set = |first: usize| -> Result<Vec<Trial>> {
                let indices = first..first + self.trials;
                indices.map(|index| trial(graphs, output.seed, index as u64)).collect()
            };
            let (tests, trainings) = (set(0)?, set(self.trials)?);
            for (index, &(task, _)) in TASKS.iter().enumerate() {
                for &layers in &self.layers {
                    let learnt = learn(&trainings, index, layers)?;
                    let (mut of_lemma, mut of_learnt) = (0.0, 0.0);
                    for trial in &tests {
                        let exact = &trial.answers[index];
                        let (of, demand) = (&trial.laplacian, &trial.demand);
                        let answer = match task {
                            Task::Flow => electric_flow(of, demand, layers, of.step())?,
                            Task::Embedding => resistive_embedding(of, demand, layers, of.step())?,
                            Task::Heat => heat_kernel(of, demand, S as f32, layers)?,
                        };
                        let answer = answer.iter().map(|&x| f64::from(x));
                        of_lemma += loss(&DVector::from_iterator(NODES, answer), exact);
                        of_learnt += loss(&(powers(trial, layers) * &learnt), exact);
                    }
                    let [lemma, learnt] = [of_lemma, of_learnt].map(|sum| sum / tests.len() as f64);
                    rows.push(Row { graphs, task, layers, lemma, learnt });
                }
            }
        }
        output.give("solver", self, &rows, &table(&rows), &self.panels(&rows))
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let last = self.layers.iter().copied().max().unwrap_or(1) as f64;
        let panel = |(graphs, title): (Family, &str)| {
            let curves = TASKS.iter().enumerate().flat_map(|(color, &(task, name))| {
                [("lemma", Line::Dashed), ("learnt", Line::Solid)].map(|(kind, line)| {
                    let of = rows.iter().filter(|row| row.graphs == graphs && row.task == task);
                    let value = |row: &Row| if kind == "lemma" { row.lemma } else { row.learnt };
                    let points = of.map(|row| [row.layers as f64, value(row).max(1e-14)]);
                    Curve::new(format!("{name}, {kind}"), color, line, points.collect())
                })
            });
            Panel {
                title: title.into(),
                x: Axis { name: "layers", range: [1.0, last], log: true },
                y: Axis { name: "loss", range: [1e-14, 10.0], log: true },
                curves: curves.collect(),
                legend: SeriesLabelPosition::LowerLeft,
            }
        };
        [(Family::Full, "all edges"), (Family::SkipLinks, "skip links")].map(panel).into()
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "ten nodes; mean loss\n{:<11} {:<14} {:>6} {:>9} {:>9}\n",
        "graphs", "task", "layers", "lemma", "learnt"
    );
    for row in rows {
        let name = TASKS.iter().find(|(task, _)| *task == row.task).map_or("", |(_, name)| name);
        let graphs = if row.graphs == Family::Full { "all edges" } else { "skip links" };
        let (layers, lemma, learnt) = (row.layers, row.lemma, row.learnt);
        let _ = writeln!(out, "{graphs:<11} {name:<14} {layers:>6} {lemma:>9.1e} {learnt:>9.1e}");
    }
    out
}
