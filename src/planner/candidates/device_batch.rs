//! One of the two batches of plans that take turns on a device: what the CPU's threads do of it.

use std::iter::Zip;
use std::slice::{Chunks, ChunksMut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::candidate_rollout::{Ahead, CandidateRollout};
use super::free_air::Seen;
use super::{Candidate, Snapshot};
use crate::engine::backend::{SideBySide, Steps, Turns};
use crate::engine::rollout_input::RolloutInput;
use crate::planner::costs::{Judge, PlanCost};
use crate::{Error, Result};

/// Batches that are still to begin.
pub(super) struct Queue<'a> {
    left: Zip<Chunks<'a, Candidate>, ChunksMut<'a, Option<PlanCost>>>,
    is_begun: bool,
}

impl<'a> Queue<'a> {
    /// Of all `candidates`, whose `costs` are wanted, so many at once.
    pub fn new(
        candidates: &'a [Candidate],
        costs: &'a mut [Option<PlanCost>],
        at_once: usize,
    ) -> Self {
        let left = candidates.chunks(at_once).zip(costs.chunks_mut(at_once));
        Self { left, is_begun: false }
    }

    /// The next batch, if it `goes_on`; the first one in any case.
    fn next(
        &mut self,
        goes_on: impl Fn() -> bool,
    ) -> Option<(&'a [Candidate], &'a mut [Option<PlanCost>])> {
        if self.left.len() == 0 || (self.is_begun && !goes_on()) {
            return None;
        }
        self.is_begun = true;
        self.left.next()
    }
}

/// What stays from one call to the next.
#[derive(Default)]
pub(super) struct Memory {
    steps: Vec<Steps>,
    rollers: Vec<CandidateRollout>,
}

/// What both batches see.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a, 'q> {
    pub snapshot: &'a Snapshot,
    pub judge: &'a Judge,
    pub seen: Option<&'a Seen>,
    pub queue: &'a Mutex<Queue<'q>>,
    /// Whether another batch is to begin.
    pub goes_on: &'a (dyn Fn() -> bool + Sync),
}

/// Judges one batch after the other.
pub(super) struct DeviceBatch<'a, 'q> {
    memory: &'a mut Memory,
    shared: Shared<'a, 'q>,
    /// What is rolled out, and what is once that is done.
    under_way: Vec<Plan<'q>>,
    waiting: Vec<Plan<'q>>,
    start: Option<Instant>,
    slowest: Duration,
}

/// A plan that is under way.
struct Plan<'q> {
    roller: CandidateRollout,
    ahead: Ahead,
    cost: &'q mut Option<PlanCost>,
}

impl Plan<'_> {
    fn scene(&self) -> (&RolloutInput, usize) {
        (self.roller.scene(), self.ahead.n_steps)
    }

    /// A robot that stays far outside of the workspace has no particles.
    fn has_robot(&self) -> bool {
        !self.roller.scene().start.kinematic_links.is_empty()
    }
}

impl<'a, 'q> DeviceBatch<'a, 'q> {
    pub fn new(memory: &'a mut Memory, shared: Shared<'a, 'q>) -> Self {
        let (under_way, waiting) = (Vec::new(), Vec::new());
        Self { memory, shared, under_way, waiting, start: None, slowest: Duration::ZERO }
    }

    /// Longest time that a batch took.
    pub fn slowest(&self) -> Duration {
        self.slowest
    }

    /// Begins the next batch, with what has the same sizes; whether there was one.
    fn begin(&mut self) -> Result<bool> {
        if !self.waiting.is_empty() {
            self.under_way = std::mem::take(&mut self.waiting);
            return Ok(true);
        }
        self.take_next()
    }

    /// Takes the next batch of the queue, and leads the robot along its plans; whether there was one.
    fn take_next(&mut self) -> Result<bool> {
        let Shared { snapshot, seen, queue, goes_on, .. } = self.shared;
        if let Some(start) = self.start.take() {
            self.slowest = self.slowest.max(start.elapsed());
        }
        let start = Instant::now();
        let next = queue.lock().ok().and_then(|mut queue| queue.next(goes_on));
        let Some((candidates, costs)) = next else { return Ok(false) };
        self.start = Some(start);
        let rollers = &mut self.memory.rollers;
        rollers.resize_with(rollers.len().max(candidates.len()), CandidateRollout::default);
        let rollers: Vec<CandidateRollout> = rollers.drain(..candidates.len()).collect();
        let plans = candidates.par_iter().zip(costs).zip(rollers);
        let plans = plans.map(|((candidate, cost), mut roller)| {
            roller.start(snapshot)?;
            let ahead = roller.lead_to(snapshot, candidate, seen)?;
            Ok(Plan { roller, ahead, cost })
        });
        let plans = plans.collect::<Result<Vec<_>>>()?;
        // Scenes of a batch have the same sizes.
        (self.under_way, self.waiting) = plans.into_iter().partition(Plan::has_robot);
        if self.under_way.is_empty() {
            self.under_way = std::mem::take(&mut self.waiting);
        }
        Ok(true)
    }

    /// Judges what has been rolled out.
    fn judge(&mut self) -> Result<()> {
        let Shared { snapshot, judge, .. } = self.shared;
        let rolled = self.under_way.par_iter_mut().zip(&self.memory.steps);
        rolled.try_for_each(|(plan, steps)| {
            let displacements = |t| steps.displacements(t);
            let sigmas = |t| steps.sigmas(t);
            let told = plan.roller.judge(snapshot, judge, &plan.ahead, displacements, sigmas)?;
            *plan.cost = Some(told);
            Ok::<(), Error>(())
        })?;
        self.memory.rollers.extend(self.under_way.drain(..).map(|plan| plan.roller));
        Ok(())
    }
}

impl Turns for DeviceBatch<'_, '_> {
    fn advance(&mut self) -> Result<bool> {
        if !self.under_way.is_empty() {
            self.judge()?;
        }
        self.begin()
    }

    fn roll(&mut self, device: &mut dyn SideBySide) -> Result<()> {
        let scenes: Vec<_> = self.under_way.iter().map(Plan::scene).collect();
        let steps = &mut self.memory.steps;
        steps.resize_with(steps.len().max(scenes.len()), Steps::default);
        device.run(&scenes, &mut steps[..scenes.len()])
    }
}
