//! The traits by which what moves is told from what is known.

use crate::base::geometry::{Vec3, distance, length, minus};
use crate::vision::motion::ToldBody;
use crate::engine::scene::StepState;
use crate::predict::situation::Situation;

use super::Kind;

/// Number of traits.
pub const N_TRAITS: usize = 9;
/// Traits of a particle: speed, turning and change of motion (m a step), and size (m), as logarithms;
/// height above the support plane (m); nearness to the robot (0 to 1); distance from the workspace's
/// centre (half-sides); of the scene the share that moves and the distance between particles (m), as
/// logarithms.
pub type Traits = [f32; N_TRAITS];

/// Logarithms start from these: a motion of a step, a size, a share and a distance between particles.
const LEAST_MOTION_M: f32 = 1e-3;
const LEAST_SIZE_M: f32 = 5e-3;
const LEAST_SHARE: f32 = 1e-3;
const LEAST_GAP_M: f32 = 1e-4;
/// Highest height above the support plane that is told apart (m).
const MAX_HEIGHT_M: f32 = 5.0;

/// Name, unit, and what its logarithm starts from; none where the trait is no logarithm.
const TRAITS: [(&str, &str, Option<f32>); N_TRAITS] = [
    ("speed", "m a step", Some(LEAST_MOTION_M)),
    ("turning", "m a step", Some(LEAST_MOTION_M)),
    ("change of motion", "m a step", Some(LEAST_MOTION_M)),
    ("size", "m", Some(LEAST_SIZE_M)),
    ("height above the support plane", "m", None),
    ("nearness to the robot", "of 1", None),
    ("distance from the workspace's centre", "half-sides", None),
    ("share of the particles that move", "of 1", Some(LEAST_SHARE)),
    ("distance between particles", "m", Some(LEAST_GAP_M)),
];

/// A trait in which what is unlike differs from what is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    index: usize,
    /// Its mean over the unlike particles.
    pub value: f32,
    /// Two standard deviations about the mean of known ones.
    pub usual: [f32; 2],
}

impl Difference {
    pub(super) fn new(index: usize, value: f32, kind: &Kind) -> Self {
        let plain = |value: f32| match TRAITS[index].2 {
            Some(least) => (value.exp() - least).max(0.0),
            None => value,
        };
        let ends = [-2.0, 2.0].map(|n| plain(kind.mean[index] + n * kind.deviation[index]));
        Self { index, value: plain(value), usual: ends }
    }

    /// The trait's name.
    pub fn name(&self) -> &'static str {
        TRAITS[self.index].0
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, unit, _) = TRAITS[self.index];
        let [low, high] = self.usual;
        write!(f, "{name} {:.3} {unit}, usually {low:.3} to {high:.3}", self.value)
    }
}

/// Traits of all particles that neither rest nor lie on the robot; none of the others. `gaps` is memory.
pub(super) fn of_all(
    start: &StepState,
    situations: &[Situation],
    place: (Vec3, f32),
    gaps: &mut Vec<f32>,
    out: &mut Vec<Option<Traits>>,
) {
    let moves = |i: usize| matches!(situations[i], Situation::Moving | Situation::Flying);
    let n = start.positions.len();
    let share = (0..n).filter(|&i| moves(i)).count() as f32 / n.max(1) as f32;
    let of_scene = [(share + LEAST_SHARE).ln(), (usual_gap(start, gaps) + LEAST_GAP_M).ln()];
    out.clear();
    out.extend((0..n).map(|i| moves(i).then(|| of_particle(start, i, place, of_scene))));
}

fn of_particle(start: &StepState, i: usize, place: (Vec3, f32), of_scene: [f32; 2]) -> Traits {
    let (p, v) = (&start.positions[i], &start.velocities[i]);
    let onward = start.onward.get(i).unwrap_or(v);
    let body = start.bodies.get(i).and_then(ToldBody::of);
    let center = body.as_ref().map_or(*onward, |body| body.center_motion);
    let size = body.as_ref().map_or(0.0, |body| length(&body.extent));
    let (center_m, half_side_m) = place;
    let place = minus(p, &center_m).map(|x| x.abs() / half_side_m);
    let of_motion = |motion_m: f32| (motion_m + LEAST_MOTION_M).ln();
    [
        of_motion(length(&center)),
        of_motion(distance(onward, &center)),
        of_motion(distance(onward, v)),
        (size + LEAST_SIZE_M).ln(),
        start.support_m.map_or(0.0, |support_m| (p[2] - support_m).min(MAX_HEIGHT_M)),
        body.map_or(0.0, |body| body.robot_nearness),
        place.into_iter().fold(0.0, f32::max),
        of_scene[0],
        of_scene[1],
    ]
}

/// The median distance from a particle to the next in their (Morton) order (m).
fn usual_gap(start: &StepState, gaps: &mut Vec<f32>) -> f32 {
    gaps.clear();
    gaps.extend(start.positions.windows(2).map(|pair| distance(&pair[0], &pair[1])));
    let middle = gaps.len() / 2;
    if gaps.is_empty() { 0.0 } else { *gaps.select_nth_unstable_by(middle, f32::total_cmp).1 }
}
