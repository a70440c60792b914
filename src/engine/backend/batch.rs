//! Roll-outs of many scenes side by side, on a device beside the CPU.

use super::{SideBySide, probe};
use crate::base::geometry::Vec3;
use crate::engine::model::{Mode, Model, Rollout};
use crate::engine::rollout_input::RolloutInput;
use crate::{Error, Result};

/// What a roll-out gave, step by step; keeps its memory from one to the next.
#[derive(Debug, Default, Clone)]
pub struct Steps {
    displacements: Vec<Vec<Vec3>>,
    sigmas: Vec<Vec<f32>>,
}

impl Steps {
    /// As [`Rollout::displacements`].
    pub fn displacements(&self, t: usize) -> &[Vec3] {
        &self.displacements[t]
    }

    /// As [`Rollout::sigmas`].
    pub fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.sigmas.get(t).map(Vec::as_slice)
    }

    /// Takes over the displacements of step `t` (m), `[n]`.
    pub fn set_displacements(&mut self, t: usize, of_step: &[Vec3]) {
        set(&mut self.displacements, t, of_step);
    }

    /// Takes over the sigmas of step `t` (m), `[n]`.
    pub fn set_sigmas(&mut self, t: usize, of_step: &[f32]) {
        set(&mut self.sigmas, t, of_step);
    }
}

fn set<T: Clone>(all: &mut Vec<Vec<T>>, t: usize, of_step: &[T]) {
    all.resize_with(all.len().max(t + 1), Vec::new);
    all[t].clear();
    all[t].extend_from_slice(of_step);
}

/// Rolls out scenes of the same sizes together; keeps all buffers between calls.
pub(crate) struct BatchRollout {
    device: Box<dyn SideBySide>,
    steps: Vec<Steps>,
}

/// Batches that take turns on a device.
pub(crate) trait Turns: Send {
    /// Does what is the CPU's: takes what was rolled out, and makes the next batch; whether there is one.
    ///
    /// # Errors
    /// Of what it does.
    fn advance(&mut self) -> Result<bool>;

    /// Lets the device roll out what [`Self::advance`] made.
    ///
    /// # Errors
    /// As [`SideBySide::run`].
    fn roll(&mut self, device: &mut dyn SideBySide) -> Result<()>;
}

impl BatchRollout {
    /// Scenes at once, at most.
    pub const MAX_SCENES: usize = 64;

    /// Roll-outs of `model` on the GPU with this number, tried on small scenes.
    ///
    /// # Errors
    /// [`Error::Device`] if it can't be used, or computes something else than the CPU.
    pub fn open(model: &Model, index: u16) -> Result<Self> {
        let mut opened = Self::new(super::open_cuda_side_by_side(model, index)?);
        let mut cpu = Rollout::new(model.config.rollout(), Mode::Inference);
        probe::probe_batch(model, &mut cpu, &mut opened)?;
        Ok(opened)
    }

    /// Roll-outs by `device`.
    pub fn new(device: Box<dyn SideBySide>) -> Self {
        Self { device, steps: Vec::new() }
    }

    /// Predicts so many steps of each of `scenes`, as [`Rollout::run`] does of one. Scenes have the same
    /// numbers of particles and points of the robot.
    ///
    /// # Errors
    /// As [`SideBySide::run`]; [`Error::Shape`] for more than [`Self::MAX_SCENES`].
    pub fn run(&mut self, scenes: &[(&RolloutInput, usize)]) -> Result<()> {
        if scenes.len() > Self::MAX_SCENES {
            let (expected, got) = (Self::MAX_SCENES, scenes.len());
            return Err(Error::Shape { what: "scenes of a batch", expected, got });
        }
        self.steps.resize_with(self.steps.len().max(scenes.len()), Steps::default);
        self.device.run(scenes, &mut self.steps[..scenes.len()])
    }

    /// Lets two take turns until neither has another batch: while the device rolls out one, the CPU's
    /// threads work on the other.
    ///
    /// # Errors
    /// As [`Turns::roll`] and [`Turns::advance`].
    pub fn by_turns(&mut self, [mut one, mut other]: [&mut impl Turns; 2]) -> Result<()> {
        let device = self.device.as_mut();
        let mut is_ready = one.advance()?;
        loop {
            let on_device = || if is_ready { one.roll(device) } else { Ok(()) };
            let (done, is_other_ready) = rayon::join(on_device, || other.advance());
            done?;
            let was_ready = std::mem::replace(&mut is_ready, is_other_ready?);
            if !was_ready && !is_ready {
                return Ok(());
            }
            std::mem::swap(&mut one, &mut other);
        }
    }

    /// Displacements and sigmas of each scene of the last run, and of others before it.
    pub fn scenes(&self) -> &[Steps] {
        &self.steps
    }

    /// The device, for people: `cuda:0 (Orin)`.
    pub fn name(&self) -> &str {
        self.device.name()
    }
}
