//! How near estimated masks are to the exact one: theorem 3.2.

use crate::graphs::{GraphName, Graphs};
use crate::measure::{self, TAIL, Tail};
use crate::names::{SamplerName, SideName};
use anyhow::Result;
use forecloud_eval::plot::{Axis, Curve, GREY, Legend, Line, Panel};
use serde::Serialize;
use std::fmt::Write;

/// How often an entry of an estimated mask is off by more than t, against theorem 3.2
///
/// Estimates the heat kernel exp(0.25 D^-½ A D^-½) in many trials, and takes for each t the share of
/// trials in that entry of the mask where it is largest, as the theorem is of each entry. It is of
/// independent walks (--sampler iid) with importance weights that halt with p_halt, of entries off
/// the diagonal, and needs c = Σ |f_k| (max |W_ij| d_i / (1 - p_halt))^k to be finite, which it is
/// for every graph with this kernel. Asymmetric: Hoeffding's inequality with the same c.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Graphs; the first one's symmetric and asymmetric tails are drawn
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["grid", "ring", "erdos-renyi", "knn"])]
    graphs: Vec<GraphName>,
    /// Nodes (the mask is dense: 256 at most)
    #[arg(long, default_value_t = 64)]
    nodes: usize,
    /// Walks from each node
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16, 64, 256])]
    walks: Vec<usize>,
    /// Probability that a walk halts before each hop
    #[arg(long, default_value_t = 0.5)]
    p_halt: f32,
    /// How the walkers from a node depend on each other
    #[arg(long, value_enum, default_value_t = SamplerName::Iid)]
    sampler: SamplerName,
    /// Trials; shares below one of them are not seen
    #[arg(long, default_value_t = 2000)]
    trials: usize,
}

#[derive(Serialize)]
struct Row {
    graph: GraphName,
    side: SideName,
    #[serde(flatten)]
    tail: Tail,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        let nodes = self.nodes;
        crate::ensure_within("--nodes", &[nodes], 2..=256)?;
        crate::ensure_within("--trials", &[self.trials], 1..=1 << 20)?;
        let mut graphs = Graphs::default();
        let mut rows = Vec::new();
        for &graph in &self.graphs {
            let made = graphs.make(graph, nodes, true, output.seed)?;
            for side in [SideName::Symmetric, SideName::Asymmetric] {
                for &n_walks in &self.walks {
                    let config = measure::walks(self.sampler.into(), n_walks, self.p_halt);
                    config.validate()?;
                    let tail =
                        measure::tail(&made, side.into(), &config, self.trials as u64, output.seed);
                    rows.push(Row { graph, side, tail });
                }
            }
        }
        output.give("concentration", self, &rows, &table(&rows), &self.panels(&rows))
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let Some(&first) = self.graphs.first() else { return Vec::new() };
        let panel = |side, title: &str| {
            let rows = rows.iter().filter(|row| row.graph == first && row.side == side);
            let mut curves = Vec::new();
            for (color, Row { tail, .. }) in rows.enumerate() {
                let points = |shares: &[f64]| {
                    let points = tail.thresholds.iter().zip(shares).filter(|at| *at.1 > 0.0);
                    points.map(|(t, share)| [*t, *share]).collect::<Vec<_>>()
                };
                let label = format!("{} walks", tail.n_walks);
                curves.push(Curve::new(label, color, Line::Solid, points(&tail.measured)));
                curves.push(Curve::new("", color, Line::Dashed, points(&tail.bound)));
            }
            curves.push(Curve::new("bounds", GREY, Line::Dashed, Vec::new()));
            let x = Axis { name: "deviation t", range: [1e-3, 10.0], log: true };
            let lowest = 0.7 / self.trials as f64;
            let y = Axis {
                name: "share of trials beyond t (worst entry)",
                range: [lowest, 3.0],
                log: true,
            };
            let title = format!("{}, {title}", first.label());
            Panel { title, x, y, curves, legend: Legend::LowerLeft }
        };
        vec![
            panel(SideName::Symmetric, "walks on both sides: theorem 3.2"),
            panel(SideName::Asymmetric, "walks on one side: Hoeffding"),
        ]
    }
}

fn table(rows: &[Row]) -> String {
    let share = 100.0 * TAIL;
    let mut out = format!(
        "deviation of an entry of the mask that {share} % of the trials exceed; held: no share of the \
         trials is above the bound at any t\n\
         {:<16} {:<10} {:>4} {:>7} {:>7} {:>9} {:>9} {:>9} {:>5}\n",
        "graph", "side", "n", "c", "load", "measured", "bound", "ratio", "held"
    );
    for Row { graph, side, tail } in rows {
        let side = match side {
            SideName::Symmetric => "symmetric",
            SideName::Asymmetric => "asymmetric",
        };
        let _ = writeln!(
            out,
            "{:<16} {side:<10} {:>4} {:>7.3} {:>7.3} {:>9.4} {:>9.4} {:>9.1} {:>5}",
            graph.label(),
            tail.n_walks,
            tail.c,
            tail.largest_load,
            tail.deviation,
            tail.deviation_bound,
            tail.deviation_bound / tail.deviation,
            if tail.holds() { "yes" } else { "NO" },
        );
    }
    out
}
