//! `forecloud merge`: shards of work on many recordings, made one.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use forecloud_bag::shards::Joined;
use forecloud_eval::Report;

use super::outcome::Outcome;
use super::{label, replay};

/// Join the shards of `forecloud replay --shard`: the report that one replay of all recordings prints;
/// or check those of `forecloud label --shard`.
#[derive(clap::Args)]
#[command(after_help = "\
All figures are those of one `forecloud replay` of the same recordings, to the last digit, in the order in
which the first shard was told them; only the time that predictions took is that of the shards' machines.
A shard that is missing, there twice, not finished, or made with other settings is named.

Exit codes:
  0  all recordings were predicted
  1  no result: shards are missing, twice, unfinished or of other settings, or nothing was predicted
  2  wrong arguments
  3  a result, but not of all: recordings were skipped

Examples:
  forecloud replay --shard 1/2 --out shards push_*; forecloud replay --shard 2/2 --out shards push_*
  forecloud merge shards
  forecloud merge --json node_1 node_2 node_3 > errors.json")]
pub struct Args {
    /// Folders that shards were written to (--out)
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
        ensure!(!args.json, "--json: labels have no report");
        let (text, outcome) = label::summary(&joined.outcomes)?;
        replay::write(&text)?;
        return Ok(outcome);
    }
    let report = Report::of_shards(&joined)?;
    let n = joined.outcomes.len();
    ensure!(!report.bags.is_empty(), "none of the {n} recordings can be replayed");
    replay::print(&report, args.json)?;
    replay::outcome(&report)
}
