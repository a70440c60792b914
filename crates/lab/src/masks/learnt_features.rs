//! Fully learnt features: M_ij = Φ_i·Φ_j, Φ nothing but parameters (the ablation of GRF masking, C.2: no
//! structure of the graph is in it). There a node is a patch, the same in all images, with a feature of its
//! own. Our nodes are other points in every step, so a feature belongs to a place in their order, which is
//! one of regions (Morton's) among particles, and tells those from history and robot: the [`PLACES`] equal
//! stretches of it.
//!
//! Φ = softplus(θ + u), u even draws in -1..1 that stay: features that begin alike would be trained alike.
//! A product sums the stretches, goes through the features and back: O(N).

use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use forecloud::Result;
use forecloud::base::random::{draw, uniform};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpy, dot, vectorized};

/// Stretches of the nodes' order.
const PLACES: usize = 64;
/// Features of a place.
const RANK: usize = 8;
/// Of the draws u.
const SEED: u64 = 0x1ea7_0ff5;

/// How many nodes there are: all that the mask knows of them.
#[derive(Debug, Clone, Default)]
pub(super) struct LearntFeatures {
    n: usize,
}

/// θ + u of parameter `at`.
fn shifted(theta: f32, at: usize) -> f32 {
    theta + 2.0 * uniform(draw(SEED, 0, at as u64, 0)) - 1.0
}

vectorized! {
/// Sums the rows of each place.
fn gather(n: usize, x: &'a [f32], sums: &'a mut [f32]) {
    let width = x.len() / n.max(1);
    sums.fill(0.0);
    for (i, x) in x.chunks_exact(width.max(1)).enumerate() {
        axpy(&mut sums[i * PLACES / n * width..][..width], 1.0, x);
    }
}
}

vectorized! {
/// out_r += Σ_b Φ_br sums_b: features of `width` columns.
fn to_features(phi: &'a [f32], sums: &'a [f32], out: &'a mut [f32]) {
    let width = out.len() / RANK;
    for (phi, sums) in phi.chunks_exact(RANK).zip(sums.chunks_exact(width.max(1))) {
        for (phi, out) in phi.iter().zip(out.chunks_exact_mut(width.max(1))) {
            axpy(out, *phi, sums);
        }
    }
}
}

vectorized! {
/// sums_b = Σ_r Φ_br features_r.
fn to_places(phi: &'a [f32], features: &'a [f32], sums: &'a mut [f32]) {
    let width = features.len() / RANK;
    sums.fill(0.0);
    for (phi, sums) in phi.chunks_exact(RANK).zip(sums.chunks_exact_mut(width.max(1))) {
        for (phi, features) in phi.iter().zip(features.chunks_exact(width.max(1))) {
            axpy(sums, *phi, features);
        }
    }
}
}

impl LearntFeatures {
    /// Runs `f` with Φ, the sums of each place of both columns, and their features.
    fn with_features<const N: usize>(
        &self,
        params: &[f32],
        columns: [&[f32]; N],
        f: impl FnOnce(&[f32], [&mut [f32]; N], [&[f32]; N]),
    ) {
        let width = columns[0].len() / self.n.max(1);
        with_scratch(params.len() + N * (PLACES + RANK) * width, |scratch| {
            let (phi, rest) = scratch.split_at_mut(params.len());
            for (at, (phi, &theta)) in phi.iter_mut().zip(params).enumerate() {
                *phi = softplus(shifted(theta, at));
            }
            let (sums, features) = rest.split_at_mut(N * PLACES * width);
            features.fill(0.0);
            let mut sums = sums.chunks_exact_mut((PLACES * width).max(1));
            let mut features = features.chunks_exact_mut((RANK * width).max(1));
            let parts = columns.map(|x| {
                let (sums, features) =
                    (sums.next().unwrap_or_default(), features.next().unwrap_or_default());
                gather(self.n, x, sums);
                to_features(phi, sums, features);
                (sums, &*features)
            });
            let features = parts.each_ref().map(|part| part.1);
            f(phi, parts.map(|part| part.0), features);
        });
    }
}

impl StepMask for LearntFeatures {
    fn n_params(_: usize) -> usize {
        PLACES * RANK
    }

    fn reads() -> Reads {
        Reads::NOTHING
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.n = nodes.positions.len();
        Ok(())
    }
}

impl Mask for LearntFeatures {
    fn n_nodes(&self) -> usize {
        self.n
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let width = x.len() / self.n.max(1);
        self.with_features(params, [x], |phi, [sums], [features]| {
            to_places(phi, features, sums);
            for (i, y) in y.chunks_exact_mut(width.max(1)).enumerate() {
                y.copy_from_slice(&sums[i * PLACES / self.n * width..][..width]);
            }
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂Φ_br: what a place's dy hears in feature r, and what its x is heard as.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let width = x.len() / self.n.max(1);
        self.with_features(params, [x, dy], |_, [of_x, of_dy], [x_features, dy_features]| {
            for (at, (d, &theta)) in d_params.iter_mut().zip(params).enumerate() {
                let (place, rank) = (at / RANK * width, at % RANK * width);
                let d_phi = dot(&of_dy[place..][..width], &x_features[rank..][..width])
                    + dot(&of_x[place..][..width], &dy_features[rank..][..width]);
                *d += f64::from(d_phi) * sigmoid(shifted(theta, at));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_mask, assert_products, softplus64};
    use super::*;

    fn dense(n: usize, params: &[f64]) -> Vec<f64> {
        let shifted =
            params.iter().enumerate().map(|(at, theta)| theta + f64::from(shifted(0.0, at)));
        let phi: Vec<f64> = shifted.map(softplus64).collect();
        let of = |node: usize| phi[node * PLACES / n * RANK..][..RANK].iter();
        let entry = |at: usize| of(at / n).zip(of(at % n)).map(|(a, b)| a * b).sum();
        (0..n * n).map(entry).collect()
    }

    #[test]
    fn the_learnt_mask_is_the_dense_one() {
        assert_mask::<LearntFeatures>(|nodes, params| dense(nodes.positions.len(), params));
    }

    /// Several nodes a place, not as many in each; features that begin unlike.
    #[test]
    fn nodes_share_places_and_features_differ() {
        let mask = LearntFeatures { n: 70 };
        assert_products("70 nodes", &mask, PLACES * RANK, 1e-5, |params| dense(70, params));
        let phi: Vec<f32> = (0..RANK).map(|at| shifted(0.0, at)).collect();
        assert!(phi.iter().all(|a| phi.iter().filter(|b| (*a - **b).abs() < 1e-3).count() == 1));
    }
}
