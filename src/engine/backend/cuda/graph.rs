//! Work that is recorded once and replayed: a CUDA graph.

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::Gpu;
use crate::{Error, Result};

/// A recorded sequence of kernels and copies, for the stream that it was recorded on.
pub(super) struct Graph(CudaGraph);

// SAFETY: launched and dropped by whoever holds it, one at a time; handles of the driver belong to no
// thread.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Graph {
    /// Records what `record` begins on the stream of `gpu`, which does not run it.
    ///
    /// # Errors
    /// What `record` returns, and [`Error::Device`] if the driver can't record.
    pub fn capture(gpu: &Gpu, record: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        gpu.stream.begin_capture(mode).map_err(|error| gpu.error("recording", error))?;
        let recorded = record();
        // Ended in any case: the stream would be of no use otherwise.
        let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0));
        recorded?;
        let graph = graph.map_err(|error| gpu.error("recording", error))?;
        graph.map(Self).ok_or(Error::Device {
            device: gpu.name().into(),
            problem: "the driver recorded no graph: update it, or take device: cpu".into(),
        })
    }

    /// Begins to run it.
    ///
    /// # Errors
    /// [`Error::Device`] if the GPU fails at what is being `doing`.
    pub fn launch(&self, gpu: &Gpu, doing: &str) -> Result<()> {
        self.0.launch().map_err(|error| gpu.error(doing, error))
    }
}
