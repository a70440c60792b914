//! The way of one particle past one link.

use nalgebra::{Isometry3, Point3};

use super::{APPROACH_M, FARTHEST, TOUCHES_NOW_M, touch_probability};
use crate::base::geometry::{Vec3, distance, length};
use crate::robot::kinematics::Robot;

/// Shortest stride along a way (m).
const STRIDE_M: f32 = 0.005;
/// Farthest that a surface is looked for, however unsure a position is (m).
pub(super) const MAX_REACH_M: f32 = 0.2;

/// A link, and where it stands now and after each step.
pub(super) struct Link<'a> {
    pub robot: &'a Robot,
    pub number: usize,
    /// Takes points of the world into its frame, of each row.
    pub from_world: Vec<Isometry3<f32>>,
    /// Box about it, in its frame.
    pub bounds: [Vec3; 2],
    pub touch_m: f32,
}

/// What came of a particle's way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    /// Distance now (m).
    pub now_m: f32,
    /// Greatest probability of a touch.
    pub probability: f32,
    /// Least distance (m), and when that is, in steps.
    pub nearest: (f32, f32),
    /// When it is first expected to touch, in steps.
    pub touch: Option<f32>,
}

impl Link<'_> {
    /// Walks the way `at` (world frame, `[n_steps + 1]`) of a particle whose radii after each step are
    /// `radii`; none where it stays too far, or the link does not come near.
    pub fn meet(
        &self,
        at: impl Iterator<Item = Vec3>,
        radii: impl Fn(usize) -> Option<[f32; 2]>,
    ) -> Option<Met> {
        let mut places = at.zip(&self.from_world).map(|(p, pose)| {
            let there = pose * Point3::from(p);
            Vec3::from(there.coords)
        });
        let start = places.next()?;
        let mut met: Option<Met> = None;
        let (mut from, mut way_m) = (start, 0.0);
        for (step, to) in places.enumerate() {
            let long_m = distance(&from, &to);
            way_m += long_m;
            let [before, after] = [step.checked_sub(1).map_or(Some([0.0; 2]), &radii), radii(step)];
            let reach_m = self.reach_m(after);
            if way_m >= APPROACH_M && self.box_m(&from) - long_m <= reach_m {
                let radii = before.zip(after);
                self.walk([&from, &to], long_m, step, radii, reach_m, &start, &mut met)?;
            }
            from = to;
        }
        met.filter(|met| met.now_m - met.nearest.0 >= APPROACH_M)
    }

    /// Whether a point of the world touches the link now.
    pub fn touches_now(&self, p: &Vec3) -> bool {
        let Some(pose) = self.from_world.first() else { return false };
        let p = Vec3::from((pose * Point3::from(*p)).coords);
        self.box_m(&p) <= TOUCHES_NOW_M
            && self.robot.distance_m(self.number, &p).is_some_and(|d| d <= TOUCHES_NOW_M)
    }

    /// Walks one step; none where the link has no surface.
    #[expect(clippy::too_many_arguments, reason = "one loop of `meet`, taken out of it")]
    fn walk(
        &self,
        [from, to]: [&Vec3; 2],
        long_m: f32,
        step: usize,
        radii: Option<([f32; 2], [f32; 2])>,
        reach_m: f32,
        start: &Vec3,
        met: &mut Option<Met>,
    ) -> Option<()> {
        // Where it hardly moves, its end tells.
        let mut share = if long_m < STRIDE_M { 1.0 } else { 0.0 };
        loop {
            let p: Vec3 = std::array::from_fn(|axis| from[axis] + share * (to[axis] - from[axis]));
            let distance_m = self.robot.distance_m(self.number, &p)?;
            if distance_m <= reach_m {
                let met = match met {
                    Some(met) => met,
                    None => {
                        let now_m = self.robot.distance_m(self.number, start)?;
                        met.insert(Met::new(now_m))
                    }
                };
                let radii = radii.map(|(before, after)| {
                    [0, 1].map(|level| before[level] + share * (after[level] - before[level]))
                });
                met.note(distance_m, distance_m - self.touch_m, step as f32 + share, radii);
            }
            if share >= 1.0 {
                return Some(());
            }
            let free_m = if distance_m > reach_m { distance_m - reach_m } else { 0.5 * distance_m };
            share = (share + free_m.max(STRIDE_M) / long_m).min(1.0);
        }
    }

    /// How far off a surface may be reached.
    fn reach_m(&self, radii: Option<[f32; 2]>) -> f32 {
        let farthest = radii.map_or(0.0, |radii| FARTHEST * radii[1]);
        self.touch_m + farthest.min(MAX_REACH_M)
    }

    /// Distance from the link's box.
    fn box_m(&self, p: &Vec3) -> f32 {
        let [min, max] = &self.bounds;
        let outside: Vec3 =
            std::array::from_fn(|axis| (min[axis] - p[axis]).max(p[axis] - max[axis]).max(0.0));
        length(&outside)
    }
}

impl Met {
    fn new(now_m: f32) -> Self {
        Self { now_m, probability: 0.0, nearest: (f32::INFINITY, 0.0), touch: None }
    }

    fn note(&mut self, distance_m: f32, gap_m: f32, steps: f32, radii: Option<[f32; 2]>) {
        if distance_m < self.nearest.0 {
            self.nearest = (distance_m, steps);
        }
        if gap_m <= 0.0 && self.touch.is_none() {
            self.touch = Some(steps);
        }
        let probability = match radii {
            Some(radii) => touch_probability(gap_m, radii),
            None => f32::from(gap_m <= 0.0),
        };
        self.probability = self.probability.max(probability);
    }
}
