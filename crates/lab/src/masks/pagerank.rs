//! Personalised PageRank, symmetric: M = (I + σ L)⁻¹, L = I - S the normalised Laplacian of the graph taken
//! both ways (the regularised Laplacian kernel: Smola and Kondor 2003). A walker stops before each hop with
//! probability 1 / (1 + σ): it reaches farther than heat ([`super::diffusion`]) does, at equal weight nearby.
//! σ = softplus(θ) / ln 2, at most [`MAX_SIGMA`].
//!
//! In Chebyshev polynomials of S, with r = √(2σ + 1) and q = (r - 1) / (r + 1): c_0 = 1 / r, c_t = 2 q^t / r.
//! All are positive and sum to one, and what follows n terms sums to q^n (1 + 1/r).

use super::smoothing::{MAX_TERMS, Smoothing, TOLERANCE};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use forecloud::Result;

/// Longest reach: a walker stops at one hop of 65.
const MAX_SIGMA: f64 = 64.0;

/// S of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct PageRank(Smoothing);

/// σ for θ, and dσ/dθ.
fn sigma(theta: f32) -> (f64, f64) {
    let sigma = f64::from(softplus(theta)) / std::f64::consts::LN_2;
    match sigma < MAX_SIGMA {
        true => (sigma, sigmoid(theta) / std::f64::consts::LN_2),
        false => (MAX_SIGMA, 0.0),
    }
}

/// The coefficients c_t for σ into `terms`, as many as the tolerance asks for.
fn coefficients(sigma: f64, terms: &mut [f64; MAX_TERMS]) -> usize {
    let root = (2.0 * sigma + 1.0).sqrt();
    let (ratio, mut power) = ((root - 1.0) / (root + 1.0), 1.0);
    for (t, term) in terms.iter_mut().enumerate() {
        *term = if t == 0 { 1.0 } else { 2.0 * power } / root;
        power *= ratio;
        if power * (1.0 + 1.0 / root) < TOLERANCE {
            return t + 1;
        }
    }
    MAX_TERMS
}

impl StepMask for PageRank {
    fn n_params(_: usize) -> usize {
        1
    }

    fn reads() -> Reads {
        Reads::GRAPH
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.0.rebuild(nodes)
    }
}

impl Mask for PageRank {
    fn n_nodes(&self) -> usize {
        self.0.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let mut terms = [0.0; MAX_TERMS];
        let n_terms = coefficients(sigma(params[0]).0, &mut terms);
        self.0.expand(&terms[..n_terms], x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// ∂σ: -(M dy)·L (M x).
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.apply(params, x, y);
        self.apply(params, dy, dx);
        d_params[0] -= self.0.laplacian_between(dx, y) * sigma(params[0]).1;
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::super::check::{assert_mask, dense_laplacian, softplus64};
    use super::*;

    #[test]
    fn the_rank_is_the_dense_inverse() {
        assert_mask::<PageRank>(|nodes, params| {
            let (n, l) = (nodes.positions.len(), dense_laplacian(nodes));
            let sigma = softplus64(params[0]) / std::f64::consts::LN_2;
            let inverse =
                (DMatrix::identity(n, n) + sigma * DMatrix::from_row_slice(n, n, &l)).lu();
            // Symmetric: columns are rows.
            inverse.solve(&DMatrix::identity(n, n)).unwrap().as_slice().to_vec()
        });
    }

    /// What is left out is below the tolerance for all σ, and what is kept is no more than that asks for.
    #[test]
    fn the_error_bound_holds_and_is_near() {
        for sigma in [0.0, 1e-3, 0.5, 2.0, 9.0, MAX_SIGMA] {
            let mut terms = [0.0; MAX_TERMS];
            let n_terms = coefficients(sigma, &mut terms);
            let rest = |n: usize| 1.0 - terms[..n].iter().sum::<f64>();
            assert!(rest(n_terms) < TOLERANCE && n_terms < MAX_TERMS, "{sigma}: {n_terms} terms");
            assert!(n_terms == 1 || rest(n_terms - 1) >= TOLERANCE, "{sigma}: fewer would do");
            // The series at an eigenvalue s of S is 1 / (1 + σ (1 - s)).
            for s in [-1.0f64, -0.3, 0.0, 0.8, 1.0] {
                let angle = s.acos();
                let value: f64 = (0..n_terms).map(|t| terms[t] * (t as f64 * angle).cos()).sum();
                let error = (value - 1.0 / (1.0 + sigma * (1.0 - s))).abs();
                assert!(error <= rest(n_terms) + 1e-12, "σ = {sigma}, s = {s}: {error}");
            }
        }
    }
}
