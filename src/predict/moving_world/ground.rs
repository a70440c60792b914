//! Whether the support plane moves, by its colours: its shape can't tell that of a plane.

use crate::base::geometry::{PointTree, RigidMotion, Vec3, distance, minus};
use crate::engine::rollout_input::StepState;

/// Points of the plane that are asked, spread evenly over their (Morton) order.
const MOST_POINTS: usize = 512;
/// A point of the plane was there a step back if one lay so near (m).
const NEAR_M: f32 = 0.04;
/// How much worse (mean difference of colours, 0..1) the wrong one of both fits, as a share of it and at least:
/// noise is less.
const BETTER: f32 = 0.7;
const CONTRAST: f32 = 0.03;
/// Points of a quarter of the plane that tell.
const LEAST_POINTS: usize = 15;
/// Quarters that must say that it moves, as a shadow goes with what throws it; and that it rests.
const MOVING_QUARTERS: usize = 3;
const RESTING_QUARTERS: usize = 2;

/// Sums over a quarter of the plane.
#[derive(Debug, Clone, Copy, Default)]
struct Quarter {
    n: usize,
    /// Differences of colours if the plane rests, and if it goes on the motion.
    resting: f32,
    moving: f32,
}

impl Quarter {
    /// Whether it moves; none where its colours don't tell.
    fn moves(&self) -> Option<bool> {
        let (worse, better) = (self.resting.max(self.moving), self.resting.min(self.moving));
        let is_told =
            self.n >= LEAST_POINTS && worse >= CONTRAST * self.n as f32 && better <= BETTER * worse;
        is_told.then_some(self.moving < self.resting)
    }
}

/// Whether the support plane of `start` goes on `motion`, as what stands on it does; none where there is
/// none, or its colours don't tell. `positions`: those of the particles that tell of it.
pub(super) fn moves(
    start: &StepState,
    positions: &[Vec3],
    is_raised: impl Fn(&Vec3) -> bool,
    motion: &RigidMotion,
) -> Option<bool> {
    start.support_m?;
    let (now, colors) = on_plane(positions, &start.colors, &is_raised, MOST_POINTS);
    let (before, colors_before) =
        on_plane(&start.history_positions, &start.history_colors, &is_raised, usize::MAX);
    if now.is_empty() || before.is_empty() {
        return None;
    }
    let tree = PointTree::new(&before).ok()?;
    let middle = [0, 1].map(|axis| {
        let sum: f32 = now.iter().map(|p| p[axis]).sum();
        sum / now.len() as f32
    });
    let difference = |at: &Vec3, color: &Vec3| {
        let near = tree.nearest_one(at)?;
        (distance(&before[near], at) <= NEAR_M).then(|| distance(color, &colors_before[near]))
    };
    let mut quarters = [Quarter::default(); 4];
    for (p, color) in now.iter().zip(&colors) {
        let back = minus(p, &motion.motion_of(p));
        let (Some(resting), Some(moving)) = (difference(p, color), difference(&back, color)) else {
            continue;
        };
        let quarter = usize::from(p[0] > middle[0]) + 2 * usize::from(p[1] > middle[1]);
        let quarter = &mut quarters[quarter];
        quarter.n += 1;
        quarter.resting += resting;
        quarter.moving += moving;
    }
    let told: Vec<bool> = quarters.iter().filter_map(Quarter::moves).collect();
    let n_moving = told.iter().filter(|moves| **moves).count();
    let n_resting = told.len() - n_moving;
    match (n_moving, n_resting) {
        (MOVING_QUARTERS.., 0) => Some(true),
        (_, RESTING_QUARTERS..) if n_resting > n_moving => Some(false),
        _ => None,
    }
}

/// At most `most` of the points on the plane, and their colours.
fn on_plane(
    positions: &[Vec3],
    colors: &[Vec3],
    is_raised: impl Fn(&Vec3) -> bool,
    most: usize,
) -> (Vec<Vec3>, Vec<Vec3>) {
    let all = || positions.iter().zip(colors).filter(|(p, _)| !is_raised(p));
    let every = all().count().div_ceil(most).max(1);
    all().step_by(every).map(|(p, color)| (*p, *color)).unzip()
}
