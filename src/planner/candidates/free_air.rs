//! How long a plan leads the robot through free air over a scene that rests: until then nothing moves, and
//! nothing needs to be rolled out.

use std::collections::HashSet;

use super::Snapshot;
use crate::base::geometry::{Vec3, length};
use crate::robot::kinematics::NO_LINK;

/// Cells of what is seen (m): a point in the same or one beside it is near, one to three centimetres.
const CELL_M: f32 = 0.012;
/// What lies less high above what things stand on is not moved by what comes near (m).
const FLOOR_M: f32 = 0.012;
/// Motion in the step before from which on a particle does not rest (m).
const MOVES_M: f32 = 0.0015;
/// A scene rests if at most one in so many of its particles moves: some always seem to.
const ONE_IN: usize = 50;
/// Places between two steps that are looked at.
const BETWEEN: usize = 3;

/// Where something is that the robot could touch.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashSet<[i32; 3]>);

impl Seen {
    /// Of `points` (m), but for those on what things stand on at height `floor`.
    pub fn new(points: impl Iterator<Item = Vec3>, floor: Option<f32>) -> Self {
        let mut cells = HashSet::new();
        for p in points.filter(|p| floor.is_none_or(|z| p[2] >= z + FLOOR_M)) {
            let [x, y, z] = cell(&p);
            for at in 0..27 {
                cells.insert([x + at % 3 - 1, y + at / 3 % 3 - 1, z + at / 9 - 1]);
            }
        }
        Self(cells)
    }

    /// Whether something is near to `p`.
    pub fn is_near(&self, p: &Vec3) -> bool {
        self.0.contains(&cell(p))
    }
}

fn cell(p: &Vec3) -> [i32; 3] {
    p.map(|x| (x / CELL_M).floor() as i32)
}

/// What a snapshot's plans may lead the robot to; none where the scene does not rest.
pub(super) fn surroundings(snapshot: &Snapshot) -> Option<Seen> {
    let scene = &snapshot.scene;
    let is_robot = |i: usize| scene.on_links.get(i).is_some_and(|&link| link != NO_LINK);
    let start = &scene.start;
    let moves = start.velocities.iter().zip(&start.velocity_known).enumerate();
    let moves =
        moves.filter(|(i, (v, known))| !is_robot(*i) && **known >= 0.5 && length(v) >= MOVES_M);
    if moves.count() * ONE_IN > start.positions.len() {
        return None;
    }
    let others = start.positions.iter().enumerate().filter(|(i, _)| !is_robot(*i));
    Some(Seen::new(others.map(|(_, p)| *p), start.support_m))
}

/// Steps in which the robot, at `rows` (now and after each step), comes near to nothing; a step less,
/// so that it is seen to come. Points that are near now, and stay where they are, don't count.
pub(super) fn free_steps(seen: &Seen, rows: &[Vec<Vec3>], most: usize) -> usize {
    let Some((now, ahead)) = rows.split_first() else { return 0 };
    let was_near: Vec<bool> = now.iter().map(|p| seen.is_near(p)).collect();
    let mut before = now;
    for (step, row) in ahead.iter().enumerate().take(most) {
        let points = before.iter().zip(row).zip(&was_near);
        let is_near = points.into_iter().any(|((a, b), was_near)| {
            let stays = (0..3).all(|axis| (a[axis] - b[axis]).abs() < 1e-4);
            !(stays && *was_near)
                && (1..=BETWEEN).any(|i| {
                    let share = i as f32 / BETWEEN as f32;
                    seen.is_near(&std::array::from_fn(|k| a[k] + share * (b[k] - a[k])))
                })
        });
        if is_near {
            return step.saturating_sub(1);
        }
        before = row;
    }
    most.min(ahead.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_free_until_a_step_before_the_first_touch() {
        let seen = Seen::new([[0.5, 0.0, 0.1], [0.2, 0.0, 0.0]].into_iter(), Some(0.0));
        assert!(seen.is_near(&[0.51, 0.0, 0.1]) && !seen.is_near(&[0.54, 0.0, 0.1]));
        assert!(!seen.is_near(&[0.2, 0.0, 0.0]), "that is what things stand on");
        let row = |x: f32| vec![[x, 0.0, 0.1], [0.5, 0.0, 0.11]];
        // The second point stands in something and stays there; the first comes near in the fourth step.
        let rows: Vec<_> = [0.0, 0.1, 0.2, 0.3, 0.49, 0.5].map(row).to_vec();
        assert_eq!(free_steps(&seen, &rows, 5), 2);
        assert_eq!(free_steps(&seen, &rows, 2), 2);
        assert_eq!(free_steps(&seen, &rows[..3], 5), 2, "to the end");
        // A touch between two steps is one.
        let rows: Vec<_> = [0.0, 0.1, 0.35, 0.8].map(row).to_vec();
        assert_eq!(free_steps(&seen, &rows, 3), 1);
        // What stood in something and moves counts.
        let mut rows: Vec<_> = [0.0, 0.1, 0.2].map(row).to_vec();
        rows[1][1][0] = 0.51;
        assert_eq!(free_steps(&seen, &rows, 2), 0);
    }
}
