//! How long many plans take: roll-outs and costs of 64 plans of a second, and a planner's decision.
//!
//! ```sh
//! FORECLOUD_SIMD=avx2 cargo run --release --example plan_speed -- data/demo_tumble 2
//! ```
//!
//! Arguments: a recording with a robot, threads, and the device (`cpu`, `cuda`, `auto`; the CPU unless said).

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forecloud::base::instruction_set::InstructionSet;
use forecloud::engine::backend::Device;
use forecloud::planner::{PlanSettings, Planner};

#[path = "support/plans.rs"]
mod plans;

/// Plans that are judged together.
const N_PLANS: usize = 64;

fn main() -> Result<()> {
    let set = InstructionSet::from_environment()?;
    let mut arguments = std::env::args().skip(1);
    let bag = arguments.next().unwrap_or_else(|| "data/demo_tumble".into());
    let n_threads: usize = arguments.next().map_or(Ok(2), |n| n.parse()).context("threads")?;
    let device: Device = arguments.next().map_or(Ok(Device::Cpu), |device| device.parse())?;
    let snapshot = plans::snapshot(&bag)?;
    let goal = plans::goal();
    let (thin, judge) = snapshot.for_plans(&goal, plans::N_PARTICLES)?;
    let all = plans::plans(&snapshot, N_PLANS)?;
    println!("{bag}: {set:?}, {n_threads} threads, {} particles", thin.n_particles());
    let mut planner = Planner::on(device, n_threads)?;
    for _ in 0..4 {
        let start = Instant::now();
        let costs = planner.candidates().evaluate(&thin, &judge, &all, || true)?;
        let n = costs.iter().flatten().count();
        let (secs, device) = (start.elapsed().as_secs_f64(), planner.device());
        println!("{n} plans of {} steps on {device}: {secs:.3} s", plans::N_STEPS);
    }
    for seed in 0..3 {
        let settings =
            PlanSettings { budget: Some(Duration::from_secs(2)), seed, ..PlanSettings::default() };
        let planned = planner.plan(&snapshot, &goal, &settings, |_| true)?;
        println!(
            "decision: {} plans in {:.2} s: {}",
            planned.n_plans,
            planned.elapsed.as_secs_f64(),
            planned.message
        );
    }
    Ok(())
}
