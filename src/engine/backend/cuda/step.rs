//! One step on the device: its buffers, and the kernels in the order in which they run.

use super::forward::{self, Extent, Forward};
use super::kernels::{StepBuffers, number};
use super::memory::{Buffer, Places};
use super::model::Precision;
use super::stage::Stage;
use crate::Result;
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::{Inputs, N_CANDIDATES, N_FEATURES};
use crate::vision::motion::N_BODY_FEATURES;

/// Numbers of a rigid motion: see `kernels/step.cuh`.
pub(super) const N_MOTION: usize = 15;

// What `kernels/step.cuh` counts on.
const _: () = assert!(N_FEATURES == 70 && N_BODY_FEATURES == 17);
const _: () = assert!(N_CANDIDATES == 4 && N_OUTPUTS == 7);

/// Whether the kernels of tokens and motion are for models of `config`: of one step a pass, the first
/// inputs and no sigma, with as many features and outputs as these have.
pub(super) fn is_known(config: &RolloutConfig) -> bool {
    let (tokens, model) = (&config.tokens, &config.interlacer);
    let is_first = tokens.steps_per_pass == 1 && tokens.inputs == Inputs::First;
    is_first && (model.n_features, model.n_outputs) == (N_FEATURES, N_OUTPUTS)
}

/// How many of what a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sizes {
    /// Scene particles.
    pub n: usize,
    /// History particles.
    pub h: usize,
    /// Kinematic particles of one time: one in `stride` of the points on the robot.
    pub k: usize,
    pub stride: usize,
    /// Points on the robot at one time, and the links that hold them.
    pub n_robot: usize,
    pub n_links: usize,
    /// Times of points on the robot: two more than steps.
    pub n_times: usize,
}

impl Sizes {
    pub fn n_tokens(&self) -> usize {
        self.n + self.h + 3 * self.k
    }

    /// One scene of so many tokens.
    pub fn extent(&self) -> Extent {
        Extent { n_scenes: 1, n_tokens: self.n_tokens(), n_particles: self.n }
    }

    /// Numbers of the state that the host sends.
    pub fn n_uploaded(&self) -> usize {
        let n_steps = self.n_times.saturating_sub(2);
        let robot = (3 * self.n_times + 1) * self.n_robot + N_MOTION * self.n_links * n_steps;
        (13 + N_BODY_FEATURES) * self.n + 6 * self.h + robot
    }
}

/// All buffers of a step, in one arena.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers {
    sizes: Sizes,
    /// Steps done, and flags.
    pub counters: Buffer<u32>,
    /// Positions, velocities, whether they are known, colours; history positions and colours;
    /// points on the robot of all times; extrapolated motion; what particles are told of their
    /// bodies; links of the robot's points and the motions of
    /// these links.
    pub uploaded: Buffer<f32>,
    nearest: Buffer<u32>,
    pub candidates: Buffer<f32>,
    pub forward: forward::Buffers,
    pub displacements: Buffer<f32>,
}

impl Buffers {
    /// Takes places for a step of `sizes`.
    pub fn take(
        config: &RolloutConfig,
        precision: Precision,
        sizes: Sizes,
        places: &mut Places,
    ) -> Self {
        let n = sizes.n;
        Self {
            sizes,
            counters: places.take(2),
            uploaded: places.take(sizes.n_uploaded()),
            nearest: places.take(2 * (n + sizes.h)),
            candidates: places.take(3 * N_CANDIDATES * n),
            forward: forward::Buffers::take(config, precision, sizes.extent(), places),
            displacements: places.take(3 * n),
        }
    }

    /// What the kernels of tokens and motion take.
    pub fn step(&self, config: &RolloutConfig) -> StepBuffers {
        let Sizes { n, h, k, stride, n_robot, n_links, n_times } = self.sizes;
        let mut first = 0;
        let mut next = |len: usize| {
            first += len;
            self.uploaded.part(first - len, len).address()
        };
        StepBuffers {
            counters: self.counters.address(),
            positions: next(3 * n),
            velocities: next(3 * n),
            velocity_known: next(n),
            colors: next(3 * n),
            history_positions: next(3 * h),
            history_colors: next(3 * h),
            robot: next(3 * n_robot * n_times),
            extrapolated_motion: next(3 * n),
            bodies: next(N_BODY_FEATURES * n),
            links: next(n_robot),
            motions: next(N_MOTION * n_links * n_times.saturating_sub(2)),
            nearest: self.nearest.address(),
            token_positions: self.forward.token_positions.address(),
            features: self.forward.features.address(),
            candidates: self.candidates.address(),
            outputs: self.forward.outputs.address(),
            displacements: self.displacements.address(),
            n: number(n),
            h: number(h),
            k: number(k),
            n_robot: number(n_robot),
            n_links: number(n_links),
            stride: number(stride),
            center: config.tokens.frame.center_m,
            half_side: config.tokens.frame.half_side_m,
            step_secs: config.tokens.step_secs,
        }
    }
}

/// A step of one model over one set of buffers.
pub(super) struct Step<'a> {
    pub forward: Forward<'a>,
    pub buffers: &'a Buffers,
}

impl Step<'_> {
    /// Begins all kernels of the step; the state is the next step's then.
    pub fn run(&self) -> Result<()> {
        let Forward { gpu, model, .. } = self.forward;
        let step = self.buffers.step(&model.config);
        self.forward.stage(Stage::Tokens, || gpu.encode(&step))?;
        self.forward.run()?;
        self.forward.stage(Stage::Motion, || {
            gpu.move_particles(&step)?;
            gpu.end_step(&step)
        })
    }
}
