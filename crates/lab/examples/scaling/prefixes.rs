//! Walks of exactly three hops, sampled or enumerated: the mask as the model makes it.

use crate::graphs::{GraphName, Graphs};
use crate::measure::{self, Mean, Prefixes};
use crate::names::SamplerName;
use anyhow::Result;
use clap::ValueEnum;
use forecloud::engine::graph::EdgeWeights;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};
use serde::Serialize;
use std::fmt::Write;

/// Error of masks of three-hop walks on the k-NN graph of a real cloud, against the number of walks
///
/// The mask is M = Σ W^t, t ≤ 3, walks on one side. On 3 edges a node there are 27 walks of three
/// hops: as many repelling walks take each one once, and with uniform weights their mask is exact.
/// With weights by distance it isn't; enumerating the walks, as the model does, is exact for both.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Nodes: particles of data/demo_tumble (the mask is dense: 4,096 at most)
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Walks from each node
    #[arg(long, value_delimiter = ',', default_values_t = [3, 9, 27, 54, 81])]
    walks: Vec<usize>,
    /// Samplers
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["iid", "repelling"])]
    samplers: Vec<SamplerName>,
    /// Bandwidth σ of the weights by distance, exp(-d² / σ²), m
    #[arg(long, default_value_t = 0.05)]
    bandwidth_m: f32,
    /// Sets of walks to average
    #[arg(long, default_value_t = 10)]
    trials: usize,
}

#[derive(Serialize)]
struct Row {
    /// None of enumerated walks.
    sampler: Option<SamplerName>,
    n_walks: usize,
    weights: &'static str,
    error: Mean,
    nonzero: f64,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        let nodes = self.nodes;
        crate::ensure_within("--nodes", &[nodes], 4..=4096)?;
        crate::ensure_within("--trials", &[self.trials], 1..=1 << 20)?;
        let distance = EdgeWeights::Distance { bandwidth_m: self.bandwidth_m };
        distance.validate()?;
        let mut graphs = Graphs::default();
        let mut rows = Vec::new();
        for (weights, name) in [(EdgeWeights::Uniform, "uniform"), (distance, "distance")] {
            let graph = graphs.knn(nodes, weights)?;
            let prefixes = Prefixes::new(&graph)?;
            for &sampler in &self.samplers {
                for &n_walks in &self.walks {
                    let config = measure::three_hops(sampler.into(), n_walks);
                    config.validate()?;
                    let (error, nonzero) =
                        prefixes.sampled(&config, self.trials as u64, output.seed);
                    rows.push(Row {
                        sampler: Some(sampler),
                        n_walks,
                        weights: name,
                        error,
                        nonzero,
                    });
                }
            }
            let (error, nonzero) = prefixes.enumerated;
            rows.push(Row {
                sampler: None,
                n_walks: 27,
                weights: name,
                error: [error, 0.0],
                nonzero,
            });
        }
        output.give("prefixes", self, &rows, &self.table(&rows), &self.panels(&rows))
    }

    fn table(&self, rows: &[Row]) -> String {
        let mut out = format!(
            "{}, N = {}; relative squared error of the mask, mean ± standard error of {} sets of walks\n\
             {:<9} {:<10} {:>4} {:>17} {:>15}\n",
            GraphName::Knn.label(),
            self.nodes,
            self.trials,
            "weights",
            "walks",
            "n",
            "error",
            "distinct nodes"
        );
        for row in rows {
            let [error, standard_error] = row.error;
            let _ = writeln!(
                out,
                "{:<9} {:<10} {:>4} {error:>8.1e} ± {standard_error:<6.0e} {:>15.2}",
                row.weights,
                row.sampler.map_or("enumerated".into(), name),
                row.n_walks,
                row.nonzero
            );
        }
        out
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let panel = |weights: &str| {
            let curve = |(color, &sampler): (usize, &SamplerName)| {
                let rows = rows.iter().filter(|row| row.weights == weights);
                let of_sampler = rows.filter(|row| row.sampler == Some(sampler));
                let points = of_sampler.map(|row| [row.n_walks as f64, row.error[0].max(1e-34)]);
                Curve::new(name(sampler), color, Line::Solid, points.collect())
            };
            let curves: Vec<_> = self.samplers.iter().enumerate().map(curve).collect();
            let x = Axis::spanning("walks n a node", &curves, 0, true);
            let y = Axis::spanning("relative squared error of the mask", &curves, 1, true);
            let title = format!("3 hops on 3 neighbours, weights: {weights}");
            Panel { title, x, y, curves, legend: Legend::LowerLeft }
        };
        vec![panel("uniform"), panel("distance")]
    }
}

fn name(sampler: SamplerName) -> String {
    let value = sampler.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_string())
}
