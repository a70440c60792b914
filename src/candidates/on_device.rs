//! Many plans at once on a GPU: the CPU's threads place the robot, make the tokens and judge what comes,
//! and the model's part is one run of the device for all plans of a batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::free::Seen;
use super::roller::Roller;
use super::{Candidate, Snapshot};
use crate::backend::{BatchRollout, Device};
use crate::costs::{Judge, PlanCost};
use crate::model::Model;
use crate::scene::Scene;
use crate::{Error, Result};

/// Judges plans on a device beside the CPU, for as long as it can be used.
#[derive(Default)]
pub(super) struct OnDevice {
    device: Device,
    /// Roll-outs of the model of the last snapshot.
    opened: Option<(Arc<Model>, BatchRollout)>,
    rollers: Vec<Roller>,
    slowest: Duration,
    /// Why `auto` takes the CPU.
    fallback: Option<String>,
}

impl OnDevice {
    pub fn new(device: Device) -> Self {
        Self { device, ..Self::default() }
    }

    /// What it runs on, and why that is the CPU where a GPU was tried.
    pub fn describe(&self) -> String {
        match (&self.opened, &self.fallback) {
            (Some((_, opened)), _) => opened.name().to_owned(),
            (None, Some(fallback)) => format!("cpu ({fallback})"),
            (None, None) => Device::Cpu.to_string(),
        }
    }

    /// Longest time that a batch of the last [`OnDevice::costs`] took.
    pub fn slowest(&self) -> Duration {
        self.slowest
    }

    /// What each of `candidates` costs, as [`super::Candidates::evaluate`] has it; `None` where that is the
    /// CPU's to find out.
    ///
    /// # Errors
    /// As there, and [`Error::Device`] if a GPU that was asked for can't be used.
    pub fn costs(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        candidates: &[Candidate],
        seen: Option<&Seen>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Vec<Option<PlanCost>>>> {
        if self.device == Device::Cpu || self.fallback.is_some() {
            return Ok(None);
        }
        match self.batches(snapshot, judge, candidates, seen, goes_on) {
            Err(error @ Error::Device { .. }) if self.device == Device::Auto => {
                self.fallback = Some(error.to_string());
                self.opened = None;
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    fn batches(
        &mut self,
        snapshot: &Snapshot,
        judge: &Judge,
        candidates: &[Candidate],
        seen: Option<&Seen>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Vec<Option<PlanCost>>> {
        let rollout = open(&mut self.opened, self.device, &snapshot.model)?;
        let mut costs = Vec::with_capacity(candidates.len());
        self.slowest = Duration::ZERO;
        for batch in candidates.chunks(BatchRollout::MAX_SCENES) {
            let start = Instant::now();
            if !costs.is_empty() && !goes_on() {
                break;
            }
            self.rollers.resize_with(self.rollers.len().max(batch.len()), Roller::default);
            let rollers = &mut self.rollers[..batch.len()];
            let ahead = rollers.par_iter_mut().zip(batch).map(|(roller, candidate)| {
                roller.start(snapshot)?;
                roller.lead_to(snapshot, candidate, seen)
            });
            let ahead = ahead.collect::<Result<Vec<_>>>()?;
            let scenes = rollers.iter().zip(&ahead);
            let scenes: Vec<(&Scene, usize)> =
                scenes.map(|(roller, ahead)| (roller.scene(), ahead.n_steps)).collect();
            rollout.run(&scenes)?;
            let rolled = rollers.par_iter_mut().zip(&ahead).zip(rollout.scenes());
            let judged = rolled.map(|((roller, ahead), steps)| {
                let displacements = |t| steps.displacements(t);
                roller.judge(snapshot, judge, ahead, displacements, |t| steps.sigmas(t))
            });
            for cost in judged.collect::<Vec<_>>() {
                costs.push(Some(cost?));
            }
            self.slowest = self.slowest.max(start.elapsed());
        }
        costs.resize(candidates.len(), None);
        Ok(costs)
    }
}

/// What is `opened`, or opened now, with `model`.
fn open<'a>(
    opened: &'a mut Option<(Arc<Model>, BatchRollout)>,
    device: Device,
    model: &Arc<Model>,
) -> Result<&'a mut BatchRollout> {
    let index = match device {
        Device::Cuda(index) => index,
        Device::Auto | Device::Cpu => 0,
    };
    if !opened.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, model)) {
        // The old one's memory goes first.
        *opened = None;
    }
    match opened {
        Some((_, rollout)) => Ok(rollout),
        None => Ok(&mut opened.insert((model.clone(), BatchRollout::open(model, index)?)).1),
    }
}
