//! Whether the world frame moves: then all that stands there seems to move alike.
//!
//! The motion estimate takes the support plane to rest, so that what stands on it tells: things far apart
//! that all go on one rigid motion, the robot aside.

use crate::base::geometry::{RigidMotion, Vec3, add, length, minus};
use crate::engine::rollout_input::RolloutInput;
use crate::robot::kinematics::NO_LINK;

/// Motion in a step that is told of (m): a tenth of that is noise.
const MOVES_M: f32 = 0.008;
/// A particle goes with the others if its motion differs by no more: metres, and as a share of it.
const OFF_M: f32 = 0.004;
const OFF_SHARE: f32 = 0.2;
/// Share of the particles that go with the others.
const MOST: f32 = 0.75;
/// Particles that tell, and how far they are spread over the ground (m): more than one thing that moves.
const MIN_PARTICLES: usize = 40;
const SPREAD_M: f32 = 0.5;
/// Height above the support plane from which on particles tell (m).
const ABOVE_M: f32 = 0.015;
/// How often the motion is fitted to those that go with it.
const ROUNDS: usize = 4;

/// How far all that is seen off the support plane moves alike in a step (m); none where it does not.
pub fn common_motion(scene: &RolloutInput) -> Option<f32> {
    let start = &scene.start;
    let is_raised = |p: &Vec3| start.support_m.is_none_or(|support| p[2] > support + ABOVE_M);
    let is_scene = |i: usize| scene.on_links.get(i).is_none_or(|link| *link == NO_LINK);
    let n = start.positions.len().min(start.velocities.len());
    let told = (0..n).filter(|&i| {
        let known = start.velocity_known.get(i).copied().unwrap_or(0.0);
        known >= 0.5 && is_scene(i) && is_raised(&start.positions[i])
    });
    let told = told.map(|i| (start.positions[i], start.velocities[i]));
    // Most scenes end here, without any memory.
    let (n_told, n_moving) = told.clone().fold((0, 0), |(n_told, n_moving), (_, way)| {
        (n_told + 1, n_moving + usize::from(length(&way) > MOVES_M))
    });
    if n_told < MIN_PARTICLES || (n_moving as f32) < MOST * n_told as f32 {
        return None;
    }
    let (now, ways): (Vec<Vec3>, Vec<Vec3>) = told.unzip();
    let before: Vec<Vec3> = now.iter().zip(&ways).map(|(p, way)| minus(p, way)).collect();
    let mut with: Vec<usize> = (0..now.len()).collect();
    for _ in 0..ROUNDS {
        let of = |points: &[Vec3]| with.iter().map(|&i| points[i]).collect::<Vec<_>>();
        let motion = RigidMotion::fit(&of(&before), &of(&now));
        let goes_with = |i: &usize| {
            let way = motion.motion_of(&before[*i]);
            length(&minus(&way, &ways[*i])) <= OFF_M + OFF_SHARE * length(&way)
        };
        with = (0..now.len()).filter(goes_with).collect();
        if (with.len() as f32) < 0.5 * MOST * now.len() as f32 {
            return None;
        }
    }
    let spread = [0, 1].map(|axis| {
        let mut at: Vec<f32> = with.iter().map(|&i| now[i][axis]).collect();
        at.sort_by(f32::total_cmp);
        // A few that are taken for something else don't tell.
        let few = at.len() / 20;
        at[at.len() - 1 - few] - at[few]
    });
    let is_most = with.len() as f32 >= MOST * now.len() as f32;
    let is_wide = spread[0].max(spread[1]) >= SPREAD_M;
    if !is_most || !is_wide {
        return None;
    }
    let mut mean = [0.0; 3];
    with.iter().for_each(|&i| add(&mut mean, &ways[i].map(|x| x / with.len() as f32)));
    let typical = with.iter().map(|&i| length(&ways[i])).sum::<f32>() / with.len() as f32;
    // What turns about its own middle moves, too.
    Some(length(&mean).max(typical)).filter(|motion| *motion > MOVES_M)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes of 50 particles on the floor, 30 cm apart, each moving as `way` says, and a floor at rest.
    fn scene(n_boxes: usize, way: impl Fn(&Vec3) -> Vec3) -> RolloutInput {
        let mut scene = RolloutInput::default();
        let start = &mut scene.start;
        for i in 0..50 * n_boxes {
            let (column, row) = (i % 5, i / 5 % 10);
            let x = 0.3 * (i / 50) as f32 + 0.01 * column as f32;
            start.positions.push([x, 0.05 * (i / 50) as f32, 0.02 + 0.01 * row as f32]);
            let way = way(&start.positions[i]);
            start.velocities.push(way);
        }
        for i in 0..200 {
            start.positions.push([0.01 * i as f32, 0.3, 0.0]);
            start.velocities.push([0.0; 3]);
        }
        start.velocity_known = vec![1.0; start.positions.len()];
        start.support_m = Some(0.0);
        scene
    }

    #[test]
    fn a_scene_that_moves_as_a_whole_is_found() {
        let found = common_motion(&scene(4, |_| [-0.04, 0.0, 0.0])).expect("it moves");
        assert!((found - 0.04).abs() < 1e-3, "{found}");
        // A turn about a place beside it.
        assert!(common_motion(&scene(4, |p| [-0.05 * p[1], 0.05 * p[0], 0.0])).is_some());
    }

    #[test]
    fn things_that_move_in_a_scene_that_rests_are_not_taken_for_it() {
        assert_eq!(common_motion(&scene(4, |_| [0.0; 3])), None);
        assert_eq!(common_motion(&scene(1, |_| [0.04, 0.0, 0.0])), None, "one thing alone");
        let one_moves = |p: &Vec3| if p[0] < 0.2 { [0.0, 0.05, 0.0] } else { [0.0; 3] };
        assert_eq!(common_motion(&scene(4, one_moves)), None);
        let apart = |p: &Vec3| if p[0] < 0.5 { [0.04, 0.0, 0.0] } else { [0.0, 0.04, 0.0] };
        assert_eq!(common_motion(&scene(4, apart)), None, "two ways");
        // On the robot, or of unknown motion.
        let mut robot = scene(4, |_| [-0.04, 0.0, 0.0]);
        robot.on_links = vec![1; robot.start.positions.len()];
        assert_eq!(common_motion(&robot), None);
        let mut unknown = scene(4, |_| [-0.04, 0.0, 0.0]);
        unknown.start.velocity_known.fill(0.0);
        assert_eq!(common_motion(&unknown), None);
        assert_eq!(common_motion(&RolloutInput::default()), None);
    }
}
