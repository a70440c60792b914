//! Walks enumerated and merged: the loads of the graph random features of every node.
//!
//! All walks of up to `T` hops from a node are enumerated (1 + k + … + k^T prefixes) instead of
//! sampled, which is possible too, and those that end in the same node are merged per hop. For the row-normalised
//! adjacency W the loads are c(i, j, t) = (W^t)_ij, so that every layer's mask
//! M = Σ_t f_t W^t (asymmetric general GRFs, Reid et al. 2024b; one-hot keys) is exact:
//! M_ij = Σ_t f_t c(i, j, t).

use rayon::prelude::*;

use super::walks::{WalkConfig, WalkSampler, WalkSeed};
use super::{KnnGraph, WeightedGraph};
use crate::{Error, Result};

/// Rows that one task enumerates.
const ROWS_PER_TASK: usize = 1024;

/// Most prefixes of one node's walks that [`Loads`] accepts.
pub const MAX_PREFIXES: usize = 1024;

/// A graph whose walks can be enumerated.
pub trait Edges: Sync {
    /// Number of nodes.
    fn n_nodes(&self) -> usize;
    /// Most edges from one node.
    fn max_degree(&self) -> usize;
    /// Ends and weights of the edges from node `i`.
    fn edges(&self, i: usize) -> impl Iterator<Item = (u32, f32)>;
}

impl Edges for KnnGraph {
    fn n_nodes(&self) -> usize {
        self.len()
    }

    fn max_degree(&self) -> usize {
        self.k()
    }

    /// With weights 1/k.
    #[inline]
    fn edges(&self, i: usize) -> impl Iterator<Item = (u32, f32)> {
        let weight = 1.0 / self.k() as f32;
        self.neighbors(i).iter().map(move |&j| (j, weight))
    }
}

impl Edges for WeightedGraph {
    fn n_nodes(&self) -> usize {
        self.len()
    }

    fn max_degree(&self) -> usize {
        (0..self.len()).map(|i| self.neighbors(i).len()).max().unwrap_or(0)
    }

    #[inline]
    fn edges(&self, i: usize) -> impl Iterator<Item = (u32, f32)> {
        self.neighbors(i).iter().copied().zip(self.weights(i).iter().copied())
    }
}

/// Merged loads of every node: distinct end nodes, in the order in which walks first reach them,
/// each with `n_hops + 1` loads.
#[derive(Debug, Default, Clone)]
pub struct Loads {
    n_hops: usize,
    /// First entry of each row; rows of one task are adjacent, tasks start at fixed places.
    starts: Vec<u32>,
    lens: Vec<u32>,
    nodes: Vec<u32>,
    loads: Vec<f32>,
    scratch: Vec<Scratch>,
    n_entries: usize,
}

/// What merging a row takes besides the row.
#[derive(Debug, Default, Clone)]
struct Scratch {
    /// Hash table of a row's nodes: open addressing, twice as many slots as nodes at least;
    /// in a slot node << 32 | place.
    slots: Vec<u64>,
    sampler: WalkSampler,
}

/// A slot without a node.
const EMPTY: u64 = u64::MAX;

/// The row of one node while its walks are merged, in its place among all rows.
struct Merge<'a> {
    nodes: &'a mut [u32],
    loads: &'a mut [f32],
    n_nodes: usize,
    stride: usize,
    slots: &'a mut [u64],
}

/// One row of merged loads.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Place of the row's first entry among all entries (some places are unused).
    pub start: usize,
    /// Distinct end nodes, those of fewer hops first.
    pub nodes: &'a [u32],
    /// `n_hops + 1` loads for each of `nodes` (unitless).
    pub loads: &'a [f32],
}

impl Loads {
    /// Enumerates the walks of `n_hops` hops on `graph`, and merges them: c(i, j, t) = (W^t)_ij.
    ///
    /// Reuses this object's memory: no allocation once sizes have settled.
    ///
    /// # Errors
    /// [`Error::Shape`] if a node's walk tree may have more than [`MAX_PREFIXES`] prefixes.
    pub fn rebuild(&mut self, graph: &impl Edges, n_hops: usize) -> Result<()> {
        let degree = graph.max_degree();
        let prefixes = (0..=n_hops as u32).map(|t| degree.saturating_pow(t));
        let n_prefixes = prefixes.fold(0, usize::saturating_add);
        self.fill(graph.n_nodes(), n_prefixes, n_hops, |merge, _, i| merge.enumerate(graph, i))
    }

    /// Samples walks on `graph`, and merges them: c(i, j, t) is the mean over the walks from i of
    /// their load where they stand in j after t hops (Eq. 10), an estimate of (W^t)_ij.
    ///
    /// # Errors
    /// As [`Loads::rebuild`], and as [`WalkConfig::validate`].
    pub fn rebuild_sampled(
        &mut self,
        graph: &WeightedGraph,
        config: &WalkConfig,
        seed: WalkSeed,
    ) -> Result<()> {
        config.validate()?;
        let n_hops = config.halting.max_hops();
        let n_visits = config.n_walks * n_hops + 1;
        self.fill(graph.len(), n_visits, n_hops, |merge, sampler, i| {
            let share = 1.0 / config.n_walks as f32;
            sampler.sample(graph, i, config, seed, |node, hop, load| {
                *merge.load(node, hop) += share * load as f32;
            });
        })
    }

    /// Makes `n` rows of at most `n_visits` entries by `row`.
    fn fill(
        &mut self,
        n: usize,
        n_visits: usize,
        n_hops: usize,
        row: impl Fn(&mut Merge<'_>, &mut WalkSampler, usize) + Sync,
    ) -> Result<()> {
        if n_visits > MAX_PREFIXES {
            let what = "visits of a node's walks (take fewer hops, neighbours or walks)";
            return Err(Error::Shape { what, expected: MAX_PREFIXES, got: n_visits });
        }
        let row_cap = n_visits.min(n).max(1);
        if n.saturating_mul(row_cap) > u32::MAX as usize {
            let what = "entries of all loads (take fewer tokens, hops or walks)";
            return Err(Error::Shape { what, expected: u32::MAX as usize, got: n * row_cap });
        }
        let stride = n_hops + 1;
        self.n_hops = n_hops;
        self.starts.resize(n, 0);
        self.lens.resize(n, 0);
        self.nodes.resize(n * row_cap, 0);
        self.loads.resize(n * row_cap * stride, 0.0);
        self.scratch.resize_with(n.div_ceil(ROWS_PER_TASK), Scratch::default);
        let n_slots = (2 * row_cap).next_power_of_two();

        let rows = self.starts.par_chunks_mut(ROWS_PER_TASK);
        self.n_entries = rows
            .zip(self.lens.par_chunks_mut(ROWS_PER_TASK))
            .zip(self.nodes.par_chunks_mut(ROWS_PER_TASK * row_cap))
            .zip(self.loads.par_chunks_mut(ROWS_PER_TASK * row_cap * stride))
            .zip(self.scratch.par_iter_mut())
            .enumerate()
            .map(|(task, ((((starts, lens), nodes), loads), scratch))| {
                let first = task * ROWS_PER_TASK;
                scratch.slots.resize(n_slots, EMPTY);
                let mut used = 0;
                for (i, (start, len)) in starts.iter_mut().zip(lens).enumerate() {
                    scratch.slots.fill(EMPTY);
                    let mut merge = Merge {
                        nodes: &mut nodes[used..],
                        loads: &mut loads[used * stride..],
                        n_nodes: 0,
                        stride,
                        slots: &mut scratch.slots,
                    };
                    row(&mut merge, &mut scratch.sampler, first + i);
                    *start = (first * row_cap + used) as u32;
                    *len = merge.n_nodes as u32;
                    used += merge.n_nodes;
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

impl Merge<'_> {
    /// Each hop's loads times W give the next one's.
    #[inline]
    fn enumerate(&mut self, graph: &impl Edges, root: usize) {
        *self.load(root as u32, 0) = 1.0;
        for hop in 0..self.stride - 1 {
            for place in 0..self.n_nodes {
                let load = self.loads[place * self.stride + hop];
                if load == 0.0 {
                    continue; // not reached in so many hops
                }
                for (node, weight) in graph.edges(self.nodes[place] as usize) {
                    *self.load(node, hop + 1) += load * weight;
                }
            }
        }
    }

    /// The load of `node` after `hop` hops.
    #[inline]
    fn load(&mut self, node: u32, hop: usize) -> &mut f32 {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: neighbours in Morton order have numbers close to each other.
        let mut slot = (node.wrapping_mul(0x9e37_79b1) >> 16) as usize & mask;
        let place = loop {
            match self.slots[slot] {
                EMPTY => break self.add(node, slot),
                found if (found >> 32) as u32 == node => break found as u32 as usize,
                _ => slot = (slot + 1) & mask,
            }
        };
        &mut self.loads[place * self.stride + hop]
    }

    /// A place for a node that was not reached before.
    #[inline]
    fn add(&mut self, node: u32, slot: usize) -> usize {
        let place = self.n_nodes;
        self.slots[slot] = u64::from(node) << 32 | place as u64;
        self.nodes[place] = node;
        self.loads[place * self.stride..][..self.stride].fill(0.0);
        self.n_nodes += 1;
        place
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
    use crate::base::random::{draw, uniform};
    use crate::engine::graph::EdgeWeights;
    use crate::engine::graph::walks::{Halting, Sampler};

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
                let distinct: std::collections::HashSet<_> = row.nodes.iter().collect();
                assert_eq!(distinct.len(), row.nodes.len());
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

    /// Σ_t f_t W^t as a dense matrix, row by row, in f64.
    fn dense(graph: &WeightedGraph, f: &[f64]) -> Vec<f64> {
        let n = graph.len();
        let mut sum = vec![0.0; n * n];
        for (i, out) in sum.chunks_exact_mut(n).enumerate() {
            let mut row = vec![0.0; n];
            row[i] = 1.0;
            for f in f {
                out.iter_mut().zip(&row).for_each(|(sum, x)| *sum += f * x);
                let mut next = vec![0.0; n];
                for (j, x) in row.iter().enumerate() {
                    for (&to, &w) in graph.neighbors(j).iter().zip(graph.weights(j)) {
                        next[to as usize] += x * f64::from(w);
                    }
                }
                row = next;
            }
        }
        sum
    }

    /// Distances as weights, against dense powers; and sampled walks that cover all prefixes.
    #[test]
    fn weighted_and_sampled_loads_are_powers_too() {
        let points: Vec<[f32; 3]> = (0..150u64)
            .map(|i| std::array::from_fn(|axis| uniform(draw(9, 1, i, axis as u64))))
            .collect();
        let mut knn = KnnGraph::default();
        knn.rebuild(&points, 3).unwrap();
        let mut weighted = WeightedGraph::default();
        let mut loads = Loads::default();
        let f = [0.7, 0.4, 0.2, 0.1];
        for weights in [EdgeWeights::Uniform, EdgeWeights::Distance { bandwidth_m: 0.1 }] {
            weighted.rebuild(&knn, &points, weights);
            let exact = dense(&weighted, &f);
            loads.rebuild(&weighted, 3).unwrap();
            assert!(largest_difference(&loads, &f, &exact) < 1e-6, "{weights:?}");
            // 27 repelling walks of 3 hops on 3 edges a node take each prefix equally often.
            let config = WalkConfig {
                sampler: Sampler::Repelling,
                n_walks: 27,
                halting: Halting::Hops(3),
                importance: true,
            };
            let seed = WalkSeed { seed: 3, stamp_ns: 4 };
            loads.rebuild_sampled(&weighted, &config, seed).unwrap();
            let tolerance = if weights == EdgeWeights::Uniform { 1e-6 } else { 0.1 };
            assert!(largest_difference(&loads, &f, &exact) < tolerance, "{weights:?}");
            let iid = WalkConfig { sampler: Sampler::Iid, ..config };
            loads.rebuild_sampled(&weighted, &iid, seed).unwrap();
            assert!(largest_difference(&loads, &f, &exact) > 1e-2, "{weights:?}");
        }
    }

    fn largest_difference(loads: &Loads, f: &[f64], exact: &[f64]) -> f64 {
        let n = loads.len();
        let mut mask = vec![0.0; n * n];
        for i in 0..n {
            let row = loads.row(i);
            for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
                mask[i * n + j as usize] = f.iter().zip(c).map(|(f, c)| f * f64::from(*c)).sum();
            }
        }
        mask.iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
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
