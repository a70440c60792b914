//! What a prediction starts from: particles of two frames with what is known of their motion, and the
//! robot's, one step back, now and ahead. Observations make it, the model rolls it out.

use std::mem::take;

use crate::base::geometry::{RigidMotion, Vec3, add, length};
use crate::engine::graph::walks::WalkSeed;
use crate::vision::motion::{MotionEstimator, N_BODY_FEATURES, NO_BODY, PastMotion, TwoFrames};
use crate::vision::particles::Particles;
use crate::{Error, Result};

/// Motion in the step before below which a particle rests (m).
const STILL_M: f32 = 0.0015;

/// Whether a particle that moved by `motion` (m) in the step before, as far as that is `known`, rests.
pub fn is_still(motion: &Vec3, known: f32) -> bool {
    known >= 0.5 && length(motion) < STILL_M
}

/// What the last predictions of a particle tell of this one. The shares' sum is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// How much the network's prediction counts.
    pub model: f32,
    /// How much it counts that the particle goes on as its body moved.
    pub goes_on: f32,
    /// How much it counts that it rests.
    pub rests: f32,
    /// Usual miss in a step (m, root of the mean square): of the network, and of going on.
    pub misses_m: [f32; 2],
    /// Whether it has rested for some steps, whatever the noise of a single one.
    pub has_rested: bool,
    /// How much of a predicted step's motion comes in the next one, by what came of the last predictions: in 0..=1.
    pub keeps: f32,
    /// The body's mean motion in a step (m), where it went straight on at one speed for some steps.
    pub steady: Option<Vec3>,
    /// The first step that it tells nothing of, since the robot may have moved the body by then.
    pub until: u32,
}

impl Evidence {
    /// The same, of no step from `until` on; none if that is the first one.
    #[must_use]
    pub fn held_until(self, until: u32) -> Option<Self> {
        (until > 0).then_some(Self { until: self.until.min(until), ..self })
    }

    /// The same, `n_steps` later; none if it tells nothing any more.
    #[must_use]
    pub fn after(self, n_steps: u32) -> Option<Self> {
        let left = self.until.saturating_sub(n_steps);
        (left > 0).then_some(Self { until: left, ..self })
    }
}

/// Start of a roll-out, in the world frame (m).
#[derive(Debug, Default, Clone)]
pub struct RolloutInput {
    /// First step's state; its `kinematic` is overwritten from `kinematic` below.
    pub start: StepState,
    /// Kinematic particles one step back, now, and 1..=`n_steps` steps ahead.
    pub kinematic: Vec<Vec<Vec3>>,
    /// Steps ahead, of those of `kinematic`, that the robot's plans tell of (see [`crate::robot::plan::n_planned`]).
    pub n_planned: usize,
    /// Number of the link of the robot whose surface each particle lies on, `[n]`, as far as places
    /// tell; [`crate::robot::kinematics::NO_LINK`] for none. Empty where that was not looked for.
    pub on_links: Vec<u32>,
    /// What the last predictions of each particle tell of this one, `[n]`; empty where none was looked at.
    pub evidence: Vec<Option<Evidence>>,
    /// How far the world frame itself seems to move in a step (m); none where it rests.
    pub world_motion_m: Option<f32>,
    /// What the draws of sampled walks are counted by.
    pub walk_seed: WalkSeed,
}

impl RolloutInput {
    /// Starts from the particles of two frames, one step apart; of `history` it takes `n_history`,
    /// spread evenly over its (Morton) order. Velocities are unknown until [`RolloutInput::set_motion`].
    pub fn set_particles(&mut self, now: &Particles, history: &Particles, n_history: usize) {
        self.on_links.clear();
        self.evidence.clear();
        self.world_motion_m = None;
        let start = &mut self.start;
        start.support_m = now.support_m;
        start.positions.clone_from(&now.positions);
        start.colors.clone_from(&now.colors);
        start.velocities.clear();
        start.velocities.resize(now.len(), [0.0; 3]);
        start.extrapolated_motion.clear();
        start.bodies.clear();
        start.body_of.clear();
        start.body_motions.clear();
        start.velocity_known.clear();
        start.velocity_known.resize(now.len(), 0.0);
        start.history_positions.clear();
        start.history_colors.clear();
        let n_history = n_history.min(history.len());
        for i in (0..n_history).map(|j| history_index(j, n_history, history.len())) {
            start.history_positions.push(history.positions[i]);
            start.history_colors.push(history.colors[i]);
        }
    }

    /// Takes all of `other` but its robot's particles, in the memory that there is.
    pub(crate) fn start_from(&mut self, other: &Self) {
        self.start.start_from(&other.start);
        self.on_links.clone_from(&other.on_links);
        self.evidence.clone_from(&other.evidence);
        self.world_motion_m = other.world_motion_m;
        self.walk_seed = other.walk_seed;
    }

    /// Tells all positions from `origin` instead of from the world frame's.
    pub fn set_origin(&mut self, origin: &Vec3) {
        let start = &mut self.start;
        move_all(&mut start.positions, origin);
        move_all(&mut start.history_positions, origin);
        start.support_m = start.support_m.map(|z| z - origin[2]);
        let motions = start.body_motions.iter_mut().flatten();
        motions.for_each(|motion| motion.set_origin(origin));
        self.set_robot_origin(origin);
    }

    /// The same for the robot's alone.
    pub fn set_robot_origin(&mut self, origin: &Vec3) {
        self.kinematic.iter_mut().for_each(|row| move_all(row, origin));
    }

    /// Motions that took another time than a step as those of a step, which is `factor` times as long. Of 1 they
    /// stay the same to the bit, which a turn that is taken apart and put together does not.
    pub fn scale_motion(&mut self, factor: f32) {
        if factor == 1.0 {
            return;
        }
        let start = &mut self.start;
        let scale = |v: &mut Vec3| *v = v.map(|x| x * factor);
        start.velocities.iter_mut().chain(&mut start.extrapolated_motion).for_each(scale);
        // The motion of the particle and that of its body's centre.
        start.bodies.iter_mut().for_each(|body| body[..6].iter_mut().for_each(|x| *x *= factor));
        let motions = start.body_motions.iter_mut().flatten();
        motions.for_each(|motion| *motion = motion.scaled(factor));
    }

    /// Estimates the velocities from the clouds of two frames, then and now, between which a camera may have
    /// moved, and from the kinematic particles of both times: those now are a row of
    /// [`RolloutInput::kinematic`], and so are those then, one step back, unless `robot_then` has others. A scene
    /// without a robot has none.
    pub fn set_motion(
        &mut self,
        estimator: &mut MotionEstimator,
        now: &Particles,
        (clouds, camera_moved): ([&Particles; 2], bool),
        robot_then: Option<&[Vec3]>,
    ) {
        let start = &mut self.start;
        let robot = match &self.kinematic[..] {
            [before, now, ..] if !now.is_empty() => [robot_then.unwrap_or(before), &now[..]],
            _ => [&[][..]; 2],
        };
        // The estimate is written where the first step reads it.
        let mut found = PastMotion {
            motions: take(&mut start.velocities),
            confidences: take(&mut start.velocity_known),
            extrapolated_motion: take(&mut start.extrapolated_motion),
            bodies: take(&mut start.bodies),
            body_of: take(&mut start.body_of),
            body_motions: take(&mut start.body_motions),
        };
        let links = &start.kinematic_links;
        let frames = TwoFrames { particles: now, clouds, robot, links, camera_moved };
        estimator.estimate(&frames, &mut found);
        let PastMotion { motions, confidences, extrapolated_motion, bodies, body_of, body_motions } =
            found;
        (start.velocities, start.velocity_known) = (motions, confidences);
        (start.extrapolated_motion, start.bodies) = (extrapolated_motion, bodies);
        (start.body_of, start.body_motions) = (body_of, body_motions);
    }
}

/// Tells positions from `origin`.
pub fn move_all(positions: &mut [Vec3], origin: &Vec3) {
    // Nothing is to change where nothing is moved, not even a sign of 0.
    if *origin != [0.0; 3] {
        let minus = origin.map(|x| -x);
        positions.iter_mut().for_each(|position| add(position, &minus));
    }
}

/// What a step starts from. Positions in the world frame, metres; velocities in metres a step.
#[derive(Debug, Default, Clone)]
pub struct StepState {
    /// RolloutInput particles now, `[n]`.
    pub positions: Vec<Vec3>,
    /// Their motion in the step before, `[n]`; zero where unknown.
    pub velocities: Vec<Vec3>,
    /// Their motion in this step if they go on as bodies that turn do, `[n]`; empty where it is
    /// taken to be the velocity.
    pub extrapolated_motion: Vec<Vec3>,
    /// What they are told of their bodies, `[n]`; empty where that is not known.
    pub bodies: Vec<[f32; N_BODY_FEATURES]>,
    /// Numbers of these bodies, `[n]`, [`crate::vision::motion::NO_BODY`] for none; empty where not known.
    pub body_of: Vec<u32>,
    /// Motions of these bodies in this step if they go on, by their numbers: none where not known.
    pub body_motions: Vec<Option<RigidMotion>>,
    /// Height of the support plane (m), if there is one.
    pub support_m: Option<f32>,
    /// 1 where the velocity is known, else 0, `[n]`.
    pub velocity_known: Vec<f32>,
    /// Their colours in 0..1, `[n]`.
    pub colors: Vec<Vec3>,
    /// Particles one step back, `[n_history]`.
    pub history_positions: Vec<Vec3>,
    /// Their colours in 0..1, `[n_history]`.
    pub history_colors: Vec<Vec3>,
    /// Points on the robot one step back, now and after each step of the pass, `[2 + steps_per_pass][n_robot]`.
    pub kinematic: Vec<Vec<Vec3>>,
    /// Number of the rigid link that holds each of them, ascending, `[n_robot]`.
    pub kinematic_links: Vec<u32>,
    /// One in this many of them is a token, a kinematic particle (0 counts as 1); nearness to the
    /// robot is measured to all.
    pub kinematic_stride: usize,
}

impl StepState {
    /// Tokens of this step.
    pub fn n_tokens(&self) -> usize {
        self.positions.len() + self.history_positions.len() + 3 * self.n_kinematic()
    }

    /// Kinematic particles of one time.
    pub(crate) fn n_kinematic(&self) -> usize {
        self.n_robot().div_ceil(self.stride())
    }

    fn n_robot(&self) -> usize {
        self.kinematic.first().map_or(0, Vec::len)
    }

    /// Points on the robot a kinematic particle.
    pub(crate) fn stride(&self) -> usize {
        self.kinematic_stride.max(1)
    }

    /// Holds all to each other, for a pass of `steps_per_pass` steps.
    pub(crate) fn check(&self, steps_per_pass: usize) -> Result<()> {
        self.check_particles()?;
        let (expected, got) = (steps_per_pass + 2, self.kinematic.len());
        if got < expected {
            return Err(Error::Shape { what: "rows of kinematic particles", expected, got });
        }
        let k = self.n_robot();
        self.check_links(k)?;
        self.kinematic.iter().find(|particles| particles.len() != k).map_or(Ok(()), |particles| {
            let what = "points on the robot";
            Err(Error::Shape { what, expected: k, got: particles.len() })
        })
    }

    /// Holds the links to the number of points on the robot.
    pub(crate) fn check_links(&self, n_robot: usize) -> Result<()> {
        let links = &self.kinematic_links;
        let shape = |what, got| Err(Error::Shape { what, expected: n_robot, got });
        if links.len() != n_robot {
            return shape("links of the robot's points", links.len());
        }
        let last = links.iter().max().map_or(0, |&link| link as usize);
        if links.is_sorted() && (links.is_empty() || last < n_robot) {
            return Ok(());
        }
        shape("links of the robot's points, which ascend from 0 and are fewer than they", last)
    }

    /// Holds what belongs to the scene's and the history's particles to their numbers.
    pub(crate) fn check_particles(&self) -> Result<()> {
        let n = self.positions.len();
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        for (what, got) in [
            ("velocities", self.velocities.len()),
            ("known velocities", self.velocity_known.len()),
            ("colours", self.colors.len()),
            (
                "extrapolated motion",
                if self.extrapolated_motion.is_empty() {
                    n
                } else {
                    self.extrapolated_motion.len()
                },
            ),
            ("bodies", if self.bodies.is_empty() { n } else { self.bodies.len() }),
            ("bodies' numbers", if self.body_of.is_empty() { n } else { self.body_of.len() }),
        ] {
            if got != n {
                return shape(what, n, got);
            }
        }
        let numbers = self.body_of.iter().filter(|&&body| body != NO_BODY);
        if let Some(&last) = numbers.max().filter(|&&last| last as usize >= n) {
            return shape("bodies, of which there are fewer than particles", n, last as usize);
        }
        if self.history_colors.len() != self.history_positions.len() {
            return shape(
                "history colours",
                self.history_positions.len(),
                self.history_colors.len(),
            );
        }
        Ok(())
    }

    /// All of `start` but its kinematic particles, in the memory that there is.
    pub(crate) fn start_from(&mut self, start: &StepState) {
        self.positions.clone_from(&start.positions);
        self.velocities.clone_from(&start.velocities);
        self.extrapolated_motion.clone_from(&start.extrapolated_motion);
        self.bodies.clone_from(&start.bodies);
        self.body_of.clone_from(&start.body_of);
        self.body_motions.clone_from(&start.body_motions);
        self.support_m = start.support_m;
        self.velocity_known.clone_from(&start.velocity_known);
        self.colors.clone_from(&start.colors);
        self.history_positions.clone_from(&start.history_positions);
        self.history_colors.clone_from(&start.history_colors);
        self.kinematic_links.clone_from(&start.kinematic_links);
        self.kinematic_stride = start.kinematic_stride;
    }

    /// The state after `before` moved by the `displacements` of each step of a pass that is kept;
    /// kinematic particles are left to set.
    pub(crate) fn advance(&mut self, before: &StepState, displacements: &[Vec<Vec3>]) {
        let n = before.positions.len();
        let n_history = before.history_positions.len();
        let Some((last, earlier)) = displacements.split_last() else { return };
        let moved = |positions: &mut Vec<Vec3>, by: &Vec<Vec3>| {
            positions.iter_mut().zip(by).for_each(|(p, d)| add(p, d));
        };
        // One step back from the end of the pass, for the history, and then the end.
        self.positions.clone_from(&before.positions);
        earlier.iter().for_each(|by| moved(&mut self.positions, by));
        self.history_positions.clear();
        if n > 0 {
            let chosen = (0..n_history).map(|j| self.positions[history_index(j, n_history, n)]);
            self.history_positions.extend(chosen);
        }
        moved(&mut self.positions, last);
        self.velocities.clear();
        self.velocities.extend_from_slice(last);
        self.extrapolated_motion.clear();
        self.bodies.clear();
        self.body_of.clone_from(&before.body_of);
        self.body_motions.clear();
        self.support_m = before.support_m;
        self.velocity_known.clear();
        self.velocity_known.resize(n, 1.0);
        self.colors.clone_from(&before.colors);
        self.kinematic_links.clone_from(&before.kinematic_links);
        self.kinematic_stride = before.kinematic_stride;
        self.history_colors.clear();
        if n > 0 {
            let chosen = (0..n_history).map(|j| before.colors[history_index(j, n_history, n)]);
            self.history_colors.extend(chosen);
        }
    }
}

/// Which scene particle becomes history particle `j` of the next step.
pub(crate) fn history_index(j: usize, n_history: usize, n: usize) -> usize {
    j * n / n_history.max(1)
}
