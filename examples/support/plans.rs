//! Many plans from the frame in a recording's middle: what speeds are measured on.

use anyhow::{Context, Result};
use forecloud::engine::model::Model;
use forecloud::message::{JointTrajectory, TrajectoryPoint};
use forecloud::planner::candidates::{Candidate, Snapshot};
use forecloud::planner::costs::{Goal, Reach, Select};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

/// Steps of each plan: a second.
pub const N_STEPS: usize = 10;
/// Particles of the roll-outs.
pub const N_PARTICLES: usize = 512;

/// The goal that they are judged by.
pub fn goal() -> Goal {
    let reach = Reach::Pose { rotation: [0.0, 0.0, 0.0, 1.0], translation: [0.08, 0.0, 0.0] };
    Goal { leave_weight: 0.2, ..Goal::new(Select::Body([0.0, 0.0, 0.1]), reach) }
}

/// The frame in the middle of `bag`, with the shipped model.
pub fn snapshot(bag: &str) -> Result<Snapshot> {
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

/// `n` plans, of which each moves one joint by some way.
pub fn plans(snapshot: &Snapshot, n: usize) -> Result<Vec<Candidate>> {
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
    Ok((0..n).map(plan).collect())
}
