//! Validation errors over the steps of a training, or of several that went on from each other.
//! (`forecloud train` draws that of its own run: OUT/curve.svg.)
//!
//! ```sh
//! cargo run --release -p forecloud-lab --example training_curves -- curves.svg runs/a/train.jsonl runs/b/train.jsonl
//! ```

#[path = "../../cli/src/curve.rs"]
mod curve;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;

/// Draws validation errors over the steps of training
#[derive(Parser)]
struct Args {
    /// The picture (SVG)
    picture: PathBuf,
    /// Logs of `forecloud train` (OUT/train.jsonl), in the order in which runs went on from each other
    #[arg(required = true)]
    logs: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let panels = curve::panels(&args.logs)?;
    ensure!(!panels.is_empty(), "the logs have no errors to draw");
    Ok(forecloud_eval::plot::draw(&args.picture, &panels)?)
}
