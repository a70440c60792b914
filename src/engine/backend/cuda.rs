//! The whole step on an NVIDIA GPU: particles from images, tokens, k-NN graph, walks, Interlacer, displacements, roll-out.
//!
//! The driver's library is looked for at run time, so the same binary runs where there is none. The
//! kernels are compiled ahead (`scripts/kernels`) and lie in the binary. A step is captured as a CUDA
//! graph once and replayed; nothing is allocated while sizes stay the same. Models of several steps a
//! pass, of the second inputs or with sigma have their tokens and motion on the host ([`PassRollout`]).
//! Models with other layers than the default run on the CPU ([`unsupported`] says why).
//!
//! Tests run on a GPU where there is one, else on a libcuda of our own that executes the kernels on
//! the CPU (`standin/`).

mod device;
mod forward;
mod graph;
mod kernels;
mod launch;
mod memory;
mod model;
mod pass_forward;
mod pass_rollout;
mod rollout;
mod sampler;
mod stage;
#[cfg(test)]
mod standin;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::Rollouts;
use crate::Result;
use crate::engine::model::RolloutConfig;

pub use device::Gpu;
pub use model::{Precision, unsupported};
pub use pass_forward::PassForward;
pub use pass_rollout::PassRollout;
pub use rollout::{Rollout, measure};
pub(crate) use sampler::Sampler;
pub use stage::Stage;

/// Roll-outs of models of `config` with `weights`, on `gpu`: whole steps where the kernels know what
/// the model is told and tells, else from tokens to outputs.
///
/// # Errors
/// As [`Rollout::new`] and [`PassRollout::new`].
pub(crate) fn rollouts(
    gpu: Arc<Gpu>,
    config: RolloutConfig,
    weights: &[f32],
    precision: Precision,
) -> Result<Box<dyn Rollouts>> {
    if step::is_known(&config) {
        return Ok(Box::new(Rollout::new(gpu, config, weights, precision)?));
    }
    Ok(Box::new(PassRollout::new(gpu, config, weights, precision)?))
}
