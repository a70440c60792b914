//! Validation errors over the steps of a training, or of several that went on from each other.
//!
//! ```sh
//! cargo run --release --example training_curves -- curves.svg runs/a/train.jsonl runs/b/train.jsonl
//! ```

// Each example uses a part.
#[allow(dead_code)]
#[path = "support/plot.rs"]
mod plot;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use plot::{Axis, Curve, Line, Panel, draw};
use plotters::prelude::SeriesLabelPosition;
use serde_json::Value;

/// Draws validation errors over the steps of training
#[derive(Parser)]
struct Args {
    /// The picture (SVG)
    picture: PathBuf,
    /// Logs of `forecloud train` (OUT/train.jsonl), in the order in which runs went on from each other
    #[arg(required = true)]
    logs: Vec<PathBuf>,
}

/// A validation.
struct Check {
    step: f64,
    /// Error of moving object points over that of 'nothing moves', after the first and last step.
    shares: [f64; 2],
    /// False motion of static points (mm).
    static_mm: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (mut checks, mut from, mut starts) = (Vec::new(), 0.0, Vec::new());
    for path in &args.logs {
        let read = read(path, from).with_context(|| path.display().to_string())?;
        let last = read.last().context("no validation in it")?.step;
        starts.push(from);
        checks.extend(read);
        from = last;
    }
    let range = |values: &[[f64; 2]]| {
        let of = |f: fn(f64, f64) -> f64| values.iter().map(|v| v[1]).reduce(f).unwrap_or(0.0);
        [0.95 * of(f64::min), 1.05 * of(f64::max)]
    };
    let curve = |value: fn(&Check) -> f64| -> Vec<[f64; 2]> {
        checks.iter().map(|check| [check.step, value(check)]).collect()
    };
    let (first, later) = (curve(|c| c.shares[0]), curve(|c| c.shares[1]));
    let fixed = curve(|c| c.static_mm);
    let all = [&first[..], &later[..]].concat();
    let axis = |name, range| Axis { name, range, log: false };
    let panel = |title: &str, y: Axis, mut curves: Vec<Curve>| {
        // Where one run ends and the next begins.
        for &start in &starts[1..] {
            let ends = y.range.map(|at| [start, at]).to_vec();
            curves.push(Curve::new("", plot::GREY, Line::Dotted, ends));
        }
        let x = axis("steps of the optimiser", [0.0, from]);
        Panel { title: title.into(), x, y, curves, legend: SeriesLabelPosition::UpperRight }
    };
    let shares = vec![
        Curve::new("after 1 step", 0, Line::Solid, first),
        Curve::new("after 5 steps", 1, Line::Solid, later),
    ];
    let still = vec![Curve::new("static points", 2, Line::Solid, fixed.clone())];
    let share = axis("error / error of 'nothing moves'", range(&all));
    draw(
        &args.picture,
        &[
            panel("Object points that move", share, shares),
            panel("False motion of static points", axis("mm in a step", range(&fixed)), still),
        ],
    )
}

fn read(path: &Path, from: f64) -> Result<Vec<Check>> {
    let text = std::fs::read_to_string(path)?;
    let checks: Option<Vec<Check>> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let of = &line["validation"];
            let share = |error: &str, i: usize| {
                Some(of[error].as_f64()? / of["nothing_mm"][i].as_f64().filter(|mm| *mm > 0.0)?)
            };
            Some(Check {
                step: from + line["step"].as_f64()?,
                shares: [share("moving_1_mm", 0)?, share("moving_last_mm", 1)?],
                static_mm: of["static_1_mm"].as_f64()?,
            })
        })
        .collect();
    let checks = checks.context("a line is not one of `forecloud train`")?;
    ensure!(!checks.is_empty(), "no validation in it");
    Ok(checks)
}
