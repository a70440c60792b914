//! `forecloud merge`: shards of work on many recordings, made one.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use forecloud_bag::shards::Joined;
use forecloud_eval::Report;

use super::numbers::must;
use super::outcome::Outcome;
use super::say::print;
use super::{label, replay};

/// Merge the shards of `forecloud replay --shard` into the report of one replay, or check those of
/// `forecloud label --shard`.
#[derive(clap::Args)]
#[command(after_help = "\
All figures are those of one `forecloud replay` of the same recordings, to the last digit and in the order \
in which the first shard was given them; only the times are those of the shards' machines. A shard that is \
missing, duplicated, unfinished or made with other settings is named.

Exit codes:
  0  all recordings were predicted
  1  no result: shards are missing, duplicated, unfinished or of other settings, or nothing was predicted
  2  wrong arguments
  3  a partial result: recordings were skipped, or their labels are lost

Examples:
  forecloud replay --shard 1/2 --out shards push_*; forecloud replay --shard 2/2 --out shards push_*
  forecloud merge shards
  forecloud merge --json node_1 node_2 node_3 > errors.json")]
pub struct Args {
    /// Folders of the shards (their --out or --labels)
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let joined = Joined::read(&args.folders)?;
    if joined.manifest.command == "label" {
        must(!args.json, || "--json: labels have no report".into())?;
        let (text, outcome) = label::summary(&joined.outcomes, &args.folders)?;
        print(&text)?;
        return Ok(outcome);
    }
    let report = Report::of_shards(&joined)?;
    let n = joined.outcomes.len();
    ensure!(!report.bags.is_empty(), "no recording of {n} can be replayed");
    replay::print(&report, args.json)?;
    replay::outcome(&report)
}
