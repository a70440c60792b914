//! The particles of a step: a sample of the cloud, in Morton order; thinner on the support plane.

mod draw;
mod sampler;
pub(crate) mod support;

use crate::vision::cloud::{Cloud, Workspace};

use draw::{Candidate, Draw};
pub use sampler::{CpuSampler, ParticleSampler, Sampling};

/// Points this near to the support plane lie on it (m).
pub(crate) const SUPPORT_M: f32 = 0.008;
/// Bits of a Morton code per axis.
const MORTON_BITS: u32 = 10;

/// Sampled points in Morton order, world frame; the three vectors are equally long.
#[derive(Debug, Default)]
pub struct Particles {
    /// x, y, z of each particle, metres.
    pub positions: Vec<[f32; 3]>,
    /// Red, green, blue of each particle, 0..1.
    pub colors: Vec<[f32; 3]>,
    /// Where each particle was seen: camera << 24 | pixel.
    pub sources: Vec<u32>,
    /// Where the cameras stand, as [`Cloud::eyes`].
    pub eyes: Vec<[f32; 3]>,
    /// Height (world z, m) of the plane that most points of the cloud lie on; none where there is
    /// no such plane.
    pub support_m: Option<f32>,
    scratch: Vec<Candidate>,
    draw: Draw,
}

impl Clone for Particles {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.clone_from(self);
        copy
    }

    /// Without the scratch; allocates only where the vectors are too short.
    fn clone_from(&mut self, other: &Self) {
        self.positions.clone_from(&other.positions);
        self.colors.clone_from(&other.colors);
        self.sources.clone_from(&other.sources);
        self.eyes.clone_from(&other.eyes);
        self.support_m = other.support_m;
    }
}

impl Particles {
    /// Number of particles.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is no particle.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// As [`Particles::sample_thinned`], from all of the cloud alike.
    pub fn sample(
        &mut self,
        cloud: &Cloud,
        n: usize,
        seed: u64,
        stamp_ns: i64,
        workspace: &Workspace,
    ) {
        let workspace = *workspace;
        self.sample_thinned(cloud, n, &Sampling { seed, stamp_ns, workspace, support_stride: 1 });
    }

    /// Replaces the particles by `n` points of `cloud`, drawn uniformly without replacement, or by
    /// all points if there are not more; Morton order over the workspace.
    ///
    /// Of the points on the support plane (table or floor: the height, along world z, at which most
    /// points lie) one in [`Sampling::support_stride`] takes part, the others only where these are
    /// fewer than `n`: most of what a camera sees is table, and what moves is not.
    ///
    /// The draw hashes (seed, stamp, source), so the order of the points does not matter. Time:
    /// linear in the points, side by side on all threads, plus the sort of the sample; no allocation
    /// once the vectors have grown.
    pub fn sample_thinned(&mut self, cloud: &Cloud, n: usize, sampling: &Sampling) {
        let mut draw = std::mem::take(&mut self.draw);
        draw.draw(cloud, n, sampling);
        self.take(cloud, n, &draw, &sampling.workspace);
        self.draw = draw;
    }

    /// Takes the first `n` points that were drawn from `cloud`.
    fn take(&mut self, cloud: &Cloud, n: usize, draw: &Draw, workspace: &Workspace) {
        draw.copy(n, &mut self.scratch);
        self.support_m = draw.support_m();
        self.eyes.clone_from(&cloud.eyes);
        let box_to_grid = MortonGrid::new(workspace);
        for candidate in &mut self.scratch {
            let position = cloud.positions[candidate.index as usize];
            candidate.key = u64::from(box_to_grid.code(position));
        }
        self.scratch.sort_unstable();
        self.positions.clear();
        self.colors.clear();
        self.sources.clear();
        let indices = || self.scratch.iter().map(|candidate| candidate.index as usize);
        self.positions.extend(indices().map(|i| cloud.positions[i]));
        self.colors.extend(indices().map(|i| cloud.colors[i].map(|c| f32::from(c) / 255.0)));
        self.sources.extend(indices().map(|i| cloud.sources[i]));
    }
}

/// Morton code of `position` (world frame, m): 10 bits an axis over the box `workspace`, x in the
/// lowest bit. Positions outside count as on the nearest face.
pub fn morton(position: [f32; 3], workspace: &Workspace) -> u32 {
    MortonGrid::new(workspace).code(position)
}

/// The cells that Morton codes number.
pub(crate) struct MortonGrid {
    min: [f32; 3],
    pub(crate) cells_per_m: [f32; 3],
}

impl MortonGrid {
    pub(crate) fn new(workspace: &Workspace) -> Self {
        let n_cells = (1u32 << MORTON_BITS) as f32;
        let cells_per_m = std::array::from_fn(|i| n_cells / (workspace.max[i] - workspace.min[i]));
        Self { min: workspace.min, cells_per_m }
    }

    fn code(&self, position: [f32; 3]) -> u32 {
        let cell = |i: usize| {
            // The conversion saturates below 0 and reads NaN as 0.
            let cell = ((position[i] - self.min[i]) * self.cells_per_m[i]) as u32;
            cell.min((1 << MORTON_BITS) - 1)
        };
        spread(cell(0)) | spread(cell(1)) << 1 | spread(cell(2)) << 2
    }
}

/// Moves bit `i` of ten bits to bit `3 i`.
fn spread(x: u32) -> u32 {
    let x = (x | x << 16) & 0x0300_00ff;
    let x = (x | x << 8) & 0x0300_f00f;
    let x = (x | x << 4) & 0x030c_30c3;
    (x | x << 2) & 0x0924_9249
}

#[cfg(test)]
mod tests;
