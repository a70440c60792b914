//! What the theory of graph random features says, measured: tables on stdout, plots as SVG.
//!
//! ```text
//! cargo run --release -p forecloud-lab --example scaling -- sparsity --help
//! ```

mod concentration;
mod eigenvectors;
mod encodings;
mod erdos_renyi;
mod flops;
mod graphs;
mod k_mip;
mod measure;
mod motifs;
#[path = "../support/names.rs"]
mod names;
mod prefixes;
mod solver;
mod sparsity;
#[path = "../theory/mod.rs"]
#[allow(dead_code)]
mod theory;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use forecloud_eval::plot::{self, Panel};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Measures what the theory of graph random features (GRFs) says: what attention costs, how sparse
/// GRFs are, how near the masks that they make are to the exact ones, and on which graphs.
///
/// Each command prints a table and draws a plot. Equations and figures are numbered as in "Linear
/// transformer topological masking with graph random features" (Reid et al., ICLR 2025);
/// docs/src/notebook/method.md says what one learns from each.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand)]
enum Command {
    Flops(flops::Args),
    Sparsity(sparsity::Args),
    Concentration(concentration::Args),
    ErdosRenyi(erdos_renyi::Args),
    Prefixes(prefixes::Args),
    Solver(solver::Args),
    KMip(k_mip::Args),
    Motifs(motifs::Args),
    Encodings(encodings::Args),
    Eigenvectors(eigenvectors::Args),
}

#[derive(clap::Args)]
struct Output {
    /// Seed of the first trial; the same seed gives the same table on any number of threads
    #[arg(long, global = true, default_value_t = 0)]
    seed: u64,
    /// Print JSON with all settings and figures instead of the table
    #[arg(long, global = true)]
    json: bool,
    /// Where the plot goes (SVG) [default: out/COMMAND.svg]
    #[arg(long, global = true, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Args { command, output } = Args::parse();
    match command {
        Command::Flops(args) => args.run(&output),
        Command::Sparsity(args) => args.run(&output),
        Command::Concentration(args) => args.run(&output),
        Command::ErdosRenyi(args) => args.run(&output),
        Command::Prefixes(args) => args.run(&output),
        Command::Solver(args) => args.run(&output),
        Command::KMip(args) => args.run(&output),
        Command::Motifs(args) => args.run(&output),
        Command::Encodings(args) => args.run(&output),
        Command::Eigenvectors(args) => args.run(&output),
    }
}

/// Checks the numbers of nodes, trials or whatever `option` counts.
fn ensure_within(option: &str, values: &[usize], allowed: RangeInclusive<usize>) -> Result<()> {
    let outside = values.iter().find(|value| !allowed.contains(*value));
    ensure!(outside.is_none(), "{option}: {values:?} are not all in {allowed:?}");
    Ok(())
}

impl Output {
    /// Prints `table`, or `rows` and the settings that they are of, and draws `panels`.
    fn give(
        &self,
        command: &str,
        settings: &impl Serialize,
        rows: &impl Serialize,
        table: &str,
        panels: &[Panel],
    ) -> Result<()> {
        if self.json {
            let report = serde_json::json!({
                "command": command,
                "version": env!("CARGO_PKG_VERSION"),
                "seed": self.seed,
                "settings": settings,
                "rows": rows,
            });
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{table}");
        }
        let default = || PathBuf::from(format!("out/{command}.svg"));
        let path = self.plot.clone().unwrap_or_else(default);
        let is_svg = path.extension().is_some_and(|extension| extension == "svg");
        ensure!(is_svg, "--plot {}: plots are SVG, name a file FILE.svg", path.display());
        plot::draw(&path, panels)?;
        eprintln!("plot: {}", path.display());
        Ok(())
    }
}
