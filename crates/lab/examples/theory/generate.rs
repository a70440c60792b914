//! Graphs to experiment on: paths, rings, grids, random graphs, and k-NN graphs made symmetric. All
//! are undirected, of weight 1.

use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::{KnnGraph, WeightedGraph};
use forecloud::{Error, Result};

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
