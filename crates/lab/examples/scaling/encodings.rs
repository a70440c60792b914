//! What positional encodings tell that neighbourhoods do not: which ring with skip links a graph is.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use forecloud::base::random::{draw, normal_pair};
use forecloud::engine::graph::WeightedGraph;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use forecloud_lab::solver::{
    Laplacian, LearntEncoding, LearntLayer, PositionalConfig, positional_encoding,
};
use forecloud_train::adamw::{AdamW, AdamWConfig};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt::Write;

/// Which of four rings with skip links a graph is, told by positional encodings, learnt ones among them
///
/// Rings of 17 nodes, each node joined to those 2, 3, 4 or 5 places on as well, in any order: every node has
/// four neighbours, so that a net of neighbourhoods alone cannot tell them apart (chance is 25 %). Such a net
/// reads eight encodings of each node and what its neighbours' are in the mean. "learnt" are the layers of
/// equation (16) of "Graph transformers dream of electric flow" from random columns, three layers that run
/// three times each, learnt with the net; "held" the same as they begin, steps of subspace iteration; heat
/// and eigenvectors as `forecloud train --encodings` has them. Accuracy on graphs that do not teach, after the
/// last epoch. Gradients are held to finite differences first.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Encodings
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Kind::None, Kind::Heat, Kind::Eigenvectors, Kind::Held, Kind::Learnt,
    ])]
    encodings: Vec<Kind>,
    /// Graphs of each skip that teach, and as many that do not
    #[arg(long, default_value_t = 64)]
    graphs: usize,
    /// Times that each graph teaches
    #[arg(long, default_value_t = 60)]
    epochs: usize,
    /// Seeds of weights, columns and orders
    #[arg(long, default_value_t = 3)]
    seeds: usize,
    /// Of AdamW; the same for all
    #[arg(long, default_value_t = 0.005)]
    learning_rate: f32,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The same number at every node
    None,
    /// Heat of four random demands, at two scales
    Heat,
    /// Eight bottom eigenvectors, by 32 iterations
    Eigenvectors,
    /// Layers of equation (16), as they begin
    Held,
    /// The same, learnt with the net
    Learnt,
}

const NODES: usize = 17;
const SKIPS: [usize; 4] = [2, 3, 4, 5];
const COLUMNS: usize = 8;
const HIDDEN: usize = 24;
const BATCH: usize = 16;
/// Layers, loops of each, and numbers of a layer.
const LAYERS: usize = 3;
const LOOPS: usize = 3;
const OF_LAYER: usize = 7 + 2 * COLUMNS;
/// Weights: of the hidden numbers, of the classes, of the layers.
const SIZES: [usize; 5] =
    [2 * COLUMNS * HIDDEN, HIDDEN, HIDDEN * SKIPS.len(), SKIPS.len(), LAYERS * OF_LAYER];

struct Example {
    /// Incidence matrix, and the mean of neighbours as a matrix.
    incidence: DMatrix<f64>,
    neighbors: DMatrix<f64>,
    /// Encodings that stay, or the columns that layers begin with; entries of about 1.
    columns: DMatrix<f64>,
    class: usize,
}

#[derive(Serialize)]
struct Row {
    encodings: Kind,
    /// Of each seed, on graphs that do not teach.
    accuracies: Vec<f64>,
    /// Of the first seed after each epoch.
    curve: Vec<f64>,
}

/// Frobenius norm of each graph's incidence matrix.
fn norm() -> f64 {
    (4.0 * NODES as f64).sqrt()
}

fn example(kind: Kind, seed: u64, index: usize) -> Result<Example> {
    let class = index % SKIPS.len();
    let mut order: Vec<usize> = (0..NODES).collect();
    order.sort_by_cached_key(|&i| draw(seed, index as i64, i as u64, 1));
    let ends = [1, SKIPS[class]].into_iter().flat_map(|skip| {
        let order = &order;
        (0..NODES).map(move |i| (order[i], order[(i + skip) % NODES]))
    });
    let ends: Vec<(usize, usize)> = ends.collect();
    let mut incidence = DMatrix::zeros(NODES, ends.len());
    let mut neighbors = DMatrix::zeros(NODES, NODES);
    for (at, &(i, j)) in ends.iter().enumerate() {
        (incidence[(i, at)], incidence[(j, at)]) = (-1.0, 1.0);
        (neighbors[(i, j)], neighbors[(j, i)]) = (0.25, 0.25);
    }
    let edges: Vec<(u32, u32, f32)> =
        ends.iter().map(|&(i, j)| (i as u32, j as u32, 1.0)).collect();
    let laplacian = Laplacian::new(&WeightedGraph::from_edges(NODES, &edges, false)?)?;
    let (n_demands, n_eigenvectors) = match kind {
        Kind::Heat => (4, 0),
        _ => (0, COLUMNS),
    };
    let scales = if n_demands > 0 { vec![1.0, 4.0] } else { Vec::new() };
    let of_seed = seed ^ (index as u64) << 20;
    let config = PositionalConfig {
        n_demands,
        scales,
        n_layers: 24,
        n_eigenvectors,
        n_iterations: 32,
        seed: of_seed,
    };
    let columns = match kind {
        Kind::None => vec![1.0; NODES * COLUMNS],
        Kind::Heat | Kind::Eigenvectors => positional_encoding(&laplacian, &config)?,
        Kind::Held | Kind::Learnt => {
            let number = |at| normal_pair(draw(of_seed, 2, at as u64, 3))[0];
            let mut columns: Vec<f32> = (0..NODES * COLUMNS).map(number).collect();
            laplacian.center(&mut columns);
            columns
        }
    };
    let columns = DMatrix::from_row_iterator(NODES, COLUMNS, columns.into_iter().map(f64::from));
    // As the layers leave it: then all of them read the same multiple of the Laplacian.
    incidence /= norm();
    Ok(Example { incidence, neighbors, columns, class })
}

/// What the weights are of: hidden W and b, the classes' W and b, the layers.
struct Net {
    hidden: (DMatrix<f64>, DVector<f64>),
    classes: (DMatrix<f64>, DVector<f64>),
    layers: LearntEncoding,
}

impl Net {
    fn of(weights: &[f64]) -> Self {
        let mut rest = weights;
        let parts = SIZES.map(|size| {
            let (part, others) = rest.split_at(size);
            rest = others;
            part
        });
        let layers = parts[4].chunks_exact(OF_LAYER).map(|numbers| {
            let mut layer = LearntLayer::zeros(COLUMNS);
            layer.scalars.copy_from_slice(&numbers[..7]);
            layer.value.copy_from_slice(&numbers[7..7 + COLUMNS]);
            layer.query_key.copy_from_slice(&numbers[7 + COLUMNS..]);
            layer
        });
        let layers = LearntEncoding { layers: layers.collect(), n_loops: LOOPS };
        Self {
            hidden: (
                DMatrix::from_column_slice(2 * COLUMNS, HIDDEN, parts[0]),
                DVector::from_column_slice(parts[1]),
            ),
            classes: (
                DMatrix::from_column_slice(HIDDEN, SKIPS.len(), parts[2]),
                DVector::from_column_slice(parts[3]),
            ),
            layers,
        }
    }

    /// Loss, whether the answer is right, and the gradient of all weights.
    fn run(&self, kind: Kind, of: &Example) -> (f64, bool, Vec<f64>) {
        let root = (NODES as f64).sqrt();
        let saved = matches!(kind, Kind::Held | Kind::Learnt)
            .then(|| self.layers.forward(of.incidence.clone(), of.columns.clone()));
        let encodings = match &saved {
            Some(saved) => &saved.phi * root,
            None => of.columns.clone(),
        };
        let mut input = encodings.clone().resize_horizontally(2 * COLUMNS, 0.0);
        input.columns_mut(COLUMNS, COLUMNS).copy_from(&(&of.neighbors * &encodings));
        let mut hidden = &input * &self.hidden.0;
        hidden.row_iter_mut().for_each(|mut row| row += self.hidden.1.transpose());
        let active = hidden.map(f64::tanh);
        let mean = active.row_mean().transpose();
        let scores = self.classes.0.transpose() * &mean + &self.classes.1;
        let shares = scores.map(|score| (score - scores.max()).exp());
        let shares = &shares / shares.sum();
        let loss = -shares[of.class].max(1e-300).ln();
        let mut d_scores = shares;
        let is_right = d_scores.imax() == of.class;
        d_scores[of.class] -= 1.0;
        let d_mean = &self.classes.0 * &d_scores / NODES as f64;
        let d_hidden = DMatrix::from_fn(NODES, HIDDEN, |i, h| {
            d_mean[h] * (1.0 - active[(i, h)] * active[(i, h)])
        });
        let mut gradient: Vec<f64> = (input.transpose() * &d_hidden).as_slice().to_vec();
        gradient.extend(d_hidden.row_sum().iter());
        gradient.extend((&mean * d_scores.transpose()).iter());
        gradient.extend(d_scores.iter());
        let mut d_layers = vec![LearntLayer::zeros(COLUMNS); LAYERS];
        if let (Kind::Learnt, Some(saved)) = (kind, &saved) {
            let d_input = d_hidden * self.hidden.0.transpose();
            let d_encodings = d_input.columns(0, COLUMNS)
                + of.neighbors.transpose() * d_input.columns(COLUMNS, COLUMNS);
            self.layers.backward(saved, d_encodings * root, &mut d_layers);
        }
        for layer in &d_layers {
            gradient.extend(layer.scalars.iter().chain(&layer.value).chain(&layer.query_key));
        }
        (loss, is_right, gradient)
    }
}

/// Weights at first: layers as steps of subspace iteration, other numbers of theirs small, so that none is
/// where its gradient stays 0.
fn initial(seed: u64) -> Vec<f32> {
    let scale = |n_in: usize, n_out: usize| (2.0 / (n_in + n_out) as f32).sqrt();
    let scales = [scale(2 * COLUMNS, HIDDEN), 0.0, scale(HIDDEN, SKIPS.len()), 0.0, 0.1];
    let sizes = SIZES.into_iter().zip(scales).flat_map(|(size, scale)| vec![scale; size]);
    let number = |(at, scale)| scale * normal_pair(draw(seed, 5, at as u64, 9))[0];
    let mut weights: Vec<f32> = sizes.enumerate().map(number).collect();
    let first = weights.len() - LAYERS * OF_LAYER;
    let mut bottom = LearntLayer::bottom(COLUMNS);
    bottom.scalars[4] *= norm();
    for layer in weights[first..].chunks_exact_mut(OF_LAYER) {
        let numbers = bottom.scalars.iter().chain(&bottom.value);
        layer.iter_mut().zip(numbers).for_each(|(weight, x)| *weight += *x as f32);
    }
    weights
}

fn f64s(weights: &[f32]) -> Vec<f64> {
    weights.iter().map(|&weight| f64::from(weight)).collect()
}

/// How far the gradient is from differences along a seeded direction, relative to it.
fn gradient_error(kind: Kind, of: &Example, weights: &[f64]) -> f64 {
    let gradient = Net::of(weights).run(kind, of).2;
    let n_moved = if kind == Kind::Learnt { weights.len() } else { weights.len() - SIZES[4] };
    let along: Vec<f64> =
        (0..n_moved as u64).map(|i| f64::from(normal_pair(draw(7, 0, i, 3))[0])).collect();
    let loss = |step: f64| {
        let mut moved = weights.to_vec();
        moved.iter_mut().zip(&along).for_each(|(weight, a)| *weight += step * a);
        Net::of(&moved).run(kind, of).0
    };
    let slope = (loss(1e-6) - loss(-1e-6)) / 2e-6;
    let want: f64 = gradient.iter().zip(&along).map(|(g, a)| g * a).sum();
    (slope - want).abs() / want.abs().max(1e-9)
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--graphs", &[self.graphs], 4..=4096)?;
        crate::ensure_within("--epochs", &[self.epochs], 1..=1000)?;
        crate::ensure_within("--seeds", &[self.seeds], 1..=64)?;
        ensure!(self.learning_rate > 0.0 && self.learning_rate < 1.0, "--learning-rate");
        let rows: Result<Vec<Row>> =
            self.encodings.iter().map(|&kind| self.row(kind, output.seed)).collect();
        let rows = rows?;
        output.give("encodings", self, &rows, &table(&rows), &self.panels(&rows))
    }

    fn row(&self, kind: Kind, first_seed: u64) -> Result<Row> {
        let (mut accuracies, mut first) = (Vec::new(), Vec::new());
        for seed in first_seed..first_seed + self.seeds as u64 {
            let curve = self.train(kind, seed)?;
            accuracies.extend(curve.last());
            if first.is_empty() {
                first = curve;
            }
        }
        eprintln!("{kind:?}: {accuracies:?}");
        Ok(Row { encodings: kind, accuracies, curve: first })
    }

    /// Accuracy on the graphs that do not teach after each epoch.
    fn train(&self, kind: Kind, seed: u64) -> Result<Vec<f64>> {
        let n = SKIPS.len() * self.graphs;
        let examples: Result<Vec<Example>> =
            (0..2 * n).map(|index| example(kind, seed, index)).collect();
        let examples = examples?;
        let (teach, others) = examples.split_at(n);
        let mut weights = initial(seed);
        let error = gradient_error(kind, &examples[1], &f64s(&weights));
        ensure!(error < 1e-4, "{kind:?}: gradients are off by {error} of finite differences");
        let mut optimizer = AdamW::new(AdamWConfig::default(), weights.len());
        let mut curve = Vec::new();
        for epoch in 0..self.epochs {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_cached_key(|&i| draw(seed, epoch as i64, i as u64, 5));
            for batch in order.chunks(BATCH) {
                let net = Net::of(&f64s(&weights));
                // A gradient each, added in order: the same on any number of threads.
                let parts: Vec<Vec<f64>> =
                    batch.par_iter().map(|&i| net.run(kind, &teach[i]).2).collect();
                let mean =
                    |at: usize| parts.iter().map(|part| part[at]).sum::<f64>() / batch.len() as f64;
                let mut gradient: Vec<f32> = (0..weights.len()).map(|at| mean(at) as f32).collect();
                optimizer.update(&mut weights, &mut gradient, self.learning_rate);
            }
            let net = Net::of(&f64s(&weights));
            let right = others.par_iter().filter(|example| net.run(kind, example).1).count();
            curve.push(right as f64 / others.len() as f64);
        }
        Ok(curve)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let curve = |(color, row): (usize, &Row)| {
            let points = row.curve.iter().enumerate();
            let points = points.map(|(epoch, &accuracy)| [epoch as f64 + 1.0, accuracy]);
            Curve::new(name(row.encodings), color, Line::Solid, points.collect())
        };
        vec![Panel {
            title: "which ring with skip links".into(),
            x: Axis { name: "epoch", range: [1.0, self.epochs.max(2) as f64], log: false },
            y: Axis { name: "accuracy", range: [0.0, 1.0], log: false },
            curves: rows.iter().enumerate().map(curve).collect(),
            legend: Legend::LowerRight,
        }]
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::None => "none",
        Kind::Heat => "heat",
        Kind::Eigenvectors => "eigenvectors",
        Kind::Held => "held",
        Kind::Learnt => "learnt",
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = format!("{:<13} {:>14}  each seed\n", "encodings", "mean accuracy");
    for row in rows {
        let mean = row.accuracies.iter().sum::<f64>() / row.accuracies.len() as f64;
        let each: Vec<String> =
            row.accuracies.iter().map(|accuracy| format!("{:.1}", 100.0 * accuracy)).collect();
        let (name, each) = (name(row.encodings), each.join(", "));
        let _ = writeln!(out, "{name:<13} {:>13.1}%  {each}", 100.0 * mean);
    }
    out
}
