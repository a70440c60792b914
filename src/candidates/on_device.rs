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

/// Tokens of a batch at most: as many as fill a large GPU, and make 150 MB of the host's memory with the
/// shipped model.
const TOKENS_AT_ONCE: usize = 1 << 17;

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
        // Without GPUs in this build there is nothing to miss.
        let device = match device {
            Device::Auto if !cfg!(feature = "cuda") => Device::Cpu,
            device => device,
        };
        Self { device, ..Self::default() }
    }

    #[cfg(test)]
    pub fn set_opened(&mut self, model: &Arc<Model>, forward: Box<dyn crate::backend::Forwards>) {
        let rollout = BatchRollout::new(model.config.rollout(), forward);
        self.opened = Some((model.clone(), rollout));
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
        let rollout = match open(&mut self.opened, self.device, &snapshot.model) {
            Ok(rollout) => rollout,
            Err(error) => return self.give_up(error),
        };
        let n_tokens = snapshot.n_tokens();
        let at_once = (TOKENS_AT_ONCE / n_tokens.max(1)).clamp(1, BatchRollout::MAX_SCENES);
        let mut costs = Vec::with_capacity(candidates.len());
        self.slowest = Duration::ZERO;
        for batch in candidates.chunks(at_once) {
            let start = Instant::now();
            if !costs.is_empty() && !goes_on() {
                break;
            }
            match batch_costs(rollout, &mut self.rollers, snapshot, judge, batch, seen) {
                Ok(of_batch) => costs.extend(of_batch),
                Err(error @ Error::Device { .. }) => return self.give_up(error),
                Err(error) => return Err(error),
            }
            self.slowest = self.slowest.max(start.elapsed());
        }
        costs.resize(candidates.len(), None);
        Ok(Some(costs))
    }

    /// Leaves it to the CPU from now on, as `auto` does.
    fn give_up<T>(&mut self, error: Error) -> Result<Option<T>> {
        self.opened = None;
        if self.device != Device::Auto {
            return Err(error);
        }
        self.fallback = Some(error.to_string());
        Ok(None)
    }
}

/// What each of `batch` costs, rolled out together as far as their scenes are of the same sizes: a robot
/// that stays far outside of the workspace has no particles.
fn batch_costs(
    rollout: &mut BatchRollout,
    rollers: &mut Vec<Roller>,
    snapshot: &Snapshot,
    judge: &Judge,
    batch: &[Candidate],
    seen: Option<&Seen>,
) -> Result<Vec<Option<PlanCost>>> {
    rollers.resize_with(rollers.len().max(batch.len()), Roller::default);
    let rollers = &mut rollers[..batch.len()];
    let ahead = rollers.par_iter_mut().zip(batch).map(|(roller, candidate)| {
        roller.start(snapshot)?;
        roller.lead_to(snapshot, candidate, seen)
    });
    let ahead = ahead.collect::<Result<Vec<_>>>()?;
    let has_robot = |roller: &Roller| !roller.scene().start.kinematic_links.is_empty();
    let mut costs = vec![None; batch.len()];
    for is_there in [true, false] {
        let members = rollers.iter_mut().zip(&ahead).zip(&mut costs);
        let mut members: Vec<_> =
            members.filter(|((roller, _), _)| has_robot(roller) == is_there).collect();
        let scenes = members.iter().map(|((roller, ahead), _)| (roller.scene(), ahead.n_steps));
        rollout.run(&scenes.collect::<Vec<(&Scene, usize)>>())?;
        let rolled = members.par_iter_mut().zip(rollout.scenes());
        rolled.try_for_each(|(((roller, ahead), cost), steps)| {
            let displacements = |t| steps.displacements(t);
            let told = roller.judge(snapshot, judge, ahead, displacements, |t| steps.sigmas(t))?;
            **cost = Some(told);
            Ok::<(), Error>(())
        })?;
    }
    Ok(costs)
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
