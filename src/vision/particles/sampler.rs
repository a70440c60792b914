//! From what the cameras saw to particles, on the CPU or on a device beside it.

use super::{Draw, Particles};
use crate::Result;
use crate::vision::cloud::{Cloud, Optics, Workspace};
use crate::vision::frames::CameraFrame;

/// How particles are drawn from the points of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Seed of the draw.
    pub seed: u64,
    /// Stamp of the frame.
    pub stamp_ns: i64,
    /// Box outside of which points are dropped (world frame, m).
    pub workspace: Workspace,
    /// Of the points on the support plane one in this many takes part; 1 (and 0) takes all alike.
    pub support_stride: usize,
}

/// Makes particles of what cameras saw; the same ones whatever it runs on.
pub trait ParticleSampler {
    /// Replaces each of `samples` by as many points as it asks for, or all if there are not more: as
    /// [`Cloud::from_cameras`] and [`Particles::sample_thinned`] define them.
    ///
    /// # Errors
    /// As [`Cloud::from_cameras`], and where a device draws [`crate::Error::Device`] if it fails,
    /// [`crate::Error::Shape`] for more than 2²⁸ pixels.
    fn sample(
        &mut self,
        cameras: &[CameraFrame],
        sampling: &Sampling,
        samples: [(&mut Particles, usize); 2],
    ) -> Result<()>;
}

/// The CPU's.
#[derive(Debug, Default)]
pub struct CpuSampler {
    cloud: Cloud,
    draw: Draw,
}

impl CpuSampler {
    /// Rays of the cameras, which a device needs as well.
    pub(crate) fn optics(&mut self) -> &mut Optics {
        &mut self.cloud.optics
    }
}

impl ParticleSampler for CpuSampler {
    fn sample(
        &mut self,
        cameras: &[CameraFrame],
        sampling: &Sampling,
        samples: [(&mut Particles, usize); 2],
    ) -> Result<()> {
        self.cloud.from_cameras(cameras, &sampling.workspace)?;
        // The points with the smallest keys are those of each larger sample, too.
        let n_most = samples.iter().map(|(_, n)| *n).max().unwrap_or(0);
        self.draw.draw(&self.cloud, n_most, sampling);
        for (particles, n) in samples {
            particles.take(&self.cloud, n, &self.draw, &sampling.workspace);
        }
        Ok(())
    }
}
