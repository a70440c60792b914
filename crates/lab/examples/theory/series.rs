//! Masks as power series of the weighted adjacency: M = Σ_t α_t W^t, exactly and from walks.

use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::graph::walks::{WalkConfig, WalkSampler, WalkSeed};
use rayon::prelude::*;

/// f with Σ_p f_p f_{k-p} = α_k, f_0 > 0: then (Σ f_t W^t)² = Σ α_t W^t (GRF masking, lemma 3.1;
/// Reid et al. 2024b, Eq. 6).
///
/// Empty unless α_0 is positive.
pub fn deconvolve(alpha: &[f64]) -> Vec<f64> {
    let mut f: Vec<f64> = Vec::with_capacity(alpha.len());
    let root = alpha.first().map_or(0.0, |a| a.sqrt());
    if root <= 0.0 || root.is_nan() {
        return f;
    }
    f.push(root);
    for k in 1..alpha.len() {
        let inner: f64 = (1..k).map(|p| f[p] * f[k - p]).sum();
        f.push((alpha[k] - inner) / (2.0 * root));
    }
    f
}

/// α of known kernels.
pub mod kernels {
    /// (I - U)^-2: α_t = t + 1, `n` terms.
    pub fn inverse_square(n: usize) -> Vec<f64> {
        (0..n).map(|t| t as f64 + 1.0).collect()
    }

    /// exp(U): α_t = 1 / t!, `n` terms.
    pub fn exponential(n: usize) -> Vec<f64> {
        let next = |term: &mut f64, t: usize| {
            *term /= t.max(1) as f64;
            Some(*term)
        };
        (0..n).scan(1.0, next).collect()
    }
}

/// Σ_t α_t W^t as a dense matrix, row by row, `[n][n]` (f64): the reference for small graphs.
pub fn dense(graph: &WeightedGraph, alpha: &[f64]) -> Vec<f64> {
    let n = graph.len();
    let mut sum = vec![0.0; n * n];
    sum.par_chunks_mut(n.max(1)).enumerate().for_each(|(i, out)| {
        // Row i of W^t, from that of W^(t-1).
        let mut row = vec![0.0; n];
        row[i] = 1.0;
        for (t, &a) in alpha.iter().enumerate() {
            if t > 0 {
                let mut next = vec![0.0; n];
                for (j, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                    for (&to, &w) in graph.neighbors(j).iter().zip(graph.weights(j)) {
                        next[to as usize] += x * f64::from(w);
                    }
                }
                row = next;
            }
            out.iter_mut().zip(&row).for_each(|(sum, x)| *sum += a * x);
        }
    });
    sum
}

/// Graph random features of every node as a dense matrix, `[n][n]`: row i estimates row i of
/// Σ_t f_t W^t (Eq. 10 of GRF masking), or is the ad-hoc one of Eq. 24 without importance weights.
pub fn features(graph: &WeightedGraph, f: &[f64], config: &WalkConfig, seed: WalkSeed) -> Vec<f64> {
    let n = graph.len();
    let mut features = vec![0.0; n * n];
    let rows = features.par_chunks_mut(n.max(1)).enumerate();
    rows.for_each_init(WalkSampler::default, |sampler, (i, row)| {
        sampler.sample(graph, i, config, seed, |node, hop, load| {
            row[node as usize] += f.get(hop).map_or(0.0, |f| f * load);
        });
        row.iter_mut().for_each(|x| *x /= config.n_walks as f64);
    });
    features
}

/// Distinct nodes that the walks from each node visit, the node itself included: the non-zero entries
/// of its graph random feature, for f without zeros.
pub fn nonzero_entries(graph: &WeightedGraph, config: &WalkConfig, seed: WalkSeed) -> Vec<usize> {
    let of_node = |(sampler, visited): &mut (WalkSampler, Vec<u32>), i| {
        visited.clear();
        sampler.sample(graph, i, config, seed, |node, _, _| visited.push(node));
        visited.sort_unstable();
        visited.dedup();
        visited.len()
    };
    (0..graph.len()).into_par_iter().map_init(Default::default, of_node).collect()
}

/// Φ Φᵀ of features `[n][n]`.
pub fn gram(features: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    out.par_chunks_mut(n.max(1)).enumerate().for_each(|(i, row)| {
        for (j, x) in row.iter_mut().enumerate() {
            let (a, b) = (&features[i * n..(i + 1) * n], &features[j * n..(j + 1) * n]);
            *x = a.iter().zip(b).map(|(a, b)| a * b).sum();
        }
    });
    out
}

/// On which side of the kernel walks are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Φ Φᵀ: the same walks on both sides, f deconvolved (Reid et al. 2024b).
    Symmetric,
    /// Φ alone: walks on one side, one-hot vectors on the other (GRF masking, appendix C.3).
    Asymmetric,
}

/// Estimate of Σ_t α_t W^t, `[n][n]`, from walks; `f` as [`Side::coefficients`] gives it.
///
/// `config.n_walks` counts walks for each side of the kernel: where one-hot vectors stand on one
/// side, the other one walks twice as often. So do the figures that this is checked against.
pub fn estimate(
    graph: &WeightedGraph,
    f: &[f64],
    side: Side,
    config: &WalkConfig,
    seed: WalkSeed,
) -> Vec<f64> {
    match side {
        Side::Symmetric => gram(&features(graph, f, config, seed), graph.len()),
        Side::Asymmetric => {
            let config = WalkConfig { n_walks: 2 * config.n_walks, ..*config };
            features(graph, f, &config, seed)
        }
    }
}

impl Side {
    /// f of the walks for a kernel of coefficients α; empty if it has none on this side.
    pub fn coefficients(self, alpha: &[f64]) -> Vec<f64> {
        match self {
            Self::Symmetric => deconvolve(alpha),
            Self::Asymmetric => alpha.to_vec(),
        }
    }
}

/// ‖a - b‖²_F / ‖b‖²_F.
pub fn relative_squared_error(a: &[f64], b: &[f64]) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    difference / b.iter().map(|b| b * b).sum::<f64>()
}

/// Mean and its standard error.
pub fn mean_and_standard_error(values: &[f64]) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    [mean, (variance / n).sqrt()]
}
