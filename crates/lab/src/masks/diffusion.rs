//! Graph diffusion: M = exp(-λ L), L = I - D^-½ A D^-½ of the graph taken both ways, A = (W + Wᵀ)/2
//! (masked attention, section 4; nodes without edges keep to themselves). λ = softplus(θ) / ln 2, at
//! most [`MAX_LAMBDA`]: how long heat spreads.
//!
//! With S = D^-½ A D^-½, whose eigenvalues lie in [-1, 1], exp(-λ L) = e^-λ exp(λ S) is expanded in
//! Chebyshev polynomials, c_0 = e^-λ I_0(λ), c_t = 2 e^-λ I_t(λ), I_t the modified Bessel functions: products
//! with the graph only. All c_t are positive and Σ c_t = 1, so what is left out is wrong by at most
//! 1 - Σ c_t of the kept ones, in the 2-norm: terms are taken until that is below [`TOLERANCE`].

use super::smoothing::{MAX_TERMS, Smoothing, TOLERANCE};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use forecloud::Result;

/// Longest diffusion: by then heat is spread over each component of most graphs, and its series is not
/// too long, since the tail of I_t falls like exp(-t² / 2λ).
pub(super) const MAX_LAMBDA: f64 = 64.0;

/// S of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Diffusion(Smoothing);

/// λ for θ, and dλ/dθ.
fn lambda(theta: f32) -> (f64, f64) {
    let lambda = f64::from(softplus(theta)) / std::f64::consts::LN_2;
    match lambda < MAX_LAMBDA {
        true => (lambda, sigmoid(theta) / std::f64::consts::LN_2),
        false => (MAX_LAMBDA, 0.0),
    }
}

/// The coefficients c_t for λ into `terms`, as many as the tolerance asks for: by Miller's recurrence from
/// above, I_(t-1) = I_(t+1) + (2t / λ) I_t, scaled by Σ c_t = 1.
fn coefficients(lambda: f64, terms: &mut [f64; MAX_TERMS]) -> usize {
    if lambda < 1e-9 {
        terms[0] = 1.0;
        return 1;
    }
    let (mut above, mut here, mut sum) = (0.0f64, 1e-300f64, 0.0f64);
    for t in (0..2 * MAX_TERMS).rev() {
        let c = if t == 0 { here } else { 2.0 * here };
        sum += c;
        if let Some(term) = terms.get_mut(t) {
            *term = c;
        }
        (above, here) = (here, above + 2.0 * t as f64 / lambda * here);
        if here > 1e200 {
            (above, here, sum) = (above * 1e-200, here * 1e-200, sum * 1e-200);
            terms.iter_mut().skip(t).for_each(|term| *term *= 1e-200);
        }
    }
    let mut rest = 1.0;
    for (t, term) in terms.iter_mut().enumerate() {
        *term /= sum;
        rest -= *term;
        if rest < TOLERANCE {
            return t + 1;
        }
    }
    MAX_TERMS
}

/// y = exp(-λ (I - S)) x.
pub(super) fn spread(s: &Smoothing, lambda: f64, x: &[f32], y: &mut [f32]) {
    let mut terms = [0.0; MAX_TERMS];
    let n_terms = coefficients(lambda, &mut terms);
    s.expand(&terms[..n_terms], x, y);
}

impl Diffusion {
    /// y = exp(-λ L) x.
    fn spread(&self, lambda: f64, x: &[f32], y: &mut [f32]) {
        spread(&self.0, lambda, x, y);
    }
}

impl StepMask for Diffusion {
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

impl Mask for Diffusion {
    fn n_nodes(&self) -> usize {
        self.0.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.spread(lambda(params[0]).0, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// ∂λ: -dy·L exp(-λ L) x.
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.apply(params, x, y);
        self.apply(params, dy, dx);
        d_params[0] -= self.0.laplacian_between(dy, y) * lambda(params[0]).1;
    }
}

#[cfg(test)]
mod tests;
