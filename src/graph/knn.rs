//! The directed k-nearest-neighbour graph over all tokens.
//!
//! Searched by a uniform grid; by kiddo's k-d tree, which is also the grid's oracle, where points
//! are spread too unevenly for it.

mod grid;
mod point;

use std::num::NonZeroUsize;

use grid::Grid;
use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;

use crate::{Error, Result};

pub use point::NearestPoint;

/// Queries handed to one thread at a time.
const QUERY_CHUNK: usize = 512;

/// Directed graph with exactly `k` out-edges a node, to its nearest other nodes.
///
/// Ties in distance go to the lower index; a node is no neighbour of itself, however many others
/// share its position.
#[derive(Debug, Default, Clone)]
pub struct KnnGraph {
    k: usize,
    neighbors: Vec<u32>,
    grid: Grid,
}

impl KnnGraph {
    /// Builds the graph of `positions` (m), reusing this graph's memory.
    ///
    /// # Errors
    /// [`Error::TooFewPoints`] unless there are more than `k` nodes; [`Error::NonFinite`] for
    /// positions that are not finite.
    pub fn rebuild(&mut self, positions: &[[f32; 3]], k: usize) -> Result<()> {
        self.start(positions, k)?;
        if k <= grid::MAX_K && self.grid.rebuild(positions) {
            self.search_grid(positions);
            return Ok(());
        }
        self.search_tree(positions)
    }

    /// The same graph by kiddo's k-d tree alone: what [`KnnGraph::rebuild`] is held against.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`].
    pub fn rebuild_by_tree(&mut self, positions: &[[f32; 3]], k: usize) -> Result<()> {
        self.start(positions, k)?;
        self.search_tree(positions)
    }

    fn start(&mut self, positions: &[[f32; 3]], k: usize) -> Result<()> {
        if positions.len() <= k || k == 0 {
            return Err(Error::TooFewPoints { needed: k + 1, got: positions.len() });
        }
        if !positions.iter().flatten().all(|c| c.is_finite()) {
            return Err(Error::NonFinite { what: "positions of the k-NN graph" });
        }
        self.k = k;
        self.neighbors.resize(positions.len() * k, 0);
        Ok(())
    }

    fn search_grid(&mut self, positions: &[[f32; 3]]) {
        let (k, grid) = (self.k, &self.grid);
        let chunks = self.neighbors.par_chunks_mut(QUERY_CHUNK * k).enumerate();
        chunks.for_each(|(chunk, rows)| {
            let first = chunk * QUERY_CHUNK;
            let nodes = first..first + rows.len() / k;
            grid.search(nodes, positions, k, rows);
        });
    }

    /// By kiddo, which allocates for every query.
    fn search_tree(&mut self, positions: &[[f32; 3]]) -> Result<()> {
        let k = self.k;
        let tree = ImmutableKdTree::<f32, 3>::new_from_slice(positions)
            .map_err(|e| Error::KdTree { reason: format!("{e:?}") })?;
        self.neighbors.par_chunks_mut(QUERY_CHUNK * k).enumerate().for_each_init(
            Vec::new,
            |found, (chunk, rows)| {
                for (row, out) in rows.chunks_exact_mut(k).enumerate() {
                    let node = chunk * QUERY_CHUNK + row;
                    nearest(&tree, positions, node, k, found);
                    for (slot, &(_, index)) in out.iter_mut().zip(found.iter()) {
                        *slot = index;
                    }
                }
            },
        );
        Ok(())
    }

    /// Out-degree of every node.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.neighbors.len().checked_div(self.k).unwrap_or(0)
    }

    /// True before the first [`KnnGraph::rebuild`].
    pub fn is_empty(&self) -> bool {
        self.neighbors.is_empty()
    }

    /// The `k` neighbours of `node`, nearest first.
    #[inline]
    pub fn neighbors(&self, node: usize) -> &[u32] {
        &self.neighbors[node * self.k..(node + 1) * self.k]
    }

    /// A graph of given neighbour lists, `k` a node (for tests and other searches).
    ///
    /// # Errors
    /// [`Error::Shape`] unless `neighbors` holds whole rows of `k` indices of nodes.
    pub fn from_neighbors(k: usize, neighbors: Vec<u32>) -> Result<Self> {
        let n = neighbors.len().checked_div(k).unwrap_or(0);
        if n * k != neighbors.len() || neighbors.iter().any(|&j| j as usize >= n) {
            return Err(Error::Shape { what: "neighbours", expected: n * k, got: neighbors.len() });
        }
        Ok(Self { k, neighbors, grid: Grid::default() })
    }
}

/// Squared distance in a fixed order of operations, so that ties are the same everywhere.
#[inline]
pub(crate) fn squared_distance(a: &[f32; 3], b: &[f32; 3]) -> f32 {
    let [x, y, z] = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    (x * x + y * y) + z * z
}

/// Leaves at least `k` `(squared distance, index)` pairs in `found`, ascending, without `node`.
fn nearest(
    tree: &ImmutableKdTree<f32, 3>,
    positions: &[[f32; 3]],
    node: usize,
    k: usize,
    found: &mut Vec<(f32, u32)>,
) {
    let query = &positions[node];
    // Itself, and one more to see whether the k-th place is shared.
    let wanted = NonZeroUsize::new((k + 2).min(positions.len())).unwrap_or(NonZeroUsize::MIN);
    let hits = tree.query(query).nearest_n::<SquaredEuclidean<f32>>(wanted).execute();
    let reach = hits.last().map_or(0.0, |hit| hit.distance);
    collect(positions, node, hits.iter().map(|hit| hit.item), found);
    let kth = found[k - 1].0;
    let shared = found.len() < k + 1 || found[k].0 <= kth;
    if shared && positions.len() > k + 2 {
        // A shared k-th place: all points at that distance compete, the lowest indices win.
        let radius = reach.max(kth) * (1.0 + 1e-5) + f32::MIN_POSITIVE;
        let hits = tree.query(query).within::<SquaredEuclidean<f32>>(radius).unsorted().execute();
        collect(positions, node, hits.iter().map(|hit| hit.item), found);
    }
}

fn collect(
    positions: &[[f32; 3]],
    node: usize,
    items: impl Iterator<Item = u32>,
    found: &mut Vec<(f32, u32)>,
) {
    found.clear();
    found.extend(
        items
            .filter(|&item| item as usize != node)
            .map(|item| (squared_distance(&positions[node], &positions[item as usize]), item)),
    );
    found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::random::{draw, uniform};

    fn brute_force(positions: &[[f32; 3]], node: usize, k: usize) -> Vec<u32> {
        let mut all = Vec::new();
        collect(positions, node, 0..positions.len() as u32, &mut all);
        all.iter().take(k).map(|&(_, index)| index).collect()
    }

    fn check(positions: &[[f32; 3]], k: usize) {
        let mut graph = KnnGraph::default();
        graph.rebuild(positions, k).unwrap();
        let mut tree = KnnGraph::default();
        tree.rebuild_by_tree(positions, k).unwrap();
        for node in 0..positions.len() {
            let expected = brute_force(positions, node, k);
            assert_eq!(graph.neighbors(node), expected, "node {node}");
            assert_eq!(tree.neighbors(node), expected, "node {node}, by the tree");
        }
    }

    fn random_points(n: usize, seed: u64, scale: f32) -> Vec<[f32; 3]> {
        (0..n as u64)
            .map(|i| std::array::from_fn(|axis| scale * uniform(draw(seed, 0, i, axis as u64))))
            .collect()
    }

    #[test]
    fn equals_brute_force_on_random_points() {
        for (n, k) in [(4, 3), (5, 3), (37, 3), (1000, 3), (700, 8)] {
            check(&random_points(n, 1, 1.0), k);
            check(&random_points(n, 2, 1e-3), k);
        }
    }

    #[test]
    fn equals_brute_force_with_ties_and_duplicates() {
        // A grid: nearly every k-th place is shared.
        let grid: Vec<[f32; 3]> =
            (0..343).map(|i| [(i % 7) as f32, (i / 7 % 7) as f32, (i / 49) as f32]).collect();
        check(&grid, 3);
        // Three copies of each point, and one position held by a hundred.
        let mut copies = random_points(60, 3, 1.0);
        copies.extend_from_within(..);
        copies.extend_from_within(..60);
        copies.extend(std::iter::repeat_n([0.5, 0.5, 0.5], 100));
        check(&copies, 3);
        check(&[[1.0, 2.0, 3.0]; 50], 3);
    }

    #[test]
    fn equals_brute_force_however_points_are_spread() {
        let plane = |p: [f32; 3]| [p[0], 0.3 * p[0], p[1]];
        let line = |p: [f32; 3]| [p[0], 2.0, -1.0];
        for shape in [plane, line, |p: [f32; 3]| [p[0] * p[0] * p[0], p[1].powi(8), p[2]]] {
            check(&random_points(777, 4, 1.0).into_iter().map(shape).collect::<Vec<_>>(), 3);
        }
        // Far from the origin, where positions are coarse; and a few far from all others.
        check(
            &random_points(500, 5, 1.0).into_iter().map(|p| p.map(|c| c + 3e3)).collect::<Vec<_>>(),
            4,
        );
        let mut spread = random_points(900, 6, 1.0);
        spread.extend(random_points(9, 7, 50.0));
        check(&spread, 5);
        // All in one cell but one: left to the tree.
        let mut heap = random_points(900, 8, 1e-3);
        heap.push([1e4; 3]);
        assert!(!Grid::default().rebuild(&heap));
        check(&heap, 3);
        check(&random_points(300, 9, 1.0), 20);
        check(&random_points(300, 9, 1e18), 3);
        check(&random_points(300, 9, 1e-18), 3);
    }

    #[test]
    fn refuses_too_few_and_non_finite_points() {
        let mut graph = KnnGraph::default();
        assert!(matches!(
            graph.rebuild(&random_points(3, 1, 1.0), 3),
            Err(Error::TooFewPoints { needed: 4, got: 3 })
        ));
        let mut points = random_points(10, 1, 1.0);
        points[4][1] = f32::NAN;
        assert!(matches!(graph.rebuild(&points, 3), Err(Error::NonFinite { .. })));
    }
}
