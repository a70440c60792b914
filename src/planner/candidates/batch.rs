//! Many plans at once: on the CPU one roll-out a thread, each thread on a plan of its own, so that the
//! results are those of [`Candidates::predict`] to the bit, on any number of threads; on a GPU all
//! together (`on_device`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::free_air::surroundings;
use super::{Candidates, Snapshot};
use crate::message::JointTrajectory;
use crate::planner::costs::{Judge, PlanCost};
use crate::predict::config::PredictorConfig;
use crate::robot::plan::with_candidate;
use crate::{Error, Result};

/// A plan, and how long it is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The plan.
    pub plan: JointTrajectory,
    /// Steps from the frame on.
    pub n_steps: usize,
}

impl Candidates {
    /// What each of `candidates` costs, in their order; `None` of those that were not begun before
    /// `goes_on` became false. The first is always looked at.
    ///
    /// Where a scene rests, steps in which the robot moves through free air are not rolled out, but for
    /// as many as a pass of the model has, at the end: nothing moves in them.
    ///
    /// On a GPU ([`Candidates::on`]) plans are begun 64 together, two such batches by turns, and costs
    /// differ from the CPU's by what its arithmetic does.
    ///
    /// # Errors
    /// As [`Snapshot::robot`]; [`Error::Plan`] names the first candidate that can't be followed or goes
    /// beyond the robot's limits, [`Error::Config`] for a number of steps that a prediction can't have,
    /// [`Error::Device`] if a GPU that was asked for can't be used.
    pub fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        candidates: &[Candidate],
        goes_on: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Option<PlanCost>>> {
        self.threads.install(|| check(snapshot, candidates))?;
        let seen = &surroundings(snapshot);
        let (threads, on_device) = (&self.threads, &mut self.on_device);
        let of_device = threads
            .install(|| on_device.costs(snapshot, judge, candidates, seen.as_ref(), &goes_on))?;
        if let Some(costs) = of_device {
            self.slowest = on_device.slowest();
            return Ok(costs);
        }
        let slowest = Mutex::new(Duration::ZERO);
        let next = AtomicUsize::new(0);
        let costs: Vec<Mutex<Option<Result<PlanCost>>>> =
            candidates.iter().map(|_| Mutex::new(None)).collect();
        let n_workers = candidates.len().min(self.workers.len());
        std::thread::scope(|scope| {
            for (pool, roller) in &mut self.workers[..n_workers] {
                let (next, costs, goes_on, slowest) = (&next, &costs, &goes_on, &slowest);
                let work = move || {
                    let mut is_ready = false;
                    loop {
                        let start = Instant::now();
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(candidate) = candidates.get(i).filter(|_| i == 0 || goes_on())
                        else {
                            return;
                        };
                        let outcome = match is_ready {
                            true => Ok(()),
                            false => roller.start(snapshot),
                        };
                        is_ready = true;
                        let outcome = outcome
                            .and_then(|()| roller.cost(snapshot, judge, candidate, seen.as_ref()));
                        if let Ok(mut cost) = costs[i].lock() {
                            *cost = Some(outcome);
                        }
                        if let Ok(mut slowest) = slowest.lock() {
                            *slowest = slowest.max(start.elapsed());
                        }
                    }
                };
                scope.spawn(move || pool.install(work));
            }
        });
        self.slowest = slowest.into_inner().unwrap_or_default();
        let cost = |(i, cost): (usize, Mutex<Option<Result<PlanCost>>>)| {
            let cost = cost.into_inner().unwrap_or_default().transpose();
            cost.map_err(|error| of_plan(i, error))
        };
        costs.into_iter().enumerate().map(cost).collect()
    }
}

/// Refuses what can't be followed before anything is rolled out.
fn check(snapshot: &Snapshot, candidates: &[Candidate]) -> Result<()> {
    let (robot, forecast) = (snapshot.robot()?, &snapshot.robot_forecast);
    let check = |(i, Candidate { plan, n_steps }): (usize, &Candidate)| {
        let horizon = *n_steps;
        PredictorConfig { horizon, ..PredictorConfig::default() }.validate()?;
        let asked = snapshot.model.config.steps(horizon);
        with_candidate(&forecast.plan, plan.clone(), &forecast.present(robot), &asked)
            .map_err(|error| of_plan(i, error))?;
        Ok(())
    };
    let checked: Vec<Result<()>> = candidates.par_iter().enumerate().map(check).collect();
    // Of several that can't, the first.
    checked.into_iter().collect()
}

fn of_plan(i: usize, error: Error) -> Error {
    match error {
        Error::Plan { problem } => Error::Plan { problem: format!("plan {i}: {problem}") },
        other => other,
    }
}
