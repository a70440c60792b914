//! Where the scene is, for where nobody says: a box that holds what the cameras see, and the height of
//! what things stand on.

use super::{Cloud, Workspace};
use crate::base::error::Result;
use crate::base::geometry::distance;
use crate::vision::frames::CameraFrame;
use nalgebra::{Isometry3, Point3};

/// Points farther from their camera are not asked (m): depth is bad there, and what is there is
/// seldom the scene. The second where too few are nearer: a camera may look at a large scene from afar.
const REACH_M: [f32; 2] = [3.0, 6.0];
/// Points that are asked, at most and at least.
const N_POINTS: [usize; 2] = [500, 20_000];
/// Share of them by which a box fits.
const FITS: f32 = 0.25;
/// Share of them that is left out at either end of an axis: depth images have outliers.
const OUTLIERS: f32 = 0.02;
/// Longest sides (m): predictions are of a scene, not of a building.
const MAX_SIDES_M: [f32; 3] = [2.0, 2.0, 1.5];
/// Room around the points (m).
const MARGIN_M: f32 = 0.05;
/// Corners lie on a grid of so many a metre, so that noise seldom moves one.
const GRID_PER_M: f32 = 10.0;

/// Points of the support lie within so much of each other (m), and are this share of those in the box.
const SUPPORT_M: f32 = 0.01;
const SUPPORT_SHARE: f32 = 0.1;

/// Where a scene is (world frame, m).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Place {
    /// Box that is predicted in.
    pub workspace: Workspace,
    /// What a model is to take for the origin: it was trained where its own box is, with what things
    /// stand on at z = 0.
    pub origin: [f32; 3],
}

impl Workspace {
    /// The box that holds what `cameras` see within 3 m, or within 6 m where that is little (world
    /// frame, m): at most 2 × 2 × 1.5 m around the middle of it, upwards from the lowest. This one where
    /// it holds a quarter of that; none where there is too little to tell. In the frame that
    /// `world_from_own` is the pose of, where there is one, as this box then is, too.
    ///
    /// # Errors
    /// As [`Cloud::from_cameras`].
    pub fn proposal(
        &self,
        cameras: &[CameraFrame],
        world_from_own: Option<&Isometry3<f64>>,
    ) -> Result<Option<Place>> {
        let mut points = Vec::new();
        for camera in cameras {
            let mut cloud = Cloud::default();
            cloud.from_cameras(std::slice::from_ref(camera), &Self::EVERYWHERE)?;
            let eye: [f32; 3] = camera.world_from_camera.translation.vector.cast().into();
            let every = cloud.len().div_ceil(N_POINTS[1]).max(1);
            let own = |x: [f32; 3]| match world_from_own {
                Some(pose) => pose.inverse_transform_point(&Point3::from(x).cast()).cast().into(),
                None => x,
            };
            let ranged = |x: [f32; 3]| (own(x), distance(&x, &eye));
            points.extend(cloud.positions.into_iter().step_by(every).map(ranged));
        }
        Ok(self.around(&near(&points)))
    }

    fn around(&self, points: &[[f32; 3]]) -> Option<Place> {
        let inside = points.iter().filter(|x| self.contains(**x)).count();
        if points.len() < N_POINTS[0] {
            return None;
        }
        if inside as f32 >= FITS * points.len() as f32 {
            return Some(Place { workspace: *self, origin: [0.0; 3] });
        }
        let (mut min, mut max) = ([0.0; 3], [0.0; 3]);
        for axis in 0..3 {
            let [low, middle, high] = spread(points.iter().map(|x| x[axis]));
            let half = MAX_SIDES_M[axis] / 2.0 - MARGIN_M - GRID_PER_M.recip();
            let [low, high] = match high - low > 2.0 * half {
                // From the support up.
                true if axis == 2 => [low, low + 2.0 * half],
                true => [middle - half, middle + half],
                false => [low, high],
            };
            // Adding 0 turns -0 into 0.
            min[axis] = ((low - MARGIN_M) * GRID_PER_M).floor() / GRID_PER_M + 0.0;
            max[axis] = ((high + MARGIN_M) * GRID_PER_M).ceil() / GRID_PER_M + 0.0;
        }
        let workspace = Self { min, max };
        // So far off that the digits don't tell corners apart.
        workspace.validate().ok()?;
        let middle = |axis: usize| (min[axis] + max[axis] - self.min[axis] - self.max[axis]) / 2.0;
        let origin = [middle(0), middle(1), support(&workspace, points)];
        Some(Place { workspace, origin })
    }
}

/// Points that are near enough to be asked, of points and their distances from who sees them (m).
fn near(points: &[([f32; 3], f32)]) -> Vec<[f32; 3]> {
    let within = |reach: f32| points.iter().filter(move |(_, range)| *range <= reach);
    let [usual, far] = REACH_M;
    let reach = if within(usual).count() < N_POINTS[0] { far } else { usual };
    within(reach).map(|(x, _)| *x).collect()
}

/// Height at which most points of the box lie; its bottom where they are few.
fn support(workspace: &Workspace, points: &[[f32; 3]]) -> f32 {
    let bottom = workspace.min[2];
    let layer = |z: f32| ((z - bottom) / SUPPORT_M) as usize;
    let mut counts = vec![0usize; layer(workspace.max[2]) + 2];
    let inside: Vec<f32> =
        points.iter().filter(|x| workspace.contains(**x)).map(|x| x[2]).collect();
    inside.iter().for_each(|&z| counts[layer(z)] += 1);
    // Two layers, as the plane may lie where they meet.
    let fullest = (1..counts.len()).max_by_key(|&i| counts[i - 1] + counts[i]).unwrap_or(1);
    let near = |z: &&f32| (fullest - 1..=fullest).contains(&layer(**z));
    let near: Vec<f32> = inside.iter().filter(near).copied().collect();
    match near.len() as f32 >= SUPPORT_SHARE * inside.len() as f32 && !near.is_empty() {
        true => near.iter().sum::<f32>() / near.len() as f32,
        false => bottom,
    }
}

/// Lowest, middle and highest without outliers; of one value at least.
fn spread(values: impl Iterator<Item = f32>) -> [f32; 3] {
    let mut values: Vec<f32> = values.collect();
    values.sort_unstable_by(f32::total_cmp);
    let last = values.len().saturating_sub(1);
    let n_out = (OUTLIERS * last as f32) as usize;
    [n_out, last / 2, last - n_out].map(|i| values[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level square of points of this side (m), with a few far off.
    fn square(center: [f32; 3], side: f32) -> Vec<[f32; 3]> {
        let at = |i: usize| (i as f32 / 49.0 - 0.5) * side;
        let grid = (0..2500).map(|i| [at(i % 50), at(i / 50), 0.0]);
        let mut points: Vec<[f32; 3]> =
            grid.map(|x| std::array::from_fn(|i| x[i] + center[i])).collect();
        points.extend([[90.0, -70.0, 50.0]; 9]);
        points
    }

    #[test]
    fn a_box_that_fits_stays() {
        let default = Workspace::default();
        let usual = Place { workspace: default, origin: [0.0; 3] };
        assert_eq!(default.around(&square([0.0; 3], 1.2)), Some(usual));
        assert_eq!(default.around(&square([9.0; 3], 1.0)[..400]), None, "too few to tell");
        assert_eq!(default.around(&[]), None);
    }

    #[test]
    fn another_scene_gets_a_box_of_its_own() {
        let points = square([2.0, -1.0, 0.74], 1.0);
        let place = Workspace::default().around(&points).unwrap();
        let proposed = place.workspace;
        let held = points.iter().filter(|x| proposed.contains(**x)).count();
        assert_eq!(held, 2500, "{proposed:?}");
        let sides: [f32; 3] = std::array::from_fn(|i| proposed.max[i] - proposed.min[i]);
        assert!(sides[0] <= 1.35 && sides[1] <= 1.35 && sides[2] <= 0.31, "{sides:?}");
        proposed.validate().unwrap();
        // The middle of the model's box, and its table, come to lie where the scene's are.
        let [x, y, z] = place.origin;
        assert!((x - 1.95).abs() < 0.06 && (y + 1.0).abs() < 0.06, "{place:?}");
        assert!((z - 0.74).abs() < 1e-4, "{place:?}");
        // A little noise changes nothing.
        let noisy = points.iter().enumerate().map(|(i, x)| x.map(|x| x + (i % 7) as f32 * 2e-4));
        let noisy: Vec<[f32; 3]> = noisy.collect();
        assert_eq!(
            Workspace::default().around(&noisy).map(|place| place.workspace),
            Some(proposed)
        );
        assert_eq!(proposed.around(&points).map(|place| place.workspace), Some(proposed));
    }

    #[test]
    fn what_is_far_off_is_asked_only_where_little_is_near() {
        let ranged = |n_near: usize| -> Vec<([f32; 3], f32)> {
            let near = (0..n_near).map(|i| ([i as f32 * 1e-3, 0.0, 0.0], 2.9));
            let far = (0..600).map(|i| ([i as f32 * 1e-3, 9.0, 0.0], 5.9));
            near.chain(far).chain([([0.0; 3], 6.1); 600]).collect()
        };
        assert_eq!(near(&ranged(500)).len(), 500);
        assert_eq!(near(&ranged(499)).len(), 1099);
    }

    #[test]
    fn what_is_too_far_off_to_have_a_box_has_none() {
        for x in [9e5, -9e5] {
            let points = vec![[x; 3]; 600];
            let place = Workspace::default().around(&points);
            assert!(place.is_none_or(|place| place.workspace.validate().is_ok()), "{place:?}");
        }
        let beyond = vec![[1e8; 3]; 600];
        assert_eq!(Workspace::default().around(&beyond), None);
    }

    #[test]
    fn a_hall_is_bounded() {
        let mut points = square([0.0, 0.0, -0.5], 5.0);
        points.extend(square([0.0, 0.0, 2.0], 5.0));
        let proposed = Workspace::default().around(&points).unwrap().workspace;
        let sides: [f32; 3] = std::array::from_fn(|i| proposed.max[i] - proposed.min[i]);
        assert!((0..3).all(|i| sides[i] <= MAX_SIDES_M[i] + 1e-5), "{sides:?}");
        assert!((proposed.min[2] + 0.6).abs() < 1e-5, "from the floor: {proposed:?}");
    }
}
