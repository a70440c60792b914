//! What will touch what, as far as straight ways and free fall tell: the robot and each body, a body and
//! the plane below, bodies that move and what rests in their way.
//!
//! A pass of several steps can't look at the scene between them, so it is told beforehand what it would
//! see: of each body and step the least distances, as if the robot did as planned, what rests stayed,
//! and what moves went on and fell. All of it is held constant in the backward pass.

use super::features::{TokenConfig, encode_motion, nearness};
use super::{GRAVITY_M_S2, N_CANDIDATES};
use crate::base::geometry::{Nearest, Vec3, add, distance, minus};
use crate::engine::rollout_input::StepState;
use crate::engine::rollout_input::is_still;
use crate::vision::motion::NO_BODY;

/// Features of a step.
pub(super) const N_CONTACT: usize = 10;
const ROBOT: usize = 0;
const CLEARANCE: usize = ROBOT + 4;
const OBSTACLE: usize = CLEARANCE + 1;
const STRUCK: usize = OBSTACLE + 1;
const _: () = assert!(STRUCK + 4 == N_CONTACT);
/// Scale and bound of the clearance.
const CLEARANCE_SCALE_M: f32 = 0.05;
const MAX_CLEARANCE: f32 = 4.0;

/// The least distances, of each step `[steps_per_pass]` and body.
#[derive(Debug, Default, Clone)]
pub(super) struct Contacts {
    steps: Vec<Vec<Body>>,
    /// Particles that rest, that others may strike, and those that move.
    obstacles: Vec<u32>,
    movers: Vec<u32>,
    places: Vec<Vec3>,
    ahead: Vec<Vec3>,
    nearest: Vec<u32>,
    search: Nearest,
}

/// What comes near to a body in a step.
#[derive(Debug, Clone, Copy)]
struct Body {
    /// Least distance from the robot (m), and the robot's motion there in the step.
    robot_m: f32,
    robot_motion: Vec3,
    /// Height of its lowest particle above the support plane (m).
    clearance_m: f32,
    /// Least distance from what rests (m).
    obstacle_m: f32,
    /// Least distance from what moves (m), and its motion.
    struck_m: f32,
    struck_motion: Vec3,
}

impl Body {
    const FREE: Self = Self {
        robot_m: f32::INFINITY,
        robot_motion: [0.0; 3],
        clearance_m: f32::INFINITY,
        obstacle_m: f32::INFINITY,
        struck_m: f32::INFINITY,
        struck_motion: [0.0; 3],
    };
}

impl Contacts {
    /// Finds them; `nearest` are the robot's nearest points of each particle, now and after each step,
    /// and `candidates` `[n, steps_per_pass, N_CANDIDATES]` the particles' candidate motions.
    pub(super) fn find(
        &mut self,
        state: &StepState,
        config: &TokenConfig,
        nearest: &[Vec<u32>],
        candidates: &[Vec3],
    ) {
        let has_body = state.body_of.iter().filter(|&&body| body != NO_BODY);
        let n_bodies = has_body.max().map_or(0, |&last| last as usize + 1);
        self.steps.resize_with(config.steps_per_pass, Vec::new);
        for bodies in &mut self.steps {
            bodies.clear();
            bodies.resize(n_bodies, Body::FREE);
        }
        if n_bodies == 0 {
            return;
        }
        self.sort(state);
        for step in 0..config.steps_per_pass {
            self.fall(state, config, candidates, step);
            self.find_robot(state, &nearest[step + 1], step);
            self.find_plane(state, step);
            self.find_strikes(state, config, candidates, step);
        }
    }

    /// What the particle `i` is told, into `row` from where the features lie.
    pub(super) fn encode(
        &self,
        state: &StepState,
        config: &TokenConfig,
        i: usize,
        row: &mut [f32],
    ) {
        let Some(&number) = state.body_of.get(i) else { return };
        for (step, bodies) in self.steps.iter().enumerate() {
            let (Some(at), Some(body)) = (config.contact_at(step), bodies.get(number as usize))
            else {
                return;
            };
            let row = &mut row[at..at + N_CONTACT];
            for (at, distance_m, motion) in [
                (ROBOT, body.robot_m, body.robot_motion),
                (STRUCK, body.struck_m, body.struck_motion),
            ] {
                row[at] = nearness(distance_m);
                encode_motion(row, at + 1, &motion.map(|m| nearness(distance_m) * m));
            }
            let clearance = body.clearance_m / CLEARANCE_SCALE_M;
            row[CLEARANCE] = if clearance.is_finite() {
                clearance.clamp(-MAX_CLEARANCE, MAX_CLEARANCE)
            } else {
                0.0
            };
            row[OBSTACLE] = nearness(body.obstacle_m);
        }
    }

    /// Tells particles of bodies that move from such that rest.
    fn sort(&mut self, state: &StepState) {
        self.obstacles.clear();
        self.movers.clear();
        for (i, &body) in state.body_of.iter().enumerate() {
            if is_still(&state.velocities[i], state.velocity_known[i]) {
                self.obstacles.push(i as u32);
            } else if body != NO_BODY && state.velocity_known[i] > 0.0 {
                self.movers.push(i as u32);
            }
        }
        self.places.clear();
        self.places.extend(self.obstacles.iter().map(|&i| state.positions[i as usize]));
        self.search.rebuild(&self.places);
    }

    /// Where each particle will be after `step`, if it goes on and falls, whatever is below.
    fn fall(&mut self, state: &StepState, config: &TokenConfig, candidates: &[Vec3], step: usize) {
        let times = (step + 1) as f32;
        let fall = GRAVITY_M_S2 * config.step_secs * config.step_secs;
        self.ahead.clear();
        self.ahead.extend(state.positions.iter().enumerate().map(|(i, p)| {
            let mut there = *p;
            let steps =
                candidates[i * config.steps_per_pass * N_CANDIDATES..].chunks_exact(N_CANDIDATES);
            steps.take(step + 1).for_each(|candidates| add(&mut there, &candidates[1]));
            there[2] += 0.5 * times * (times + 1.0) * fall;
            there
        }));
    }

    fn find_robot(&mut self, state: &StepState, nearest: &[u32], step: usize) {
        let [before, after] = [&state.kinematic[step + 1], &state.kinematic[step + 2]];
        for (i, &number) in state.body_of.iter().enumerate() {
            let Some(body) = self.steps[step].get_mut(number as usize) else { continue };
            let point = nearest[i] as usize;
            let Some(there) = after.get(point) else { return };
            let distance_m = distance(&state.positions[i], there);
            if distance_m < body.robot_m {
                body.robot_m = distance_m;
                body.robot_motion = minus(there, &before[point]);
            }
        }
    }

    fn find_plane(&mut self, state: &StepState, step: usize) {
        let Some(support_m) = state.support_m else { return };
        for (i, &number) in state.body_of.iter().enumerate() {
            if let Some(body) = self.steps[step].get_mut(number as usize) {
                body.clearance_m = body.clearance_m.min(self.ahead[i][2] - support_m);
            }
        }
    }

    fn find_strikes(
        &mut self,
        state: &StepState,
        config: &TokenConfig,
        candidates: &[Vec3],
        step: usize,
    ) {
        if self.obstacles.is_empty() {
            return;
        }
        let fall = GRAVITY_M_S2 * config.step_secs * config.step_secs;
        self.nearest.clear();
        self.nearest.resize(self.movers.len(), 0);
        let ahead = self.movers.iter().map(|&i| &self.ahead[i as usize]);
        self.search.find(self.nearest.iter_mut().zip(ahead));
        let bodies = &mut self.steps[step];
        for (&i, &nearest) in self.movers.iter().zip(&self.nearest) {
            let (i, obstacle) = (i as usize, self.obstacles[nearest as usize] as usize);
            let [mover, struck] = [i, obstacle].map(|i| state.body_of[i] as usize);
            if mover == struck {
                continue;
            }
            let distance_m = distance(&self.ahead[i], &self.places[nearest as usize]);
            if let Some(body) = bodies.get_mut(mover) {
                body.obstacle_m = body.obstacle_m.min(distance_m);
            }
            let mut motion = candidates[(i * config.steps_per_pass + step) * N_CANDIDATES + 1];
            motion[2] += (step + 1) as f32 * fall;
            if let Some(body) = bodies.get_mut(struck).filter(|body| distance_m < body.struck_m) {
                (body.struck_m, body.struck_motion) = (distance_m, motion);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{THREE, state};
    use super::super::{TokenConfig, Tokens};
    use super::*;
    use crate::base::geometry::length;
    use crate::vision::motion::MOTION_SCALE_M;

    /// What the particle `i` of `state` is told of `step`.
    fn contact_features(
        state: &StepState,
        config: &TokenConfig,
        i: usize,
        step: usize,
    ) -> [f32; N_CONTACT] {
        let mut tokens = Tokens::default();
        tokens.encode(state, config).unwrap();
        let at = i * config.n_features() + config.contact_at(step).unwrap();
        tokens.features[at..at + N_CONTACT].try_into().unwrap()
    }

    fn motion(told: &[f32], at: usize) -> Vec3 {
        std::array::from_fn(|axis| told[at + axis] * MOTION_SCALE_M)
    }

    #[test]
    fn a_body_is_told_how_near_the_robot_comes_to_any_part_of_it() {
        let mut state = state(6, 4, 5, 1);
        state.body_of = vec![0, 0, 1, 1, NO_BODY, 1];
        // Far off, but for one particle of the first body, where the robot is after the second step.
        state.positions.iter_mut().for_each(|p| p[0] += 5.0);
        state.positions[1] = state.kinematic[3][2];
        let way = minus(&state.kinematic[3][2], &state.kinematic[2][2]);
        for member in [0, 1] {
            let [first, second] = [0, 1].map(|step| contact_features(&state, &THREE, member, step));
            assert!((second[ROBOT] - 1.0).abs() < 1e-6 && first[ROBOT] < 1.0);
            assert!(length(&minus(&motion(&second, ROBOT + 1), &way)) < 1e-6);
        }
        assert!((0..3).all(|step| contact_features(&state, &THREE, 2, step)[ROBOT] < 1e-6));
        assert_eq!(contact_features(&state, &THREE, 4, 1), [0.0; N_CONTACT]);
    }

    /// A block of two particles 20 cm above the plane, thrown along x, and a box that rests in its way.
    fn thrown() -> StepState {
        StepState {
            positions: vec![[0.0, 0.0, 0.2], [0.0, 0.0, 0.25], [0.2, 0.0, 0.05]],
            velocities: vec![[0.1, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0; 3]],
            velocity_known: vec![1.0; 3],
            colors: vec![[0.5; 3]; 3],
            body_of: vec![0, 0, 1],
            support_m: Some(0.0),
            kinematic: vec![vec![]; 5],
            ..StepState::default()
        }
    }

    #[test]
    fn what_flies_is_told_when_it_comes_down_and_what_it_strikes() {
        let state = thrown();
        let g = -GRAVITY_M_S2 * THREE.step_secs * THREE.step_secs;
        for (step, fallen) in [g, 3.0 * g, 6.0 * g].into_iter().enumerate() {
            let expected = ((0.2 - fallen) / CLEARANCE_SCALE_M).max(-MAX_CLEARANCE);
            for member in [0, 1] {
                let told = contact_features(&state, &THREE, member, step)[CLEARANCE];
                assert!((told - expected).abs() < 1e-4, "{told} {expected}");
            }
        }
        // After two steps it is above the box, which is told what comes.
        let [flying, box_] = [0, 2].map(|i| contact_features(&state, &THREE, i, 1));
        let above_m = (0.25 - 3.0 * g - 0.05).abs().min((0.2 - 3.0 * g - 0.05).abs());
        assert!((flying[OBSTACLE] - nearness(above_m)).abs() < 1e-5);
        assert_eq!(flying[OBSTACLE], box_[STRUCK]);
        let way = motion(&box_, STRUCK + 1).map(|m| m / box_[STRUCK]);
        assert!(length(&minus(&way, &[0.1, 0.0, -2.0 * g])) < 1e-5, "{way:?}");
        assert_eq!((flying[STRUCK], box_[OBSTACLE], flying[ROBOT]), (0.0, 0.0, 0.0));
    }

    #[test]
    fn without_bodies_or_a_plane_nothing_is_told() {
        let none = StepState { body_of: vec![NO_BODY; 3], ..thrown() };
        assert_eq!(contact_features(&none, &THREE, 0, 0), [0.0; N_CONTACT]);
        let unknown = StepState { body_of: Vec::new(), ..thrown() };
        assert_eq!(contact_features(&unknown, &THREE, 0, 0), [0.0; N_CONTACT]);
        let above_nothing = StepState { support_m: None, ..thrown() };
        assert_eq!(contact_features(&above_nothing, &THREE, 0, 0)[CLEARANCE], 0.0);
    }
}
