//! Which bodies the robot may move: what was held against their past tells nothing of what it will do to them.

use std::ops::Range;

use crate::base::geometry::{Nearest, Vec3, squared_distance};
use crate::engine::rollout_input::{RolloutInput, StepState};
use crate::vision::motion::NO_BODY;

/// What is no farther from where the robot moves than this (m) may be moved by it.
const ROBOT_M: f32 = 0.1;
/// How far a point on the robot goes at least where the robot moves (m): more than the noise of its joints.
const MOVES_M: f32 = 0.002;

/// Finds the bodies that the robot may move; its vectors are kept.
#[derive(Debug, Default)]
pub struct RobotReach {
    search: Nearest,
    points: Vec<Vec3>,
    nearest: Vec<u32>,
    is_reached: Vec<bool>,
}

impl RobotReach {
    /// Whether the robot may move each body of `now`, by their numbers: it moves, and in one of the rows `when` it
    /// comes near. `robot`: points on it one step back, now and in the steps ahead (m), as
    /// [`RolloutInput::kinematic`].
    pub fn find(&mut self, now: &StepState, robot: &[Vec<Vec3>], when: Range<usize>) -> &[bool] {
        let Self { search, points, nearest, is_reached } = self;
        is_reached.clear();
        points.clear();
        let n_points = robot.iter().map(Vec::len).min().unwrap_or(0);
        let rows = robot.get(when).unwrap_or_default();
        let moving = (0..n_points).filter(|&i| moves(robot, i));
        points.extend(moving.flat_map(|i| rows.iter().map(move |row| row[i])));
        if points.is_empty() {
            return is_reached;
        }
        nearest.clear();
        nearest.resize(now.positions.len(), 0);
        search.rebuild(points);
        search.find_within(ROBOT_M, nearest.iter_mut().zip(&now.positions));
        let n_bodies =
            now.body_of.iter().filter(|body| **body != NO_BODY).max().map_or(0, |b| b + 1);
        is_reached.resize(n_bodies as usize, false);
        for ((p, &body), &nearest) in now.positions.iter().zip(&now.body_of).zip(&*nearest) {
            let is_near = squared_distance(p, &points[nearest as usize]) < ROBOT_M * ROBOT_M;
            if let Some(is_reached) = is_reached.get_mut(body as usize).filter(|_| is_near) {
                *is_reached = true;
            }
        }
        is_reached
    }

    /// Forgets the evidence of what the robot reaches on the way that `scene` has of it.
    pub fn forget(&mut self, scene: &mut RolloutInput) {
        let RolloutInput { start, kinematic, evidence, .. } = scene;
        let is_reached = self.find(start, kinematic, 1..kinematic.len());
        for (known, &body) in evidence.iter_mut().zip(&start.body_of) {
            if is_reached.get(body as usize) == Some(&true) {
                *known = None;
            }
        }
    }
}

/// Whether the robot moves at its kinematic particle `i`, in the last step or as far ahead as its plan tells.
fn moves(rows: &[Vec<Vec3>], i: usize) -> bool {
    let first = &rows[0][i];
    rows.iter().any(|row| squared_distance(&row[i], first) > MOVES_M * MOVES_M)
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
        };
        let start = StepState {
            positions: vec![[0.0, 0.0, 0.1], [0.0, 0.5, 0.1], [0.0, 0.5, 0.0]],
            body_of: vec![0, 1, NO_BODY],
            ..StepState::default()
        };
        RolloutInput { start, evidence: vec![Some(known); 3], ..RolloutInput::default() }
    }

    #[test]
    fn what_the_robot_reaches_on_its_way_is_left_out() {
        let mut reach = RobotReach::default();
        // A point that stays beside the first, and a hand that goes from there to the second.
        let way = |far: f32| -> Vec<Vec<Vec3>> {
            let row = |y: f32| vec![[0.05, 0.0, 0.1], [0.3, y, 0.1], [0.3 - 0.5 * y, y, 0.1]];
            [0.0, 0.0, 0.5 * far, far].map(row).to_vec()
        };
        let left = |reach: &mut RobotReach, way: Vec<Vec<Vec3>>| {
            let mut scene = RolloutInput { kinematic: way, ..scene() };
            reach.forget(&mut scene);
            scene.evidence.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        assert_eq!(left(&mut reach, way(0.5)), [true, false, true]);
        assert_eq!(left(&mut reach, way(0.3)), [true; 3], "it ends too far away");
        assert_eq!(left(&mut reach, way(0.0)), [true; 3], "it stands still");
        assert_eq!(left(&mut reach, Vec::new()), [true; 3], "there is none");
        // Of the present alone, the way ahead does not count.
        let RolloutInput { start, .. } = scene();
        assert_eq!(reach.find(&start, &way(0.5), 1..2), [false, false]);
        assert_eq!(reach.find(&start, &way(0.5), 9..12), [false; 0]);
    }
}
