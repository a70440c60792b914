//! Graph diffusion: M = exp(-λ L), L = I - D^-½ A D^-½ of the graph taken both ways, A = (W + Wᵀ)/2
//! (masked attention, section 4; nodes without edges keep to themselves). λ = softplus(θ) / ln 2, at
//! most [`MAX_LAMBDA`]: how long heat spreads.
//!
//! With S = D^-½ A D^-½, whose eigenvalues lie in [-1, 1], exp(-λ L) = e^-λ exp(λ S) is expanded in
//! Chebyshev polynomials, c_0 = e^-λ I_0(λ), c_t = 2 e^-λ I_t(λ), I_t the modified Bessel functions: products
//! with the graph only. All c_t are positive and Σ c_t = 1, so what is left out is wrong by at most
//! 1 - Σ c_t of the kept ones, in the 2-norm: terms are taken until that is below [`TOLERANCE`].

use super::products::{add_dot, add_scaled, product};
use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use crate::Result;
use crate::graph::WeightedGraph;
use crate::scratch::with_scratch;

/// Largest error of a product, relative to the columns' length, before rounding.
pub(super) const TOLERANCE: f64 = 1e-6;
/// Longest diffusion: by then heat is spread over each component of most graphs.
const MAX_LAMBDA: f64 = 64.0;
/// Terms that are enough for it: the tail of I_t falls like exp(-t² / 2λ).
const MAX_TERMS: usize = 96;

/// S of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Diffusion {
    smoothing: WeightedGraph,
    edges: Vec<(u32, u32, f32)>,
}

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

impl Diffusion {
    /// y = exp(-λ L) x.
    fn spread(&self, lambda: f64, x: &[f32], y: &mut [f32]) {
        let mut terms = [0.0; MAX_TERMS];
        let n_terms = coefficients(lambda, &mut terms);
        y.fill(0.0);
        with_scratch(3 * x.len(), |scratch| {
            let (mut before, rest) = scratch.split_at_mut(x.len());
            let (mut here, mut next) = rest.split_at_mut(x.len());
            here.copy_from_slice(x);
            for (t, &c) in terms[..n_terms].iter().enumerate() {
                if t > 0 {
                    // T_1 = S, T_(t+1) = 2 S T_t - T_(t-1).
                    product(&self.smoothing, here, next);
                    if t > 1 {
                        next.iter_mut().zip(&*before).for_each(|(n, b)| *n = 2.0 * *n - b);
                    }
                    (before, here, next) = (here, next, before);
                }
                add_scaled(y, c as f32, here);
            }
        });
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
        let n = nodes.graph.len();
        self.edges.clear();
        for i in 0..n {
            let edges = nodes.graph.neighbors(i).iter().zip(nodes.graph.weights(i));
            self.edges.extend(edges.map(|(&j, &w)| (i as u32, j, 0.5 * w)));
        }
        let both = WeightedGraph::from_edges(n, &self.edges, false)?;
        self.smoothing = both.normalized(1.0);
        Ok(())
    }
}

impl Mask for Diffusion {
    fn n_nodes(&self) -> usize {
        self.smoothing.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let n_alone = |i: usize| self.smoothing.neighbors(i).is_empty();
        self.spread(lambda(params[0]).0, x, y);
        // Nodes without edges: S has a row of zeros there, L is to have one.
        let width = x.len() / self.n_nodes().max(1);
        for i in (0..self.n_nodes()).filter(|&i| n_alone(i)) {
            y[i * width..][..width].copy_from_slice(&x[i * width..][..width]);
        }
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂λ: -dy·L exp(-λ L) x.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        with_scratch(2 * x.len(), |scratch| {
            let (y, smooth) = scratch.split_at_mut(x.len());
            self.apply(params, x, y);
            product(&self.smoothing, y, smooth);
            let width = x.len() / self.n_nodes().max(1);
            let mut sum = 0.0;
            for i in (0..self.n_nodes()).filter(|&i| !self.smoothing.neighbors(i).is_empty()) {
                let at = i * width..(i + 1) * width;
                let mut here = 0.0;
                add_dot(&smooth[at.clone()], &dy[at.clone()], &mut sum);
                add_dot(&y[at.clone()], &dy[at], &mut here);
                sum -= here;
            }
            d_params[0] += sum * lambda(params[0]).1;
        });
    }
}

#[cfg(test)]
mod tests;
