//! `forecloud evaluate`: what plans would cost.

use anyhow::{Result, ensure};
use forecloud::planner::candidates::{Candidate, Candidates, PLAN_PARTICLES};
use forecloud::planner::costs::PlanCost;
use forecloud::predict::config::PredictorConfig;
use forecloud_bag::goal_file::read_goal;
use forecloud_bag::plans_file::read_plans;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::numbers::within;
use super::say::print;
use super::snapshot::SnapshotArgs;

/// Score plans against a goal, starting from a frame of a recording.
#[derive(clap::Args)]
#[command(after_help = "\
Costs are those of the node's ~/evaluate, to the bit if both run on the CPU. docs/src/reference/plans.md \
explains each term, and how to write goal.yaml and plans.yaml.

Exit codes:
  0  all plans were scored
  1  an error
  2  wrong arguments

Examples:
  forecloud evaluate data/demo_tumble --goal goal.yaml --plans plans.yaml
  forecloud evaluate data/demo_tumble --at 1.5 --steps 10 --goal goal.yaml --plans plans.yaml --json")]
pub struct Args {
    /// The goal (YAML)
    #[arg(long, value_name = "FILE")]
    goal: PathBuf,
    /// The plans (YAML)
    #[arg(long, value_name = "FILE")]
    plans: PathBuf,
    /// Steps per roll-out, from 1 to 100
    #[arg(long, value_name = "STEPS", default_value_t = 10, value_parser = within(PredictorConfig::HORIZON))]
    steps: usize,
    /// Particles per roll-out; 0 for all of the frame's
    #[arg(long, value_name = "N", default_value_t = PLAN_PARTICLES)]
    thin: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    // Last: what comes after it would stand under the heading of its topics.
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
}

/// Prints the costs to stdout.
pub fn run(args: &Args) -> Result<()> {
    args.snapshot.topics.check()?;
    let goal = read_goal(&args.goal)?;
    let plans = read_plans(&args.plans)?;
    ensure!(!plans.is_empty(), "{} has no plans", args.plans.display());
    let snapshot = args.snapshot.take("evaluate", |_| Ok(()))?;
    args.snapshot.tell_thin(args.thin, PLAN_PARTICLES, &snapshot);
    let (snapshot, judge) = snapshot.for_plans(&goal, args.thin)?;
    let candidates: Vec<Candidate> =
        plans.into_iter().map(|plan| Candidate { plan, n_steps: args.steps }).collect();
    let mut roller = Candidates::on(args.snapshot.device(), args.snapshot.n_threads())?;
    let costs = roller.evaluate(&snapshot, &judge, &candidates, || true)?;
    args.snapshot.tell_device(&roller);
    let costs: Vec<PlanCost> = costs.into_iter().flatten().collect();
    let best = (0..costs.len()).min_by(|&a, &b| costs[a].cost.total_cmp(&costs[b].cost));
    let text = match args.json {
        true => {
            let value = json!({
                "stamp": snapshot.stamp().to_string(),
                "n_particles": snapshot.n_particles(),
                "n_target": judge.target().len(),
                "reach_now": judge.reach_now(),
                "is_reached": judge.is_reached(),
                "best": best,
                "costs": costs,
            });
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => {
            let mut text = format!(
                "frame of {} s: {} of {} particles are the target, {:.1} mm from the goal{}\n",
                snapshot.stamp(),
                judge.target().len(),
                snapshot.n_particles(),
                judge.reach_now() * 1e3,
                if judge.is_reached() { ": already reached" } else { "" }
            );
            text += &table(&costs);
            if let Some(best) = best {
                writeln!(text, "best: plan {best}")?;
            }
            text
        }
    };
    print(&text)
}

/// Costs as a table.
pub(super) fn table(costs: &[PlanCost]) -> String {
    let mut text = String::from(
        "plan      cost  +-90 %     reach  keep_out     leave clearance  success    length\n",
    );
    for (i, c) in costs.iter().enumerate() {
        let _ = writeln!(
            text,
            "{i:4} {:9.4} {:7.4} {:9.4} {:9.4} {:9.4} {:9.4} {:8.2} {:9.3}",
            c.cost,
            c.cost_90,
            c.reach,
            c.keep_out,
            c.leave,
            c.clearance,
            c.success_probability,
            c.length
        );
    }
    text
}
