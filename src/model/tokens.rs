//! The tokens of one step: scene particles now, their history, and the robot's kinematic particles
//! one step back, now, and one step ahead; their input features and the candidate motions.
//!
//! Order: `[scene | history | kinematic back | kinematic now | kinematic ahead]`.

use rayon::prelude::*;

use crate::Result;
use crate::geometry::{Nearest, RigidMotion, Vec3, add, length, minus};
use crate::motion::{MOTION_SCALE_M, N_BODY_FEATURES, NEARNESS_M};
use crate::scene::StepState;

/// Gravity, in m/s² along world z (REP 103: z up).
const GRAVITY_M_S2: f32 = -9.81;
/// Kinds of tokens, told to the model one-hot.
const N_KINDS: usize = 5;
/// Octaves of the positions' sine features.
const N_OCTAVES: usize = 4;
/// Softening of the direction to the robot.
const DIRECTION_M: f32 = 0.02;

const POSITION: usize = 0;
const OCTAVES: usize = POSITION + 3;
const COLOR: usize = OCTAVES + 6 * N_OCTAVES;
const KIND: usize = COLOR + 3;
const VELOCITY: usize = KIND + N_KINDS;
const VELOCITY_KNOWN: usize = VELOCITY + 3;
const DIRECTION: usize = VELOCITY_KNOWN + 1;
const NEARNESS: usize = DIRECTION + 3;
const ROBOT_MOTION: usize = NEARNESS + 1;
const NEAR_MOTION: usize = ROBOT_MOTION + 3;
const AHEAD_DIRECTION: usize = NEAR_MOTION + 3;
const AHEAD_NEARNESS: usize = AHEAD_DIRECTION + 3;
const BODY: usize = AHEAD_NEARNESS + 1;
/// Input features a token.
pub const N_FEATURES: usize = BODY + N_BODY_FEATURES;
/// Candidate motions a scene particle: rest, as before, with the nearest robot link, free fall.
pub const N_CANDIDATES: usize = 4;

/// Replaces `motions` by those of the links from `now` to `ahead`: the number of each point's link is
/// in `links`, ascending.
pub(crate) fn follow_links(
    links: &[u32],
    now: &[Vec3],
    ahead: &[Vec3],
    motions: &mut Vec<RigidMotion>,
) {
    motions.clear();
    let mut from = 0;
    while let Some(&link) = links.get(from) {
        let to = from + links[from..].partition_point(|&other| other <= link);
        // Links without points are nobody's nearest.
        motions.resize(link as usize, RigidMotion::REST);
        motions.push(RigidMotion::fit(&now[from..to], &ahead[from..to]));
        from = to;
    }
}

/// Origin and length that positions are told relative to.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Centre of the workspace, in the world frame (m).
    pub center_m: Vec3,
    /// Half the workspace's side (m).
    pub half_side_m: f32,
}

/// Encoded tokens of one step.
#[derive(Debug, Default, Clone)]
pub struct Tokens {
    /// Positions of all tokens, for the graph (m).
    pub positions: Vec<Vec3>,
    /// Features `[n_tokens, N_FEATURES]`.
    pub features: Vec<f32>,
    /// Candidate motions of the scene particles `[n, N_CANDIDATES]` (m).
    pub candidates: Vec<Vec3>,
    /// Nearest point of the robot of each scene and history particle, now and one step ahead.
    nearest: [Vec<u32>; 2],
    robot: Nearest,
    /// Motion of each link from now to one step ahead.
    links: Vec<RigidMotion>,
}

/// Gradients of one step's scene, history and velocities.
#[derive(Debug, Default, Clone)]
pub struct StateGradients {
    /// Of the scene positions.
    pub positions: Vec<Vec3>,
    /// Of the velocities.
    pub velocities: Vec<Vec3>,
    /// Of the history's positions.
    pub history_positions: Vec<Vec3>,
}

impl Tokens {
    /// Encodes `state`; `step_secs` is the length of a step.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the state's vectors do not belong together.
    pub fn encode(&mut self, state: &StepState, frame: Frame, step_secs: f32) -> Result<()> {
        state.check()?;
        let (n, h) = (state.positions.len(), state.history_positions.len());
        let (k, stride) = (state.n_kinematic(), state.stride());
        self.positions.clear();
        self.positions.extend_from_slice(&state.positions);
        self.positions.extend_from_slice(&state.history_positions);
        for points in &state.kinematic {
            self.positions.extend(points.iter().step_by(stride));
        }
        self.features.resize(state.n_tokens() * N_FEATURES, 0.0);
        self.candidates.resize(n * N_CANDIDATES, [0.0; 3]);
        self.find_nearest(state);
        let [_, now, ahead] = &state.kinematic;
        follow_links(&state.kinematic_links, now, ahead, &mut self.links);

        let (positions, nearest, links) = (&self.positions, &self.nearest, &self.links);
        let rows = self.features.par_chunks_mut(N_FEATURES).zip(positions).with_min_len(256);
        rows.enumerate().for_each(|(token, (row, p))| {
            row.fill(0.0);
            encode_position(row, p, frame);
            if token < n + h {
                let i = token;
                encode_robot(row, p, state, nearest.each_ref().map(|nearest| nearest[i]), links);
                let colors = if i < n { &state.colors[i] } else { &state.history_colors[i - n] };
                row[COLOR..COLOR + 3].copy_from_slice(&colors.map(|c| c - 0.5));
                row[KIND + usize::from(i >= n)] = 1.0;
                if i < n {
                    encode_motion(row, VELOCITY, &state.velocities[i]);
                    row[VELOCITY_KNOWN] = state.velocity_known[i];
                    if let Some(body) = state.bodies.get(i) {
                        row[BODY..].copy_from_slice(body);
                    }
                }
            } else {
                let (time, j) = ((token - n - h) / k, (token - n - h) % k);
                row[KIND + 2 + time] = 1.0;
                let at = |time: usize| &state.kinematic[time][j * stride];
                let (from, to) = if time == 0 { (at(0), at(1)) } else { (at(1), at(2)) };
                encode_motion(row, VELOCITY, &minus(to, from));
                row[VELOCITY_KNOWN] = 1.0;
                row[NEARNESS] = 1.0;
                encode_motion(row, ROBOT_MOTION, &minus(at(2), at(1)));
                encode_motion(row, NEAR_MOTION, &minus(at(2), at(1)));
            }
        });
        let fall = [0.0, 0.0, GRAVITY_M_S2 * step_secs * step_secs];
        for (i, candidates) in self.candidates.chunks_exact_mut(N_CANDIDATES).enumerate() {
            let (p, onward) = (&state.positions[i], state.onward.get(i));
            let v = *onward.unwrap_or(&state.velocities[i]);
            candidates[0] = [0.0; 3];
            candidates[1] = v;
            candidates[2] = robot_motion(p, state, self.nearest[0][i], &self.links);
            candidates[3] = [v[0], v[1], v[2] + fall[2]];
        }
        Ok(())
    }

    fn find_nearest(&mut self, state: &StepState) {
        let others = &self.positions[..state.positions.len() + state.history_positions.len()];
        for (nearest, robot) in self.nearest.iter_mut().zip(&state.kinematic[1..]) {
            nearest.resize(others.len(), 0);
            self.robot.rebuild(robot);
            let (chunks, robot) =
                (nearest.par_chunks_mut(64).zip(others.par_chunks(64)), &self.robot);
            chunks.for_each(|(nearest, positions)| robot.find(nearest.iter_mut().zip(positions)));
        }
    }

    /// From the gradients of features and candidates to those of the state; what it gives for
    /// velocities is of use where there is no motion onward.
    pub fn backward(
        &self,
        state: &StepState,
        frame: Frame,
        d_features: &[f32],
        d_candidates: &[Vec3],
        out: &mut StateGradients,
    ) {
        let (n, h) = (state.positions.len(), state.history_positions.len());
        out.positions.resize(n, [0.0; 3]);
        out.velocities.resize(n, [0.0; 3]);
        out.history_positions.resize(h, [0.0; 3]);
        let scene_and_history = out.positions.iter_mut().chain(&mut out.history_positions);
        for (i, d) in scene_and_history.enumerate() {
            let row = i * N_FEATURES..(i + 1) * N_FEATURES;
            let (x, g) = (&self.features[row.clone()], &d_features[row]);
            *d = position_gradient(x, g, frame);
            let [now, ahead] = self.nearest.each_ref().map(|nearest| nearest[i] as usize);
            if let Some(robot) = state.kinematic[1].get(now) {
                let offset = minus(&self.positions[i], robot);
                add(d, &nearness_gradient(x, g, DIRECTION, near_motion_gradient(x, g), &offset));
                let robot = &state.kinematic[2][ahead];
                let offset = minus(&self.positions[i], robot);
                add(d, &nearness_gradient(x, g, AHEAD_DIRECTION, 0.0, &offset));
                // The motion with the link turns with the place on it.
                let mut d_motion: Vec3 = std::array::from_fn(|axis| {
                    let near = x[NEARNESS] * g[NEAR_MOTION + axis];
                    (g[ROBOT_MOTION + axis] + near) / MOTION_SCALE_M
                });
                if i < n {
                    add(&mut d_motion, &d_candidates[i * N_CANDIDATES + 2]);
                }
                let link = &self.links[state.kinematic_links[now] as usize];
                add(d, &link.gradient(&d_motion));
            }
        }
        for (i, d) in out.velocities.iter_mut().enumerate() {
            let g = &d_features[i * N_FEATURES + VELOCITY..][..3];
            let candidates = &d_candidates[i * N_CANDIDATES..][..N_CANDIDATES];
            for axis in 0..3 {
                d[axis] = g[axis] / MOTION_SCALE_M + candidates[1][axis] + candidates[3][axis];
            }
        }
    }
}

/// Motion of a point of the nearest kinematic particle's link from now to one step ahead; none
/// without a robot.
fn robot_motion(p: &Vec3, state: &StepState, nearest: u32, links: &[RigidMotion]) -> Vec3 {
    let link = state.kinematic_links.get(nearest as usize);
    link.map_or([0.0; 3], |&link| links[link as usize].motion_of(p))
}

fn encode_motion(row: &mut [f32], at: usize, motion: &Vec3) {
    row[at..at + 3].copy_from_slice(&motion.map(|m| m / MOTION_SCALE_M));
}

/// Position relative to the workspace, and its sines and cosines over octaves.
fn encode_position(row: &mut [f32], p: &Vec3, frame: Frame) {
    for axis in 0..3 {
        let x = (p[axis] - frame.center_m[axis]) / frame.half_side_m;
        row[POSITION + axis] = x;
        let (mut sin, mut cos) = (x * std::f32::consts::PI).sin_cos();
        for octave in 0..N_OCTAVES {
            let at = OCTAVES + 6 * octave + 2 * axis;
            row[at] = sin;
            row[at + 1] = cos;
            // The double angle: four octaves for one sine.
            (sin, cos) = (2.0 * sin * cos, cos * cos - sin * sin);
        }
    }
}

fn position_gradient(x: &[f32], g: &[f32], frame: Frame) -> Vec3 {
    std::array::from_fn(|axis| {
        let mut d = g[POSITION + axis];
        let mut rate = std::f32::consts::PI;
        for octave in 0..N_OCTAVES {
            let at = OCTAVES + 6 * octave + 2 * axis;
            d += rate * (g[at] * x[at + 1] - g[at + 1] * x[at]);
            rate *= 2.0;
        }
        d / frame.half_side_m
    })
}

/// Where the robot's nearest particle is and how near, now and one step ahead; and how the link
/// moves that is nearest now.
fn encode_robot(
    row: &mut [f32],
    p: &Vec3,
    state: &StepState,
    nearest: [u32; 2],
    links: &[RigidMotion],
) {
    let [now, ahead] = nearest.map(|nearest| nearest as usize);
    let Some(robot) = state.kinematic[1].get(now) else { return };
    let nearness = encode_nearness(row, DIRECTION, &minus(p, robot));
    encode_nearness(row, AHEAD_DIRECTION, &minus(p, &state.kinematic[2][ahead]));
    let motion = robot_motion(p, state, nearest[0], links);
    encode_motion(row, ROBOT_MOTION, &motion);
    encode_motion(row, NEAR_MOTION, &motion.map(|m| nearness * m));
}

/// The direction of `offset` from a robot's particle, and behind it how near it is.
fn encode_nearness(row: &mut [f32], at: usize, offset: &Vec3) -> f32 {
    let length = length(offset);
    for axis in 0..3 {
        row[at + axis] = offset[axis] / (length + DIRECTION_M);
    }
    row[at + 3] = (-length / NEARNESS_M).exp();
    row[at + 3]
}

/// Gradient of the nearness by way of [`NEAR_MOTION`].
fn near_motion_gradient(x: &[f32], g: &[f32]) -> f32 {
    (0..3).map(|axis| g[NEAR_MOTION + axis] * x[ROBOT_MOTION + axis]).sum()
}

/// Gradient of the position from those of the features that [`encode_nearness`] put `at`, and
/// `d_nearness` more of the nearness.
fn nearness_gradient(x: &[f32], g: &[f32], at: usize, d_nearness: f32, offset: &Vec3) -> Vec3 {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ops::check::numbers;

    pub const FRAME: Frame = Frame { center_m: [0.05, 0.0, 0.3], half_side_m: 0.5 };

    /// A seeded scene of `n` particles, `h` of history and `k` kinematic ones.
    pub fn state(n: usize, h: usize, k: usize, seed: u64) -> StepState {
        let cloud = |m: usize, scale: f32, salt: u64| -> Vec<Vec3> {
            let x = numbers(3 * m, seed * 100 + salt);
            x.chunks_exact(3).map(|c| [scale * c[0], scale * c[1], scale * c[2]]).collect()
        };
        let now = cloud(k, 0.2, 5);
        let ahead =
            now.iter().zip(cloud(k, 0.02, 6)).map(|(p, m)| [p[0] + m[0], p[1] + m[1], p[2] + m[2]]);
        StepState {
            positions: cloud(n, 0.2, 1),
            velocities: cloud(n, 0.02, 2),
            onward: Vec::new(),
            bodies: Vec::new(),
            velocity_known: vec![1.0; n],
            colors: cloud(n, 0.3, 3),
            history_positions: cloud(h, 0.2, 4),
            history_colors: cloud(h, 0.3, 7),
            kinematic: [cloud(k, 0.2, 8), now.clone(), ahead.collect()],
            kinematic_links: (0..k as u32).map(|i| i / 4).collect(),
            kinematic_stride: 2,
        }
    }

    #[test]
    fn gradients_of_the_state_are_finite_differences() {
        let mut at = state(6, 4, 5, 1);
        let d_features = numbers(at.n_tokens() * N_FEATURES, 2);
        let d_candidates: Vec<Vec3> =
            numbers(6 * N_CANDIDATES * 3, 3).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let objective = |state: &StepState| -> f64 {
            let mut tokens = Tokens::default();
            tokens.encode(state, FRAME, 0.1).unwrap();
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            dot(&tokens.features, &d_features)
                + dot(tokens.candidates.as_flattened(), d_candidates.as_flattened())
        };
        let (mut tokens, mut gradients) = (Tokens::default(), StateGradients::default());
        tokens.encode(&at, FRAME, 0.1).unwrap();
        tokens.backward(&at, FRAME, &d_features, &d_candidates, &mut gradients);
        type Pick = fn(&mut StepState) -> &mut Vec<Vec3>;
        let parts: [(Pick, &Vec<Vec3>); 3] = [
            (|s| &mut s.positions, &gradients.positions),
            (|s| &mut s.velocities, &gradients.velocities),
            (|s| &mut s.history_positions, &gradients.history_positions),
        ];
        let step = 1e-3f32;
        for (pick, gradient) in parts {
            for (i, gradient) in gradient.iter().enumerate() {
                for (axis, &got) in gradient.iter().enumerate() {
                    let original = pick(&mut at)[i][axis];
                    pick(&mut at)[i][axis] = original + step;
                    let above = objective(&at);
                    pick(&mut at)[i][axis] = original - step;
                    let below = objective(&at);
                    pick(&mut at)[i][axis] = original;
                    let numeric = (above - below) / f64::from(2.0 * step);
                    let got = f64::from(got);
                    assert!((got - numeric).abs() < 0.02 * numeric.abs() + 0.6, "{got} {numeric}");
                }
            }
        }
    }

    #[test]
    fn works_without_a_robot_and_refuses_shapes() {
        let mut state = state(6, 4, 0, 1);
        let mut tokens = Tokens::default();
        tokens.encode(&state, FRAME, 0.1).unwrap();
        assert_eq!(tokens.features.len(), 10 * N_FEATURES);
        assert!(tokens.features.iter().all(|f| f.is_finite()));
        state.colors.pop();
        assert!(tokens.encode(&state, FRAME, 0.1).is_err());
    }

    #[test]
    fn links_that_are_no_links_are_refused() {
        let mut tokens = Tokens::default();
        for links in [vec![0; 4], vec![0, 0, 1, 0, 1], vec![0, 0, 0, 0, u32::MAX]] {
            let state = StepState { kinematic_links: links, ..state(6, 4, 5, 1) };
            let message = tokens.encode(&state, FRAME, 0.1).unwrap_err().to_string();
            assert!(message.contains("links of the robot's points"), "{message}");
        }
    }
}
