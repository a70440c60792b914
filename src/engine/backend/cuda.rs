//! The roll-out on an NVIDIA GPU: particles from images, tokens, k-NN graph, walks, Interlacer, displacements.
//!
//! The driver's library is looked for at run time, so the same binary runs where there is none. The
//! kernels are compiled ahead (`scripts/kernels`) and lie in the binary. A pass is captured as a CUDA
//! graph once and replayed; nothing is allocated while sizes stay the same. Scenes of
//! the same sizes run side by side. Models with other layers than the default run on the CPU ([`unsupported`]
//! says why).
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
mod pass;
mod rollout;
mod sampler;
mod stage;
#[cfg(test)]
mod standin;
#[cfg(test)]
mod tests;
mod tokens;

pub use device::Gpu;
pub use model::{Precision, unsupported};
pub use rollout::{Rollout, measure};
pub(crate) use sampler::Sampler;
pub use stage::Stage;
