//! The roll-out of models that predict several steps a pass, are told more, or tell how sure they are:
//! the host makes the tokens of a pass and reads its outputs, as on the CPU; what lies between them runs
//! on the device as one replayed graph.

use std::sync::Arc;

use super::Gpu;
use super::model::Precision;
use super::pass_forward::PassForward;
use super::rollout::Counts;
use crate::Result;
use crate::engine::backend::{Forwards, Rollouts};
use crate::engine::model::rollout::{Passes, RolloutConfig};
use crate::engine::model::tokens::Tokens;
use crate::engine::rollout_input::RolloutInput;

/// Runs roll-outs of one model, of any steps per pass and inputs, on one GPU; keeps all memory between calls.
#[derive(Debug)]
pub struct PassRollout {
    passes: Passes,
    device: PassForward,
}

impl PassRollout {
    /// Roll-outs of models of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// As [`PassForward::new`].
    pub fn new(
        gpu: Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        let device = PassForward::new(gpu, config, weights, precision)?;
        Ok(Self { passes: Passes::new(config), device })
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.device.counts()
    }
}

impl Rollouts for PassRollout {
    fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        let device = &mut self.device;
        let forward =
            |_, tokens: &Tokens, outputs: &mut Vec<f32>| device.run(&[tokens], &mut [outputs]);
        self.passes.run_while(scene, n_steps, goes_on, forward)
    }

    fn displacements(&self, t: usize) -> &[[f32; 3]] {
        self.passes.displacements(t)
    }

    fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.passes.sigmas(t)
    }

    fn n_steps(&self) -> usize {
        self.passes.n_steps()
    }

    fn name(&self) -> &str {
        self.device.name()
    }
}
