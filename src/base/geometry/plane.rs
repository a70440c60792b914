//! The largest plane among points: a table, a floor, a wall.

use nalgebra::{Matrix3, Point3, Vector3};

/// Points, and triples of them, by which a plane is looked for: a plane with a quarter of the points
/// is missed once in 500 times.
const N_POINTS: usize = 2048;
const N_TRIPLES: usize = 400;
/// Fewer points tell nothing.
const MIN_POINTS: usize = 50;
/// Rounds of least squares on the points of the plane.
const N_ROUNDS: usize = 3;

/// A plane: the points x with `normal` · x = `offset`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plane {
    /// Of length 1, towards the side on which the origin is.
    pub normal: Vector3<f64>,
    /// In the points' unit; never positive.
    pub offset: f64,
    /// Share of the points that lie on it.
    pub share: f64,
}

impl Plane {
    /// Through a point; none where the normal has no length.
    fn through(point: &Point3<f64>, normal: Vector3<f64>) -> Option<Self> {
        let normal = normal.try_normalize(1e-9)?;
        let offset = normal.dot(&point.coords);
        let sign = if offset > 0.0 { -1.0 } else { 1.0 };
        Some(Self { normal: sign * normal, offset: sign * offset, share: 0.0 })
    }

    /// How far off a point lies, on either side.
    pub fn distance(&self, point: &Point3<f64>) -> f64 {
        (self.normal.dot(&point.coords) - self.offset).abs()
    }

    /// The plane with most of `points` among those that `counts`: a point is on it up to
    /// `within` (point). The same points give the same plane.
    ///
    /// None where there are few points, or none that counts.
    pub fn largest(
        points: &[[f32; 3]],
        within: impl Fn(&Point3<f64>) -> f64,
        counts: impl Fn(&Self) -> bool,
    ) -> Option<Self> {
        let every = points.len().div_ceil(N_POINTS).max(1);
        let points: Vec<Point3<f64>> =
            points.iter().step_by(every).map(|x| Point3::from(x.map(f64::from))).collect();
        let n = points.len();
        if n < MIN_POINTS {
            return None;
        }
        let on = |plane: &Self| points.iter().filter(|x| plane.distance(x) < within(x)).count();
        // Steps that no small number divides reach all over the points.
        let triple = |i: usize| [i * 7 % n, (i * 131 + n / 3) % n, (i * 257 + 2 * n / 3) % n];
        let candidate = |i: usize| {
            let [a, b, c] = triple(i).map(|i| points[i]);
            Self::through(&a, (b - a).cross(&(c - a))).filter(&counts)
        };
        let best = (0..N_TRIPLES).filter_map(candidate).max_by_key(&on)?;
        let fitted = (0..N_ROUNDS).try_fold(best, |plane, _| {
            fit(points.iter().filter(|x| plane.distance(x) < within(x)))
        });
        // The best of many has a few points more by chance; far fewer means that it slid away.
        let holds = |plane: &Self| counts(plane) && 10 * on(plane) >= 9 * on(&best);
        let plane = fitted.filter(holds).unwrap_or(best);
        Some(Self { share: on(&plane) as f64 / n as f64, ..plane })
    }
}

/// The plane with the least squares of distances.
fn fit<'a>(points: impl Iterator<Item = &'a Point3<f64>> + Clone) -> Option<Plane> {
    let n = points.clone().count() as f64;
    let middle = points.clone().map(|x| x.coords).sum::<Vector3<f64>>() / n;
    let scatter = |x: &Point3<f64>| {
        let off = x.coords - middle;
        off * off.transpose()
    };
    let eigen = points.map(scatter).sum::<Matrix3<f64>>().symmetric_eigen();
    Plane::through(&middle.into(), eigen.eigenvectors.column(eigen.eigenvalues.imin()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    /// 40 % of the points on z = -1 + x / 4, 30 % on x = 2, and others all over.
    fn points() -> Vec<[f32; 3]> {
        let at = |i: u64, axis: u64| 4.0 * uniform(draw(7, 0, i, axis)) - 2.0;
        let point = |i: u64| match (i % 10, [at(i, 0), at(i, 1), at(i, 2)]) {
            (0..4, [x, y, noise]) => [x, y, -1.0 + x / 4.0 + 0.002 * noise],
            (4..7, [_, y, z]) => [2.0, y, z],
            (_, point) => point,
        };
        (0..2000).map(point).collect()
    }

    #[test]
    fn the_largest_plane_is_found_and_fitted() {
        let plane = Plane::largest(&points(), |_| 0.015, |_| true).unwrap();
        let normal = Vector3::new(-0.25, 0.0, 1.0).normalize();
        assert!(plane.normal.dot(&normal) > 0.999_99, "{plane:?}");
        assert!((plane.offset + normal.z).abs() < 1e-3 && plane.offset < 0.0, "{plane:?}");
        assert!((0.4..0.45).contains(&plane.share), "{plane:?}");
    }

    #[test]
    fn planes_that_do_not_count_are_passed_over() {
        let upright = |plane: &Plane| plane.normal.z.abs() < 0.1;
        let plane = Plane::largest(&points(), |_| 0.015, upright).unwrap();
        assert!((plane.normal + Vector3::x()).norm() < 1e-3, "{plane:?}");
        assert!((plane.offset + 2.0).abs() < 1e-3, "{plane:?}");
        assert_eq!(Plane::largest(&points(), |_| 0.015, |_| false), None);
    }

    #[test]
    fn few_points_or_one_place_have_no_plane() {
        assert_eq!(Plane::largest(&points()[..49], |_| 0.015, |_| true), None);
        assert_eq!(Plane::largest(&[[0.5; 3]; 100], |_| 0.015, |_| true), None);
        assert_eq!(Plane::largest(&[], |_| 0.015, |_| true), None);
    }
}
