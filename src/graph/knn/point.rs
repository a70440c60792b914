//! The nearest of some points to each of others: exact, by the grid of the k-NN graph.

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;

use super::grid::Grid;
use super::{QUERY_CHUNK, squared_distance};
use crate::{Error, Result};

/// Finds nearest points; keeps its memory.
#[derive(Debug, Default, Clone)]
pub struct NearestPoint {
    grid: Grid,
}

impl NearestPoint {
    /// The index in `points` of the one nearest to each of `queries` (both m), into `nearest`; of
    /// equally near ones, the first.
    ///
    /// # Errors
    /// [`Error::TooFewPoints`] without points, [`Error::NonFinite`] for positions that are not
    /// finite.
    pub fn find(
        &mut self,
        points: &[[f32; 3]],
        queries: &[[f32; 3]],
        nearest: &mut Vec<u32>,
    ) -> Result<()> {
        nearest.resize(queries.len(), 0);
        if queries.is_empty() {
            return Ok(());
        }
        if points.is_empty() {
            return Err(Error::TooFewPoints { needed: 1, got: 0 });
        }
        if !points.iter().chain(queries).flatten().all(|c| c.is_finite()) {
            return Err(Error::NonFinite { what: "positions of a nearest-point search" });
        }
        let chunks = nearest.par_chunks_mut(QUERY_CHUNK).zip(queries.par_chunks(QUERY_CHUNK));
        if self.grid.rebuild(points) {
            let grid = &self.grid;
            chunks.for_each(|(nearest, queries)| {
                pulp::Arch::new().dispatch(|| {
                    let rows = nearest.iter_mut().zip(queries);
                    rows.for_each(|(nearest, query)| *nearest = grid.nearest_point(query));
                });
            });
            return Ok(());
        }
        let tree = ImmutableKdTree::<f32, 3>::new_from_slice(points)
            .map_err(|e| Error::KdTree { reason: format!("{e:?}") })?;
        chunks.for_each(|(nearest, queries)| {
            let rows = nearest.iter_mut().zip(queries);
            rows.for_each(|(nearest, query)| *nearest = by_tree(&tree, points, query));
        });
        Ok(())
    }
}

/// By kiddo, for points that are spread too unevenly for the grid.
fn by_tree(tree: &ImmutableKdTree<f32, 3>, points: &[[f32; 3]], query: &[f32; 3]) -> u32 {
    let one = std::num::NonZeroUsize::MIN;
    let hits = tree.query(query).nearest_n::<SquaredEuclidean<f32>>(one).execute();
    // Its distance may be rounded otherwise than ours: all about as near compete.
    let reach = hits.last().map_or(0.0, |hit| hit.distance) * (1.0 + 1e-5) + f32::MIN_POSITIVE;
    let hits = tree.query(query).within::<SquaredEuclidean<f32>>(reach).unsorted().execute();
    let keys =
        hits.iter().map(|hit| (squared_distance(query, &points[hit.item as usize]), hit.item));
    keys.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map_or(0, |(_, item)| item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::random::{draw, uniform};

    fn points(n: usize, seed: u64, scale: f32, shift: f32) -> Vec<[f32; 3]> {
        let draw = |i: u64, axis: usize| scale * uniform(draw(seed, 0, i, axis as u64)) + shift;
        (0..n as u64).map(|i| std::array::from_fn(|axis| draw(i, axis))).collect()
    }

    fn check(points: &[[f32; 3]], queries: &[[f32; 3]]) {
        let mut found = Vec::new();
        NearestPoint::default().find(points, queries, &mut found).unwrap();
        for (query, &found) in queries.iter().zip(&found) {
            let distance = |i: &usize| squared_distance(query, &points[*i]);
            let order = |a: &usize, b: &usize| distance(a).total_cmp(&distance(b)).then(a.cmp(b));
            assert_eq!(found as usize, (0..points.len()).min_by(order).unwrap(), "{query:?}");
        }
    }

    #[test]
    fn equals_brute_force_in_and_around_the_box() {
        let cloud = points(700, 1, 1.0, 0.0);
        check(&cloud, &points(900, 2, 1.0, 0.0));
        check(&cloud, &points(300, 3, 9.0, -4.0));
        check(&cloud, &points(60, 4, 1e5, -5e4));
        check(&cloud, &cloud);
        check(&[[0.5; 3]; 40], &points(50, 5, 1.0, 0.0));
        check(&points(1, 6, 1.0, 0.0), &points(50, 7, 1.0, 0.0));
        let grid: Vec<[f32; 3]> =
            (0..343).map(|i| [(i % 7) as f32, (i / 7 % 7) as f32, (i / 49) as f32]).collect();
        let halves: Vec<[f32; 3]> = grid.iter().map(|p| p.map(|c| c + 0.5)).collect();
        check(&grid, &halves);
        // Left to the tree.
        let mut heap = points(900, 8, 1e-3, 0.0);
        heap.push([1e4; 3]);
        assert!(!Grid::default().rebuild(&heap));
        check(&heap, &points(300, 9, 2e-3, 0.0));
        check(&heap, &points(100, 9, 1e4, 0.0));
    }

    #[test]
    fn refuses_nothing_to_find_and_positions_that_are_not_finite() {
        let mut found = Vec::new();
        let mut search = NearestPoint::default();
        assert!(search.find(&[], &[[0.0; 3]], &mut found).is_err());
        assert!(search.find(&[[0.0; 3]], &[[f32::NAN; 3]], &mut found).is_err());
        assert!(search.find(&[], &[], &mut found).is_ok());
    }
}
