//! Graphs to experiment on: paths, rings, grids, random graphs, and k-NN graphs made symmetric. All
//! are undirected, of weight 1.

use super::random::{draw, uniform};
use super::{KnnGraph, WeightedGraph};
use crate::{Error, Result};

/// Most nodes of a graph.
const MAX_NODES: usize = 1 << 24;
/// Most nodes of a random graph: each pair is drawn.
const MAX_RANDOM_NODES: usize = 1 << 13;

/// 0 - 1 - … - (n-1): the 1-dimensional grid.
///
/// # Errors
/// [`Error::Shape`] for more than 2^24 nodes.
pub fn path(n: usize) -> Result<WeightedGraph> {
    grid(1, n)
}

/// A path whose ends are joined; of fewer than three nodes, the path.
///
/// # Errors
/// As [`path`].
pub fn ring(n: usize) -> Result<WeightedGraph> {
    if n < 3 {
        return path(n);
    }
    let n_nodes = checked(n, MAX_NODES)?;
    let edges = (0..n_nodes).map(|i| (i, (i + 1) % n_nodes, 1.0));
    WeightedGraph::from_edges(n, &edges.collect::<Vec<_>>(), false)
}

/// Nodes by rows, each joined to the next in its row and in its column.
///
/// # Errors
/// As [`path`].
pub fn grid(rows: usize, columns: usize) -> Result<WeightedGraph> {
    let n = rows.saturating_mul(columns);
    let n_nodes = checked(n, MAX_NODES)?;
    let width = columns as u32;
    let edges = (0..n_nodes).flat_map(|i| {
        let right = (i % width + 1 < width).then_some((i, i + 1, 1.0));
        let below = (n_nodes - i > width).then(|| (i, i + width, 1.0));
        right.into_iter().chain(below)
    });
    WeightedGraph::from_edges(n, &edges.collect::<Vec<_>>(), false)
}

/// Each pair of nodes is joined with probability `p`, independently (Erdős and Rényi).
///
/// # Errors
/// [`Error::Shape`] for more than 2^13 nodes; [`Error::Config`] unless `p` is in 0..=1.
pub fn erdos_renyi(n: usize, p: f64, seed: u64) -> Result<WeightedGraph> {
    let n_nodes = checked(n, MAX_RANDOM_NODES)?;
    if !(0.0..=1.0).contains(&p) {
        let problem = format!("an edge probability of {p} is not in 0..=1");
        return Err(Error::Config { key: "p".into(), problem });
    }
    let joined = |i: u32, j: u32| f64::from(uniform(draw(seed, 0, i.into(), j.into()))) < p;
    let of_node = |i| (i + 1..n_nodes).filter(move |&j| joined(i, j)).map(move |j| (i, j, 1.0));
    WeightedGraph::from_edges(n, &(0..n_nodes).flat_map(of_node).collect::<Vec<_>>(), false)
}

/// Joins two nodes if either is among the other's nearest.
///
/// # Errors
/// None for graphs that [`KnnGraph`] gives.
pub fn symmetric_knn(knn: &KnnGraph) -> Result<WeightedGraph> {
    let n = knn.len();
    let ends = |i: usize| knn.neighbors(i).iter().map(move |&j| (j.min(i as u32), j.max(i as u32)));
    let mut pairs: Vec<(u32, u32)> = (0..n).flat_map(ends).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let edges: Vec<_> = pairs.into_iter().map(|(a, b)| (a, b, 1.0)).collect();
    WeightedGraph::from_edges(n, &edges, false)
}

fn checked(n: usize, most: usize) -> Result<u32> {
    if n > most {
        return Err(Error::Shape { what: "nodes of a graph (at most)", expected: most, got: n });
    }
    Ok(n as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(graph: &WeightedGraph) -> Vec<usize> {
        (0..graph.len()).map(|i| graph.neighbors(i).len()).collect()
    }

    #[test]
    fn nodes_have_the_neighbours_of_their_lattice() {
        assert_eq!(degrees(&path(4).unwrap()), [1, 2, 2, 1]);
        assert_eq!(degrees(&ring(5).unwrap()), [2; 5]);
        assert_eq!(ring(2).unwrap(), path(2).unwrap());
        let grid = grid(2, 3).unwrap();
        assert_eq!(degrees(&grid), [2, 3, 2, 2, 3, 2]);
        assert_eq!((grid.neighbors(1), grid.neighbors(5)), (&[0, 2, 4][..], &[2, 4][..]));
        assert!(path(0).unwrap().is_empty() && path(1).unwrap().neighbors(0).is_empty());
        assert!(path(usize::MAX).is_err() && super::grid(usize::MAX, 2).is_err());
    }

    #[test]
    fn random_graphs_have_their_share_of_the_pairs() {
        let n = 400;
        for p in [0.0, 0.1, 0.5, 1.0] {
            let graph = erdos_renyi(n, p, 7).unwrap();
            let share = degrees(&graph).iter().sum::<usize>() as f64 / (n * (n - 1)) as f64;
            // Of 79,800 pairs: three standard deviations are at most 0.0054.
            assert!((share - p).abs() < 0.006, "{p}: {share}");
        }
        assert_ne!(erdos_renyi(n, 0.5, 7).unwrap(), erdos_renyi(n, 0.5, 8).unwrap());
        assert!(erdos_renyi(n, 1.1, 7).is_err() && erdos_renyi(n, f64::NAN, 7).is_err());
        assert!(erdos_renyi(1 << 20, 0.1, 7).is_err());
    }

    #[test]
    fn mutual_neighbours_are_joined_once() {
        let knn = KnnGraph::from_neighbors(1, vec![1, 0, 1]).unwrap();
        let graph = symmetric_knn(&knn).unwrap();
        assert_eq!((graph.neighbors(1), graph.weights(1)), (&[0, 2][..], &[1.0, 1.0][..]));
    }
}
