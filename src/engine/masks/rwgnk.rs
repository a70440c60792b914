//! Random walk graph-nodes kernel, the mask of graph kernel attention (GKAT; masked attention, section
//! 4.2, Eq. 5 with α = 1): M_ij = u_i·u_j, u_i = h_i / |h_i|, and h_i how often walks from i visit each
//! node, a visit after t hops counting λ^t: h_i = Σ_t λ^t c(i, ·, t) from the loads c of sampled walks.
//! λ = softplus(θ) / ln 2.

use super::walked::{features, walks_of};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use crate::Result;
use crate::base::scratch::with_scratch;
use crate::base::simd::{dot, vectorized};
use crate::engine::graph::Loads;

/// Loads of the walks.
#[derive(Debug, Clone, Default)]
pub(super) struct Rwgnk {
    loads: Loads,
}

fn discount(theta: f32) -> f32 {
    softplus(theta) / std::f32::consts::LN_2
}

vectorized! {
/// 1 / |h_i| of each node.
fn inverse_norms(loads: &'a Loads, f: &'a [f32], norms: &'a mut [f32]) {
    for (i, norm) in norms.iter_mut().enumerate() {
        let entries = loads.row(i).loads.chunks_exact(f.len());
        let square: f32 = entries.map(|entry| dot(f, entry) * dot(f, entry)).sum();
        *norm = 1.0 / square.sqrt();
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
    norms: &'a [f32],
    x: [&'a [f32]; 2],
    dy: [&'a [f32]; 2],
    d: &'a mut f64,
) {
    let (([x, z], [dy, w]), n) = ((x, dy), norms.len());
    let width = x.len() / n.max(1);
    for (i, &norm) in norms.iter().enumerate() {
        let (x, dy, row) = (&x[i * width..][..width], &dy[i * width..][..width], loads.row(i));
        // Along u the length changes alone, and that is divided out.
        let [mut across, mut along, mut turn] = [0.0f64; 3];
        for (&j, entry) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
            let at = j as usize * width..(j as usize + 1) * width;
            let gain = f64::from(dot(dy, &z[at.clone()]) + dot(x, &w[at]));
            let (u, d_h) = (f64::from(norm * dot(f, entry)), f64::from(dot(d_f, entry)));
            across += d_h * gain;
            along += u * gain;
            turn += u * d_h;
        }
        *d += f64::from(norm) * (across - turn * along);
    }
}
}

impl Rwgnk {
    /// Calls `f` with λ^t, t λ^(t-1) and the norms.
    fn with_powers(&self, theta: f32, f: impl FnOnce(&[f32], &[f32], &[f32])) {
        let (n, lambda, n_powers) = (self.loads.len(), discount(theta), self.loads.n_hops() + 1);
        with_scratch(2 * n_powers + n, |scratch| {
            let (powers, rest) = scratch.split_at_mut(n_powers);
            let (slopes, norms) = rest.split_at_mut(n_powers);
            for (t, (power, slope)) in powers.iter_mut().zip(&mut *slopes).enumerate() {
                *power = lambda.powi(t as i32);
                *slope = if t == 0 { 0.0 } else { t as f32 * lambda.powi(t as i32 - 1) };
            }
            inverse_norms(&self.loads, powers, norms);
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
                discount_gradient(&self.loads, powers, slopes, norms, x, dy, &mut d);
                d_params[0] += d * sigmoid(params[0]) / std::f64::consts::LN_2;
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::masks::check::{assert_mask, softplus64};

    #[test]
    fn the_kernel_is_the_dense_one() {
        assert_mask::<Rwgnk>(|nodes, params| {
            let mut mask = Rwgnk::default();
            mask.rebuild(nodes).unwrap();
            let (n, lambda) =
                (nodes.positions.len(), softplus64(params[0]) / std::f64::consts::LN_2);
            let unit = |i: usize| -> Vec<f64> {
                let (row, mut h) = (mask.loads.row(i), vec![0.0; n]);
                for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(nodes.n_hops + 1)) {
                    let visits =
                        c.iter().enumerate().map(|(t, &c)| lambda.powi(t as i32) * f64::from(c));
                    h[j as usize] = visits.sum();
                }
                let norm = h.iter().map(|h| h * h).sum::<f64>().sqrt();
                h.iter().map(|h| h / norm).collect()
            };
            let units: Vec<Vec<f64>> = (0..n).map(unit).collect();
            let entry =
                |at: usize| units[at / n].iter().zip(&units[at % n]).map(|(a, b)| a * b).sum();
            (0..n * n).map(entry).collect()
        });
    }
}
