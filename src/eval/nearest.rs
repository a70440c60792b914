//! Nearest neighbours among points, which may be none.

use kiddo::{ImmutableKdTree, SquaredEuclidean};

use crate::{Error, Result};

type Vec3 = [f32; 3];

/// Points that are looked up by position.
#[derive(Debug, Default)]
pub struct Nearest(Option<ImmutableKdTree<f32, 3>>);

impl Nearest {
    /// Of `points` (m).
    ///
    /// # Errors
    /// [`Error::NonFinite`] if one is not finite.
    pub fn new(points: &[Vec3]) -> Result<Self> {
        if !points.iter().flatten().all(|value| value.is_finite()) {
            return Err(Error::NonFinite { what: "points to look up" });
        }
        if points.is_empty() {
            return Ok(Self(None));
        }
        let tree = ImmutableKdTree::new_from_slice(points);
        Ok(Self(Some(tree.map_err(|e| Error::KdTree { reason: format!("{e:?}") })?)))
    }

    /// Distance from `x` to the nearest point (m); none without points.
    pub fn distance_m(&self, x: &Vec3) -> Option<f32> {
        let query = self.0.as_ref()?.query(x);
        let hit = query.nearest_one::<SquaredEuclidean<f32>>().execute();
        Some(hit.distance.sqrt())
    }

    /// Indices of the points within `radius_m` of `x`.
    pub fn within(&self, x: &Vec3, radius_m: f32) -> impl Iterator<Item = usize> {
        let hits = self.0.as_ref().map(|tree| {
            let query = tree.query(x).within::<SquaredEuclidean<f32>>(radius_m * radius_m);
            query.unsorted().execute()
        });
        hits.into_iter().flatten().map(|hit| hit.item as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::random::{draw, uniform};

    #[test]
    fn agrees_with_the_plain_search() {
        // On a plane, where all points share a coordinate.
        let u = |i: u64, stream: u64| uniform(draw(3, 0, i, stream));
        let points: Vec<Vec3> = (0..501).map(|i| [u(i, 0), u(i, 1), 0.25]).collect();
        let nearest = Nearest::new(&points).unwrap();
        for i in 0..50 {
            let x = [u(i, 2), u(i, 3), 0.5 * u(i, 4)];
            let distance =
                |p: &Vec3| (0..3).map(|axis| (p[axis] - x[axis]).powi(2)).sum::<f32>().sqrt();
            let least = points.iter().map(distance).fold(f32::INFINITY, f32::min);
            assert!((nearest.distance_m(&x).unwrap() - least).abs() < 1e-6);
            let mut within: Vec<usize> = nearest.within(&x, 0.2).collect();
            within.sort_unstable();
            let near = (0..points.len()).filter(|&i| distance(&points[i]) <= 0.2);
            assert!(within.into_iter().eq(near));
        }
    }

    #[test]
    fn no_points_have_no_nearest() {
        let none = Nearest::new(&[]).unwrap();
        assert_eq!((none.distance_m(&[0.0; 3]), none.within(&[0.0; 3], 1.0).count()), (None, 0));
        assert!(Nearest::new(&[[f32::NAN; 3]]).is_err());
    }
}
