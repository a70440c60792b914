//! Many plans at once on a GPU: the CPU's threads place the robot and judge what comes, and the device rolls out
//! all plans of a batch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::device_batch::{DeviceBatch, Memory, Queue, Shared};
use super::free_air::Seen;
use super::{Candidate, Snapshot};
use crate::engine::backend::{BatchRollout, Device};
use crate::engine::model::Model;
use crate::planner::costs::{Judge, PlanCost};
use crate::{Error, Result};

/// Tokens of a batch at most: as many as fill a large GPU.
const TOKENS_AT_ONCE: usize = 1 << 17;

/// Judges plans on a device beside the CPU, for as long as it can be used.
#[derive(Default)]
pub(super) struct OnDevice {
    device: Device,
    opened: Option<Opened>,
    slowest: Duration,
    /// Why `auto` takes the CPU.
    fallback: Option<String>,
}

/// Roll-outs of the model of the last snapshot.
struct Opened {
    model: Arc<Model>,
    rollout: BatchRollout,
    /// Of the two batches that take turns.
    memory: [Memory; 2],
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
    pub fn set_opened(
        &mut self,
        model: &Arc<Model>,
        device: Box<dyn crate::engine::backend::SideBySide>,
    ) {
        let rollout = BatchRollout::new(device);
        self.opened = Some(Opened::new(model, rollout));
    }

    /// What it runs on, and why that is the CPU where a GPU was tried.
    pub fn describe(&self) -> String {
        match (&self.opened, &self.fallback) {
            (Some(opened), _) => opened.rollout.name().to_owned(),
            (None, Some(fallback)) => format!("cpu ({fallback})"),
            (None, None) => Device::Cpu.to_string(),
        }
    }

    /// Opens the device for `model` now, if there is one.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU that was asked for can't be used.
    pub fn open(&mut self, model: &Arc<Model>) -> Result<()> {
        if self.device == Device::Cpu || self.fallback.is_some() {
            return Ok(());
        }
        match open(&mut self.opened, self.device, model) {
            Ok(_) => Ok(()),
            Err(error) => self.give_up::<()>(error).map(|_| ()),
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
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Option<PlanCost>>>> {
        if self.device == Device::Cpu || self.fallback.is_some() {
            return Ok(None);
        }
        let Opened { rollout, memory, .. } =
            match open(&mut self.opened, self.device, &snapshot.model) {
                Ok(opened) => opened,
                Err(error) => return self.give_up(error),
            };
        let at_once =
            (TOKENS_AT_ONCE / snapshot.n_tokens().max(1)).clamp(1, BatchRollout::MAX_SCENES);
        let mut costs = vec![None; candidates.len()];
        let queue = Mutex::new(Queue::new(candidates, &mut costs, at_once));
        let mut lanes = memory.each_mut().map(|memory| {
            DeviceBatch::new(memory, Shared { snapshot, judge, seen, queue: &queue, goes_on })
        });
        let done = rollout.by_turns(lanes.each_mut());
        let [one, other] = lanes.map(|lane| lane.slowest());
        match done {
            Ok(()) => {}
            Err(error @ Error::Device { .. }) => return self.give_up(error),
            Err(error) => return Err(error),
        }
        self.slowest = one.max(other);
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

impl Opened {
    fn new(model: &Arc<Model>, rollout: BatchRollout) -> Self {
        Self { model: model.clone(), rollout, memory: Default::default() }
    }
}

/// What is `opened`, or opened now, with `model`.
fn open<'a>(
    opened: &'a mut Option<Opened>,
    device: Device,
    model: &Arc<Model>,
) -> Result<&'a mut Opened> {
    let index = match device {
        Device::Cuda(index) => index,
        Device::Auto | Device::Cpu => 0,
    };
    if !opened.as_ref().is_some_and(|known| Arc::ptr_eq(&known.model, model)) {
        // The old one's memory goes first.
        *opened = None;
    }
    match opened {
        Some(known) => Ok(known),
        None => Ok(opened.insert(Opened::new(model, BatchRollout::open(model, index)?))),
    }
}
