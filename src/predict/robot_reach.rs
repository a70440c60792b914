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
        self.begin(now, is_asked);
        self.has_moved.clear();
        self.has_moved.resize(robot.first().map_or(0, Vec::len), false);
        for (r, row) in robot.iter().enumerate().skip(1) {
            self.points.clear();
            for ((has_moved, p), before) in self.has_moved.iter_mut().zip(row).zip(&robot[0]) {
                *has_moved |= moves(p, before);
                self.points.extend(has_moved.then_some(*p));
            }
            self.look(now, r);
        }
        &self.first
    }

    /// Whether the robot is near each body of `now`, by their numbers, and moves there: in the last step, or at any
    /// time ahead. `robot` as in [`RobotReach::find`].
    pub fn is_near(
        &mut self,
        now: &StepState,
        robot: &[Vec<Vec3>],
    ) -> impl Iterator<Item = bool> + '_ {
        self.begin(now, |_| true);
        self.points.clear();
        if let [before, here, ..] = robot {
            let is_mover =
                |i: usize| robot.iter().any(|row| row.get(i).is_some_and(|p| moves(p, &before[i])));
            let movers = here.iter().enumerate().filter(|(i, _)| *i < before.len() && is_mover(*i));
            self.points.extend(movers.map(|(_, p)| *p));
        }
        self.look(now, 1);
        self.first.iter().map(|row| *row != NEVER)
    }

    /// Nothing was come near to yet.
    fn begin(&mut self, now: &StepState, is_asked: impl Fn(usize) -> bool) {
        let Self { waiting, first, .. } = self;
        waiting.clear();
        let of_bodies = now.body_of.iter().zip(&now.positions).enumerate();
        let of_bodies = of_bodies.filter(|(i, (body, _))| **body != NO_BODY && is_asked(*i));
        waiting.extend(of_bodies.map(|(i, _)| i as u32));
        let n_bodies = waiting.iter().map(|&i| now.body_of[i as usize] as usize + 1).max();
        first.clear();
        first.resize(n_bodies.unwrap_or(0), NEVER);
    }

    /// Finds what `points` are near of what waits, in `row`.
    fn look(&mut self, now: &StepState, row: usize) {
        let Self { search, points, waiting, queries, nearest, first, .. } = self;
        if waiting.is_empty() || points.is_empty() {
            return;
        }
        let (steps, body_of) = ((row - 1) as f32, |i: u32| now.body_of[i as usize] as usize);
        queries.clear();
        queries.extend(waiting.iter().map(|&i| {
            let (p, i) = (now.positions[i as usize], i as usize);
            let way = now.velocities.get(i).copied().unwrap_or_default();
            [0, 1, 2].map(|axis| p[axis] + steps * way[axis])
        }));
        nearest.clear();
        nearest.resize(queries.len(), 0);
        search.rebuild(points);
        search.find_within(ROBOT_M, nearest.iter_mut().zip(&*queries));
        for ((query, &nearest), &i) in queries.iter().zip(&*nearest).zip(&*waiting) {
            if squared_distance(query, &points[nearest as usize]) < ROBOT_M * ROBOT_M {
                first[body_of(i)] = row as u32;
            }
        }
        waiting.retain(|&i| first[body_of(i)] == NEVER);
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

/// Whether a point on the robot that was at `before` moves if it is at `p`.
fn moves(p: &Vec3, before: &Vec3) -> bool {
    squared_distance(p, before) > MOVES_M * MOVES_M
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
        // A roll-out that begins later has as much less of it.
        let known = scene().evidence[0].unwrap();
        let left_after = |n| known.held_until(3).and_then(|known| known.after(n));
        assert_eq!(
            [0, 2, 3, 9].map(|n| left_after(n).map_or(0, |known| known.until)),
            [3, 1, 0, 0]
        );
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
        // Of the present alone; the whole way tells whether the robot moves.
        scene.start.positions[0] = [0.25, 0.0, 0.1];
        let mut is_near =
            |robot: &[Vec<Vec3>]| reach.is_near(&scene.start, robot).collect::<Vec<_>>();
        assert_eq!(is_near(&way(0.5)), [true, false], "it is about to move");
        assert_eq!(is_near(&way(0.0)), [false; 2], "it stands still");
        assert_eq!(is_near(&[]), [false; 2]);
    }
}
