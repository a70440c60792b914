//! How well graph random features estimate a kernel of a graph: relative squared Frobenius error,
//! mean ± standard error over trials, for each number of walks a node.
//!
//!   cargo run --release -p forecloud-lab --example kernel_error -- --graph edges.txt --kernel exponential

#[path = "support/names.rs"]
mod names;
#[path = "theory/mod.rs"]
#[allow(dead_code)]
mod theory;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::graph::walks::{Halting, WalkConfig, WalkSeed};
use names::{SamplerName, SideName};
use std::path::PathBuf;
use theory::series::{self, Side, kernels};

/// Terms of a kernel's power series: with ‖U‖ ≤ 0.25 the rest is below 1e-30.
const N_TERMS: usize = 64;

/// Estimates K(U), U = scale · D^-½ A D^-½, from random walks, and prints the error.
#[derive(Parser)]
struct Args {
    /// Edge list: one `a b [weight]` a line, undirected; # starts a comment
    #[arg(long, value_name = "EDGES")]
    graph: PathBuf,
    /// inverse-square ((I - U)^-2), exponential (exp U), or coefficients a0,a1,…
    #[arg(long, default_value = "inverse-square")]
    kernel: String,
    /// Scale of U
    #[arg(long, default_value_t = 0.25)]
    scale: f32,
    /// One set of walks for both sides, or walks on one side and one-hot vectors on the other
    #[arg(long, value_enum, default_value_t = SideName::Asymmetric)]
    side: SideName,
    /// How the walkers from a node depend on each other
    #[arg(long, value_enum, default_value_t = SamplerName::Repelling)]
    sampler: SamplerName,
    /// Probability that a walk halts before each hop
    #[arg(long, default_value_t = 0.5)]
    p_halt: f32,
    /// Walks from each node for each side of the kernel: with one-hot vectors on the other side, the
    /// walking one has twice as many
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16])]
    walks: Vec<usize>,
    /// Trials to average
    #[arg(long, default_value_t = 30)]
    trials: u64,
    /// Seed of the first trial
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let graph = read_graph(&args)?.normalized(args.scale);
    let alpha = coefficients(&args.kernel)?;
    let exact = series::dense(&graph, &alpha);
    let side = Side::from(args.side);
    let f = side.coefficients(&alpha);
    ensure!(!f.is_empty(), "--side symmetric needs a kernel whose first coefficient is positive");
    println!("walks  relative squared error (mean ± standard error of {} trials)", args.trials);
    for &n_walks in &args.walks {
        let halting = Halting::Probability { p_halt: args.p_halt, max_hops: f.len() - 1 };
        let sampler = args.sampler.into();
        let config = WalkConfig { sampler, n_walks, halting, importance: true };
        config.validate()?;
        let errors: Vec<f64> = (0..args.trials)
            .map(|trial| {
                let seed = WalkSeed { seed: args.seed + trial, stamp_ns: n_walks as i64 };
                let estimate = series::estimate(&graph, &f, side, &config, seed);
                series::relative_squared_error(&estimate, &exact)
            })
            .collect();
        let [mean, standard_error] = series::mean_and_standard_error(&errors);
        println!("{n_walks:>5}  {mean:.4}±{standard_error:.4}");
    }
    Ok(())
}

fn read_graph(args: &Args) -> Result<WeightedGraph> {
    let path = args.graph.display();
    let text = std::fs::read_to_string(&args.graph).with_context(|| path.to_string())?;
    let mut edges = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fields: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let edge = match fields[..] {
            [] => continue,
            [a, b] => a.parse().ok().zip(b.parse().ok()).map(|(a, b)| (a, b, 1.0)),
            [a, b, w] => match (a.parse(), b.parse(), w.parse()) {
                (Ok(a), Ok(b), Ok(w)) => Some((a, b, w)),
                _ => None,
            },
            _ => None,
        };
        edges.push(edge.with_context(|| format!("{path}:{number}: not an edge `a b [weight]`"))?);
    }
    let n = edges.iter().map(|&(a, b, _): &(u32, u32, f32)| a.max(b) as usize + 1).max();
    let n = n.with_context(|| format!("{path}: no edges"))?;
    ensure!(n <= 10_000, "{path}: {n} nodes; the exact kernel is dense, use at most 10,000");
    Ok(WeightedGraph::from_edges(n, &edges, false)?)
}

fn coefficients(kernel: &str) -> Result<Vec<f64>> {
    match kernel {
        "inverse-square" => Ok(kernels::inverse_square(N_TERMS)),
        "exponential" => Ok(kernels::exponential(N_TERMS)),
        list => match list.split(',').map(|a| a.trim().parse()).collect() {
            Ok(alpha) => Ok(alpha),
            Err(_) => bail!("--kernel: inverse-square, exponential or a0,a1,…, not '{list}'"),
        },
    }
}
