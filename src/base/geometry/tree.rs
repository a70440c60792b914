//! Nearest neighbours by kiddo's k-d tree: among any points, which may be none.

use std::num::NonZeroUsize;

use kiddo::{ImmutableKdTree, SquaredEuclidean};

use super::{Vec3, squared_distance};
use crate::{Error, Result};

/// Points that are looked up by position.
#[derive(Debug, Default)]
pub struct PointTree(Option<ImmutableKdTree<f32, 3>>);

impl PointTree {
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

    /// Index of a nearest point; none without points.
    pub fn nearest_one(&self, x: &Vec3) -> Option<usize> {
        let query = self.0.as_ref()?.query(x);
        Some(query.nearest_one::<SquaredEuclidean<f32>>().execute().item as usize)
    }

    /// Indices of the points within `radius_m` of `x`.
    pub fn within(&self, x: &Vec3, radius_m: f32) -> impl Iterator<Item = usize> {
        self.within_squared(x, radius_m * radius_m).map(|item| item as usize)
    }

    fn within_squared(&self, x: &Vec3, radius_m2: f32) -> impl Iterator<Item = u32> {
        let hits = self.0.as_ref().map(|tree| {
            let query = tree.query(x).within::<SquaredEuclidean<f32>>(radius_m2);
            query.unsorted().execute()
        });
        hits.into_iter().flatten().map(|hit| hit.item)
    }

    /// The nearest of the tree's `points` to `query`, the first of equally near ones; 0 without
    /// points.
    pub(super) fn nearest(&self, points: &[Vec3], query: &Vec3) -> u32 {
        let Some(tree) = &self.0 else { return 0 };
        let hits =
            tree.query(query).nearest_n::<SquaredEuclidean<f32>>(NonZeroUsize::MIN).execute();
        // Its distance may be rounded otherwise than ours: all about as near compete.
        let reach = above(hits.last().map_or(0.0, |hit| hit.distance));
        let hits = self.within_squared(query, reach);
        let keys = hits.map(|item| (squared_distance(query, &points[item as usize]), item));
        keys.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map_or(0, |(_, item)| item)
    }

    /// Leaves at least `k` pairs of squared distance and index in `found`, ascending: those of the
    /// tree's `points` that are nearest to the one of index `node`, without itself.
    pub(super) fn k_nearest(
        &self,
        points: &[Vec3],
        node: usize,
        k: usize,
        found: &mut Vec<(f32, u32)>,
    ) {
        let Some(tree) = &self.0 else { return };
        let query = &points[node];
        // Itself, and one more to see whether the k-th place is shared.
        let wanted = NonZeroUsize::new((k + 2).min(points.len())).unwrap_or(NonZeroUsize::MIN);
        let hits = tree.query(query).nearest_n::<SquaredEuclidean<f32>>(wanted).execute();
        let reach = hits.last().map_or(0.0, |hit| hit.distance);
        collect(points, node, hits.iter().map(|hit| hit.item), found);
        let kth = found[k - 1].0;
        let shared = found.len() < k + 1 || found[k].0 <= kth;
        if shared && points.len() > k + 2 {
            // A shared k-th place: all points at that distance compete, the lowest indices win.
            collect(points, node, self.within_squared(query, above(reach.max(kth))), found);
        }
    }
}

/// A little more than a squared distance, however that is rounded.
fn above(squared_m2: f32) -> f32 {
    squared_m2 * (1.0 + 1e-5) + f32::MIN_POSITIVE
}

/// Replaces `found` by the squared distances and indices of `items` from the point `node`, ascending,
/// without itself.
pub(super) fn collect(
    points: &[Vec3],
    node: usize,
    items: impl Iterator<Item = u32>,
    found: &mut Vec<(f32, u32)>,
) {
    found.clear();
    let others = items.filter(|&item| item as usize != node);
    found.extend(others.map(|i| (squared_distance(&points[node], &points[i as usize]), i)));
    found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::{draw, uniform};

    #[test]
    fn agrees_with_the_plain_search() {
        // On a plane, where all points share a coordinate.
        let u = |i: u64, stream: u64| uniform(draw(3, 0, i, stream));
        let points: Vec<Vec3> = (0..501).map(|i| [u(i, 0), u(i, 1), 0.25]).collect();
        let nearest = PointTree::new(&points).unwrap();
        for i in 0..50 {
            let x = [u(i, 2), u(i, 3), 0.5 * u(i, 4)];
            let distance = |p: &Vec3| squared_distance(p, &x).sqrt();
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
        let none = PointTree::new(&[]).unwrap();
        assert_eq!((none.distance_m(&[0.0; 3]), none.within(&[0.0; 3], 1.0).count()), (None, 0));
        assert!(PointTree::new(&[[f32::NAN; 3]]).is_err());
    }
}
