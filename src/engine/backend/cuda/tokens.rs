//! The kernels of a pass's tokens and of what follows from its outputs (`kernels/pass.cuh` and what includes it).

use super::Gpu;
use super::kernels::Kernel;
use super::memory::Buffer;
use crate::Result;

/// Threads of kernels that take one for each particle or token, and of those that take a warp for each.
const BLOCK: usize = 128;
const WARP: usize = 32;

/// Buffers of a pass: `Pass` of `kernels/pass.cuh`, field for field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct PassBuffers {
    pub n_scenes: u64,
    pub counters: u64,
    pub positions: u64,
    pub velocities: u64,
    pub velocity_known: u64,
    pub colors: u64,
    pub history_positions: u64,
    pub history_colors: u64,
    pub robot: u64,
    pub links: u64,
    pub link_starts: u64,
    pub body_of: u64,
    pub members: u64,
    pub member_starts: u64,
    pub scalars: u64,
    pub extrapolated_motion: u64,
    pub bodies: u64,
    pub body_motions: u64,
    pub motion_known: u64,
    pub nearest: u64,
    pub link_motions: u64,
    pub poses: u64,
    pub ahead: u64,
    pub heights: u64,
    pub second_heights: u64,
    pub robot_contacts: u64,
    pub strikes: u64,
    pub clearances: u64,
    pub obstacles: u64,
    pub bounds: u64,
    pub token_positions: u64,
    pub features: u64,
    pub candidates: u64,
    pub outputs: u64,
    pub displacements: u64,
    pub sigmas: u64,
    pub n: u32,
    pub h: u32,
    pub k: u32,
    pub n_robot: u32,
    pub n_links: u32,
    pub stride: u32,
    pub room: u32,
    pub steps: u32,
    pub kept: u32,
    pub n_features: u32,
    pub n_outputs: u32,
    pub n_uploaded: u32,
    pub n_keys: u32,
    pub is_paper: u32,
    pub center: [f32; 3],
    pub half_side: f32,
    pub step_secs: f32,
}

impl Gpu {
    /// Tokens of the pass that the counters say, of `n_scenes` at most. `keys`: what is to be 0 before;
    /// `candidates`: of all scene particles, which the papers' inputs have none of.
    pub(super) fn make_tokens(
        &self,
        pass: &PassBuffers,
        n_scenes: usize,
        keys: Buffer<u32>,
        candidates: Buffer<f32>,
    ) -> Result<()> {
        if pass.is_paper == 0 {
            self.clear(keys)?;
            self.look_ahead(pass, n_scenes)?;
        } else {
            self.clear(candidates)?;
        }
        let n_tokens = pass.n as usize + pass.h as usize + 3 * pass.k as usize;
        let grid = [n_tokens.div_ceil(BLOCK), pass.steps as usize + 1, n_scenes];
        // SAFETY: `pass` leads to position and features of each token, and to what is told of it.
        unsafe { self.launch_scenes(Kernel::Encode, grid, BLOCK, 0, &[pass.into()]) }
    }

    /// Where the robot, bodies and particles go in the pass, and what touches what.
    fn look_ahead(&self, pass: &PassBuffers, n_scenes: usize) -> Result<()> {
        let (n, steps) = (pass.n as usize, pass.steps as usize);
        let blocks = n.div_ceil(BLOCK);
        let begin = |kernel, [x, y]: [usize; 2], block| {
            let grid = [x, y, n_scenes];
            // SAFETY: of each scene `pass` leads to state and body of n particles, to n + h positions,
            // n_robot points of the robot a time and n_links + 1 starts among them, members, motions and
            // poses of `room` bodies, and to all that is made of these, in all steps.
            unsafe { self.launch_scenes(kernel, grid, block, 0, &[pass.into()]) }
        };
        if pass.n_robot > 0 {
            let of_others = (n + pass.h as usize).div_ceil(BLOCK);
            begin(Kernel::NearestRobot, [of_others, steps + 1], BLOCK)?;
            begin(Kernel::FollowLinks, [pass.n_links as usize, steps + 1], WARP)?;
        }
        begin(Kernel::BoundStill, [blocks, 1], BLOCK)?;
        begin(Kernel::RaiseHeights, [blocks, 1], BLOCK)?;
        begin(Kernel::RaiseSecondHeights, [blocks, 1], BLOCK)?;
        begin(Kernel::Fly, [pass.room as usize, 1], WARP)?;
        begin(Kernel::Propose, [blocks, 1], BLOCK)?;
        begin(Kernel::Strike, [blocks, steps], BLOCK)
    }

    /// Displacements and sigmas of the pass, and the next one's state.
    pub(super) fn move_particles(&self, pass: &PassBuffers, n_scenes: usize) -> Result<()> {
        let grid = [(pass.n as usize).div_ceil(BLOCK), 1, n_scenes];
        // SAFETY: `pass` leads to outputs, displacements, sigmas and what moves of n + h particles.
        unsafe { self.launch_scenes(Kernel::MoveParticles, grid, BLOCK, 0, &[pass.into()]) }
    }

    /// Counts the pass.
    pub(super) fn end_pass(&self, pass: &PassBuffers, n_scenes: usize) -> Result<()> {
        // SAFETY: `pass` leads to the counters, which one thread a scene writes.
        unsafe { self.launch_scenes(Kernel::EndPass, [1, 1, n_scenes], 1, 0, &[pass.into()]) }
    }
}
