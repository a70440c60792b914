//! Walks enumerated and merged: the loads of the graph random features of every node.
//!
//! All walks of up to `T` hops from a node are enumerated instead of sampled (1 + k + … + k^T
//! prefixes), and those that end in the same node are merged per hop. For the row-normalised
//! adjacency W the loads are c(i, j, t) = (W^t)_ij, so that every layer's mask
//! M = Σ_t f_t W^t (asymmetric general GRFs, Reid et al. 2024b; one-hot keys) is exact:
//! M_ij = Σ_t f_t c(i, j, t).

use rayon::prelude::*;

use super::KnnGraph;
use crate::{Error, Result};

/// Rows that one task enumerates.
const ROWS_PER_TASK: usize = 1024;

/// Most prefixes of one node's walk tree that [`Loads::rebuild`] accepts.
pub const MAX_PREFIXES: usize = 1024;

/// Merged loads of every node: distinct end nodes, ascending, each with `n_hops + 1` loads.
#[derive(Debug, Default, Clone)]
pub struct Loads {
    n_hops: usize,
    /// First entry of each row; rows of one task are adjacent, tasks start at fixed places.
    starts: Vec<u32>,
    lens: Vec<u32>,
    nodes: Vec<u32>,
    loads: Vec<f32>,
    scratch: Vec<Tree>,
    n_entries: usize,
}

/// The walk tree of one node while it is enumerated.
#[derive(Debug, Default, Clone)]
struct Tree {
    frontier: Vec<u32>,
    next: Vec<u32>,
    /// `(node, place in loads)` of the distinct nodes, in order of discovery.
    nodes: Vec<u32>,
    loads: Vec<f32>,
    order: Vec<u32>,
}

/// One row of merged loads.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Place of the row's first entry among all entries (some places are unused).
    pub start: usize,
    /// Distinct end nodes, ascending.
    pub nodes: &'a [u32],
    /// `n_hops + 1` loads for each of `nodes` (unitless).
    pub loads: &'a [f32],
}

impl Loads {
    /// Enumerates the walks of `n_hops` hops on `graph` with uniform weights 1/k, and merges them.
    ///
    /// Reuses this object's memory: no allocation once sizes have settled.
    ///
    /// # Errors
    /// [`Error::Shape`] if a node's walk tree has more than [`MAX_PREFIXES`] prefixes.
    pub fn rebuild(&mut self, graph: &KnnGraph, n_hops: usize) -> Result<()> {
        let n = graph.len();
        let n_prefixes: usize = (0..=n_hops as u32).map(|t| graph.k().saturating_pow(t)).sum();
        if n_prefixes > MAX_PREFIXES {
            let what = "prefixes of a node's walk tree (fewer hops or neighbours)";
            return Err(Error::Shape { what, expected: MAX_PREFIXES, got: n_prefixes });
        }
        let row_cap = n_prefixes.min(n);
        let stride = n_hops + 1;
        self.n_hops = n_hops;
        self.starts.resize(n, 0);
        self.lens.resize(n, 0);
        self.nodes.resize(n * row_cap, 0);
        self.loads.resize(n * row_cap * stride, 0.0);
        self.scratch.resize(n.div_ceil(ROWS_PER_TASK), Tree::default());

        let rows = self.starts.par_chunks_mut(ROWS_PER_TASK);
        self.n_entries = rows
            .zip(self.lens.par_chunks_mut(ROWS_PER_TASK))
            .zip(self.nodes.par_chunks_mut(ROWS_PER_TASK * row_cap))
            .zip(self.loads.par_chunks_mut(ROWS_PER_TASK * row_cap * stride))
            .zip(self.scratch.par_iter_mut())
            .enumerate()
            .map(|(task, ((((starts, lens), nodes), loads), tree))| {
                let first = task * ROWS_PER_TASK;
                let mut used = 0;
                for (row, (start, len)) in starts.iter_mut().zip(lens).enumerate() {
                    tree.enumerate(graph, first + row, n_hops);
                    *start = (first * row_cap + used) as u32;
                    *len = tree.nodes.len() as u32;
                    tree.write_sorted(stride, &mut nodes[used..], &mut loads[used * stride..]);
                    used += tree.nodes.len();
                }
                used
            })
            .sum();
        Ok(())
    }

    /// Number of rows (nodes).
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True before the first [`Loads::rebuild`].
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Hops of the walks; each entry has one load more.
    pub fn n_hops(&self) -> usize {
        self.n_hops
    }

    /// Entries in use, over all rows.
    pub fn n_entries(&self) -> usize {
        self.n_entries
    }

    /// Places for entries: [`Row::start`] plus the row's length stays below.
    pub fn n_places(&self) -> usize {
        self.nodes.len()
    }

    /// Row `i`: the nodes that walks from `i` reach, and their loads.
    #[inline]
    pub fn row(&self, i: usize) -> Row<'_> {
        let (start, len) = (self.starts[i] as usize, self.lens[i] as usize);
        let stride = self.n_hops + 1;
        Row {
            start,
            nodes: &self.nodes[start..start + len],
            loads: &self.loads[start * stride..(start + len) * stride],
        }
    }
}

impl Tree {
    fn enumerate(&mut self, graph: &KnnGraph, root: usize, n_hops: usize) {
        let stride = n_hops + 1;
        let step = 1.0 / graph.k() as f32;
        self.nodes.clear();
        self.loads.clear();
        self.frontier.clear();
        self.frontier.push(root as u32);
        let mut load = 1.0;
        for hop in 0..=n_hops {
            for &node in &self.frontier {
                let place = self.nodes.iter().position(|&n| n == node).unwrap_or_else(|| {
                    self.nodes.push(node);
                    self.loads.resize(self.nodes.len() * stride, 0.0);
                    self.nodes.len() - 1
                });
                self.loads[place * stride + hop] += load;
            }
            if hop < n_hops {
                self.next.clear();
                for &node in &self.frontier {
                    self.next.extend_from_slice(graph.neighbors(node as usize));
                }
                std::mem::swap(&mut self.frontier, &mut self.next);
                load *= step;
            }
        }
    }

    fn write_sorted(&mut self, stride: usize, nodes: &mut [u32], loads: &mut [f32]) {
        self.order.clear();
        self.order.extend(0..self.nodes.len() as u32);
        self.order.sort_unstable_by_key(|&place| self.nodes[place as usize]);
        for (out, &place) in self.order.iter().enumerate() {
            let place = place as usize;
            nodes[out] = self.nodes[place];
            loads[out * stride..(out + 1) * stride]
                .copy_from_slice(&self.loads[place * stride..(place + 1) * stride]);
        }
    }
}

/// Loads by column: for each node the rows that reach it, for the backward pass over keys.
#[derive(Debug, Default, Clone)]
pub struct TransposedLoads {
    starts: Vec<u32>,
    rows: Vec<u32>,
    places: Vec<u32>,
}

impl TransposedLoads {
    /// Transposes `loads`, reusing this object's memory.
    pub fn rebuild(&mut self, loads: &Loads) {
        let n = loads.len();
        self.starts.clear();
        self.starts.resize(n + 2, 0);
        for i in 0..n {
            for &j in loads.row(i).nodes {
                self.starts[j as usize + 2] += 1;
            }
        }
        for j in 2..self.starts.len() {
            self.starts[j] += self.starts[j - 1];
        }
        self.rows.resize(loads.n_entries(), 0);
        self.places.resize(loads.n_entries(), 0);
        for i in 0..n {
            let row = loads.row(i);
            for (entry, &j) in row.nodes.iter().enumerate() {
                let at = &mut self.starts[j as usize + 1];
                self.rows[*at as usize] = i as u32;
                self.places[*at as usize] = (row.start + entry) as u32;
                *at += 1;
            }
        }
    }

    /// Rows that reach node `j`, ascending, and the place of each such entry in the loads.
    #[inline]
    pub fn column(&self, j: usize) -> (&[u32], &[u32]) {
        let range = self.starts[j] as usize..self.starts[j + 1] as usize;
        (&self.rows[range.clone()], &self.places[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::random::{draw, uniform};

    fn graph(n: usize, k: usize) -> KnnGraph {
        let points: Vec<[f32; 3]> = (0..n as u64)
            .map(|i| std::array::from_fn(|axis| uniform(draw(9, 0, i, axis as u64))))
            .collect();
        let mut graph = KnnGraph::default();
        graph.rebuild(&points, k).unwrap();
        graph
    }

    /// Dense powers W^0 … W^T of the row-normalised adjacency, in f64.
    fn dense_powers(graph: &KnnGraph, n_hops: usize) -> Vec<Vec<f64>> {
        let n = graph.len();
        let mut power = vec![0.0; n * n];
        (0..n).for_each(|i| power[i * n + i] = 1.0);
        let mut powers = vec![power];
        for t in 0..n_hops {
            let mut next = vec![0.0; n * n];
            for i in 0..n {
                for &j in graph.neighbors(i) {
                    for c in 0..n {
                        next[i * n + c] += powers[t][j as usize * n + c] / graph.k() as f64;
                    }
                }
            }
            powers.push(next);
        }
        powers
    }

    #[test]
    fn loads_are_the_powers_of_the_adjacency() {
        for (n, k, n_hops) in [(37, 3, 3), (200, 3, 3), (50, 2, 4), (30, 5, 2), (1500, 3, 1)] {
            let graph = graph(n, k);
            let mut loads = Loads::default();
            loads.rebuild(&graph, n_hops).unwrap();
            let powers = dense_powers(&graph, n_hops);
            let mut covered = vec![0.0; n_hops + 1];
            for i in 0..n {
                let row = loads.row(i);
                assert!(row.nodes.is_sorted_by(|a, b| a < b), "ascending and distinct");
                for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(n_hops + 1)) {
                    for t in 0..=n_hops {
                        let exact = powers[t][i * n + j as usize];
                        assert!((f64::from(c[t]) - exact).abs() < 1e-6, "({i}, {j}, {t})");
                        covered[t] += f64::from(c[t]);
                    }
                }
            }
            for total in covered {
                assert!((total / n as f64 - 1.0).abs() < 1e-5, "rows of W^t sum to one");
            }
        }
    }

    #[test]
    fn transposed_loads_hold_the_same_entries() {
        let graph = graph(300, 3);
        let mut loads = Loads::default();
        loads.rebuild(&graph, 3).unwrap();
        let mut transposed = TransposedLoads::default();
        transposed.rebuild(&loads);
        let mut n_entries = 0;
        for j in 0..300 {
            let (rows, places) = transposed.column(j);
            assert!(rows.is_sorted());
            for (&i, &place) in rows.iter().zip(places) {
                let row = loads.row(i as usize);
                assert_eq!(row.nodes[place as usize - row.start], j as u32);
                n_entries += 1;
            }
        }
        assert_eq!(n_entries, loads.n_entries());
    }

    #[test]
    fn refuses_walk_trees_without_bound() {
        let err = Loads::default().rebuild(&graph(50, 10), 6).unwrap_err();
        assert!(matches!(err, Error::Shape { .. }), "{err}");
    }
}
