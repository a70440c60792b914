//! Whether a graph has a motif in it: attention under the random walk graph-nodes kernel, the same without
//! a mask, graph and spectral convolution, and attention among neighbours, trained on the same graphs.

mod data;
mod gat;
mod net;

use anyhow::{Result, ensure};
use data::{Example, Motif, example};
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use forecloud_train::adamw::{AdamW, AdamWConfig};
use net::{Kind, Net};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt::Write;

/// Accuracy of finding motifs in random graphs: attention by the graph kernel (GKAT), and rivals
///
/// As figure 6 of "From block-Toeplitz matrices to differential equations on graphs" (Choromanski et al.
/// 2022), smaller: random graphs of 100 nodes, a motif or a random graph of as many edges in the mean joined
/// to them; each node is told the five highest degrees of its neighbours. Two layers, the mean of all nodes,
/// one number; walks of three hops. Three in four graphs teach, the others are the figures: accuracy at the
/// epoch of least loss on them, as the paper chooses it. The gradients of each net are held to finite
/// differences first.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Motifs
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Motif::Caveman, Motif::Circle, Motif::Grid, Motif::Ladder, Motif::CircularLadder,
    ])]
    motifs: Vec<Motif>,
    /// Nets
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Kind::Gkat, Kind::Unmasked, Kind::Gcn, Kind::Sgc, Kind::Gat,
    ])]
    nets: Vec<Kind>,
    /// Graphs with the motif, and as many without
    #[arg(long, default_value_t = 512)]
    graphs: usize,
    /// Times that each graph teaches
    #[arg(long, default_value_t = 150)]
    epochs: usize,
    /// Of AdamW; the same for all
    #[arg(long, default_value_t = 0.005)]
    learning_rate: f32,
}

const BATCH: usize = 32;

#[derive(Serialize)]
struct Row {
    motif: Motif,
    net: Kind,
    /// Accuracy on the graphs that do not teach, at their least loss.
    accuracy: f64,
    /// At the end, on those that do and those that do not.
    last: [f64; 2],
    weights: usize,
    /// After each epoch, on those that do not teach.
    curve: Vec<f64>,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--graphs", &[self.graphs], 8..=4096)?;
        crate::ensure_within("--epochs", &[self.epochs], 1..=1000)?;
        ensure!(self.learning_rate > 0.0 && self.learning_rate < 1.0, "--learning-rate");
        let mut rows = Vec::new();
        for &motif in &self.motifs {
            let examples: Result<Vec<Example>> =
                (0..2 * self.graphs).map(|index| example(motif, output.seed, index)).collect();
            let mut examples = examples?;
            for &kind in &self.nets {
                rows.push(self.train(motif, kind, &mut examples, output.seed)?);
            }
        }
        output.give("motifs", self, &rows, &table(&rows), &self.panels(&rows))
    }

    fn train(&self, motif: Motif, kind: Kind, examples: &mut [Example], seed: u64) -> Result<Row> {
        let net = Net::new(kind);
        let error = net.gradient_error(&examples[0]);
        ensure!(error < 0.02, "{kind:?}: gradients are off by {error} of finite differences");
        let (teach, held_out) = examples.split_at_mut(examples.len() / 4 * 3);
        let (mut weights, n) = (net.initial(seed), net.n_params());
        let mut optimizer = AdamW::new(AdamWConfig::default(), n);
        let (mut curve, mut best, mut last) = (Vec::new(), (f64::INFINITY, 0.0), [0.0; 2]);
        for epoch in 0..self.epochs {
            // In epoch 0 back to the first walks, whatever was trained before.
            if epoch == 0 || kind == Kind::GkatDynamic {
                teach.par_iter_mut().try_for_each(|example| example.redraw(epoch))?;
            }
            let mut right = 0;
            for batch in order(teach.len(), seed, epoch).chunks(BATCH) {
                // A gradient each, added in order: the same on any number of threads.
                let parts: Vec<(Vec<f32>, bool)> = batch
                    .par_iter()
                    .map(|&i| {
                        let mut gradient = vec![0.0; n];
                        let is_right = net.run(&weights, &teach[i], Some(&mut gradient)).1;
                        (gradient, is_right)
                    })
                    .collect();
                let mut gradient = vec![0.0; n];
                for (part, is_right) in &parts {
                    let share = 1.0 / batch.len() as f32;
                    gradient.iter_mut().zip(part).for_each(|(g, part)| *g += share * part);
                    right += usize::from(*is_right);
                }
                optimizer.update(&mut weights, &mut gradient, self.learning_rate);
            }
            let found: Vec<(f32, bool)> =
                held_out.par_iter().map(|example| net.run(&weights, example, None)).collect();
            let loss: f64 = found.iter().map(|found| f64::from(found.0)).sum();
            let share = |right: usize, of: usize| right as f64 / of as f64;
            let accuracy = share(found.iter().filter(|found| found.1).count(), found.len());
            last = [share(right, teach.len()), accuracy];
            best = if loss < best.0 { (loss, accuracy) } else { best };
            curve.push(accuracy);
        }
        eprintln!("{}, {kind:?}: {:.1} %", motif.name(), 100.0 * best.1);
        Ok(Row { motif, net: kind, accuracy: best.1, last, weights: n, curve })
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let panel = |&motif: &Motif| {
            let curves = rows.iter().filter(|row| row.motif == motif).enumerate();
            let curve = |(color, row): (usize, &Row)| {
                let points = row.curve.iter().enumerate();
                let points = points.map(|(epoch, &accuracy)| [epoch as f64 + 1.0, accuracy]);
                Curve::new(name(row.net), color, Line::Solid, points.collect())
            };
            Panel {
                title: motif.name().into(),
                x: Axis { name: "epoch", range: [1.0, self.epochs.max(2) as f64], log: false },
                y: Axis { name: "accuracy", range: [0.4, 1.0], log: false },
                curves: curves.map(curve).collect(),
                legend: Legend::LowerRight,
            }
        };
        self.motifs.iter().map(panel).collect()
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Gkat => "GKAT",
        Kind::GkatDynamic => "dynamic GKAT",
        Kind::Unmasked => "no mask",
        Kind::Gcn => "GCN",
        Kind::Sgc => "SGC",
        Kind::Gat => "GAT",
        Kind::Grf => "GRF",
        Kind::GrfSoftmax => "softmax, GRF",
        Kind::GrfSigned => "softmax, signed GRF",
        Kind::Softmax => "softmax",
    }
}

/// `0..n` in a seeded order.
fn order(n: usize, seed: u64, epoch: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_cached_key(|&i| forecloud::base::random::draw(seed, epoch as i64, i as u64, 5));
    order
}

fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "{:<16} {:<19} {:>8} {:>9} {:>14} {:>14}\n",
        "motif", "net", "weights", "accuracy", "last, taught", "last, others"
    );
    for row in rows {
        let (motif, net) = (row.motif.name(), name(row.net));
        let [accuracy, taught, others] =
            [row.accuracy, row.last[0], row.last[1]].map(|x| 100.0 * x);
        let weights = row.weights;
        let _ = writeln!(
            out,
            "{motif:<16} {net:<19} {weights:>8} {accuracy:>8.1}% {taught:>13.1}% {others:>13.1}%"
        );
    }
    out
}
