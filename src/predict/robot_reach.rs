//! When the robot may come to move each body: from then on, what was held against its past tells nothing of it.

use crate::base::geometry::{Nearest, Vec3, squared_distance};
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::vision::motion::NO_BODY;

/// What is no farther from where the robot moves than this (m) may be moved by it.
const ROBOT_M: f32 = 0.1;
/// How far a point on the robot goes at least where the robot moves (m): more than the noise of its joints.
const MOVES_M: f32 = 0.002;
/// The row of what the robot never comes near.
pub const NEVER: u32 = u32::MAX;

/// Finds when the robot may move bodies; its vectors are kept.
#[derive(Debug, Default)]
pub struct RobotReach {
    search: Nearest,
    points: Vec<Vec3>,
    /// Whether each point on the robot has moved until the row at hand.
    has_moved: Vec<bool>,
    /// Particles that the robot has not come near, and where they are by the row at hand (m).
    waiting: Vec<u32>,
    queries: Vec<Vec3>,
    nearest: Vec<u32>,
    first: Vec<u32>,
}

impl RobotReach {
    /// The row of `robot` from which on the robot may move each body of `now`, by their numbers, or [`NEVER`]: it has
    /// moved by then, and is near where the body goes if it goes on. Only particles for which `is_asked` count. Each
    /// row depends on those before it alone. `robot`: points on it one step back, now and in the steps ahead (m), as
    /// [`RolloutInput::kinematic`].
    pub fn find(
        &mut self,
        now: &StepState,
        robot: &[Vec<Vec3>],
        is_asked: impl Fn(usize) -> bool,
    ) -> &[u32] {
        let Self { search, points, has_moved, waiting, queries, nearest, first } = self;
        let of_bodies = |i: &u32| now.body_of[*i as usize] != NO_BODY && is_asked(*i as usize);
        waiting.clear();
        waiting.extend((0..now.body_of.len() as u32).filter(of_bodies));
        let body_of = |i: u32| now.body_of[i as usize] as usize;
        let n_bodies = waiting.iter().map(|&i| body_of(i) + 1).max().unwrap_or(0);
        first.clear();
        first.resize(n_bodies, NEVER);
        has_moved.clear();
        has_moved.resize(robot.iter().map(Vec::len).min().unwrap_or(0), false);
        for (r, row) in robot.iter().enumerate().skip(1) {
            points.clear();
            for ((has_moved, p), before) in has_moved.iter_mut().zip(row).zip(&robot[0]) {
                *has_moved |= squared_distance(p, before) > MOVES_M * MOVES_M;
                points.extend(has_moved.then_some(*p));
            }
            if waiting.is_empty() || points.is_empty() {
                continue;
            }
            let steps = (r - 1) as f32;
            queries.clear();
            queries.extend(waiting.iter().map(|&i| {
                let (p, v) = (now.positions[i as usize], now.velocities[i as usize]);
                std::array::from_fn(|axis| p[axis] + steps * v[axis])
            }));
            nearest.clear();
            nearest.resize(queries.len(), 0);
            search.rebuild(points);
            search.find_within(ROBOT_M, nearest.iter_mut().zip(&*queries));
            for ((query, &nearest), &i) in queries.iter().zip(&*nearest).zip(&*waiting) {
                let is_near =
                    squared_distance(query, &points[nearest as usize]) < ROBOT_M * ROBOT_M;
                if is_near {
                    first[body_of(i)] = first[body_of(i)].min(r as u32);
                }
            }
            waiting.retain(|&i| first[body_of(i)] == NEVER);
        }
        first
    }

    /// Ends the evidence of `scene` where the robot comes near, on the way that `scene` has of it.
    pub fn end_evidence(&mut self, scene: &mut RolloutInput) {
        let RolloutInput { start, kinematic, evidence, .. } = scene;
        if evidence.iter().all(Option::is_none) {
            return;
        }
        let is_known = |i: usize| evidence.get(i).is_some_and(Option::is_some);
        let first = self.find(start, kinematic, is_known);
        for (known, &body) in evidence.iter_mut().zip(&start.body_of) {
            if let Some(&row) = first.get(body as usize).filter(|row| **row != NEVER) {
                // A step ends in the row after next.
                *known = known.and_then(|known| known.held_until(row.saturating_sub(2)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rollout_input::Evidence;

    /// Two bodies, half a metre apart along y, and what lies on the support.
    fn scene() -> RolloutInput {
        let known = Evidence {
            model: 0.0,
            goes_on: 0.0,
            rests: 1.0,
            misses_m: [0.0; 2],
            has_rested: true,
            keeps: 1.0,
            steady: None,
            until: NEVER,
        };
        let start = StepState {
            positions: vec![[0.0, 0.0, 0.1], [0.0, 0.5, 0.1], [0.0, 0.5, 0.0]],
            body_of: vec![0, 1, NO_BODY],
            velocities: vec![[0.0; 3]; 3],
            ..StepState::default()
        };
        RolloutInput { start, evidence: vec![Some(known); 3], ..RolloutInput::default() }
    }

    /// A point that stays beside the first, and a hand that goes from there to the second, in two steps of ten.
    fn way(far: f32) -> Vec<Vec<Vec3>> {
        let row = |y: f32| vec![[0.05, 0.0, 0.1], [0.3, y, 0.1], [0.3 - 0.5 * y, y, 0.1]];
        [0.0, 0.0, 0.5 * far, far, far, far].map(row).to_vec()
    }

    #[test]
    fn what_the_robot_reaches_on_its_way_is_left_to_the_model_from_then_on() {
        let mut reach = RobotReach::default();
        let left = |reach: &mut RobotReach, way: Vec<Vec<Vec3>>| {
            let mut scene = RolloutInput { kinematic: way, ..scene() };
            reach.end_evidence(&mut scene);
            scene
                .evidence
                .iter()
                .map(|known| known.map_or(0, |known| known.until))
                .collect::<Vec<_>>()
        };
        // It is there at the end of the second step: the first one is as if it did not come.
        assert_eq!(left(&mut reach, way(0.5)), [NEVER, 1, NEVER]);
        assert_eq!(left(&mut reach, way(0.3)), [NEVER; 3], "it ends too far away");
        assert_eq!(left(&mut reach, way(0.0)), [NEVER; 3], "it stands still");
        assert_eq!(left(&mut reach, Vec::new()), [NEVER; 3], "there is none");
        let soon = way(0.5).into_iter().skip(1).collect();
        assert_eq!(left(&mut reach, soon), [NEVER, 0, NEVER], "in the first step");
        // A row depends on those before it alone.
        let short = way(0.5).into_iter().take(3).collect();
        assert_eq!(left(&mut reach, short), [NEVER; 3]);
    }

    #[test]
    fn where_it_goes_counts_and_not_where_it_is() {
        let mut reach = RobotReach::default();
        let mut scene = scene();
        let first = |reach: &mut RobotReach, scene: &RolloutInput| {
            reach.find(&scene.start, &way(0.5), |_| true).to_vec()
        };
        assert_eq!(first(&mut reach, &scene), [NEVER, 3]);
        scene.start.velocities[1] = [0.0, 0.1, 0.0];
        assert_eq!(first(&mut reach, &scene), [NEVER; 2], "it goes out of its way");
        scene.start.velocities[1] = [0.15, -0.25, 0.0];
        assert_eq!(first(&mut reach, &scene), [NEVER, 2], "it comes towards it");
        assert_eq!(reach.find(&scene.start, &way(0.5), |i| i == 0), [NEVER], "nobody asks for it");
    }
}
