//! Graph diffusion without a normalised graph: M = exp(-λ T), T = L = D - A of the graph taken both ways,
//! A = (W + Wᵀ)/2, or T = -A (masked attention, section 4, after Kondor and Lafferty 2002), the latter times
//! exp(-λ d), d the largest degree, which cancels in a normalised attention and keeps numbers small: exp(λ A)
//! is the series in which walks of t hops weigh λ^t / t!.
//!
//! λ = softplus(θ) / ln 2, and λ d at most [`MAX_LAMBDA`]. Both are exp(-λ d (I - S)) of a symmetric S with
//! eigenvalues in [-1, 1] ([`Smoothing::rebuild_plain`]), in Chebyshev's series of [`super::diffusion`]: wrong
//! by at most its tolerance in the 2-norm, at the cost of its products.

use super::diffusion::{MAX_LAMBDA, spread};
use super::smoothing::Smoothing;
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use forecloud::Result;
use std::f64::consts::LN_2;

/// S of the step's graph, and its largest degree d; of T = L, or of T = -A.
#[derive(Debug, Clone, Default)]
pub(super) struct PlainDiffusion<const IS_LAPLACIAN: bool> {
    smoothing: Smoothing,
    largest: f64,
}

/// T = L.
pub(super) type LaplacianDiffusion = PlainDiffusion<true>;
/// T = -A.
pub(super) type AdjacencyDiffusion = PlainDiffusion<false>;

impl<const IS_LAPLACIAN: bool> PlainDiffusion<IS_LAPLACIAN> {
    /// λ d for θ, and its derivative.
    fn reach(&self, theta: f32) -> (f64, f64) {
        let reach = self.largest * f64::from(softplus(theta)) / LN_2;
        match reach < MAX_LAMBDA {
            true => (reach, self.largest * sigmoid(theta) / LN_2),
            false => (MAX_LAMBDA, 0.0),
        }
    }
}

impl<const IS_LAPLACIAN: bool> StepMask for PlainDiffusion<IS_LAPLACIAN> {
    fn n_params(_: usize) -> usize {
        1
    }

    fn reads() -> Reads {
        Reads::GRAPH
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.largest = self.smoothing.rebuild_plain(nodes, IS_LAPLACIAN)?;
        Ok(())
    }
}

impl<const IS_LAPLACIAN: bool> Mask for PlainDiffusion<IS_LAPLACIAN> {
    fn n_nodes(&self) -> usize {
        self.smoothing.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        spread(&self.smoothing, self.reach(params[0]).0, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// By λ d: -dy·(I - S) M x.
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.apply(params, x, y);
        self.apply(params, dy, dx);
        d_params[0] -= self.smoothing.laplacian_between(dy, y) * self.reach(params[0]).1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_mask, dense_graph, exponential, softplus64};
    use super::*;

    /// A `[n, n]` and its degrees.
    fn both_ways(nodes: &Nodes<'_>) -> (Vec<f64>, Vec<f64>) {
        let (n, w) = (nodes.positions.len(), dense_graph(nodes.graph));
        let a: Vec<f64> = (0..n * n).map(|at| 0.5 * (w[at] + w[at % n * n + at / n])).collect();
        let degrees = a.chunks(n.max(1)).map(|row| row.iter().sum()).collect();
        (a, degrees)
    }

    #[test]
    fn the_laplacians_diffusion_is_the_dense_one() {
        assert_mask::<LaplacianDiffusion>(|nodes, params| {
            let (a, degrees) = both_ways(nodes);
            let (n, lambda) = (degrees.len(), softplus64(params[0]) / LN_2);
            let own = |at: usize| if at / n == at % n { degrees[at / n] } else { 0.0 };
            let t: Vec<f64> = (0..n * n).map(|at| -lambda * (own(at) - a[at])).collect();
            exponential(&t, n)
        });
    }

    #[test]
    fn the_adjacencys_diffusion_is_the_dense_one() {
        assert_mask::<AdjacencyDiffusion>(|nodes, params| {
            let (a, degrees) = both_ways(nodes);
            let (n, lambda) = (degrees.len(), softplus64(params[0]) / LN_2);
            let factor = (-lambda * degrees.iter().copied().fold(0.0, f64::max)).exp();
            let t: Vec<f64> = a.iter().map(|a| lambda * a).collect();
            exponential(&t, n).iter().map(|m| factor * m).collect()
        });
    }
}
