//! Graphs with weighted edges: what walks are sampled on.

use super::KnnGraph;
use crate::base::geometry::squared_distance;
use crate::{Error, Result};

/// Weights of the edges of a k-NN graph; each row of the adjacency W sums to one.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EdgeWeights {
    /// W_ij = 1 / k.
    #[default]
    Uniform,
    /// W_ij ∝ exp(-d² / σ²), d the distance of the two nodes (m).
    Distance {
        /// σ, metres.
        bandwidth_m: f32,
    },
}

impl EdgeWeights {
    /// Weights of one node's edges to `neighbors` into `out`, which is as long; they sum to one.
    pub fn of(self, positions: &[[f32; 3]], node: usize, neighbors: &[u32], out: &mut [f32]) {
        let even = 1.0 / neighbors.len().max(1) as f32;
        let Self::Distance { bandwidth_m } = self else { return out.fill(even) };
        let squared = |j: u32| squared_distance(&positions[node], &positions[j as usize]);
        // Relative to the nearest: at least one weight stays away from zero, however far it is.
        let nearest = neighbors.iter().map(|&j| squared(j)).fold(f32::INFINITY, f32::min);
        let scale = -1.0 / (bandwidth_m * bandwidth_m);
        for (weight, &j) in out.iter_mut().zip(neighbors) {
            *weight = ((squared(j) - nearest) * scale).exp();
        }
        let sum: f32 = out.iter().sum();
        out.iter_mut().for_each(|weight| *weight /= sum);
    }

    /// Checks the bandwidth.
    ///
    /// # Errors
    /// [`Error::Config`] unless it is positive and finite.
    pub fn validate(self) -> Result<()> {
        match self {
            Self::Distance { bandwidth_m }
                if !(bandwidth_m * bandwidth_m > 0.0 && bandwidth_m > 0.0 && bandwidth_m < 1e9) =>
            {
                let problem = format!("a bandwidth of {bandwidth_m} m is not in 1e-19..1e9");
                Err(Error::Config { key: "edge_weights".into(), problem })
            }
            _ => Ok(()),
        }
    }
}

/// Directed graph with weighted edges, by rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeightedGraph {
    /// Row `i` is `starts[i]..starts[i + 1]`; empty, or one more than there are nodes.
    starts: Vec<u32>,
    neighbors: Vec<u32>,
    weights: Vec<f32>,
}

impl WeightedGraph {
    /// Graph of `edges` (from, to, weight) between `n` nodes; parallel edges add up.
    ///
    /// # Errors
    /// [`Error::Shape`] if an edge names a node that is none; [`Error::NonFinite`] for weights.
    pub fn from_edges(n: usize, edges: &[(u32, u32, f32)], directed: bool) -> Result<Self> {
        let mut both: Vec<(u32, u32, f32)> = Vec::with_capacity(2 * edges.len());
        for &(from, to, weight) in edges {
            if from as usize >= n || to as usize >= n {
                let got = from.max(to) as usize;
                return Err(Error::Shape { what: "node of an edge (below)", expected: n, got });
            }
            if !weight.is_finite() {
                return Err(Error::NonFinite { what: "weights of the edges" });
            }
            both.push((from, to, weight));
            if !directed && from != to {
                both.push((to, from, weight));
            }
        }
        both.sort_by_key(|&(from, to, _)| (from, to));
        both.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            kept.2 += if same { next.2 } else { 0.0 };
            same
        });
        let starts = (0..=n as u32).map(|i| both.partition_point(|edge| edge.0 < i) as u32);
        Ok(Self {
            starts: starts.collect(),
            neighbors: both.iter().map(|edge| edge.1).collect(),
            weights: both.iter().map(|edge| edge.2).collect(),
        })
    }

    /// Graph of the pixels of a depth image `[height, width]` (m; what is not positive and finite has no
    /// edges): each joined to those beside, above and below it, except over steps of more than
    /// `max_step_m`. Weights of a row sum to one. Walks on it stay on one surface.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the image is whole rows of `width`, of fewer than 2³⁰ pixels.
    pub fn of_depth(depth: &[f32], width: usize, max_step_m: f32) -> Result<Self> {
        let n = depth.len();
        if n >= 1 << 30 || !n.is_multiple_of(width.max(1)) {
            let what = "pixels of a depth image (whole rows, below 2^30)";
            return Err(Error::Shape { what, expected: n / width.max(1) * width, got: n });
        }
        let is_seen = |i: usize| depth[i] > 0.0 && depth[i].is_finite();
        let mut graph = Self { starts: vec![0], ..Self::default() };
        for i in 0..n {
            let around = [
                (i >= width).then(|| i - width),
                (i % width > 0).then(|| i - 1),
                ((i + 1) % width > 0).then(|| i + 1),
                (i + width < n).then(|| i + width),
            ];
            let is_near = |j: &usize| (depth[i] - depth[*j]).abs() <= max_step_m;
            let near = around.into_iter().flatten().filter(|&j| is_seen(i) && is_seen(j));
            let before = graph.neighbors.len();
            graph.neighbors.extend(near.filter(is_near).map(|j| j as u32));
            let degree = graph.neighbors.len() - before;
            graph.weights.resize(graph.neighbors.len(), 1.0 / degree.max(1) as f32);
            graph.starts.push(graph.neighbors.len() as u32);
        }
        Ok(graph)
    }

    /// Becomes the directed graph of `knn` with weights by `positions` (m); keeps its memory.
    pub fn rebuild(&mut self, knn: &KnnGraph, positions: &[[f32; 3]], weights: EdgeWeights) {
        let (n, k) = (knn.len(), knn.k());
        self.starts.clear();
        self.starts.extend((0..=n).map(|i| (i * k) as u32));
        self.neighbors.clear();
        self.weights.resize(n * k, 0.0);
        for (i, out) in self.weights.chunks_exact_mut(k.max(1)).enumerate() {
            self.neighbors.extend_from_slice(knn.neighbors(i));
            weights.of(positions, i, knn.neighbors(i), out);
        }
    }

    /// `scale` · D^-½ A D^-½ of this graph A, D its weighted out-degrees; nodes without edges keep
    /// none.
    pub fn normalized(mut self, scale: f32) -> Self {
        let degrees: Vec<f32> = (0..self.len()).map(|i| self.weights(i).iter().sum()).collect();
        for i in 0..self.len() {
            for at in self.row(i) {
                let j = self.neighbors[at] as usize;
                self.weights[at] *= scale / (degrees[i] * degrees[j]).sqrt();
            }
        }
        self
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends of the edges from node `i`, ascending for graphs of edges, nearest first for k-NN.
    #[inline]
    pub fn neighbors(&self, i: usize) -> &[u32] {
        &self.neighbors[self.row(i)]
    }

    /// Weights of the same edges.
    #[inline]
    pub fn weights(&self, i: usize) -> &[f32] {
        &self.weights[self.row(i)]
    }

    #[inline]
    fn row(&self, i: usize) -> std::ops::Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_images_edges_are_cut_at_steps_and_holes() {
        let depth = [1.0, 1.01, 2.0, 1.0, f32::NAN, 2.01];
        let graph = WeightedGraph::of_depth(&depth, 3, 0.05).unwrap();
        let edges: Vec<&[u32]> = (0..6).map(|i| graph.neighbors(i)).collect();
        assert_eq!(edges, [&[1, 3][..], &[0], &[5], &[0], &[], &[2]]);
        assert_eq!((graph.weights(0), graph.weights(1)), (&[0.5, 0.5][..], &[1.0][..]));
        assert!(WeightedGraph::of_depth(&depth, 4, 0.05).is_err());
        assert!(WeightedGraph::of_depth(&[], 0, 0.05).unwrap().is_empty());
    }

    #[test]
    fn undirected_edges_go_both_ways_and_parallel_ones_add_up() {
        let edges = [(0, 1, 1.0), (2, 1, 2.0), (0, 1, 0.5), (2, 2, 4.0)];
        let graph = WeightedGraph::from_edges(4, &edges, false).unwrap();
        assert_eq!(graph.len(), 4);
        assert_eq!((graph.neighbors(1), graph.weights(1)), (&[0, 2][..], &[1.5, 2.0][..]));
        assert_eq!((graph.neighbors(2), graph.weights(2)), (&[1, 2][..], &[2.0, 4.0][..]));
        assert!(graph.neighbors(3).is_empty());
        let directed = WeightedGraph::from_edges(4, &edges, true).unwrap();
        assert!(directed.neighbors(1).is_empty());
        assert!(WeightedGraph::from_edges(2, &edges, true).is_err());
        assert!(WeightedGraph::from_edges(2, &[(0, 1, f32::NAN)], true).is_err());
    }

    #[test]
    fn normalized_weights_divide_by_both_degrees() {
        let graph = WeightedGraph::from_edges(3, &[(0, 1, 1.0), (1, 2, 1.0)], false).unwrap();
        let graph = graph.normalized(0.5);
        assert!((graph.weights(0)[0] - 0.5 / 2f32.sqrt()).abs() < 1e-7);
    }

    #[test]
    fn distance_weights_fall_with_the_distance_and_sum_to_one() {
        let positions = [[0.0; 3], [0.1, 0.0, 0.0], [0.0, 0.2, 0.0], [1e3, 0.0, 0.0]];
        let mut out = [0.0; 2];
        let weights = EdgeWeights::Distance { bandwidth_m: 0.1 };
        weights.of(&positions, 0, &[1, 2], &mut out);
        let expected = [(-1f32).exp(), (-4f32).exp()];
        assert!((out[0] / out[1] / (expected[0] / expected[1]) - 1.0).abs() < 1e-5, "{out:?}");
        assert!((out[0] + out[1] - 1.0).abs() < 1e-6);
        // All far away: still weights, not 0 / 0.
        weights.of(&positions, 3, &[1, 2], &mut out);
        assert!((out[0] + out[1] - 1.0).abs() < 1e-6, "{out:?}");
        assert!(EdgeWeights::Distance { bandwidth_m: 0.0 }.validate().is_err());
        assert!(EdgeWeights::Distance { bandwidth_m: f32::NAN }.validate().is_err());
    }
}
