//! Places of the input features in a token's row, and how positions and the robot are told there.

use super::contacts::N_CONTACT;
use super::{Encodings, Frame, Inputs};
use crate::base::geometry::{Vec3, length};
use crate::vision::motion::{MOTION_SCALE_M, N_BODY_FEATURES, NEARNESS_M};

/// Kinds of tokens, told to the model one-hot.
const N_KINDS: usize = 5;
/// Octaves of the positions' sine features: of all inputs, and more of [`Inputs::Second`].
const N_OCTAVES: usize = 4;
const N_MORE_OCTAVES: usize = 2;
/// Softening of the direction to the robot.
const DIRECTION_M: f32 = 0.02;

const POSITION: usize = 0;
const OCTAVES: usize = POSITION + 3;
pub(super) const COLOR: usize = OCTAVES + 6 * N_OCTAVES;
pub(super) const KIND: usize = COLOR + 3;
pub(super) const VELOCITY: usize = KIND + N_KINDS;
pub(super) const VELOCITY_KNOWN: usize = VELOCITY + 3;
pub(super) const DIRECTION: usize = VELOCITY_KNOWN + 1;
pub(super) const NEARNESS: usize = DIRECTION + 3;
// What is told of each step; of the first one here, of the others behind all this.
pub(super) const ROBOT_MOTION: usize = NEARNESS + 1;
pub(super) const NEAR_MOTION: usize = ROBOT_MOTION + 3;
pub(super) const AHEAD_DIRECTION: usize = NEAR_MOTION + 3;
const AHEAD_NEARNESS: usize = AHEAD_DIRECTION + 3;
pub(super) const BODY: usize = AHEAD_NEARNESS + 1;
/// Input features a token of passes of one step with the first inputs.
pub const N_FEATURES: usize = BODY + N_BODY_FEATURES;
const N_STEP_FEATURES: usize = BODY - ROBOT_MOTION;
const N_MORE: usize = 6 * N_MORE_OCTAVES + 3;

/// How tokens are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenConfig {
    /// Frame of the positions' features.
    pub frame: Frame,
    /// Length of a step in seconds.
    pub step_secs: f32,
    /// Steps of a pass.
    pub steps_per_pass: usize,
    /// What is told.
    pub inputs: Inputs,
    /// What is told of the tokens' graph.
    pub encodings: Encodings,
    /// Neighbours of a token in that graph.
    pub k: usize,
}

impl TokenConfig {
    /// Input features a token.
    pub fn n_features(&self) -> usize {
        n_features(self.steps_per_pass, self.inputs, self.encodings)
    }

    /// Where the features of step `j` lie.
    pub(super) fn step_at(&self, j: usize) -> usize {
        match j.checked_sub(1) {
            None => ROBOT_MOTION,
            Some(later) => N_FEATURES + later * N_STEP_FEATURES,
        }
    }

    /// Where the second inputs lie: first more octaves of the position.
    pub(super) fn more_at(&self) -> Option<usize> {
        (self.inputs == Inputs::Second)
            .then(|| N_FEATURES + (self.steps_per_pass - 1) * N_STEP_FEATURES)
    }

    /// Where the past motion of the nearest link lies.
    pub(super) fn past_at(&self) -> Option<usize> {
        self.more_at().map(|at| at + 6 * N_MORE_OCTAVES)
    }

    /// Where the second inputs tell what touches the body in step `j`.
    pub(super) fn contact_at(&self, j: usize) -> Option<usize> {
        self.past_at().map(|at| at + 3 + N_CONTACT * j)
    }

    /// Rows of the kinematic particles (one step back, now, ahead) that are tokens.
    pub(super) fn token_rows(&self) -> [usize; 3] {
        match self.steps_per_pass {
            1 => [0, 1, 2],
            steps_per_pass => [1, 1 + steps_per_pass.div_ceil(2), 1 + steps_per_pass],
        }
    }
}

/// Input features a token of passes of `steps_per_pass` steps; those of the encodings are the last.
pub fn n_features(steps_per_pass: usize, inputs: Inputs, encodings: Encodings) -> usize {
    let more = if inputs == Inputs::Second { N_MORE + N_CONTACT * steps_per_pass } else { 0 };
    N_FEATURES + (steps_per_pass - 1) * N_STEP_FEATURES + more + encodings.width()
}

/// For each feature of `from`, its place among those of `to`, which tells all of it.
pub(in crate::engine::model) fn places(from: &TokenConfig, to: &TokenConfig) -> Vec<usize> {
    let mut places: Vec<usize> = (0..from.n_features()).collect();
    let mut lie = |old: usize, new: usize, n: usize| {
        (0..n).for_each(|i| places[old + i] = new + i);
    };
    for step in 1..from.steps_per_pass {
        lie(from.step_at(step), to.step_at(step), N_STEP_FEATURES);
    }
    if let (Some(old), Some(new)) = (from.more_at(), to.more_at()) {
        lie(old, new, N_MORE);
    }
    let encodings = [from, to].map(|config| config.n_features() - config.encodings.width());
    lie(encodings[0], encodings[1], from.encodings.width());
    for step in 0..from.steps_per_pass {
        if let (Some(old), Some(new)) = (from.contact_at(step), to.contact_at(step)) {
            lie(old, new, N_CONTACT);
        }
    }
    places
}

pub(super) fn encode_motion(row: &mut [f32], at: usize, motion: &Vec3) {
    row[at..at + 3].copy_from_slice(&motion.map(|m| m / MOTION_SCALE_M));
}

/// Position relative to the workspace, and its sines and cosines over octaves.
pub(super) fn encode_position(row: &mut [f32], p: &Vec3, frame: Frame) {
    for axis in 0..3 {
        let x = (p[axis] - frame.center_m[axis]) / frame.half_side_m;
        row[POSITION + axis] = x;
        encode_axis(&mut row[OCTAVES..], axis, N_OCTAVES, x * std::f32::consts::PI);
    }
}

/// The octaves that follow those of [`encode_position`].
pub(super) fn encode_octaves(row: &mut [f32], p: &Vec3, frame: Frame) {
    for (axis, (x, center)) in p.iter().zip(frame.center_m).enumerate() {
        let x = (x - center) / frame.half_side_m;
        encode_axis(row, axis, N_MORE_OCTAVES, x * first_rate());
    }
}

/// Rate of the first of the octaves that follow.
fn first_rate() -> f32 {
    std::f32::consts::PI * (1 << N_OCTAVES) as f32
}

fn encode_axis(row: &mut [f32], axis: usize, n_octaves: usize, angle: f32) {
    let (mut sin, mut cos) = angle.sin_cos();
    for octave in 0..n_octaves {
        let at = 6 * octave + 2 * axis;
        row[at] = sin;
        row[at + 1] = cos;
        // The double angle: all octaves for one sine.
        (sin, cos) = (2.0 * sin * cos, cos * cos - sin * sin);
    }
}

pub(super) fn position_gradient(x: &[f32], g: &[f32], frame: Frame) -> Vec3 {
    std::array::from_fn(|axis| {
        let (x, g_octaves) = (&x[OCTAVES..], &g[OCTAVES..]);
        let octaves = axis_gradient(x, g_octaves, axis, N_OCTAVES, std::f32::consts::PI);
        (g[POSITION + axis] + octaves) / frame.half_side_m
    })
}

pub(super) fn octaves_gradient(x: &[f32], g: &[f32], frame: Frame) -> Vec3 {
    std::array::from_fn(|axis| {
        axis_gradient(x, g, axis, N_MORE_OCTAVES, first_rate()) / frame.half_side_m
    })
}

fn axis_gradient(x: &[f32], g: &[f32], axis: usize, n_octaves: usize, mut rate: f32) -> f32 {
    let mut d = 0.0;
    for octave in 0..n_octaves {
        let at = 6 * octave + 2 * axis;
        d += rate * (g[at] * x[at + 1] - g[at + 1] * x[at]);
        rate *= 2.0;
    }
    d
}

/// The direction of `offset` from a robot's point, and behind it how near it is.
pub(super) fn encode_nearness(row: &mut [f32], at: usize, offset: &Vec3) {
    let length = length(offset);
    for axis in 0..3 {
        row[at + axis] = offset[axis] / (length + DIRECTION_M);
    }
    row[at + 3] = nearness(length);
}

/// 1 at the robot, fading with the distance (m) from it.
pub(super) fn nearness(distance_m: f32) -> f32 {
    (-distance_m / NEARNESS_M).exp()
}

/// Gradient of the position from those of the features that [`encode_nearness`] put `at`, and
/// `d_nearness` more of the nearness.
pub(super) fn nearness_gradient(
    x: &[f32],
    g: &[f32],
    at: usize,
    d_nearness: f32,
    offset: &Vec3,
) -> Vec3 {
    let length = length(offset);
    if length == 0.0 {
        return [0.0; 3];
    }
    let soft = length + DIRECTION_M;
    let along: f32 = (0..3).map(|axis| g[at + axis] * offset[axis]).sum();
    let d_nearness = g[at + 3] + d_nearness;
    let radial = -along / (length * soft * soft) - d_nearness * x[at + 3] / (NEARNESS_M * length);
    std::array::from_fn(|axis| g[at + axis] / soft + radial * offset[axis])
}
