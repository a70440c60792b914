//! Error and sparsity on random graphs: figures 8 and 9 of GRF masking.

use crate::measure::{self, ErdosRenyi};
use crate::names::{SamplerName, SideName};
use anyhow::Result;
use clap::ValueEnum;
use forecloud::engine::graph::walks::Sampler;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use serde::Serialize;
use std::fmt::Write;

/// Error of the estimated mask and sparsity of its features on Erdős–Rényi graphs, against the edge
/// probability p and the number of nodes N
///
/// Estimates the heat kernel exp(σ² D^-½ A D^-½), σ = 0.5, as figures 8 and 9 do: first over p at
/// --nodes, then over N at --p. The paper does not tell its p_halt.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Edge probabilities
    #[arg(long, value_delimiter = ',', default_values_t = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])]
    probabilities: Vec<f64>,
    /// Nodes while p varies
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Numbers of nodes (the mask is dense: 1,000 at most)
    #[arg(long, value_delimiter = ',', default_values_t = [25, 50, 100, 200, 400])]
    sizes: Vec<usize>,
    /// Edge probability while N varies
    #[arg(long, default_value_t = 0.5)]
    p: f64,
    /// Samplers
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["iid", "repelling", "antithetic+repelling"])]
    samplers: Vec<SamplerName>,
    /// One set of walks for both sides of the mask, or twice as many walks on one side and one-hot
    /// vectors on the other
    #[arg(long, value_enum, default_value_t = SideName::Symmetric)]
    side: SideName,
    /// Walks from each node for each side of the mask
    #[arg(long, default_value_t = 4)]
    walks: usize,
    /// Probability that a walk halts before each hop
    #[arg(long, default_value_t = 0.5)]
    p_halt: f32,
    /// Random graphs to average
    #[arg(long, default_value_t = 100)]
    trials: usize,
}

#[derive(Serialize)]
struct Rows {
    over_p: Vec<ErdosRenyi>,
    over_n: Vec<ErdosRenyi>,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        crate::ensure_within("--sizes", &self.sizes, 2..=1000)?;
        crate::ensure_within("--nodes", &[self.nodes], 2..=1000)?;
        crate::ensure_within("--trials", &[self.trials], 1..=1 << 20)?;
        let of_sampler = |&name: &SamplerName| measure::walks(name.into(), self.walks, self.p_halt);
        let configs: Vec<_> = self.samplers.iter().map(of_sampler).collect();
        configs.iter().try_for_each(|config| config.validate())?;
        let row = |n, p| {
            let side = self.side.into();
            measure::erdos_renyi(n, p, side, &configs, self.trials as u64, output.seed)
        };
        let over_p = self.probabilities.iter().map(|&p| row(self.nodes, p));
        let over_n = self.sizes.iter().map(|&n| row(n, self.p));
        let rows = Rows {
            over_p: over_p.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect(),
            over_n: over_n.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect(),
        };
        output.give("erdos-renyi", self, &rows, &self.table(&rows), &self.panels(&rows))
    }

    fn table(&self, rows: &Rows) -> String {
        let mut out = format!(
            "relative error of the mask; share of the features' entries that are not zero; mean ± \
             standard error of {} graphs\n{:>5} {:>6} {:<22} {:>17} {:>17}\n",
            self.trials, "N", "p", "sampler", "error", "non-zero"
        );
        for row in rows.over_p.iter().chain(&rows.over_n) {
            let ([error, error_se], [share, share_se]) = (row.error, row.nonzero_share);
            let _ = writeln!(
                out,
                "{:>5} {:>6} {:<22} {error:>8.4} ± {error_se:.4} {:>7.2} ± {:.2} %",
                row.n_nodes,
                row.edge_probability,
                self.name(row.sampler),
                100.0 * share,
                100.0 * share_se
            );
        }
        out
    }

    fn name(&self, sampler: Sampler) -> String {
        let name = self.samplers.iter().find(|name| Sampler::from(**name) == sampler);
        let value = name.and_then(|name| name.to_possible_value());
        value.map_or(String::new(), |value| value.get_name().to_string())
    }

    fn panels(&self, rows: &Rows) -> Vec<Panel> {
        let p = |row: &ErdosRenyi| row.edge_probability;
        let n = |row: &ErdosRenyi| row.n_nodes as f64;
        let over_p = format!("N = {}, {} walks; bars: standard error", self.nodes, self.walks);
        let over_n = format!("p = {}, {} walks; bars: standard error", self.p, self.walks);
        vec![
            self.panel(&over_p, ("edge probability p", false), &rows.over_p, p, false),
            self.panel(&over_p, ("edge probability p", false), &rows.over_p, p, true),
            self.panel(&over_n, ("nodes N", true), &rows.over_n, n, false),
            self.panel(&over_n, ("nodes N", true), &rows.over_n, n, true),
        ]
    }

    fn panel(
        &self,
        title: &str,
        (x_name, log_x): (&'static str, bool),
        rows: &[ErdosRenyi],
        x: fn(&ErdosRenyi) -> f64,
        sparsity: bool,
    ) -> Panel {
        let y = |row: &ErdosRenyi| match sparsity {
            true => row.nonzero_share.map(|share| 100.0 * share),
            false => row.error,
        };
        let curve = |(color, name): (usize, &SamplerName)| {
            let sampler = Sampler::from(*name);
            let rows = rows.iter().filter(|row| row.sampler == sampler);
            let points = rows.clone().map(|row| [x(row), y(row)[0]]).collect();
            let errors = rows.map(|row| y(row)[1]).collect();
            Curve { errors, ..Curve::new(self.name(sampler), color, Line::Solid, points) }
        };
        let curves: Vec<_> = self.samplers.iter().enumerate().map(curve).collect();
        let y_name = match sparsity {
            true => "non-zero entries (%)",
            false => "relative error of the mask",
        };
        let x = match log_x {
            true => Axis::spanning(x_name, &curves, 0, true),
            false => Axis { name: x_name, range: [0.0, 1.05], log: false },
        };
        let y = Axis::spanning(y_name, &curves, 1, sparsity && log_x);
        let legend = match sparsity && log_x {
            true => Legend::UpperRight,
            false => Legend::LowerRight,
        };
        Panel { title: title.to_string(), x, y, curves, legend }
    }
}
