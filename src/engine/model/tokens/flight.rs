//! Where bodies go that nothing holds: on, down, and no farther than where they land.
//!
//! Each body flies as a rigid thing with the motion that it has, under gravity, over what rests: heights
//! of the scene's resting particles in a grid, and the support plane. Where it meets them it stops
//! falling, and slides on as friction lets it. All of it is held constant in the backward pass.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::GRAVITY_M_S2;
use super::features::TokenConfig;
use crate::base::geometry::{Rigid, RigidMotion, Vec3, minus};
use crate::engine::rollout_input::StepState;
use crate::engine::rollout_input::is_still;
use crate::vision::motion::NO_BODY;

/// Moments of a step at which what is met is looked for.
const MOMENTS: usize = 4;
/// Particles of a body that meet things, at most.
const MOST_PROBES: usize = 24;
/// Side of a cell of the heights (m), and cells of an axis at most.
const CELL_M: f32 = 0.025;
const MOST_CELLS: usize = 192;
/// How far above a particle a cell may reach and still be below it (m).
const BELOW_M: f32 = 0.01;
/// Friction, share of the speed that comes back, and share of the turning that is left, where a body
/// meets something.
const FRICTION: f32 = 0.4;
const BOUNCE: f32 = 0.1;
const TURN_LEFT: f32 = 0.7;

/// The ways of the bodies.
#[derive(Debug, Default, Clone)]
pub(super) struct Flight {
    heights: Heights,
    /// Particles of bodies by body, and where each body's begin.
    members: Vec<u32>,
    starts: Vec<u32>,
    /// By the numbers of the bodies, and more that are of no use now.
    ways: Vec<Way>,
}

/// Where a body is after each step, `[steps_per_pass]`, seen from where it is now; empty where not known.
#[derive(Debug, Default, Clone)]
struct Way {
    poses: Vec<Rigid>,
    /// Its particles one step back and now.
    before: Vec<Vec3>,
    now: Vec<Vec3>,
}

/// The largest height of what rests in cells of the plane, with the body that it is of, and the largest
/// of another body.
#[derive(Debug, Default, Clone)]
struct Heights {
    origin: [f32; 2],
    n: [usize; 2],
    cells: Vec<[(f32, u32); 2]>,
    plane_m: f32,
}

impl Flight {
    /// Finds them for a pass of `config`.
    pub(super) fn find(&mut self, state: &StepState, config: &TokenConfig) {
        self.sort(state);
        self.heights.rebuild(state);
        let Self { heights, members, starts, ways } = self;
        let n_bodies = starts.len() - 1;
        ways.resize_with(ways.len().max(n_bodies), Way::default);
        ways[n_bodies..].iter_mut().for_each(|way| way.poses.clear());
        ways[..n_bodies].par_iter_mut().enumerate().for_each(|(body, way)| {
            let members = &members[starts[body] as usize..starts[body + 1] as usize];
            way.fly(state, config, heights, body, members);
        });
    }

    /// Motion of particle `i` in step `j` of the pass; none where its body is not known.
    pub(super) fn motion(&self, state: &StepState, i: usize, j: usize) -> Option<Vec3> {
        let way = self.way(state, i)?;
        let (there, p) = (way.get(j)?, &state.positions[i]);
        let before = j.checked_sub(1).map_or(*p, |j| way[j].apply(p));
        Some(minus(&there.apply(p), &before))
    }

    /// Whether particle `i` is of a body whose way is known.
    pub(super) fn knows(&self, state: &StepState, i: usize) -> bool {
        self.way(state, i).is_some()
    }

    fn way(&self, state: &StepState, i: usize) -> Option<&[Rigid]> {
        let way = &self.ways.get(*state.body_of.get(i)? as usize)?.poses;
        (!way.is_empty()).then_some(way)
    }

    /// Sorts the particles by body.
    fn sort(&mut self, state: &StepState) {
        let Self { members, starts, .. } = self;
        let of_bodies = || state.body_of.iter().enumerate().filter(|(_, body)| **body != NO_BODY);
        let n_bodies = of_bodies().map(|(_, &body)| body as usize + 1).max().unwrap_or(0);
        starts.clear();
        starts.resize(n_bodies + 1, 0);
        of_bodies().for_each(|(_, &body)| starts[body as usize + 1] += 1);
        for body in 0..n_bodies {
            starts[body + 1] += starts[body];
        }
        members.clear();
        members.resize(starts[n_bodies] as usize, 0);
        // From behind, so that each start comes to stand where its body begins.
        starts.rotate_left(1);
        for (i, &body) in of_bodies() {
            let at = &mut starts[body as usize];
            *at -= 1;
            members[*at as usize] = i as u32;
        }
        starts[n_bodies] = members.len() as u32;
    }
}

impl Way {
    /// Finds that of a body, of the particles `members`.
    fn fly(
        &mut self,
        state: &StepState,
        config: &TokenConfig,
        heights: &Heights,
        body: usize,
        members: &[u32],
    ) {
        self.poses.clear();
        if members.is_empty() {
            return;
        }
        let known = state.body_motions.get(body).copied().flatten();
        let motion = known.unwrap_or_else(|| self.fit(state, members));
        let part = 1.0 / MOMENTS as f32;
        // Motions a step, as everywhere; the turning of a moment.
        let mut turn = motion.turn().map(|x| x * part);
        let mut center = Vector3::from(motion.center());
        let gain = GRAVITY_M_S2 * config.step_secs * config.step_secs;
        // What it had was the mean of the step before; by now it falls half a step's gain faster.
        let mut speed = Vector3::from(motion.way()) + Vector3::new(0.0, 0.0, 0.5 * gain);
        let stride = members.len().div_ceil(MOST_PROBES);
        let probes = || members.iter().step_by(stride).map(|&i| &state.positions[i as usize]);
        let depth = |pose: &Rigid, before: &Rigid| {
            let depths =
                probes().map(|p| heights.depth(&pose.apply(p), before.apply(p)[2], body as u32));
            depths.fold(f32::NEG_INFINITY, f32::max)
        };
        let mut pose = Rigid::default();
        // What is below already, by noise or as things hang over, may stay so deep.
        let allowed = depth(&pose, &pose).max(0.0);
        for moment in 0..config.steps_per_pass * MOMENTS {
            speed.z += part * gain;
            let shift = (speed - Vector3::new(0.0, 0.0, 0.5 * part * gain)) * part;
            let before = pose;
            pose = pose.then(&turn, &shift.into(), &center.into());
            center += shift;
            let depth = depth(&pose, &before) - allowed;
            if depth > 0.0 {
                let lift = Vector3::new(0.0, 0.0, depth);
                pose = pose.then(&[0.0; 3], &lift.into(), &center.into());
                center += lift;
                // An impulse upwards, and along the ground what friction makes of it (Coulomb).
                let fallen = (-speed.z).max(0.0);
                let along = speed.x.hypot(speed.y).max(f32::MIN_POSITIVE);
                let left = (1.0 - FRICTION * (1.0 + BOUNCE) * fallen / along).max(0.0);
                speed = Vector3::new(speed.x * left, speed.y * left, speed.z.max(BOUNCE * fallen));
                turn = turn.map(|x| x * TURN_LEFT);
            }
            if (moment + 1).is_multiple_of(MOMENTS) {
                self.poses.push(pose);
            }
        }
    }

    /// The motion that the `members` had in the step before, once more.
    fn fit(&mut self, state: &StepState, members: &[u32]) -> RigidMotion {
        let members = || members.iter().map(|&i| i as usize);
        self.now.clear();
        self.now.extend(members().map(|i| state.positions[i]));
        self.before.clear();
        self.before.extend(members().map(|i| minus(&state.positions[i], &state.velocities[i])));
        RigidMotion::fit(&self.before, &self.now).again()
    }
}

impl Heights {
    fn rebuild(&mut self, state: &StepState) {
        self.plane_m = state.support_m.unwrap_or(f32::NEG_INFINITY);
        self.cells.clear();
        self.n = [0; 2];
        let known = state.velocities.iter().zip(&state.velocity_known);
        let resting = || {
            let known = state.positions.iter().zip(known.clone()).enumerate();
            let still = known.filter(|(_, (_, (v, known)))| is_still(v, **known));
            still.map(|(i, (p, _))| (p, state.body_of.get(i).copied().unwrap_or(NO_BODY)))
        };
        let bound = |axis: usize, f: fn(f32, f32) -> f32, none: f32| {
            resting().map(|(p, _)| p[axis]).fold(none, f)
        };
        for axis in 0..2 {
            let (low, high) =
                (bound(axis, f32::min, f32::INFINITY), bound(axis, f32::max, f32::NEG_INFINITY));
            if low > high {
                return;
            }
            // Far from the middle nothing is known.
            let n = ((high - low) / CELL_M).floor() + 1.0;
            self.n[axis] = n.min(MOST_CELLS as f32) as usize;
            self.origin[axis] = low + 0.5 * (n - self.n[axis] as f32) * CELL_M;
        }
        self.cells.resize(self.n[0] * self.n[1], [(f32::NEG_INFINITY, NO_BODY); 2]);
        for (p, body) in resting() {
            if let Some(at) = self.at(p) {
                let [first, second] = &mut self.cells[at];
                if first.1 == body {
                    first.0 = first.0.max(p[2]);
                } else if p[2] > first.0 {
                    (*first, *second) = ((p[2], body), *first);
                } else if p[2] > second.0 {
                    *second = (p[2], body);
                }
            }
        }
    }

    fn at(&self, p: &Vec3) -> Option<usize> {
        let place = |axis: usize| {
            let x = (p[axis] - self.origin[axis]) / CELL_M;
            (x >= 0.0 && x < self.n[axis] as f32).then_some(x as usize)
        };
        Some(place(0)? * self.n[1] + place(1)?)
    }

    /// How far `p` is below what lies under it (m), if it came from a height of `from_m`: what is above
    /// that is not under it, nor is what is of the same body.
    fn depth(&self, p: &Vec3, from_m: f32, of_body: u32) -> f32 {
        let cell = self.at(p).map(|at| &self.cells[at]);
        let others = cell.into_iter().flatten().filter(|&&(_, body)| body != of_body);
        let under = others.map(|&(height, _)| height).filter(|height| *height <= from_m + BELOW_M);
        under.fold(self.plane_m, f32::max) - p[2]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::THREE;
    use super::super::{N_CANDIDATES, Tokens};
    use super::*;
    use crate::base::geometry::add;
    use crate::engine::rollout_input::RolloutInput;

    const FIVE: TokenConfig = TokenConfig { steps_per_pass: 5, ..THREE };
    const FALL_M: f32 = -GRAVITY_M_S2 * FIVE.step_secs * FIVE.step_secs;

    /// A cube of 4 cm, 27 particles about `center` of body 0, thrown by `velocity` a step, above a plane
    /// at 0, and `resting` particles of body 1.
    fn thrown(center: Vec3, velocity: Vec3, resting: &[Vec3]) -> StepState {
        let mut state = StepState { support_m: Some(0.0), ..StepState::default() };
        for i in 0..27 {
            let local = [i % 3, i / 3 % 3, i / 9].map(|x| 0.02 * (x as f32 - 1.0));
            state.positions.push(std::array::from_fn(|axis| center[axis] + local[axis]));
        }
        state.velocities.resize(27, velocity);
        state.body_of.resize(27, 0);
        state.positions.extend(resting);
        let n = state.positions.len();
        state.velocities.resize(n, [0.0; 3]);
        state.body_of.resize(n, 1);
        state.velocity_known.resize(n, 1.0);
        state
    }

    /// Where the particle `i` is after each step.
    fn way(state: &StepState, i: usize) -> Vec<Vec3> {
        let mut flight = Flight::default();
        flight.find(state, &FIVE);
        let mut at = state.positions[i];
        let steps = (0..FIVE.steps_per_pass).map(|j| {
            add(&mut at, &flight.motion(state, i, j).unwrap());
            at
        });
        steps.collect()
    }

    /// A floor of particles 1 cm apart at a height, over 40 cm about the middle.
    fn floor(z: f32) -> Vec<Vec3> {
        let place = |i: usize| 0.01 * i as f32 - 0.2;
        (0..1600).map(|i| [place(i % 40), place(i / 40), z]).collect()
    }

    #[test]
    fn what_is_thrown_falls_lands_and_slides_to_rest() {
        let state = thrown([-0.3, 0.0, 0.3], [0.1, 0.0, 0.0], &[]);
        // A corner at the bottom: 28 cm above the plane.
        let way = way(&state, 0);
        let expected = [-0.32 + 0.1, -0.02, 0.28 - FALL_M];
        assert!((0..3).all(|axis| (way[0][axis] - expected[axis]).abs() < 1e-5), "{way:?}");
        assert!(way.iter().all(|p| p[2] > -1e-4), "{way:?}");
        assert!(way[3..].iter().all(|p| p[2] < 0.02), "{way:?}");
        let last = way[4][0] - way[3][0];
        assert!((-1e-6..0.04).contains(&last), "{way:?}");
    }

    #[test]
    fn it_lands_on_what_rests_below_but_not_on_itself() {
        let heights = |resting: &[Vec3]| way(&thrown([0.0, 0.0, 0.3], [0.0; 3], resting), 0)[4][2];
        let on_floor = heights(&floor(0.1));
        assert!((0.099..0.12).contains(&on_floor), "{on_floor}");
        // A ceiling is not below, nor is the cube, which rests in the air.
        assert!(heights(&floor(0.5)) < 0.02);
    }

    #[test]
    fn it_goes_straight_on_while_it_turns() {
        let center = [0.0, 0.0, 3.0];
        let mut state = thrown(center, [0.0; 3], &[]);
        let (turn, shift) = ([0.0, 0.6, 0.3], [0.05, 0.02, 0.0]);
        let before: Vec3 = std::array::from_fn(|axis| center[axis] - shift[axis]);
        let pose = Rigid::default().then(&turn, &shift, &before);
        for (p, v) in state.positions.iter().zip(&mut state.velocities) {
            *v = minus(p, &pose.undo(p));
        }
        // The particle in the middle of the cube.
        for (j, p) in way(&state, 13).iter().enumerate() {
            let t = (j + 1) as f32;
            let expected = [t * 0.05, t * 0.02, 3.0 - 0.5 * t * (t + 1.0) * FALL_M];
            assert!((0..3).all(|axis| (p[axis] - expected[axis]).abs() < 1e-4), "{j}: {p:?}");
        }
        // One at the edge turns about it: after a step as the motion says.
        let arm = minus(&state.positions[0], &center);
        let mut there =
            minus(&Rigid::default().then(&turn, &[0.0; 3], &[0.0; 3]).apply(&arm), &arm);
        add(&mut there, &[0.05, 0.02, -FALL_M]);
        let got = minus(&way(&state, 0)[0], &state.positions[0]);
        assert!((0..3).all(|axis| (got[axis] - there[axis]).abs() < 1e-4), "{got:?} {there:?}");
    }

    #[test]
    fn a_scene_told_from_another_origin_goes_the_same_ways() {
        let candidates = |away: Vec3| {
            let mut start = thrown([0.1, 0.0, 0.3], [0.03, 0.01, 0.0], &floor(0.1));
            let n = start.positions.len();
            (start.colors, start.kinematic) = (vec![[0.5; 3]; n], vec![Vec::new(); 5]);
            let turned = Rigid::default().then(&[0.1, 0.3, 0.0], &[0.0; 3], &[0.1, 0.0, 0.3]);
            let before: Vec<Vec3> = start.positions[..27].iter().map(|p| turned.undo(p)).collect();
            let moved = |p: &Vec3| -> Vec3 { std::array::from_fn(|axis| p[axis] + away[axis]) };
            let before: Vec<Vec3> = before.iter().map(moved).collect();
            start.positions.iter_mut().for_each(|p| *p = moved(p));
            start.support_m = start.support_m.map(|z| z + away[2]);
            let motion = RigidMotion::fit(&before, &start.positions[..27]).again();
            start.body_motions = vec![Some(motion), None];
            let mut scene = RolloutInput { start, ..RolloutInput::default() };
            scene.set_origin(&away);
            let mut tokens = Tokens::default();
            tokens.encode(&scene.start, &THREE).unwrap();
            tokens.candidates
        };
        let (here, there) = (candidates([0.0; 3]), candidates([3.0, -2.0, 1.0]));
        for (here, there) in here.iter().zip(&there).take(27 * THREE.steps_per_pass * N_CANDIDATES)
        {
            assert!(
                (0..3).all(|axis| (here[axis] - there[axis]).abs() < 1e-4),
                "{here:?} {there:?}"
            );
        }
    }

    #[test]
    fn no_bodies_no_ground_and_far_places_are_no_panic() {
        let mut flight = Flight::default();
        flight.find(&StepState::default(), &FIVE);
        let mut state = thrown([0.0, 0.0, 0.3], [0.0; 3], &[[1e30, -1e30, 0.0], [0.0; 3]]);
        state.support_m = None;
        assert!(way(&state, 0).as_flattened().iter().all(|x| x.is_finite()));
        state.body_of[0] = NO_BODY;
        flight.find(&state, &FIVE);
        assert_eq!(flight.motion(&state, 0, 0), None);
        assert!(flight.knows(&state, 1) && !flight.knows(&state, 0));
    }
}
