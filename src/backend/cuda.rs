//! The whole step on an NVIDIA GPU: particles from images, tokens, k-NN graph, walks, Interlacer, displacements, roll-out.
//!
//! The driver's library is looked for at run time, so the same binary runs where there is none. The
//! kernels are compiled ahead (`scripts/kernels`) and lie in the binary. A step is captured as a CUDA
//! graph once and replayed; nothing is allocated while sizes stay the same. Models in the default
//! configuration run here, others on the CPU ([`unsupported`] says why).
//!
//! Tests run on a GPU where there is one, else on a libcuda of our own that executes the kernels on
//! the CPU (`standin/`).

mod device;
mod graph;
mod kernels;
mod launch;
mod memory;
mod rollout;
mod sampler;
mod stage;
#[cfg(test)]
mod standin;
mod step;
#[cfg(test)]
mod tests;

pub use device::Gpu;
pub use rollout::{Rollout, measure};
pub(crate) use sampler::Sampler;
pub use stage::Stage;
pub use step::{Precision, unsupported};
