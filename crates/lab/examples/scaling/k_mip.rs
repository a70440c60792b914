//! How far attention to the k best keys is from attention to all, and what weight these keys have.

use anyhow::Result;
use forecloud::base::random::{draw, normal_pair};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use forecloud_lab::ops::k_mip_attention::{BLOCK, k_mip_attention_forward};
use serde::Serialize;
use std::fmt::Write;

/// Distance of k-MIP attention from full attention, and the weight of its keys, against k
///
/// As figure 8 of "k-Maximum Inner Product Attention for Graph Transformers", but of random queries, keys and
/// values (standard normal, queries times the sharpness: the standard deviation of the scores) instead of
/// those of a trained network. The distance is the mean length of the difference of two rows of outputs; of
/// standard normal rows in place of the attention's it is printed below.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Tokens
    #[arg(long, default_value_t = 1024)]
    nodes: usize,
    /// Keys that each query chooses, in each head
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])]
    k: Vec<usize>,
    /// Standard deviations of the scores
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 2.0, 4.0])]
    sharpness: Vec<f32>,
    /// Sets of tokens
    #[arg(long, default_value_t = 10)]
    trials: usize,
}

const WIDTH: usize = 64;
const N_HEADS: usize = 4;

#[derive(Serialize)]
struct Row {
    sharpness: f32,
    k: usize,
    distance: f64,
    distance_deviation: f64,
    share: f64,
}

/// Outputs and log-sum-exps of the scores of attention to the `k` best keys.
fn attention(qkv: &[f32], k: usize) -> (Vec<f32>, Vec<f32>) {
    let (n, heads) = (qkv.len() / (3 * WIDTH), Heads::new(WIDTH, N_HEADS));
    let (mut out, mut log_sums) = (vec![0.0; n * WIDTH], vec![0.0; n * N_HEADS]);
    for first in (0..n).step_by(BLOCK) {
        let rows = first..(first + BLOCK).min(n);
        let mut chosen = vec![0; rows.len() * N_HEADS * k];
        let out = &mut out[rows.start * WIDTH..rows.end * WIDTH];
        let log_sums = &mut log_sums[rows.start * N_HEADS..rows.end * N_HEADS];
        k_mip_attention_forward(rows, qkv, heads, out, log_sums, &mut chosen);
    }
    (out, log_sums)
}

fn normal(n: usize, seed: u64, trial: usize, stream: u64) -> Vec<f32> {
    (0..n as u64).map(|i| normal_pair(draw(seed, trial as i64, i, stream))[0]).collect()
}

/// Mean length of the difference of two rows.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let rows = a.chunks_exact(WIDTH).zip(b.chunks_exact(WIDTH));
    let length = |(a, b): (&[f32], &[f32])| {
        a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
    };
    rows.map(length).sum::<f64>() * WIDTH as f64 / a.len() as f64
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--nodes", &[self.nodes], 2..=1 << 14)?;
        crate::ensure_within("--trials", &[self.trials], 1..=1000)?;
        crate::ensure_within("--k", &self.k, 1..=self.nodes)?;
        let (mut rows, mut of_normal) = (Vec::new(), 0.0);
        for &sharpness in &self.sharpness {
            anyhow::ensure!(sharpness > 0.0 && sharpness <= 100.0, "--sharpness: {sharpness}");
            let mut found = vec![Vec::new(); self.k.len()];
            for trial in 0..self.trials {
                let mut qkv = normal(self.nodes * 3 * WIDTH, output.seed, trial, 0);
                for row in qkv.chunks_exact_mut(3 * WIDTH) {
                    row[..WIDTH].iter_mut().for_each(|q| *q *= sharpness);
                }
                let (full, all) = attention(&qkv, self.nodes);
                let noise = normal(full.len(), output.seed, trial, 1);
                of_normal += distance(&noise, &full) / (self.trials * self.sharpness.len()) as f64;
                for (found, &k) in found.iter_mut().zip(&self.k) {
                    let (out, some) = attention(&qkv, k);
                    let shares =
                        some.iter().zip(&all).map(|(some, all)| f64::from(some - all).exp());
                    found.push([distance(&out, &full), shares.sum::<f64>() / all.len() as f64]);
                }
            }
            for (found, &k) in found.iter().zip(&self.k) {
                let mean =
                    |of: usize| found.iter().map(|x| x[of]).sum::<f64>() / found.len() as f64;
                let (distance, share) = (mean(0), mean(1));
                let square = found.iter().map(|x| (x[0] - distance).powi(2)).sum::<f64>();
                let distance_deviation = (square / found.len() as f64).sqrt();
                rows.push(Row { sharpness, k, distance, distance_deviation, share });
            }
        }
        let table = self.table(&rows, of_normal);
        output.give("k-mip", self, &rows, &table, &self.panels(&rows))
    }

    fn table(&self, rows: &[Row], of_normal: f64) -> String {
        let mut out = format!(
            "{} tokens, width {WIDTH}, {N_HEADS} heads; standard normal rows instead: {of_normal:.3}\n\
             {:>9} {:>5} {:>9} {:>9} {:>7}\n",
            self.nodes, "sharpness", "k", "distance", "± ", "weight"
        );
        for row in rows {
            let Row { sharpness, k, distance, distance_deviation, share } = row;
            let _ = writeln!(
                out,
                "{sharpness:>9} {k:>5} {distance:>9.4} {distance_deviation:>9.4} {:>6.1}%",
                100.0 * share
            );
        }
        out
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let panel = |title: &str, name, of: fn(&Row) -> f64, legend| {
            let curves = self.sharpness.iter().enumerate().map(|(color, &sharpness)| {
                let of_this = rows.iter().filter(|row| row.sharpness == sharpness);
                let points = of_this.map(|row| [row.k as f64, of(row)]).collect();
                Curve::new(format!("sharpness {sharpness}"), color, Line::Solid, points)
            });
            let most = rows.iter().map(of).fold(0.0, f64::max);
            Panel {
                title: title.into(),
                x: Axis { name: "k", range: [1.0, self.nodes as f64], log: true },
                y: Axis { name, range: [0.0, 1.05 * most], log: false },
                curves: curves.collect(),
                legend,
            }
        };
        vec![
            panel(
                "distance from full attention",
                "L2 distance",
                |row| row.distance,
                Legend::UpperRight,
            ),
            panel(
                "weight of the k best keys",
                "share of the weight",
                |row| row.share,
                Legend::UpperLeft,
            ),
        ]
    }
}
