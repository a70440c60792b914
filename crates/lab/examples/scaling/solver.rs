//! Layers of the linear transformer as solvers of the Laplacian: errors against the number of layers.

mod layers;
mod learn;
pub mod trial;

use anyhow::Result;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use forecloud_lab::solver::{electric_flow, heat_kernel, resistive_embedding};
use learn::{by_gradient, least_squares, powers};
use nalgebra::DMatrix;
use serde::Serialize;
use std::fmt::Write;
use trial::{DEMANDS, Family, NODES, S, TASKS, Task, Trial, loss, trial};

/// Loss of electric flow, resistive embedding and heat kernel against layers
///
/// As figure 1 of "Graph Transformers Dream of Electric Flow" (Cheng, Carin and Sra): random graphs of ten
/// nodes with ten demands each, edge resistances e^u with u even in -2..2; loss is the squared distance of
/// the answer from the true one, both of length one. "lemma": the weights of lemmas 1, 2 and 3, step
/// 1 / (2 · largest degree). "least squares": the same layers with the number that each adds fitted to
/// training graphs. "gradient": the paper's efficient layers, which also change the graph that the next
/// layer reads, the ten numbers of each learnt together by Adam on fresh graphs, from the weights of lemmas
/// 1 and 2 (heat: Euler's steps). Both are tested on other graphs. The heat kernel is exp(-0.5 L).
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Layers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 12, 16, 32, 64])]
    layers: Vec<usize>,
    /// Graphs to test on, and as many for least squares
    #[arg(long, default_value_t = 500)]
    trials: usize,
    /// Steps of the gradient, of 4 fresh graphs each
    #[arg(long, default_value_t = 30_000)]
    steps: usize,
    /// Leave each layer the graph that it is given: learn the eight other numbers alone
    #[arg(long)]
    keep_graph: bool,
}

#[derive(Serialize)]
struct Row {
    graphs: Family,
    task: Task,
    layers: usize,
    lemma: f64,
    least_squares: f64,
    gradient: f64,
}

/// The lemma's answers `[NODES, DEMANDS]`.
fn by_lemma(task: Task, trial: &Trial, layers: usize) -> Result<DMatrix<f64>> {
    let (of, demands) = (&trial.laplacian, &trial.demands);
    let answers = match task {
        Task::Flow => electric_flow(of, demands, layers, of.step())?,
        Task::Embedding => resistive_embedding(of, demands, layers, of.step())?,
        Task::Heat => heat_kernel(of, demands, S as f32, layers)?,
    };
    let answers = answers.iter().map(|&x| f64::from(x));
    Ok(DMatrix::from_row_iterator(NODES, DEMANDS, answers))
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--layers", &self.layers, 1..=1024)?;
        crate::ensure_within("--trials", &[self.trials], 16..=1 << 16)?;
        crate::ensure_within("--steps", &[self.steps], 1..=1 << 20)?;
        let mut rows = Vec::new();
        for graphs in [Family::Full, Family::SkipLinks] {
            let set = |first: usize| -> Result<Vec<Trial>> {
                let indices = first..first + self.trials;
                indices.map(|index| trial(graphs, output.seed, index as u64)).collect()
            };
            let (tests, trainings) = (set(0)?, set(self.trials)?);
            let fresh = 2 * self.trials as u64;
            let learnt =
                by_gradient(graphs, &self.layers, self.steps, self.keep_graph, output.seed, fresh)?;
            for (index, &(task, _)) in TASKS.iter().enumerate() {
                for (&layers, of_gradient) in self.layers.iter().zip(&learnt[index]) {
                    let fitted = least_squares(&trainings, index, layers)?;
                    let mut sums = [0.0; 3];
                    for trial in &tests {
                        let column = |demand| powers(trial, demand, layers) * &fitted;
                        let columns: Vec<_> = (0..DEMANDS).map(column).collect();
                        let answers = [
                            by_lemma(task, trial, layers)?,
                            DMatrix::from_columns(&columns),
                            of_gradient.answers(trial),
                        ];
                        for (sum, answers) in sums.iter_mut().zip(&answers) {
                            *sum += loss(answers, &trial.answers[index]);
                        }
                    }
                    let [lemma, least_squares, gradient] = sums.map(|sum| sum / tests.len() as f64);
                    rows.push(Row { graphs, task, layers, lemma, least_squares, gradient });
                }
            }
        }
        output.give("solver", self, &rows, &table(&rows), &self.panels(&rows))
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let last = self.layers.iter().copied().max().unwrap_or(1) as f64;
        let panel = |(graphs, title): (Family, &str)| {
            let curves = TASKS.iter().enumerate().flat_map(|(color, &(task, name))| {
                let kinds = [
                    ("lemma", Line::Dashed),
                    ("least squares", Line::Dotted),
                    ("gradient", Line::Solid),
                ];
                kinds.map(|(kind, line)| {
                    let of = rows.iter().filter(|row| row.graphs == graphs && row.task == task);
                    let value = |row: &Row| match kind {
                        "lemma" => row.lemma,
                        "gradient" => row.gradient,
                        _ => row.least_squares,
                    };
                    let points = of.map(|row| [row.layers as f64, value(row).max(1e-14)]);
                    Curve::new(format!("{name}, {kind}"), color, line, points.collect())
                })
            });
            Panel {
                title: title.into(),
                x: Axis { name: "layers", range: [1.0, last], log: true },
                y: Axis { name: "loss", range: [1e-14, 10.0], log: true },
                curves: curves.collect(),
                legend: Legend::LowerLeft,
            }
        };
        [(Family::Full, "all edges"), (Family::SkipLinks, "skip links")].map(panel).into()
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "ten nodes; mean loss\n{:<11} {:<14} {:>6} {:>9} {:>14} {:>9}\n",
        "graphs", "task", "layers", "lemma", "least squares", "gradient"
    );
    for row in rows {
        let name = TASKS.iter().find(|(task, _)| *task == row.task).map_or("", |(_, name)| name);
        let graphs = if row.graphs == Family::Full { "all edges" } else { "skip links" };
        let Row { layers, lemma, least_squares, gradient, .. } = row;
        let _ = writeln!(
            out,
            "{graphs:<11} {name:<14} {layers:>6} {lemma:>9.1e} {least_squares:>14.1e} {gradient:>9.1e}"
        );
    }
    out
}
