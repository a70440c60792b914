//! `forecloud check`: whether the robot is where the cameras see it, and whatever else makes predictions wrong
//! without a word.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use forecloud::predict::rig::Verdict;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;
use forecloud_eval::rig_check::{CheckReport, check};
use serde_json::json;

use super::outcome::Outcome;
use super::say::{name_first, print, printable, say};
use super::topics::ReadArgs;

/// Check whether the robot is where the cameras see it, and whether cameras, clocks and joints agree.
#[derive(clap::Args)]
#[command(after_help = "\
Puts the robot's surface, as description and joints tell, into the depth images: how much of it that should be \
visible is seen at its depth, and how much the cameras look through. Where that does not fit, the likeliest \
single cause is named, with the numbers: another description, degrees, clocks, a camera's or the robot's \
place, a wrong length. Cameras are compared with each other; calibrations, depth units, stamps, joint names, \
limits and plans are looked at by themselves. docs/src/guide/check.md says what it can and cannot see.

Exit codes:
  0  nothing suspicious
  1  a recording can't be read
  2  wrong arguments
  3  something is suspicious

Examples:
  forecloud check data/demo_tumble
  forecloud check --json my_bag > check.json
  forecloud check --cameras camera_left -p patience_secs:=0.1 my_bag")]
pub struct Args {
    /// rosbag2 folders or their files
    #[arg(required = true, value_name = "BAG")]
    bags: Vec<PathBuf>,
    /// Print one JSON array with an object for each recording; one that can't be read has an `error`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// Prints what was found to stdout.
///
/// # Errors
/// If a recording could not be read: after all others have been checked.
pub fn run(args: &Args) -> Result<Outcome> {
    args.topics.check()?;
    let config = args.topics.config()?;
    let (mut shown, mut failed, mut worst) = (Vec::new(), Vec::new(), Verdict::Ok);
    for path in &args.bags {
        match of(path, &config, args) {
            Ok(report) => {
                worst = worst.max(report.verdict);
                match args.json {
                    true => shown.push(serde_json::to_value(&report)?),
                    false => print(&printable(&report.to_string()))?,
                }
            }
            Err(error) => {
                let problem = format!("{error:#}");
                if args.bags.len() > 1 {
                    say(format_args!("error: {}", name_first(path, &problem)));
                }
                shown.push(json!({ "path": path.display().to_string(), "error": problem }));
                failed.push(error);
            }
        }
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&shown)? + "\n"))?;
    }
    let (n, all) = (failed.len(), args.bags.len());
    match failed.pop() {
        Some(error) if all == 1 => return Err(error),
        _ => ensure!(n == 0, "{n} of {all} recordings can't be read: see above"),
    }
    Ok(if worst == Verdict::Ok { Outcome::Done } else { Outcome::Partial })
}

/// Checks one recording.
fn of(path: &Path, config: &FramesConfig, args: &Args) -> Result<CheckReport> {
    let recording = Recording::open(path, config.clone())
        .map_err(|error| args.topics.with_command(error, "check"))?;
    check(&recording, &args.topics.meshes())
        .with_context(|| format!("cannot check {}", path.display()))
}
