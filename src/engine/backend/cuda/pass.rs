//! One pass on the device: its buffers, and the kernels in the order in which they run.

use super::forward::{self, Extent, Forward};
use super::kernels::number;
use super::memory::{Buffer, Places};
use super::model::Precision;
use super::stage::Stage;
use super::tokens::PassBuffers;
use crate::Result;
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::model::tokens::{Inputs, N_CANDIDATES, N_FEATURES};
use crate::vision::motion::N_BODY_FEATURES;

/// Numbers of a rigid motion and of a pose, and cells of the heights: see `kernels/pass.cuh` and
/// `kernels/flight.cuh`.
pub(super) const N_MOTION: usize = 15;
const N_POSE: usize = 12;
const N_CELLS: usize = 192 * 192;

// What `kernels/pass.cuh` and `kernels/encode.cuh` count on.
const _: () = assert!(N_FEATURES == 70 && N_BODY_FEATURES == 17);
const _: () = assert!(N_CANDIDATES == 4 && N_OUTPUTS == 7);

/// How many of what each scene of a pass has.
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
    /// Times of points on the robot, and bodies, that there is room for.
    pub n_times: usize,
    pub n_bodies: usize,
}

impl Sizes {
    pub fn n_tokens(&self) -> usize {
        self.n + self.h + 3 * self.k
    }

    /// Scenes of so many tokens.
    fn extent(&self, n_scenes: usize) -> Extent {
        Extent { n_scenes, n_tokens: self.n_tokens(), n_particles: self.n }
    }

    /// How long the parts of what the host sends are, in their order: see [`Buffers::pass`].
    fn parts(&self) -> [usize; 17] {
        let Self { n, h, n_robot, n_links, n_times, n_bodies, .. } = *self;
        [
            3 * n,
            3 * n,
            n,
            3 * n,
            3 * h,
            3 * h,
            3 * n_robot * n_times,
            n_robot,
            n_links + 1,
            n,
            n,
            n_bodies + 1,
            2,
            3 * n,
            N_BODY_FEATURES * n,
            N_MOTION * n_bodies,
            n_bodies,
        ]
    }

    /// Numbers of it, a scene.
    pub fn n_uploaded(&self) -> usize {
        self.parts().iter().sum()
    }
}

/// All buffers of a pass of some scenes, one behind the other in each, in one arena.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers {
    sizes: Sizes,
    /// Scenes that there is room for.
    room: usize,
    /// How many there are.
    pub n_scenes: Buffer<u32>,
    /// Of each scene: passes done, and flags.
    pub counters: Buffer<u32>,
    /// What the host sends once: bits of all numbers.
    pub uploaded: Buffer<u32>,
    nearest: Buffer<u32>,
    link_motions: Buffer<f32>,
    poses: Buffer<f32>,
    ahead: Buffer<f32>,
    /// Keys that begin as 0 in each pass.
    pub keys: Buffer<u32>,
    pub candidates: Buffer<f32>,
    pub forward: forward::Buffers,
    /// `[replan_interval, n, 3]`.
    pub displacements: Buffer<f32>,
    /// `[steps_per_pass, n]`, or none.
    pub sigmas: Buffer<f32>,
}

impl Buffers {
    /// Takes places for a pass of `room` scenes of `sizes`.
    pub fn take(
        config: &RolloutConfig,
        precision: Precision,
        sizes: Sizes,
        room: usize,
        places: &mut Places,
    ) -> Self {
        let (n, steps) = (sizes.n, config.tokens.steps_per_pass);
        let n_sigmas = if config.tells_sigma() { steps * n } else { 0 };
        let n_keys = Keys::of(steps * sizes.n_bodies, 0).n_words;
        Self {
            sizes,
            room,
            n_scenes: places.take(1),
            counters: places.take(room * 2),
            uploaded: places.take(room * sizes.n_uploaded()),
            nearest: places.take(room * (steps + 1) * (n + sizes.h)),
            link_motions: places.take(room * (steps + 1) * N_MOTION * sizes.n_links),
            poses: places.take(room * steps * N_POSE * sizes.n_bodies),
            ahead: places.take(room * 3 * steps * n),
            keys: places.take(room * n_keys),
            candidates: places.take(room * 3 * N_CANDIDATES * steps * n),
            forward: forward::Buffers::take(config, precision, sizes.extent(room), places),
            displacements: places.take(room * 3 * config.replan_interval * n),
            sigmas: places.take(room * n_sigmas),
        }
    }

    /// What the kernels of tokens and motion take.
    pub fn pass(&self, config: &RolloutConfig) -> PassBuffers {
        let Sizes { n, h, k, stride, n_robot, n_links, n_bodies, .. } = self.sizes;
        let mut first = 0;
        let uploaded = self.sizes.parts().map(|len| {
            first += len;
            self.uploaded.part(first - len, len).address()
        });
        let [positions, velocities, velocity_known, colors, history_positions, history_colors, ..] =
            uploaded;
        let [.., robot, links, link_starts, body_of, members, member_starts, scalars, _, _, _, _] =
            uploaded;
        let [.., extrapolated_motion, bodies, body_motions, motion_known] = uploaded;
        let steps = config.tokens.steps_per_pass;
        let keys = Keys::of(steps * n_bodies, self.keys.address());
        PassBuffers {
            n_scenes: self.n_scenes.address(),
            counters: self.counters.address(),
            positions,
            velocities,
            velocity_known,
            colors,
            history_positions,
            history_colors,
            robot,
            links,
            link_starts,
            body_of,
            members,
            member_starts,
            scalars,
            extrapolated_motion,
            bodies,
            body_motions,
            motion_known,
            nearest: self.nearest.address(),
            link_motions: self.link_motions.address(),
            poses: self.poses.address(),
            ahead: self.ahead.address(),
            heights: keys.heights,
            second_heights: keys.second_heights,
            robot_contacts: keys.robot_contacts,
            strikes: keys.strikes,
            clearances: keys.clearances,
            obstacles: keys.obstacles,
            bounds: keys.bounds,
            token_positions: self.forward.token_positions.address(),
            features: self.forward.features.address(),
            candidates: self.candidates.address(),
            outputs: self.forward.outputs.address(),
            displacements: self.displacements.address(),
            sigmas: self.sigmas.address(),
            n: number(n),
            h: number(h),
            k: number(k),
            n_robot: number(n_robot),
            n_links: number(n_links),
            stride: number(stride),
            room: number(n_bodies),
            steps: number(steps),
            kept: number(config.replan_interval),
            n_features: number(config.interlacer.n_features),
            n_outputs: number(config.n_step_outputs()),
            n_uploaded: number(self.sizes.n_uploaded()),
            n_keys: number(keys.n_words),
            is_paper: (config.tokens.inputs == Inputs::Paper).into(),
            center: config.tokens.frame.center_m,
            half_side: config.tokens.frame.half_side_m,
            step_secs: config.tokens.step_secs,
        }
    }
}

/// Where the keys of the first scene lie, the longer numbers first.
struct Keys {
    heights: u64,
    second_heights: u64,
    robot_contacts: u64,
    strikes: u64,
    clearances: u64,
    obstacles: u64,
    bounds: u64,
    n_words: usize,
}

impl Keys {
    /// Of `n` bodies and steps, from the address `at` on.
    fn of(n: usize, at: u64) -> Self {
        let mut n_words = 0;
        let mut next = |len: usize, words: usize| {
            let here = at + (n_words * size_of::<u32>()) as u64;
            n_words += len * words;
            here
        };
        Self {
            heights: next(N_CELLS, 2),
            second_heights: next(N_CELLS, 2),
            robot_contacts: next(n, 2),
            strikes: next(n, 2),
            clearances: next(n, 1),
            obstacles: next(n, 1),
            bounds: next(4, 1),
            // Even, as the next scene's longer numbers follow.
            n_words,
        }
    }
}

/// A pass of one model over one set of buffers.
pub(super) struct Pass<'a> {
    pub forward: Forward<'a>,
    pub buffers: &'a Buffers,
}

impl Pass<'_> {
    /// Begins all kernels of the pass; the state is the next pass's then.
    pub fn run(&self) -> Result<()> {
        let Forward { gpu, model, .. } = self.forward;
        let (buffers, pass) = (self.buffers, self.buffers.pass(&model.config));
        let Buffers { room, keys, candidates, .. } = *buffers;
        self.forward.stage(Stage::Tokens, || gpu.make_tokens(&pass, room, keys, candidates))?;
        self.forward.run()?;
        self.forward.stage(Stage::Motion, || {
            gpu.move_particles(&pass, room)?;
            gpu.end_pass(&pass, room)
        })
    }
}
