//! Roll-outs of many scenes side by side, on a device beside the CPU: what scenes have of their own is
//! made by the CPU's threads, the model's part is one run of the device for all.

use rayon::prelude::*;

use super::{Forwards, probe};
use crate::model::rollout::{Passes, RolloutConfig};
use crate::model::{Mode, Model, Rollout};
use crate::scene::Scene;
use crate::{Error, Result};

/// Rolls out scenes of the same sizes together; keeps all buffers between calls.
pub(crate) struct BatchRollout {
    config: RolloutConfig,
    /// Of each scene.
    passes: Vec<Passes>,
    forward: Box<dyn Forwards>,
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
        Self { config, passes: Vec::new(), forward }
    }

    /// Predicts so many steps of each of `scenes`, as [`Rollout::run`] does of one. Scenes have the same
    /// numbers of particles and points of the robot.
    ///
    /// # Errors
    /// As there, of a scene that has one, and as [`Forwards::run`]; [`Error::Shape`] for more
    /// than [`Self::MAX_SCENES`].
    pub fn run(&mut self, scenes: &[(&Scene, usize)]) -> Result<()> {
        if scenes.len() > Self::MAX_SCENES {
            let (expected, got) = (Self::MAX_SCENES, scenes.len());
            return Err(Error::Shape { what: "scenes of a batch", expected, got });
        }
        let n_known = self.passes.len().max(scenes.len());
        self.passes.resize_with(n_known, || Passes::new(self.config));
        let mut under_way = Vec::with_capacity(scenes.len());
        for (passes, &(scene, n_steps)) in self.passes.iter_mut().zip(scenes) {
            let n_passes = passes.begin(scene, n_steps)?;
            under_way.push((passes, scene, n_passes));
        }
        let mut index = 0;
        loop {
            under_way.retain_mut(|(passes, _, n_passes)| {
                if *n_passes <= index && index > 1 {
                    // The next run begins with it.
                    passes.hand_tokens_on(*n_passes - 1, 0);
                }
                *n_passes > index
            });
            if under_way.is_empty() {
                return Ok(());
            }
            under_way.par_iter_mut().try_for_each(|(passes, scene, _)| {
                if index > 0 {
                    // A pass's tokens are the largest of what it has, and are not needed any more.
                    passes.hand_tokens_on(index - 1, index);
                }
                passes.encode(scene, index)
            })?;
            let all = under_way.iter_mut().map(|(passes, ..)| passes.tokens_and_outputs(index));
            let (tokens, mut outputs): (Vec<_>, Vec<_>) = all.unzip();
            self.forward.run(&tokens, &mut outputs)?;
            under_way
                .par_iter_mut()
                .try_for_each(|(passes, ..)| passes.read(index).map(|_n_done| ()))?;
            index += 1;
        }
    }

    /// Displacements and sigmas of each scene of the last run, and of others before it.
    pub fn scenes(&self) -> &[Passes] {
        &self.passes
    }

    /// The device, for people: `cuda:0 (Orin)`.
    pub fn name(&self) -> &str {
        self.forward.name()
    }
}
