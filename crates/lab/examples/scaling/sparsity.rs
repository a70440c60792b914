//! How sparse graph random features are: lemma 3.3.

use crate::graphs::{GraphName, Graphs};
use crate::measure::{self, Sparsity};
use crate::names::SamplerName;
use anyhow::{Result, ensure};
use forecloud_eval::plot::{Axis, Curve, GREY, Legend, Line, Panel};
use serde::Serialize;
use std::fmt::Write;

/// Non-zero entries of graph random features against the bound of lemma 3.3, which N is not in
///
/// With probability 1 - δ a feature of n walks has at most n b entries that are not zero, b =
/// log(1 - (1 - δ)^(1/n)) / log(1 - p_halt). The lemma is of independent walks (--sampler iid).
/// Walks have whole lengths: with n ⌈b⌉ it holds for any graph, with n b as stated not for n = 1.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Graphs
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ring", "grid", "erdos-renyi", "knn"])]
    graphs: Vec<GraphName>,
    /// Numbers of nodes (grids have the next square; random graphs 8,192 at most)
    #[arg(long, value_delimiter = ',', default_values_t = [128, 1024, 8192])]
    sizes: Vec<usize>,
    /// Walks from each node
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    walks: Vec<usize>,
    /// Probability that a walk halts before each hop
    #[arg(long, default_value_t = 0.5)]
    p_halt: f32,
    /// Share δ of the features that may be beyond the bound
    #[arg(long, default_value_t = 0.1)]
    delta: f64,
    /// How the walkers from a node depend on each other
    #[arg(long, value_enum, default_value_t = SamplerName::Iid)]
    sampler: SamplerName,
    /// Features of each row of the table, at least
    #[arg(long, default_value_t = 20_000)]
    features: usize,
}

#[derive(Serialize)]
struct Row {
    graph: GraphName,
    #[serde(flatten)]
    sparsity: Sparsity,
}

impl Args {
    pub fn run(&self, output: &crate::Output) -> Result<()> {
        ensure!(0.0 < self.delta && self.delta < 1.0, "--delta {}: not in 0..1", self.delta);
        ensure!(self.p_halt > 0.0, "--p-halt {}: the lemma is of walks that halt", self.p_halt);
        crate::ensure_within("--sizes", &self.sizes, 1..=1 << 20)?;
        crate::ensure_within("--features", &[self.features], 1..=1 << 26)?;
        let mut graphs = Graphs::default();
        let mut rows = Vec::new();
        for &graph in &self.graphs {
            for &n in &self.sizes {
                let made = graphs.make(graph, n, false, output.seed)?;
                for &n_walks in &self.walks {
                    let config = measure::walks(self.sampler.into(), n_walks, self.p_halt);
                    config.validate()?;
                    let (delta, features, seed) = (self.delta, self.features, output.seed);
                    let sparsity = measure::sparsity(&made, &config, delta, features, seed);
                    rows.push(Row { graph, sparsity });
                }
            }
        }
        output.give("sparsity", self, &rows, &table(&rows, self.delta), &self.panels(&rows))
    }

    /// Against N for the second number of walks, and against the number of walks for the largest N.
    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let n_walks = self.walks.get(1).or(self.walks.first()).copied().unwrap_or_default();
        let largest = self.sizes.last().copied().unwrap_or_default();
        let by_nodes = |row: &Row| {
            let s = &row.sparsity;
            (s.n_walks == n_walks).then_some(s.n_nodes as f64)
        };
        let by_walks = |row: &Row| {
            let s = &row.sparsity;
            (s.n_nodes >= largest).then_some(s.n_walks as f64)
        };
        let share = 100.0 * (1.0 - self.delta);
        let nodes = format!("Entries that {share:.0} % of features don't exceed: {n_walks} walks");
        let walks = format!("The same: N = {largest}");
        vec![
            self.panel(nodes, "nodes N", rows, &by_nodes),
            self.panel(walks, "walks n a node", rows, &by_walks),
        ]
    }

    fn panel(
        &self,
        title: String,
        x_name: &'static str,
        rows: &[Row],
        x: &dyn Fn(&Row) -> Option<f64>,
    ) -> Panel {
        let curve = |of: Option<GraphName>, label: String, color, line, y: fn(&Sparsity) -> f64| {
            let rows = rows.iter().filter(|row| of.is_none_or(|of| row.graph == of));
            let points = rows.filter_map(|row| Some([x(row)?, y(&row.sparsity)]));
            let mut points: Vec<_> = points.collect();
            points.sort_by(|a, b| a[0].total_cmp(&b[0]));
            Curve::new(label, color, line, points)
        };
        let bound = "bound of lemma 3.3".to_string();
        let mut curves = vec![curve(None, bound, GREY, Line::Dashed, |s| s.bound)];
        for (color, &graph) in self.graphs.iter().enumerate() {
            let of = |line, label: &str, y| curve(Some(graph), label.into(), color, line, y);
            curves.push(of(Line::Solid, graph.label(), |s| s.quantile as f64));
            curves.push(of(Line::Dotted, "", |s| s.mean));
        }
        let x = Axis::spanning(x_name, &curves, 0, true);
        // The same for both panels, with room for the legend above.
        let most = rows.iter().map(|row| row.sparsity.bound).fold(1.0, f64::max);
        let name = "non-zero entries (dotted: mean)";
        let y = Axis { name, range: [1.0, 2.0 * most], log: true };
        let legend = Legend::UpperLeft;
        Panel { title, x, y, curves, legend }
    }
}

fn table(rows: &[Row], delta: f64) -> String {
    let quantile = format!("{:.0} %", 100.0 * (1.0 - delta));
    let mut out = format!(
        "non-zero entries of a feature; the lemma promises {quantile} of the features\n\
         {:<16} {:>6} {:>4} {:>7} {:>5} {:>5} {:>9} {:>8} {:>9} {:>8}\n",
        "graph", "N", "n", "mean", quantile, "most", "n⌈b⌉", "within", "n b", "within"
    );
    for Row { graph, sparsity: s } in rows {
        let _ = writeln!(
            out,
            "{:<16} {:>6} {:>4} {:>7.2} {:>5} {:>5} {:>9.0} {:>6.1} % {:>9.1} {:>6.1} %",
            graph.label(),
            s.n_nodes,
            s.n_walks,
            s.mean,
            s.quantile,
            s.max,
            s.bound,
            100.0 * s.share_within,
            s.bound_as_stated,
            100.0 * s.share_within_as_stated
        );
    }
    out
}
