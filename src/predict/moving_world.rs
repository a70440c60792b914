//! Whether the world frame moves: then all that stands there seems to move alike.
//!
//! The motion estimate takes the support plane to rest, so that what stands on it tells: things far apart
//! that all go on one rigid motion, the robot aside. One large thing alone, as a robot that nothing describes,
//! goes on such a motion, too: the plane's colours tell the two apart where it has any (`ground.rs`), else
//! the number of separate things (`regions.rs`). And a belt, a turntable or a cart may fill the box with what
//! goes by: where something beside it is seen to rest, in the box or beyond (`sights.rs`), it is none of these.

mod ground;
mod regions;
mod sights;

use crate::base::geometry::{RigidMotion, Vec3, add, length, minus};
use crate::engine::rollout_input::RolloutInput;
use crate::robot::kinematics::NO_LINK;

pub use sights::{ROBOT_M, Sights};

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
/// Separate things that must go on the motion where no colours of the plane tell: a robot is seen as one, or
/// as two with something before its middle.
const LEAST_REGIONS: usize = 3;
/// Share of the particles that go with it where there is no plane and one thing fills the view: nothing
/// rests beside it then.
const ALL: f32 = 0.95;

/// What most of a scene goes on.
#[derive(Debug, Clone, Copy)]
pub struct CommonMotion {
    /// The motion of the step before.
    pub ahead: RigidMotion,
    /// The way back.
    pub back: RigidMotion,
    /// How far that is (m).
    pub typical_m: f32,
}

/// How far all that is seen off the support plane of `scene` moves alike in a step (m); none where it does not,
/// or where something `rests` beside what goes on that motion.
pub fn common_motion(
    scene: &RolloutInput,
    rests: impl FnOnce(&CommonMotion) -> bool,
) -> Option<f32> {
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
    with.sort_unstable();
    let with_m: Vec<Vec3> = with.iter().map(|&i| now[i]).collect();
    let with_before: Vec<Vec3> = with.iter().map(|&i| before[i]).collect();
    let ahead = RigidMotion::fit(&with_before, &with_m);
    let is_world = match ground::moves(start, &start.positions[..n], is_raised, &ahead) {
        Some(moves) => moves,
        None => {
            let fills_all =
                start.support_m.is_none() && with.len() as f32 >= ALL * now.len() as f32;
            fills_all || regions::count(&with_m) >= LEAST_REGIONS
        }
    };
    if !is_world {
        return None;
    }
    let mut mean = [0.0; 3];
    with.iter().for_each(|&i| add(&mut mean, &ways[i].map(|x| x / with.len() as f32)));
    let typical = with.iter().map(|&i| length(&ways[i])).sum::<f32>() / with.len() as f32;
    // What turns about its own middle moves, too.
    let typical_m = length(&mean).max(typical);
    let back = RigidMotion::fit(&with_m, &with_before);
    let motion = CommonMotion { ahead, back, typical_m };
    (typical_m > MOVES_M && !rests(&motion)).then_some(typical_m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    fn common_motion(scene: &RolloutInput) -> Option<f32> {
        super::common_motion(scene, |_| false)
    }

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

    /// A slab of 0.8 x 0.6 m on the floor that moves by `slab`, and a floor of 2 x 2 m whose colours are
    /// `color` (of where they were a step back) and which moves by `floor`.
    fn slab_on_floor(slab: Vec3, floor: Vec3, color: impl Fn(&Vec3) -> f32) -> RolloutInput {
        let mut scene = RolloutInput::default();
        let start = &mut scene.start;
        let jitter = |i: usize, axis: u64| 0.02 * uniform(draw(5, 1, i as u64, axis)) - 0.01;
        for i in 0..400 {
            let (column, row) = ((i % 20) as f32, (i / 20) as f32);
            let p = [0.04 * column - 0.4, 0.03 * row - 0.3, 0.1 + 0.05 * jitter(i, 3)];
            start.positions.push(p);
            start.velocities.push(slab);
            start.colors.push([0.5; 3]);
            start.history_positions.push(minus(&p, &slab));
            start.history_colors.push([0.5; 3]);
        }
        for i in 0..2500 {
            let grid = [0.04 * (i % 50) as f32 - 1.0, 0.04 * (i / 50) as f32 - 1.0, 0.0];
            let place = |k: u64| [grid[0] + jitter(i, k), grid[1] + jitter(i, k + 1), 0.0];
            let [now, before] = [place(0), place(7)];
            start.positions.push(now);
            // The estimate takes it to rest, whatever it does.
            start.velocities.push([0.0; 3]);
            start.colors.push([color(&minus(&now, &floor)); 3]);
            start.history_positions.push(before);
            start.history_colors.push([color(&before); 3]);
        }
        start.velocity_known = vec![1.0; start.positions.len()];
        start.support_m = Some(0.0);
        scene
    }

    /// Tiles of 10 cm.
    fn tiles(p: &Vec3) -> f32 {
        let [x, y] = [0, 1].map(|axis| (p[axis] / 0.1).floor() as i32);
        0.3 + 0.4 * (x + y).rem_euclid(2) as f32
    }

    const WAY: Vec3 = [0.05, 0.02, 0.0];

    #[test]
    fn one_large_thing_that_moves_is_told_from_a_moving_world_by_the_floors_colours() {
        let plain = |_: &Vec3| 0.5;
        assert_eq!(common_motion(&slab_on_floor(WAY, [0.0; 3], tiles)), None);
        assert_eq!(common_motion(&slab_on_floor(WAY, [0.0; 3], plain)), None);
        let found = common_motion(&slab_on_floor(WAY, WAY, tiles)).expect("the floor moves");
        assert!((found - length(&WAY)).abs() < 1e-3, "{found}");
        // A shadow that goes with the slab is no floor that moves.
        let is_shadow = |p: &Vec3| (0.1..0.9).contains(&p[0]) && p[1].abs() < 0.45;
        let shadow = |p: &Vec3| if is_shadow(p) { 0.0 } else { 0.8 };
        assert_eq!(common_motion(&slab_on_floor(WAY, WAY, shadow)), None);
    }

    #[test]
    fn things_on_a_belt_are_no_moving_world_where_the_floor_is_seen_to_rest() {
        let mut belt = scene(4, |_| WAY);
        belt.start.colors = vec![[0.5; 3]; belt.start.positions.len()];
        assert!(common_motion(&belt).is_some(), "no floor to be seen");
        let floor = slab_on_floor(WAY, [0.0; 3], tiles).start;
        belt.start.positions.extend(&floor.positions[400..]);
        belt.start.velocities.extend(&floor.velocities[400..]);
        belt.start.colors.extend(&floor.colors[400..]);
        belt.start.velocity_known = vec![1.0; belt.start.positions.len()];
        (belt.start.history_positions, belt.start.history_colors) =
            (floor.history_positions, floor.history_colors);
        assert_eq!(common_motion(&belt), None);
    }

    #[test]
    fn without_a_plane_one_thing_must_be_all_there_is() {
        let of = |share_at_rest: f32| {
            let mut scene = slab_on_floor(WAY, WAY, |_| 0.5);
            let start = &mut scene.start;
            start.support_m = None;
            let n = start.positions.len();
            start.velocities = vec![WAY; n];
            let at_rest = (share_at_rest * n as f32) as usize;
            start.velocities[n - at_rest..].fill([0.0; 3]);
            common_motion(&scene)
        };
        assert!(of(0.0).is_some());
        assert_eq!(of(0.15), None, "something rests beside it");
    }
}
