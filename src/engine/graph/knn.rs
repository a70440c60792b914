//! The directed k-nearest-neighbour graph over all tokens.

use crate::base::geometry::{Neighbors, Vec3};
use crate::{Error, Result};

/// Directed graph with exactly `k` out-edges a node, to its nearest other nodes.
///
/// Ties in distance go to the lower index; a node is no neighbour of itself, however many others
/// share its position.
#[derive(Debug, Default, Clone)]
pub struct KnnGraph {
    k: usize,
    neighbors: Vec<u32>,
    search: Neighbors,
}

impl KnnGraph {
    /// Builds the graph of `positions` (m), reusing this graph's memory.
    ///
    /// # Errors
    /// [`Error::TooFewPoints`] unless there are more than `k` nodes; [`Error::NonFinite`] for
    /// positions that are not finite.
    pub fn rebuild(&mut self, positions: &[Vec3], k: usize) -> Result<()> {
        self.search.k_nearest(positions, k, &mut self.neighbors)?;
        self.k = k;
        Ok(())
    }

    /// The same graph by kiddo's k-d tree alone: what [`KnnGraph::rebuild`] is held against.
    ///
    /// # Errors
    /// As [`KnnGraph::rebuild`].
    pub fn rebuild_by_tree(&mut self, positions: &[Vec3], k: usize) -> Result<()> {
        Neighbors::k_nearest_by_tree(positions, k, &mut self.neighbors)?;
        self.k = k;
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
        Ok(Self { k, neighbors, search: Neighbors::default() })
    }
}
