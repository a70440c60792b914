//! Random walk graph-nodes kernel, the mask of graph kernel attention (GKAT; masked attention, section
//! 4.2, Eq. 5): M_ij = u_i·u_j, u_i = h_i / |h_i|^α, and h_i how often walks from i visit each node, a
//! visit after t hops counting λ^t: h_i = Σ_t λ^t c(i, ·, t) from the loads c of sampled walks.
//! λ = softplus(θ) / ln 2. α = 1 unless it is given. A product costs twice the nodes that walks reach.

use super::walked::{features, walks_of};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{dot, vectorized};
use forecloud::engine::graph::Loads;
use forecloud::{Error, Result};

/// The kernel `[n, n]` (unitless) over the n nodes it was last rebuilt for ([`StepMask::rebuild`]); of none at
/// first. It has one parameter, θ. Walks are drawn by the nodes' seed: the same seed gives the same mask on any
/// number of threads, another seed other walks, as dynamic GKAT has them (masked attention, A.5.2).
#[derive(Debug, Clone)]
pub struct Rwgnk {
    loads: Loads,
    alpha: f32,
}

impl Default for Rwgnk {
    /// α = 1.
    fn default() -> Self {
        Self { loads: Loads::default(), alpha: 1.0 }
    }
}

fn discount(theta: f32) -> f32 {
    softplus(theta) / std::f32::consts::LN_2
}

vectorized! {
/// 1 / |h_i|^α of each node.
fn inverse_norms(loads: &'a Loads, f: &'a [f32], alpha: f32, norms: &'a mut [f32]) {
    for (i, norm) in norms.iter_mut().enumerate() {
        let entries = loads.row(i).loads.chunks_exact(f.len());
        let square: f32 = entries.map(|entry| dot(f, entry) * dot(f, entry)).sum();
        *norm = (1.0 / square.sqrt()).powf(alpha);
    }
}
}

/// Rows times a number each.
fn scale(rows: &mut [f32], by: &[f32]) {
    let width = rows.len() / by.len().max(1);
    for (row, by) in rows.chunks_exact_mut(width.max(1)).zip(by) {
        row.iter_mut().for_each(|x| *x *= by);
    }
}

vectorized! {
/// Adds dλ of Σ dy·M x: `z` = Uᵀ x and `w` = Uᵀ dy, f_t = λ^t, d_f_t = t λ^(t-1).
fn discount_gradient(
    loads: &'a Loads,
    f: &'a [f32],
    d_f: &'a [f32],
    alpha: f32,
    norms: &'a [f32],
    x: [&'a [f32]; 2],
    dy: [&'a [f32]; 2],
    d: &'a mut f64,
) {
    let (([x, z], [dy, w]), n) = ((x, dy), norms.len());
    let width = x.len() / n.max(1);
    for (i, &norm) in norms.iter().enumerate() {
        let (x, dy, row) = (&x[i * width..][..width], &dy[i * width..][..width], loads.row(i));
        // du = (dh - α h (h·dh) / |h|²) / |h|^α: of what changes the length alone, α is divided out.
        let [mut all, mut along, mut stretch, mut square] = [0.0f64; 4];
        for (&j, entry) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
            let at = j as usize * width..(j as usize + 1) * width;
            let gain = f64::from(dot(dy, &z[at.clone()]) + dot(x, &w[at]));
            let (h, d_h) = (f64::from(dot(f, entry)), f64::from(dot(d_f, entry)));
            all += d_h * gain;
            along += h * gain;
            stretch += h * d_h;
            square += h * h;
        }
        *d += f64::from(norm) * (all - f64::from(alpha) * stretch * along / square);
    }
}
}

impl Rwgnk {
    /// The kernel of Eq. 5 with this α: 0 takes visits as they are counted, with 1 no entry exceeds 1.
    ///
    /// # Errors
    /// [`Error::Config`] for an α that is negative or not finite.
    pub fn with_alpha(alpha: f32) -> Result<Self> {
        if !alpha.is_finite() || alpha < 0.0 {
            let problem = format!("{alpha} is not a finite number of at least 0");
            return Err(Error::Config { key: "alpha of a walk kernel".into(), problem });
        }
        Ok(Self { loads: Loads::default(), alpha })
    }

    /// Calls `f` with λ^t, t λ^(t-1) and the powers of norms.
    fn with_powers(&self, theta: f32, f: impl FnOnce(&[f32], &[f32], &[f32])) {
        let (n, lambda, n_powers) = (self.loads.len(), discount(theta), self.loads.n_hops() + 1);
        with_scratch(2 * n_powers + n, |scratch| {
            let (powers, rest) = scratch.split_at_mut(n_powers);
            let (slopes, norms) = rest.split_at_mut(n_powers);
            for (t, (power, slope)) in powers.iter_mut().zip(&mut *slopes).enumerate() {
                *power = lambda.powi(t as i32);
                *slope = if t == 0 { 0.0 } else { t as f32 * lambda.powi(t as i32 - 1) };
            }
            inverse_norms(&self.loads, powers, self.alpha, norms);
            f(powers, slopes, norms);
        });
    }

    /// y = Uᵀ x.
    fn back(&self, powers: &[f32], norms: &[f32], x: &[f32], y: &mut [f32]) {
        with_scratch(x.len(), |scaled| {
            scaled.copy_from_slice(x);
            scale(scaled, norms);
            features(&self.loads, powers, true, scaled, y);
        });
    }
}

impl StepMask for Rwgnk {
    fn n_params(_: usize) -> usize {
        1
    }

    fn reads() -> Reads {
        Reads::WALKS
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.loads.rebuild_sampled(nodes.graph, &walks_of(nodes), nodes.seed)
    }
}

impl Mask for Rwgnk {
    fn n_nodes(&self) -> usize {
        self.loads.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.with_powers(params[0], |powers, _, norms| {
            with_scratch(x.len(), |between| {
                self.back(powers, norms, x, between);
                features(&self.loads, powers, false, between, y);
                scale(y, norms);
            });
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.with_powers(params[0], |powers, slopes, norms| {
            with_scratch(2 * x.len(), |scratch| {
                let (z, w) = scratch.split_at_mut(x.len());
                for (from, between, to) in [(x, &mut *z, y), (dy, &mut *w, dx)] {
                    self.back(powers, norms, from, between);
                    features(&self.loads, powers, false, between, to);
                    scale(to, norms);
                }
                let mut d = 0.0;
                let (x, dy) = ([x, &*z], [dy, &*w]);
                discount_gradient(&self.loads, powers, slopes, self.alpha, norms, x, dy, &mut d);
                d_params[0] += d * sigmoid(params[0]) / std::f64::consts::LN_2;
            });
        });
    }
}

#[cfg(test)]
mod tests;
