//! Roll-outs of many scenes side by side, on a device beside the CPU: what scenes have of their own is
//! made by the CPU's threads, the model's part is one run of the device for all.

use rayon::prelude::*;

use super::{Forwards, probe};
use crate::engine::model::rollout::{Passes, RolloutConfig};
use crate::engine::model::{Mode, Model, Rollout};
use crate::engine::rollout_input::RolloutInput;
use crate::{Error, Result};

/// Rolls out scenes of the same sizes together; keeps all buffers between calls.
pub(crate) struct BatchRollout {
    batch: Batch,
    forward: Box<dyn Forwards>,
}

/// The CPU's part in roll-outs of scenes of the same sizes.
pub(crate) struct Batch {
    config: RolloutConfig,
    /// Of each scene.
    passes: Vec<Passes>,
    /// Passes that each scene of the roll-out under way has.
    n_passes: Vec<usize>,
    /// The pass that is next, or on the device.
    index: usize,
}

/// Batches that go through the device pass by pass.
pub(crate) trait Turns: Send {
    /// Does what is the CPU's between two passes, as [`Batch::advance`]; whether there is another pass.
    ///
    /// # Errors
    /// Of what it does.
    fn advance(&mut self) -> Result<bool>;

    /// What is under way.
    fn batch(&mut self) -> &mut Batch;
}

impl BatchRollout {
    /// Scenes at once, at most.
    pub const MAX_SCENES: usize = 64;

    /// Roll-outs of `model` on the GPU with this number, tried on small scenes.
    ///
    /// # Errors
    /// [`Error::Device`] if it can't be used, or computes something else than the CPU.
    pub fn open(model: &Model, index: u16) -> Result<Self> {
        let mut opened = Self::new(model.config.rollout(), super::open_cuda_forward(model, index)?);
        let mut cpu = Rollout::new(model.config.rollout(), Mode::Inference);
        probe::probe_batch(model, &mut cpu, &mut opened)?;
        Ok(opened)
    }

    /// Roll-outs by `forward`, which is of a model of `config`.
    pub fn new(config: RolloutConfig, forward: Box<dyn Forwards>) -> Self {
        Self { batch: Batch::new(config), forward }
    }

    /// Predicts so many steps of each of `scenes`, as [`Rollout::run`] does of one. Scenes have the same
    /// numbers of particles and points of the robot.
    ///
    /// # Errors
    /// As there, of a scene that has one, and as [`Forwards::run`]; [`Error::Shape`] for more
    /// than [`Self::MAX_SCENES`].
    pub fn run(&mut self, scenes: &[(&RolloutInput, usize)]) -> Result<()> {
        self.batch.begin(scenes)?;
        while self.batch.advance(scenes)? {
            self.batch.forward(self.forward.as_mut())?;
        }
        Ok(())
    }

    /// Lets two take turns until neither has another pass: while the device has a pass of one, the CPU's
    /// threads work on the other.
    ///
    /// # Errors
    /// As [`Forwards::run`] and [`Turns::advance`].
    pub fn by_turns(&mut self, [mut one, mut other]: [&mut impl Turns; 2]) -> Result<()> {
        let forward = self.forward.as_mut();
        let mut is_ready = one.advance()?;
        loop {
            let on_device = || if is_ready { one.batch().forward(forward) } else { Ok(()) };
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
    pub fn scenes(&self) -> &[Passes] {
        self.batch.scenes()
    }

    /// The device, for people: `cuda:0 (Orin)`.
    pub fn name(&self) -> &str {
        self.forward.name()
    }
}

impl Batch {
    /// Of scenes of models of `config`.
    pub fn new(config: RolloutConfig) -> Self {
        Self { config, passes: Vec::new(), n_passes: Vec::new(), index: 0 }
    }

    /// Begins a roll-out of so many steps of each of `scenes`; then comes [`Self::advance`], and
    /// [`Self::forward`] wherever that says so.
    ///
    /// # Errors
    /// As [`Passes::begin`]; [`Error::Shape`] for more than [`BatchRollout::MAX_SCENES`].
    pub fn begin(&mut self, scenes: &[(&RolloutInput, usize)]) -> Result<()> {
        if scenes.len() > BatchRollout::MAX_SCENES {
            let (expected, got) = (BatchRollout::MAX_SCENES, scenes.len());
            return Err(Error::Shape { what: "scenes of a batch", expected, got });
        }
        let n_known = self.passes.len().max(scenes.len());
        self.passes.resize_with(n_known, || Passes::new(self.config));
        self.index = 0;
        self.n_passes.clear();
        for (passes, &(scene, n_steps)) in self.passes.iter_mut().zip(scenes) {
            self.n_passes.push(passes.begin(scene, n_steps)?);
        }
        Ok(())
    }

    /// Reads what the device made of the last pass, if there was one, and makes the tokens of the next;
    /// whether there is one. `scenes`: as [`Self::begin`] was told.
    ///
    /// # Errors
    /// As [`Passes::encode`] and [`Passes::read`].
    pub fn advance(&mut self, scenes: &[(&RolloutInput, usize)]) -> Result<bool> {
        let index = self.index;
        let all = self.passes.par_iter_mut().zip(&self.n_passes).zip(scenes);
        all.try_for_each(|((passes, &n_passes), (scene, _))| {
            if (1..=n_passes).contains(&index) {
                passes.read(index - 1)?;
            }
            if n_passes > index {
                if index > 0 {
                    // A pass's tokens are the largest of what it has, and are not needed any more.
                    passes.hand_tokens_on(index - 1, index);
                }
                passes.encode(scene, index)?;
            } else if n_passes == index && index > 1 {
                // The next run begins with it.
                passes.hand_tokens_on(index - 1, 0);
            }
            Ok::<(), Error>(())
        })?;
        self.index += 1;
        Ok(self.n_passes.iter().any(|&n_passes| n_passes > index))
    }

    /// Lets the device make the outputs of the tokens that [`Self::advance`] made.
    ///
    /// # Errors
    /// As [`Forwards::run`].
    pub fn forward(&mut self, forward: &mut dyn Forwards) -> Result<()> {
        let Some(index) = self.index.checked_sub(1) else { return Ok(()) };
        let all = self.passes.iter_mut().zip(&self.n_passes);
        let under_way = all.filter(|(_, n_passes)| **n_passes > index);
        let (tokens, mut outputs): (Vec<_>, Vec<_>) =
            under_way.map(|(passes, _)| passes.tokens_and_outputs(index)).unzip();
        forward.run(&tokens, &mut outputs)
    }

    /// Displacements and sigmas of each scene of the last roll-out, and of others before it.
    pub fn scenes(&self) -> &[Passes] {
        &self.passes
    }
}
