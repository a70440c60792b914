//! How well the motion of particles over the last step is estimated: error against the truth of
//! recordings, by task and split, on object points that move, on those at rest, and on the rest of
//! the scene; and what each of the estimate's settings is worth.
//!
//!   cargo run --release --example motion_error -- --split test recordings
//!   cargo run --release --example motion_error -- --vary data

mod findings;
mod steps;
mod vary;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use findings::Findings;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::frames::FramesConfig;
use forecloud::vision::motion::Settings;
use forecloud_bag::bag::recordings_below;
use forecloud_bag::recording::Recording;

use std::collections::BTreeMap;
use std::path::PathBuf;
use steps::Step;

/// Prints a row for each split and task, or for each setting of the estimate.
#[derive(Parser)]
struct Args {
    /// Folder of recordings with truth
    folder: PathBuf,
    /// Only recordings of this split
    #[arg(long)]
    split: Option<String>,
    /// Only recordings of this task
    #[arg(long)]
    task: Option<String>,
    /// Recordings of each task and split at most
    #[arg(long, default_value_t = usize::MAX)]
    episodes: usize,
    /// Standard deviation of noise on each coordinate of each point (mm)
    #[arg(long, default_value_t = 0.0)]
    jitter_mm: f32,
    /// Share of blocks of 8 by 8 pixels without depth, other ones in each frame
    #[arg(long, default_value_t = 0.0)]
    holes: f32,
    /// Points of each cloud
    #[arg(long, default_value_t = ModelConfig::default().n_motion)]
    n_motion: usize,
    /// Estimate the motion over a step as so many in a row, over the frames that lie between, each from where
    /// the one after it leads back to: at 30 Hz, 3 are one for each frame. Confidence, unknown and onward are
    /// then those of the estimate that lies farthest back
    #[arg(long, default_value_t = 1)]
    in_a_row: usize,
    /// Multiply one setting at a time by 0.5 and by 2, over all these recordings together: those whose
    /// names begin so, or all of them
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    vary: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!((0.0..=1.0).contains(&args.holes), "--holes is a share: 0 to 1");
    ensure!(args.in_a_row > 0, "--in-a-row: at least 1");
    let mut found: BTreeMap<(String, String), Findings> = BTreeMap::new();
    let mut kept: Vec<Vec<Step>> = Vec::new();
    for path in recordings_below(&args.folder)?.recordings {
        let recording = Recording::open(&path, FramesConfig::default())?;
        let Some(truth) = recording.truth() else { continue };
        let wanted = |only: &Option<String>, name: &str| only.as_ref().is_none_or(|o| o == name);
        if !wanted(&args.split, &truth.split) || !wanted(&args.task, &truth.task) {
            continue;
        }
        let findings = found.entry((truth.split.clone(), truth.task.clone())).or_default();
        if findings.n_recordings < args.episodes {
            let place = || path.display().to_string();
            let steps = steps::read(&args, &recording, truth).with_context(place)?;
            findings.measure(Settings::default(), &steps)?;
            if args.vary.is_some() {
                kept.push(steps);
            }
        }
    }
    ensure!(!found.is_empty(), "no recording with truth in {}", args.folder.display());
    if let Some(name) = &args.vary {
        return vary::table(name, &kept);
    }
    println!(
        "| split | task | recordings | moving points | nothing moves (mm) | error, mean (mm) | \
         median | ratio | unknown | corr. of confidence and error | false motion at rest (mm) | \
         static (mm) | robot (mm) | onward (mm) | ms a frame |"
    );
    println!("|{}", " --- |".repeat(15));
    for ((split, task), findings) in &mut found {
        findings.print(split, task);
    }
    let ratios = found.values().map(Findings::ratio);
    println!("mean ratio {:.3}", ratios.sum::<f64>() / found.len() as f64);
    Ok(())
}
