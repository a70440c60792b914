//! Symmetric graph random features, both sides sampled: M = Φ Φ'ᵀ, Φ_i = Σ_t f_t c(i, ·, t) from the
//! loads c of walks from i, f_t = softplus(θ_t), and Φ' the same of walks of their own, so that the
//! estimate of (Σ_t f_t W^t)(Σ_t f_t W^t)ᵀ has no bias (GRF masking, section 3.2, Algorithm 1). Its
//! rank is low: a product is one to the nodes that walks reach, and one back.

use super::walked::{features, walks_of};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use crate::Result;
use crate::base::scratch::with_scratch;
use crate::base::simd::{dot, vectorized};
use crate::engine::graph::Loads;

/// Makes the seeds of the two sides others.
const SIDES: [u64; 2] = [0x5bd1_e995_0000_0000, 0x2545_f491_0000_0000];

/// Loads of the two sets of walks.
#[derive(Debug, Clone, Default)]
pub(super) struct SymmetricGrf {
    sides: [Loads; 2],
}

vectorized! {
/// d_f += dy·Φ_t x for each hop t.
fn hop_gradients(loads: &'a Loads, x: &'a [f32], dy: &'a [f32], d_f: &'a mut [f64]) {
    let width = x.len() / loads.len().max(1);
    for i in 0..loads.len() {
        let row = loads.row(i);
        for (&j, loads) in row.nodes.iter().zip(row.loads.chunks_exact(d_f.len())) {
            let product = dot(&dy[i * width..][..width], &x[j as usize * width..][..width]);
            d_f.iter_mut().zip(loads).for_each(|(d, load)| *d += f64::from(load * product));
        }
    }
}
}

impl SymmetricGrf {
    /// y = Φ_a Φ_bᵀ x.
    fn product(&self, sides: [usize; 2], params: &[f32], x: &[f32], y: &mut [f32]) {
        with_scratch(x.len() + params.len(), |scratch| {
            let (f, between) = scratch.split_at_mut(params.len());
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            features(&self.sides[sides[1]], f, true, x, between);
            features(&self.sides[sides[0]], f, false, between, y);
        });
    }
}

impl StepMask for SymmetricGrf {
    fn n_params(n_hops: usize) -> usize {
        n_hops + 1
    }

    fn reads() -> Reads {
        Reads::WALKS
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        for (loads, side) in self.sides.iter_mut().zip(SIDES) {
            let mut seed = nodes.seed;
            seed.seed ^= side;
            loads.rebuild_sampled(nodes.graph, &walks_of(nodes), seed)?;
        }
        Ok(())
    }
}

impl Mask for SymmetricGrf {
    fn n_nodes(&self) -> usize {
        self.sides[0].len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product([0, 1], params, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product([1, 0], params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// f is on both sides: dy·Φ_t (Φ'ᵀ x), and x·Φ'_t (Φᵀ dy).
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        with_scratch(2 * x.len() + params.len(), |scratch| {
            let (f, between) = scratch.split_at_mut(params.len());
            let (of_x, of_dy) = between.split_at_mut(x.len());
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            features(&self.sides[1], f, true, x, of_x);
            features(&self.sides[0], f, true, dy, of_dy);
            features(&self.sides[0], f, false, of_x, y);
            features(&self.sides[1], f, false, of_dy, dx);
            let mut d_f = [0.0; crate::engine::graph::walks::MAX_HOPS + 1];
            let d_f = &mut d_f[..params.len()];
            hop_gradients(&self.sides[0], of_x, dy, d_f);
            hop_gradients(&self.sides[1], of_dy, x, d_f);
            for ((d, d_f), &theta) in d_params.iter_mut().zip(d_f).zip(params) {
                *d += *d_f * sigmoid(theta);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::masks::check::{
        assert_mask, dense_graph, graphs, identity, matmul, softplus64,
    };

    /// Σ_t f_t c(i, j, t) in f64.
    fn dense(loads: &Loads, params: &[f64]) -> Vec<f64> {
        let n = loads.len();
        let mut phi = vec![0.0; n * n];
        for i in 0..n {
            let row = loads.row(i);
            for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(params.len())) {
                let terms =
                    params.iter().zip(c).map(|(&theta, &c)| softplus64(theta) * f64::from(c));
                phi[i * n + j as usize] += terms.sum::<f64>();
            }
        }
        phi
    }

    fn transposed(a: &[f64], n: usize) -> Vec<f64> {
        (0..n * n).map(|at| a[at % n * n + at / n]).collect()
    }

    #[test]
    fn the_mask_is_the_product_of_its_features() {
        assert_mask::<SymmetricGrf>(|nodes, params| {
            let mut mask = SymmetricGrf::default();
            mask.rebuild(nodes).unwrap();
            let n = nodes.positions.len();
            let [left, right] = [0, 1].map(|side| dense(&mask.sides[side], params));
            matmul(&left, &transposed(&right, n), n)
        });
    }

    /// The two sides' walks are apart: the mean over seeds is the power series squared, on the diagonal
    /// too, where walks that both sides share would add their variance.
    #[test]
    fn the_mean_over_seeds_is_the_square_of_the_series() {
        let graph = &graphs()[3];
        let (n, params, n_seeds) = (graph.positions.len(), [0.0, 0.3, -0.2, 0.1], 4000);
        let (w, mut power) = (dense_graph(&graph.graph), identity(n));
        let mut series = vec![0.0; n * n];
        for &theta in &params {
            series.iter_mut().zip(&power).for_each(|(s, p)| *s += softplus64(theta) * p);
            power = matmul(&power, &w, n);
        }
        let want = matmul(&series, &transposed(&series, n), n);
        let (mut mask, mut mean) = (SymmetricGrf::default(), vec![0.0; n * n]);
        for seed in 0..n_seeds {
            let mut nodes = graph.nodes();
            nodes.seed.seed = seed;
            mask.rebuild(&nodes).unwrap();
            let [left, right] = [0, 1].map(|side| dense(&mask.sides[side], &params));
            let sample = matmul(&left, &transposed(&right, n), n);
            mean.iter_mut().zip(&sample).for_each(|(m, s)| *m += s / n_seeds as f64);
        }
        let off = mean.iter().zip(&want).map(|(m, w)| (m - w).abs()).fold(0.0, f64::max);
        let size = want.iter().copied().fold(0.0, f64::max);
        assert!(off < 0.01 * size, "off by {off} of {size}");
    }
}
