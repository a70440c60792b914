//! What a roll-out sends to the device: sizes, and all numbers in one piece.

use super::super::forward::{MAX_TOKENS, check_tokens};
use super::super::kernels::number;
use super::super::pass::{N_MOTION, Sizes};
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::vision::motion::{N_BODY_FEATURES, NO_BODY};
use crate::{Error, Result};

/// Bodies that there is room for at least.
const LEAST_BODIES: usize = 64;

/// Sizes of a run, its parts held to each other. Room for times and bodies never shrinks below that of
/// `before`, so that shorter horizons and fewer bodies replay the same graph.
pub fn checked_sizes(
    scene: &RolloutInput,
    config: &RolloutConfig,
    n_steps: usize,
    before: &Sizes,
) -> Result<Sizes> {
    let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
    let (kinematic, start, n_rows) = (&scene.kinematic, &scene.start, config.n_rows(n_steps));
    if kinematic.len() < n_rows {
        return shape("rows of kinematic particles", n_rows, kinematic.len());
    }
    let n_robot = kinematic.first().map_or(0, Vec::len);
    if let Some(row) = kinematic[..n_rows].iter().find(|row| row.len() != n_robot) {
        return shape("points on the robot", n_robot, row.len());
    }
    start.check_particles()?;
    start.check_links(n_robot)?;
    if n_robot > MAX_TOKENS {
        return shape("points on the robot", MAX_TOKENS, n_robot);
    }
    let room = n_bodies(start).max(LEAST_BODIES).next_power_of_two();
    let sizes = Sizes {
        n: start.positions.len(),
        h: start.history_positions.len(),
        k: n_robot.div_ceil(start.stride()),
        stride: start.stride(),
        n_robot,
        n_links: start.kinematic_links.last().map_or(0, |&link| link as usize + 1),
        n_times: before.n_times.max(n_rows),
        n_bodies: before.n_bodies.max(room),
    };
    check_tokens(sizes.n_tokens(), config.interlacer.k)?;
    Ok(sizes)
}

/// Bodies that particles are of: fewer than particles, as [`StepState::check_particles`] sees to.
fn n_bodies(start: &StepState) -> usize {
    let numbers = start.body_of.iter().filter(|&&body| body != NO_BODY);
    numbers.max().map_or(0, |&last| last as usize + 1)
}

/// Writes bits one behind the other.
struct Bits<'a> {
    rest: &'a mut [u32],
}

impl Bits<'_> {
    fn put(&mut self, words: impl ExactSizeIterator<Item = u32>) {
        let (first, behind) = std::mem::take(&mut self.rest).split_at_mut(words.len());
        first.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        self.rest = behind;
    }

    fn numbers(&mut self, numbers: &[f32]) {
        self.put(numbers.iter().map(|x| x.to_bits()));
    }

    /// `numbers`, or as many zeros where there are none.
    fn numbers_or_zeros(&mut self, numbers: &[f32], len: usize) {
        if numbers.is_empty() {
            return self.fill(0, len);
        }
        self.numbers(numbers);
    }

    fn fill(&mut self, word: u32, len: usize) {
        self.put((0..len).map(|_| word));
    }
}

/// Writes `scene` in the order of [`Sizes::parts`], with `n_rows` times of the robot; what there is room
/// for beyond it is not read.
pub fn stage(scene: &RolloutInput, sizes: &Sizes, n_rows: usize, to: &mut [u32]) {
    let (start, mut to) = (&scene.start, Bits { rest: to });
    to.numbers(start.positions.as_flattened());
    to.numbers(start.velocities.as_flattened());
    to.numbers(&start.velocity_known);
    to.numbers(start.colors.as_flattened());
    to.numbers(start.history_positions.as_flattened());
    to.numbers(start.history_colors.as_flattened());
    scene.kinematic[..n_rows].iter().for_each(|row| to.numbers(row.as_flattened()));
    to.fill(0, 3 * sizes.n_robot * (sizes.n_times - n_rows));
    stage_links(start, sizes, &mut to);
    stage_bodies(start, sizes, &mut to);
    let goes_on = match &start.extrapolated_motion {
        motion if motion.is_empty() => &start.velocities,
        motion => motion,
    };
    to.numbers(goes_on.as_flattened());
    to.numbers_or_zeros(start.bodies.as_flattened(), N_BODY_FEATURES * sizes.n);
    let motions =
        || (0..sizes.n_bodies).map(|body| start.body_motions.get(body).copied().flatten());
    for motion in motions() {
        to.numbers(&motion.map_or([0.0; N_MOTION], |motion| motion.numbers()));
    }
    to.put(motions().map(|motion| motion.is_some().into()));
}

/// The link of each of the robot's points, and where each link's begin.
fn stage_links(start: &StepState, sizes: &Sizes, to: &mut Bits<'_>) {
    let links = &start.kinematic_links;
    to.put(links.iter().copied());
    // Ascending: a link's points lie together.
    let first = |link| links.partition_point(|&other| (other as usize) < link);
    to.put((0..sizes.n_links + 1).map(|link| number(first(link))));
}

/// The body of each particle, particles by body in the order of [`crate::engine::model::tokens`], where each
/// body's begin, how many there are, and the support plane's height.
fn stage_bodies(start: &StepState, sizes: &Sizes, to: &mut Bits<'_>) {
    let n_bodies = n_bodies(start);
    let body_of = || (0..sizes.n).map(|i| start.body_of.get(i).copied().unwrap_or(NO_BODY));
    to.put(body_of());
    let mut starts = vec![0; n_bodies + 1];
    let of_bodies = || body_of().enumerate().filter(|(_, body)| *body != NO_BODY);
    of_bodies().for_each(|(_, body)| starts[body as usize + 1] += 1);
    for body in 0..n_bodies {
        starts[body + 1] += starts[body];
    }
    let mut members = vec![0; sizes.n];
    // The last ones first, as `tokens::flight` has them: it looks at some of them only.
    let mut ends = starts[1..].to_vec();
    for (i, body) in of_bodies() {
        let at: &mut u32 = &mut ends[body as usize];
        *at -= 1;
        members[*at as usize] = number(i);
    }
    to.put(members.into_iter());
    let n_known = starts.len();
    to.put(starts.into_iter());
    to.fill(0, sizes.n_bodies + 1 - n_known);
    let support_m = start.support_m.unwrap_or(f32::NEG_INFINITY);
    to.put([number(n_bodies), support_m.to_bits()].into_iter());
}
