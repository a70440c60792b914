//! `forecloud plan`: finds a plan.

use anyhow::Result;
use forecloud::planner::{PlanSettings, Planner};
use forecloud::predict::config::PredictorConfig;
use forecloud_bag::goal_file::read_goal;
use serde_json::json;
use std::path::PathBuf;

use super::evaluate::table;
use super::numbers::{by_option, of_settings, within, wrong};
use super::outcome::Outcome;
use super::say::print;
use super::snapshot::SnapshotArgs;

/// Find a plan that reaches a goal, starting from a frame of a recording.
#[derive(clap::Args)]
#[command(after_help = "\
With --max-plans and without --budget, the same frame, goal and seed give the same plan on any number of \
threads. docs/src/reference/plans.md explains how to write goal.yaml, and what the planner can and can't see.

Exit codes:
  0  a plan is worth executing
  1  an error
  2  wrong arguments
  3  no plan is good enough; the output says why

Examples:
  forecloud plan data/demo_tumble --goal goal.yaml
  forecloud plan data/demo_tumble --goal goal.yaml --max-plans 64 --seed 3 --json")]
pub struct Args {
    /// The goal (YAML)
    #[arg(long, value_name = "FILE")]
    goal: PathBuf,
    /// Seconds to plan [default: 2; with --max-plans, as long as they take]
    #[arg(long, value_name = "SECS")]
    budget: Option<f64>,
    /// Roll out at most this many plans
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_plans: usize,
    /// Longest plan, in steps of the model, from 1 to 100
    #[arg(long, value_name = "STEPS", default_value_t = PlanSettings::default().n_steps, value_parser = within(PredictorConfig::HORIZON))]
    steps: usize,
    /// Joints that may move [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    joints: Vec<String>,
    /// Links that may touch what should be moved [default: the ends of arms]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tools: Vec<String>,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Particles per roll-out; 0 for all of the frame's
    #[arg(long, value_name = "N", default_value_t = PlanSettings::default().n_particles)]
    thin: usize,
    /// Print one JSON object that includes the plan
    #[arg(long)]
    json: bool,
    // Last: what comes after it would stand under the heading of its topics.
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
}

/// Prints what was found to stdout.
pub fn run(args: &Args) -> Result<Outcome> {
    args.snapshot.topics.check()?;
    let budget = match args.budget {
        None if args.max_plans > 0 => None,
        None => PlanSettings::default().budget,
        Some(secs) => Some(PlanSettings::budget_of(secs).map_err(|error| wrong(by_option(error)))?),
    };
    let settings = PlanSettings {
        budget,
        max_plans: args.max_plans,
        n_steps: args.steps,
        joint_names: args.joints.clone(),
        tool_links: args.tools.clone(),
        seed: args.seed,
        n_particles: args.thin,
    };
    let goal = read_goal(&args.goal)?;
    let snapshot = args.snapshot.take("plan", |robot| settings.check_names(robot))?;
    args.snapshot.tell_thin(args.thin, PlanSettings::default().n_particles, &snapshot);
    let mut planner = Planner::on(args.snapshot.device(), args.snapshot.n_threads())?;
    let planned = planner.plan(&snapshot, &goal, &settings, |_| true).map_err(of_settings)?;
    args.snapshot.tell_device(planner.candidates());
    let points = planned.plan.points.iter();
    let points: Vec<_> = points
        .map(|point| {
            let secs = point.time_from_start_nanos as f64 * 1e-9;
            json!({ "time": secs, "positions": point.positions })
        })
        .collect();
    let text = match args.json {
        true => {
            let value = json!({
                "success": planned.success,
                "message": planned.message,
                "cost": planned.cost,
                "idle": planned.idle,
                "n_steps": planned.n_steps,
                "n_plans": planned.n_plans,
                "planning_secs": planned.elapsed.as_secs_f64(),
                "plan": { "joint_names": planned.plan.joint_names, "points": points },
            });
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => format!(
            "{}\n{} plans in {:.2} s; the best (0), and standing still (1):\n{}",
            planned.message,
            planned.n_plans,
            planned.elapsed.as_secs_f64(),
            table(&[planned.cost, planned.idle])
        ),
    };
    print(&text)?;
    Ok(if planned.success { Outcome::Done } else { Outcome::Partial })
}
