//! Checks and times everything that runs on a GPU, in one run; `benches/gpu/run` builds and calls it.
//!
//! `gpu [--tokens 32768,131072] [--width 128] [--runs 100] [--frames 1000]`, in the repository's folder. Ends with
//! status 1 if a check fails, with status 3 where there is no GPU.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use forecloud::engine::backend::cuda::Gpu;
use forecloud::engine::backend::cuda::measure::{Search, neighbors, write_bytes_per_sec};
use forecloud::engine::graph::KnnGraph;
use forecloud::engine::model::ModelConfig;

mod demo;
mod particles;
mod passes;
mod plans;
mod precision;
// What reads problems is the CPU's comparison.
#[allow(dead_code)]
#[path = "../compare_pytorch/problem.rs"]
mod problem;
mod pytorch;
#[path = "../support/mod.rs"]
mod support;

use demo::Demo;

/// What no part begins behind: `run` gives it 40 s more for the part that is under way.
const BUDGET: Duration = Duration::from_secs(100);

struct Args {
    tokens: Vec<usize>,
    width: usize,
    n_runs: usize,
    /// Frames of the demo that tensor cores are compared with f32 on.
    n_frames: usize,
}

/// Lines of the table that comes last.
type Table = Vec<[String; 2]>;

fn main() -> anyhow::Result<ExitCode> {
    let args = parse(std::env::args().skip(1))?;
    if Gpu::count() == 0 {
        eprintln!("gpu: no GPU answers on this machine: nothing was timed");
        return Ok(ExitCode::from(3));
    }
    let gpu = Arc::new(Gpu::open(0)?);
    let mut table: Table = Vec::new();
    row(&mut table, "device", gpu.name());
    // What there is of the table also where a check fails.
    let done = measure(&gpu, &args, &mut table);
    println!();
    let width = table.iter().map(|[what, _]| what.chars().count()).max().unwrap_or(0);
    table.iter().for_each(|[what, value]| println!("{what:width$}  {value}"));
    done.map(|()| ExitCode::SUCCESS)
}

fn measure(gpu: &Arc<Gpu>, args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let bandwidth = write_bytes_per_sec(gpu, 1 << 30)?;
    row(table, "writes to its memory, 1 GiB", format!("{:.0} GB/s", bandwidth / 1e9));
    let demo = Demo::open(Path::new("data/demo_tumble"))?;
    let mut faults = Vec::new();
    // A part that fails hides nothing of the others, and what there is no time for is said: a machine with a GPU
    // is at hand for minutes.
    let (start, mut skipped) = (Instant::now(), Vec::new());
    let mut part = |name: &'static str, run: &mut dyn FnMut() -> anyhow::Result<()>| {
        if start.elapsed() > BUDGET {
            skipped.push(name);
        } else if let Err(fault) = run() {
            faults.push(format!("{name}: {fault:#}"));
        }
    };
    for &n in &args.tokens {
        part("k-NN", &mut || check_neighbors(gpu, &demo, n, table));
    }
    for &n in &args.tokens {
        part("passes", &mut || passes::whole(gpu, &demo, n, args.width, args.n_runs, table));
    }
    part("precision", &mut || precision::compare(args.n_frames, table));
    part("particles", &mut || particles::compare(args.n_frames, table));
    part("plans", &mut || plans::compare(gpu, &demo, args.n_runs, table));
    for &n in &args.tokens {
        part("PyTorch", &mut || {
            passes::beside_pytorch(gpu, &demo, n, args.width, args.n_runs, table)
        });
    }
    for name in skipped {
        row(table, "NOT MEASURED, no time left", name);
    }
    faults.iter().for_each(|fault| row(table, "FAILED", fault));
    ensure!(faults.is_empty(), "{} parts failed", faults.len());
    Ok(())
}

fn parse(mut given: impl Iterator<Item = String>) -> anyhow::Result<Args> {
    let mut args = Args { tokens: vec![32_768, 131_072], width: 128, n_runs: 100, n_frames: 1000 };
    while let Some(name) = given.next() {
        let value = given.next().with_context(|| format!("{name} takes a value"))?;
        let number = || value.parse::<usize>().with_context(|| format!("{name} {value}"));
        match &*name {
            "--tokens" => {
                let numbers = value.split(',').map(str::parse);
                args.tokens = numbers.collect::<Result<_, _>>().context("--tokens")?;
            }
            "--width" => args.width = number()?,
            "--runs" => args.n_runs = number()?.max(1),
            "--frames" => args.n_frames = number()?,
            _ => anyhow::bail!("{name}: --tokens, --width, --runs and --frames are known"),
        }
    }
    Ok(args)
}

fn row(table: &mut Table, what: impl Into<String>, value: impl Into<String>) {
    let [what, value] = [what.into(), value.into()];
    // At once, too: a run that is cut short has told what it knew.
    println!("{what}: {value}");
    table.push([what, value]);
}

/// Both searches against the CPU's, on points of the demo's clouds.
fn check_neighbors(gpu: &Arc<Gpu>, demo: &Demo, n: usize, table: &mut Table) -> anyhow::Result<()> {
    let positions = demo.particles(n)?.positions;
    let frame = ModelConfig::default().rollout().tokens.frame;
    for k in [3, 8] {
        let mut graph = KnnGraph::default();
        graph.rebuild(&positions, k)?;
        let expected = || (0..n).flat_map(|i| graph.neighbors(i)).copied();
        for search in [Search::BruteForce, Search::Tiles] {
            let (found, ms) = neighbors(gpu, &positions, k, &frame, search, 10)?;
            let n_wrong = expected().zip(&found).filter(|(expected, found)| expected != *found);
            let n_wrong = n_wrong.count();
            ensure!(n_wrong == 0, "k-NN, {search:?}, {n} points, k {k}: {n_wrong} differ");
            row(table, format!("k-NN {n}, k {k}, {search:?}: exact"), format!("{ms:.3} ms"));
        }
    }
    Ok(())
}

/// The larger one, or what is no number: NaN is no small difference.
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a >= b || a.partial_cmp(&a).is_none() { a } else { b }
}

/// Nearest ranks of 0.5 and 0.99.
fn percentiles(ms: &mut [f64]) -> String {
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms[((share * ms.len() as f64).ceil() as usize).saturating_sub(1)];
    format!("{:.3} / {:.3} ms", at(0.5), at(0.99))
}
