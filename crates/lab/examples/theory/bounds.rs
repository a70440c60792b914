//! What the theory of graph random features promises, to hold measurements against: how sparse they
//! are, how near their mask is to the exact one, and what attention costs with them.
//!
//! Source: GRF masking (Reid et al. 2025), section 3.4 and appendix A.2. Both results are of
//! *independent* walks ([`forecloud::engine::graph::walks::Sampler::Iid`]) that halt before each hop with p_halt and
//! carry importance weights; of other samplers they say nothing.

use super::series::Side;
use forecloud::engine::graph::WeightedGraph;

/// Nodes, the first one included, that none of `n_walks` walks exceeds with probability 1 - `delta`:
/// b of lemma 3.3, from (1 - (1 - p_halt)^b)^n = 1 - δ.
///
/// A real number; infinite for walks that don't halt.
pub fn longest_walk(n_walks: usize, p_halt: f64, delta: f64) -> f64 {
    if p_halt <= 0.0 {
        return f64::INFINITY;
    }
    (1.0 - (1.0 - delta).powf(1.0 / n_walks as f64)).ln() / (1.0 - p_halt).ln()
}

/// Non-zero entries that a graph random feature has at most, with probability at least 1 - `delta`:
/// n · b, as lemma 3.3 states it.
///
/// Walks have whole lengths, so that the lemma's proof needs ⌈b⌉ ([`nonzero_bound`]): a single walk
/// that never turns back exceeds this one more often than δ.
pub fn nonzero_bound_as_stated(n_walks: usize, p_halt: f64, delta: f64) -> f64 {
    n_walks as f64 * longest_walk(n_walks, p_halt, delta)
}

/// The same with walks of a whole number of nodes, n · ⌈b⌉: what the lemma's proof gives.
pub fn nonzero_bound(n_walks: usize, p_halt: f64, delta: f64) -> f64 {
    n_walks as f64 * longest_walk(n_walks, p_halt, delta).ceil()
}

/// Load that one walk leaves at most, c = Σ_k |f_k| (max |W_ij| d_i / (1 - p_halt))^k (theorem 3.2,
/// Eq. 21), d_i the number of edges from i (unitless).
///
/// Both theorem and bound need it finite: `f` of finitely many terms is enough.
pub fn load_bound(graph: &WeightedGraph, f: &[f64], p_halt: f64) -> f64 {
    let of_node = |i: usize| {
        let largest = graph.weights(i).iter().fold(0f32, |max, w| max.max(w.abs()));
        f64::from(largest) * graph.neighbors(i).len() as f64
    };
    let ratio = (0..graph.len()).map(of_node).fold(0.0, f64::max) / (1.0 - p_halt);
    f.iter().rev().fold(0.0, |sum, f| sum * ratio + f.abs())
}

/// Probability, at most, that an entry of the estimated mask is off by more than `t`; above 1 where
/// the bound says nothing.
///
/// Symmetric: 2 exp(-t² n³ / (2 (2n-1)² c⁴)) (theorem 3.2, Eq. 11), of entries i ≠ j: the same walks
/// on both sides bias the diagonal. Asymmetric, with one-hot vectors on the other side: 2 exp(-n t² /
/// (2 c²)), which is not in the paper; it is Hoeffding's inequality for the mean of `n_walks`
/// independent loads in ±c (Eq. 21).
///
/// `n_walks` from each node, `c` of [`load_bound`].
pub fn tail_bound(side: Side, t: f64, n_walks: usize, c: f64) -> f64 {
    2.0 * (-(t / scale(side, n_walks, c)).powi(2)).exp()
}

/// Deviation that an entry of the estimated mask exceeds with at most `probability`: the inverse of
/// [`tail_bound`].
pub fn deviation_bound(side: Side, probability: f64, n_walks: usize, c: f64) -> f64 {
    scale(side, n_walks, c) * (2.0 / probability).ln().max(0.0).sqrt()
}

/// The deviation at which the exponent is -1.
fn scale(side: Side, n_walks: usize, c: f64) -> f64 {
    let n = n_walks as f64;
    match side {
        Side::Symmetric => 2f64.sqrt() * (2.0 * n - 1.0) * c * c / n.powf(1.5),
        Side::Asymmetric => (2.0 / n).sqrt() * c,
    }
}

/// Floating-point operations of one head of attention, as figure 3 of GRF masking counts them
/// (formulas of its replication by Deidda, Perri and Seipl 2025, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionFlops {
    /// Tokens, N.
    pub n_tokens: usize,
    /// Width of queries, keys and values, d.
    pub width: usize,
    /// Width of their feature maps, m.
    pub n_features: usize,
}

impl AttentionFlops {
    /// Softmax attention: 4 N² d.
    pub fn softmax(self) -> f64 {
        4.0 * (self.n_tokens as f64).powi(2) * self.width as f64
    }

    /// Linear attention without mask: 4 N m d.
    pub fn linear(self) -> f64 {
        4.0 * self.n_tokens as f64 * self.n_features as f64 * self.width as f64
    }

    /// Linear attention masked by graph random features of so many non-zero entries in the mean.
    pub fn masked(self, mean_nonzero: f64) -> f64 {
        self.linear() * mean_nonzero
    }
}
