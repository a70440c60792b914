//! How long many plans take: roll-outs and costs of 64 plans of a second, and a planner's decision.
//!
//! ```sh
//! FORECLOUD_SIMD=avx2 cargo run --release --example plan_speed -- data/demo_tumble 2
//! ```
//!
//! Arguments: a recording with a robot, and threads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forecloud::candidates::{Candidate, Candidates, Snapshot};
use forecloud::config::PredictorConfig;
use forecloud::costs::{Goal, Reach, Select};
use forecloud::frames::FramesConfig;
use forecloud::instruction_set::InstructionSet;
use forecloud::message::{JointTrajectory, TrajectoryPoint};
use forecloud::model::Model;
use forecloud::planner::{PlanSettings, Planner};
use forecloud::predictor::Predictor;
use forecloud::recording::Recording;

/// Plans, and steps of each: a second.
const N_PLANS: usize = 64;
const N_STEPS: usize = 10;
/// Particles of the roll-outs.
const N_PARTICLES: usize = 512;

fn main() -> Result<()> {
    let set = InstructionSet::from_environment()?;
    let mut arguments = std::env::args().skip(1);
    let bag = arguments.next().unwrap_or_else(|| "data/demo_tumble".into());
    let n_threads: usize = arguments.next().map_or(Ok(2), |n| n.parse()).context("threads")?;
    let snapshot = snapshot(&bag)?;
    let reach = Reach::Pose { rotation: [0.0, 0.0, 0.0, 1.0], translation: [0.08, 0.0, 0.0] };
    let goal = Goal { leave_weight: 0.2, ..Goal::new(Select::Body([0.0, 0.0, 0.1]), reach) };
    let (thin, judge) = snapshot.for_plans(&goal, N_PARTICLES)?;
    let plans = plans(&snapshot)?;
    println!("{bag}: {set:?}, {n_threads} threads, {} particles", thin.n_particles());
    let mut candidates = Candidates::new(n_threads)?;
    for _ in 0..4 {
        let start = Instant::now();
        let costs = candidates.evaluate(&thin, &judge, &plans, || true)?;
        let n = costs.iter().flatten().count();
        println!("{n} plans of {N_STEPS} steps: {:.3} s", start.elapsed().as_secs_f64());
    }
    let mut planner = Planner::new(n_threads)?;
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

/// The frame in the recording's middle.
fn snapshot(bag: &str) -> Result<Snapshot> {
    let model = Model::load("models/small.safetensors".as_ref())?;
    let mut predictor = Predictor::new(model, PredictorConfig::default())?;
    let recording = Recording::open(bag.as_ref(), FramesConfig::default())?;
    let urdf = recording.robot_description()?.context("the recording has no robot")?;
    predictor.set_robot(&urdf, "world")?;
    let mut n_predicted = 0;
    let mut taken = None;
    recording.play(|frame, _| {
        if n_predicted < 20 && predictor.step(&frame)?.is_some() {
            n_predicted += 1;
            taken = Some(predictor.snapshot()?);
        }
        anyhow::Ok(())
    })?;
    taken.context("no frame was predicted")
}

/// Each moves one joint by some way.
fn plans(snapshot: &Snapshot) -> Result<Vec<Candidate>> {
    let names = snapshot.robot()?.joint_names().to_vec();
    let plan = |i: usize| {
        let joint = i % names.len();
        let from = snapshot.joints()[joint];
        let way = 0.02 * (i / names.len() + 1) as f64;
        let to = if from > 0.0 { from - way } else { from + way };
        let point = |(nanos, q): (i64, f64)| TrajectoryPoint {
            positions: vec![q],
            time_from_start_nanos: nanos,
        };
        let plan = JointTrajectory {
            joint_names: vec![names[joint].clone()],
            points: [(0, from), (1_000_000_000, to)].map(point).to_vec(),
            ..JointTrajectory::default()
        };
        Candidate { plan, n_steps: N_STEPS }
    };
    Ok((0..N_PLANS).map(plan).collect())
}
