//! One cloud registered to another, of what rests in both: by its surfaces (point to plane, Chen and Medioni
//! 1992) and their colours (Park, Zhou and Koltun 2017), so that a table of one shape everywhere tells, too. What
//! moves on its own counts less the farther off it is (Geman and McClure's weights).
//!
//! Directions of which little tells are left as tf says: else the one thing that moves on a plain table would be
//! taken for all.

use nalgebra::{
    Isometry3, Matrix3, Matrix6, Point3, SymmetricEigen, Translation3, UnitQuaternion, Vector3,
    Vector6,
};
use rayon::prelude::*;

use super::PoseError;
use crate::base::geometry::{Neighbors, PointTree, Rigid, Vec3};

/// Points of either cloud that must be there.
const LEAST_POINTS: usize = 100;
/// Points about one that tell of its surface.
const N_NEAR: usize = 10;
/// What counts half in each round (m): the errors of tf first, then the noise of cameras.
const SOFT_M: [f64; 7] = [0.02, 0.015, 0.01, 0.008, 0.006, 0.004, 0.004];
/// Points farther apart are none of the same (m, rounds as above).
const REACH: f64 = 3.0;
/// Noise of a point along its surface's normal (m), and of a grey value (0 to 1).
const NOISE_M: f64 = 0.003;
const NOISE_GREY: f64 = 0.05;
/// Grey values that differ by more are of other things.
const SOFT_GREY: f64 = 0.15;
/// How much tf counts: as so large a share of the points, each of which tells of all directions; turns count by
/// this arm (m).
const TF_SHARE: f64 = 0.01;
const ARM_M: f64 = 0.3;
/// Errors below this (m) are left: as small ones are made by noise.
const LEAST_M: f64 = 0.001;
/// Errors above these are none of tf's: something is wrong with it, or the scene moves.
const MOST_M: f64 = 0.06;
const MOST_RAD: f64 = 0.06;
/// Share of the points that must be found again.
const LEAST_FOUND: f64 = 0.4;

/// Registers clouds; keeps its memory between calls.
#[derive(Debug, Default)]
pub(super) struct Registration {
    neighbors: Neighbors,
    near: Vec<u32>,
    there: Vec<Vec3>,
    greys: Vec<f64>,
    here: Vec<(Vec3, f64)>,
    /// Of each point there, once asked for.
    surfaces: Vec<Option<Surface>>,
}

/// The surface about a point.
#[derive(Debug, Clone, Copy)]
struct Surface {
    normal: Vector3<f64>,
    /// Of the grey value, along the surface (1/m).
    gradient: Vector3<f64>,
    /// The grey value in its middle.
    grey: f64,
    middle: Vector3<f64>,
}

impl Registration {
    /// What takes the points `there` (before; m, with colours) to where those `here` (now) have them, and
    /// how much that is; none where it is less than can be told, or where too little is found again.
    pub(super) fn find(
        &mut self,
        there: impl Iterator<Item = (Vec3, Vec3)>,
        here: impl Iterator<Item = (Vec3, Vec3)>,
    ) -> Option<(Rigid, PoseError)> {
        let grey = |color: &Vec3| color.iter().map(|x| f64::from(*x)).sum::<f64>() / 3.0;
        self.there.clear();
        self.greys.clear();
        there.for_each(|(position, color)| {
            self.there.push(position);
            self.greys.push(grey(&color));
        });
        self.here.clear();
        self.here.extend(here.map(|(position, color)| (position, grey(&color))));
        if self.there.len().min(self.here.len()) < LEAST_POINTS {
            return None;
        }
        let tree = PointTree::new(&self.there).ok()?;
        self.neighbors.k_nearest(&self.there, N_NEAR, &mut self.near).ok()?;
        self.surfaces.clear();
        self.surfaces.resize(self.there.len(), None);
        let center = self.here.iter().map(|(p, _)| Vector3::from(*p).cast::<f64>());
        let center = center.sum::<Vector3<f64>>() / self.here.len() as f64;
        // About the centre: turn, then shift.
        let mut there_from_here = (UnitQuaternion::<f64>::identity(), Vector3::<f64>::zeros());
        let mut found = 0.0;
        for soft_m in SOFT_M {
            let step = self.round(&tree, &center, &there_from_here, soft_m)?;
            found = step.1;
            let (turn, shift) = &mut there_from_here;
            *turn =
                UnitQuaternion::from_scaled_axis(step.0.fixed_rows::<3>(0).into_owned()) * *turn;
            *shift += step.0.fixed_rows::<3>(3);
        }
        let (turn, shift) = there_from_here;
        let is_told = found >= LEAST_FOUND * self.here.len() as f64;
        if !is_told || shift.norm() > MOST_M || turn.angle() > MOST_RAD {
            return None;
        }
        let moved = |p: &Vec3| {
            let arm = Vector3::from(*p).cast::<f64>() - center;
            (turn * arm + shift - arm).norm()
        };
        let shift_m = self.here.iter().map(|(p, _)| moved(p)).sum::<f64>() / self.here.len() as f64;
        let about = Translation3::from(center + shift) * turn * Translation3::from(-center);
        let here_from_there: Isometry3<f64> = about.inverse();
        let error = PoseError { shift_m: shift_m as f32, turn_rad: turn.angle() as f32 };
        (shift_m >= LEAST_M).then(|| (Rigid::from_isometry(&here_from_there), error))
    }

    /// One step of Gauss and Newton's method, turn and shift, and how many points were found again.
    fn round(
        &mut self,
        tree: &PointTree,
        center: &Vector3<f64>,
        (turn, shift): &(UnitQuaternion<f64>, Vector3<f64>),
        soft_m: f64,
    ) -> Option<(Vector6<f64>, f64)> {
        let placed = |p: &Vec3| turn * (Vector3::from(*p).cast::<f64>() - center) + shift + center;
        let matches = self.here.par_iter().with_min_len(64).map(|(p, _)| {
            let at = placed(p);
            let nearest = tree.nearest_one(&at.cast::<f32>().into())?;
            let there = Point3::from(self.there[nearest]).coords.cast::<f64>();
            ((there - at).norm() <= 0.02 + REACH * soft_m).then_some((at, nearest))
        });
        let matches: Vec<Option<(Vector3<f64>, usize)>> = matches.collect();
        self.measure(matches.iter().flatten().map(|(_, nearest)| *nearest));
        let (mut left, mut right) = (Matrix6::<f64>::zeros(), Vector6::<f64>::zeros());
        let mut found = 0.0;
        let mut add = |lever: &Vector3<f64>, along: &Vector3<f64>, residual: f64, weight: f64| {
            let torque = lever.cross(along);
            let row = Vector6::new(torque.x, torque.y, torque.z, along.x, along.y, along.z);
            left += weight * row * row.transpose();
            right -= weight * residual * row;
        };
        for (matched, (_, grey)) in matches.iter().zip(&self.here) {
            let Some((at, nearest)) = matched else { continue };
            let Some(surface) = &self.surfaces[*nearest] else { continue };
            let off = at - surface.middle;
            let residual = surface.normal.dot(&off);
            let weight = geman_mcclure(residual / soft_m);
            let lever = at - center - shift;
            add(&lever, &surface.normal, residual, weight / (NOISE_M * NOISE_M));
            found += weight;
            let residual = surface.grey + surface.gradient.dot(&off) - grey;
            let weight = weight * geman_mcclure(residual / SOFT_GREY);
            add(&lever, &surface.gradient, residual, weight / (NOISE_GREY * NOISE_GREY));
        }
        // tf is as good as some of the points.
        let tf = TF_SHARE * self.here.len() as f64 / (NOISE_M * NOISE_M);
        let (so_far, arm) = (turn.scaled_axis(), ARM_M * ARM_M);
        for axis in 0..3 {
            left[(axis, axis)] += tf * arm;
            right[axis] -= tf * arm * so_far[axis];
            left[(axis + 3, axis + 3)] += tf;
            right[axis + 3] -= tf * shift[axis];
        }
        let step = left.cholesky()?.solve(&right);
        step.iter().all(|x| x.is_finite()).then_some((step, found))
    }

    /// Measures the surfaces about these points, as far as that is not done.
    fn measure(&mut self, points: impl Iterator<Item = usize>) {
        let mut wanted: Vec<usize> =
            points.filter(|&point| self.surfaces[point].is_none()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let Self { there, greys, near, surfaces, .. } = self;
        let measured: Vec<Surface> = wanted
            .par_iter()
            .with_min_len(32)
            .map(|&point| {
                let near = &near[point * N_NEAR..][..N_NEAR];
                let all = std::iter::once(point).chain(near.iter().map(|&i| i as usize));
                surface(all.map(|i| (Vector3::from(there[i]).cast(), greys[i])))
            })
            .collect();
        wanted.iter().zip(measured).for_each(|(&point, surface)| surfaces[point] = Some(surface));
    }
}

/// Weight of a residual in units of what counts a quarter.
fn geman_mcclure(residual: f64) -> f64 {
    let sum = 1.0 + residual * residual;
    1.0 / (sum * sum)
}

/// The plane through points, and how their grey values change along it.
fn surface(points: impl Iterator<Item = (Vector3<f64>, f64)> + Clone) -> Surface {
    let n = points.clone().count().max(1) as f64;
    let sum = points.clone().fold((Vector3::zeros(), 0.0), |(p, g), (q, h)| (p + q, g + h));
    let (middle, grey) = (sum.0 / n, sum.1 / n);
    let mut spread = Matrix3::<f64>::zeros();
    let mut change = Vector3::<f64>::zeros();
    for (p, g) in points {
        let arm = p - middle;
        spread += arm * arm.transpose();
        change += arm * (g - grey);
    }
    let eigen = SymmetricEigen::new(spread);
    let least = eigen.eigenvalues.imin();
    let normal = eigen.eigenvectors.column(least).into_owned();
    // Along each axis of the plane that points are spread over.
    let gradient = (0..3).filter(|&axis| axis != least).map(|axis| {
        let along = eigen.eigenvectors.column(axis).into_owned();
        along * (along.dot(&change) / eigen.eigenvalues[axis].max(1e-6 * n))
    });
    let gradient = gradient.sum();
    Surface { normal, gradient, grey, middle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    /// A tiled floor with three boxes on it, `n` points drawn by `seed`, where one box is moved by `way`.
    fn scene(seed: u64, n: usize, way: Vec3) -> Vec<(Vec3, Vec3)> {
        let random = |i: usize, k: u64| uniform(draw(seed, 1, i as u64, k));
        let point = |i: usize| {
            let [a, b] = [random(i, 0), random(i, 1)];
            if i.is_multiple_of(2) {
                let tile = ((a * 12.0).floor() + (b * 12.0).floor()) as i32 % 2;
                return ([a - 0.5, b - 0.5, 0.0], [0.3 + 0.4 * tile as f32; 3]);
            }
            let which = i / 2 % 3;
            let corner = [[-0.3, -0.2, 0.0], [0.2, 0.1, 0.0], [-0.1, 0.3, 0.0]][which];
            let face = match i / 6 % 3 {
                0 => [0.1 * a, 0.1 * b, 0.1],
                1 => [0.1, 0.1 * a, 0.1 * b],
                _ => [0.1 * a, 0.1, 0.1 * b],
            };
            let moved = if which == 0 { way } else { [0.0; 3] };
            (std::array::from_fn(|k| corner[k] + face[k] + moved[k]), [0.2 * which as f32; 3])
        };
        (0..n).map(point).collect()
    }

    fn off() -> Rigid {
        Rigid::default().then(&[0.006, -0.004, 0.008], &[0.006, -0.005, 0.004], &[0.0; 3])
    }

    #[test]
    fn an_error_of_the_pose_is_found_also_beside_what_moves() {
        for way in [[0.0; 3], [0.02, 0.0, 0.0]] {
            let here = scene(2, 1000, way).into_iter().map(|(p, c)| (off().apply(&p), c));
            let there = scene(1, 6000, [0.0; 3]);
            let found = Registration::default().find(there.into_iter(), here);
            let (found, error) = found.expect("it errs");
            for p in [[0.3, 0.3, 0.0], [-0.3, 0.2, 0.1], [0.0, -0.4, 0.05]] {
                let (found, true_p) = (found.apply(&p), off().apply(&p));
                let left = crate::base::geometry::distance(&found, &true_p);
                assert!(left < 0.0015, "{left} m of {way:?}");
            }
            assert!((0.004..0.015).contains(&error.shift_m) && error.turn_rad > 0.008, "{error:?}");
        }
    }

    #[test]
    fn what_is_right_or_cannot_be_told_is_left() {
        let find = |there: Vec<(Vec3, Vec3)>, here: Vec<(Vec3, Vec3)>| {
            Registration::default().find(there.into_iter(), here.into_iter())
        };
        let still = [0.0; 3];
        assert_eq!(find(scene(1, 6000, still), scene(2, 1000, still)), None);
        assert_eq!(find(scene(1, 6000, still), scene(2, 50, still)), None, "too few");
        assert_eq!(find(Vec::new(), scene(2, 1000, still)), None);
        let far = scene(2, 1000, still).into_iter().map(|(p, c)| (p.map(|x| x + 3.0), c));
        assert_eq!(find(scene(1, 6000, still), far.collect()), None, "something else");
        let broken = vec![([f32::NAN; 3], [0.5; 3]); 1000];
        assert_eq!(find(broken.clone(), scene(2, 1000, still)), None);
        assert_eq!(find(scene(1, 6000, still), broken), None);
    }
}
