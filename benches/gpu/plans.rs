//! Many plans at once: against the CPU's costs, and timed.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use forecloud::engine::backend::cuda::{Gpu, Precision, Rollout};
use forecloud::engine::backend::{Device, SideBySide, Steps};
use forecloud::engine::model::Model;
use forecloud::planner::candidates::Candidates;

use super::demo::Demo;
use super::{Table, larger, percentiles, row};

#[path = "../../examples/support/plans.rs"]
mod demo_plans;
use demo_plans::{N_PARTICLES, N_STEPS, goal, plans, snapshot};

/// Plans that are judged, and those of a batch.
const N_PLANS: usize = 256;
const BATCH: usize = 64;
/// Largest difference of a cost from the CPU's, as a share of the largest cost.
const TOLERANCE: f64 = 1e-3;
/// Plans that the CPU judges, too.
const N_CHECKED: usize = 32;

/// A batch's roll-out on the device, with copies; and costs of all plans, with the CPU's part in them.
pub fn compare(
    gpu: &Arc<Gpu>,
    demo: &Demo,
    n_runs: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    time_batch(gpu, demo, n_runs, table)?;
    let snapshot = snapshot("data/demo_tumble")?;
    let (thin, judge) = snapshot.for_plans(&goal(), N_PARTICLES)?;
    let all = plans(&snapshot, N_PLANS)?;
    let expected = Candidates::new(0)?.evaluate(&thin, &judge, &all[..N_CHECKED], || true)?;
    let mut candidates = Candidates::on(Device::Cuda(0), 0)?;
    let mut times = Vec::new();
    for _ in 0..n_runs.clamp(2, 20) {
        let start = Instant::now();
        let got = candidates.evaluate(&thin, &judge, &all, || true)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let pairs = expected.iter().flatten().zip(got.iter().flatten());
        let off = pairs.clone().map(|(a, b)| (a.cost - b.cost).abs());
        let most = expected.iter().flatten().map(|cost| cost.cost).fold(0.0, f64::max);
        let off = off.fold(0.0, larger) / most;
        ensure!(
            off <= TOLERANCE && pairs.count() == N_CHECKED && got.iter().all(Option::is_some),
            "plans cost something else than on the CPU: off by {off:e} of the largest cost"
        );
    }
    // The first one opens the device.
    times.remove(0);
    let what = format!(
        "costs of {N_PLANS} plans of {N_STEPS} steps, {} particles, all of the CPU's threads, p50 / p99",
        thin.n_particles()
    );
    row(table, what, percentiles(&mut times));
    Ok(())
}

/// Roll-outs of a batch of scenes of the plans' sizes, from scenes on the host to displacements there.
fn time_batch(gpu: &Arc<Gpu>, demo: &Demo, n_runs: usize, table: &mut Table) -> anyhow::Result<()> {
    let model = Model::load("models/small.safetensors".as_ref())?;
    let config = model.config.rollout();
    let n_tokens = 3 * N_PARTICLES / 2 + 3 * model.config.n_kinematic;
    let scene = demo.scene(n_tokens, &model.config, model.config.reach(N_STEPS))?;
    let mut all = vec![scene; BATCH];
    for (i, scene) in all.iter_mut().enumerate() {
        scene.start.velocities.iter_mut().for_each(|v| v[0] = 1e-4 * i as f32);
    }
    let all: Vec<_> = all.iter().map(|scene| (scene, N_STEPS)).collect();
    let mut rollout = Rollout::new(gpu.clone(), config, &model.weights, Precision::Half)?;
    let mut together = vec![Steps::default(); BATCH];
    SideBySide::run(&mut rollout, &all, &mut together)?;
    for i in [0, BATCH / 2, BATCH - 1] {
        let mut alone = [Steps::default()];
        SideBySide::run(&mut rollout, &all[i..=i], &mut alone)?;
        let is_alike = |t| alone[0].displacements(t) == together[i].displacements(t);
        ensure!((0..N_STEPS).all(is_alike), "scene {i} of a batch moves otherwise than alone");
    }
    let mut times = Vec::new();
    for _ in 0..n_runs {
        let start = Instant::now();
        SideBySide::run(&mut rollout, &all, &mut together)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let what = format!(
        "{BATCH} plans of {N_STEPS} steps, {n_tokens} tokens each, from scenes to displacements, p50 / p99"
    );
    row(table, what, percentiles(&mut times));
    Ok(())
}
