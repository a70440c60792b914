//! Cost of attention against the number of tokens: figure 3 of GRF masking.

use crate::measure::{self, Flops};
use crate::theory::bounds::AttentionFlops;
use anyhow::Result;
use forecloud::engine::graph::walks::Sampler;
use forecloud_eval::plot::{Axis, Curve, GREY, Legend, Line, Panel};
use serde::Serialize;
use std::fmt::Write;

/// FLOPs of softmax, linear and GRF-masked linear attention against the number of tokens N
///
/// Counts as figure 3 does, on a path of N tokens: softmax 4 N² d, linear 4 N m d, masked = linear
/// times the mean number of distinct nodes that a token's walks visit, which is sampled. On an
/// unending path that mean is 3.147 for four walks with p_halt 0.5.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Numbers of tokens
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 512, 4096, 32768])]
    sizes: Vec<usize>,
    /// Walks from each token
    #[arg(long, default_value_t = 4)]
    walks: usize,
    /// Probability that a walk halts before each hop
    #[arg(long, default_value_t = 0.5)]
    p_halt: f32,
    /// Width d of queries, keys and values
    #[arg(long, default_value_t = 8)]
    width: usize,
    /// Width m of their feature maps
    #[arg(long, default_value_t = 8)]
    features: usize,
    /// Sets of walks to average
    #[arg(long, default_value_t = 100)]
    trials: usize,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        let config = measure::walks(Sampler::Iid, self.walks, self.p_halt);
        config.validate()?;
        crate::ensure_within("--sizes", &self.sizes, 1..=1 << 24)?;
        crate::ensure_within("--trials", &[self.trials], 1..=1 << 20)?;
        let row = |&n_tokens: &usize| {
            let (width, n_features) = (self.width, self.features);
            let flops = AttentionFlops { n_tokens, width, n_features };
            measure::flops(flops, &config, self.trials as u64, output.seed)
        };
        let rows = self.sizes.iter().map(row).collect::<Result<Vec<_>, _>>()?;
        output.give("flops", self, &rows, &table(&rows, self.trials), &panels(&rows))
    }
}

fn table(rows: &[Flops], trials: usize) -> String {
    let mut out = format!(
        "MFLOP; mean ± standard error of {trials} sets of walks\n\
         {:>7} {:>12} {:>10} {:>18} {:>16}\n",
        "N", "softmax", "linear", "GRF-masked", "distinct nodes"
    );
    for row in rows {
        let [masked, masked_error] = row.masked.map(|flops| flops / 1e6);
        let [nonzero, nonzero_error] = row.nonzero;
        let (softmax, linear) = (row.softmax / 1e6, row.linear / 1e6);
        let _ = writeln!(
            out,
            "{:>7} {softmax:>12.5} {linear:>10.5} {masked:>9.5} ± {masked_error:.4} {nonzero:>7.3} ± {nonzero_error:.3}",
            row.n_tokens
        );
    }
    out
}

fn panels(rows: &[Flops]) -> Vec<Panel> {
    let curve = |label, color, line, flops: fn(&Flops) -> f64| {
        let points = rows.iter().map(|row| [row.n_tokens as f64, flops(row)]);
        Curve::new(label, color, line, points.collect())
    };
    let curves = vec![
        curve("softmax", 1, Line::Solid, |row| row.softmax),
        curve("linear, GRF-masked", 0, Line::Solid, |row| row.masked[0]),
        curve("linear, unmasked", GREY, Line::Solid, |row| row.linear),
    ];
    let x = Axis::spanning("tokens N", &curves, 0, true);
    let y = Axis::spanning("operations (FLOP)", &curves, 1, true);
    let title = "Cost of one head of attention on a path of tokens".to_string();
    vec![Panel { title, x, y, curves, legend: Legend::UpperLeft }]
}
