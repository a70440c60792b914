//! Trees: M_ij = exp(-a·d_ij), d_ij the length of the way from i to j along the forest, 0 between
//! trees (exp of affine distance, masked attention, section 3.3; the affine constant cancels in a
//! normalised attention). Two passes over the forest, up and down, give all products.

use super::spanning::{ROOT, Spanning};
use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use crate::Result;
use crate::scratch::with_scratch;
use crate::simd::{axpy, dot, vectorized};

/// Way on which the mask falls to 1/e where softplus(θ) is 1 (m).
const LENGTH_M: f32 = 0.05;

/// The forest of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Forest(Spanning);

/// a of exp(-a·length) for θ (1/m).
fn rate(theta: f32) -> f32 {
    softplus(theta) / LENGTH_M
}

vectorized! {
/// up_v = x_v + Σ_children w_c up_c, what comes from below, and the w of each edge. Each row is read and
/// written once, and again for its parent, which soon follows.
fn climb(forest: &'a Spanning, rate: f32, x: &'a [f32], up: &'a mut [f32], w: &'a mut [f32]) {
    let width = x.len() / forest.parents.len().max(1);
    for &v in forest.order.iter().rev() {
        let (v, parent) = (v as usize, forest.parents[v as usize]);
        w[v] = (-rate * forest.lengths[v]).exp();
        up[v * width..][..width].copy_from_slice(&x[v * width..][..width]);
        for &child in forest.neighbors(v).iter().filter(|&&child| child != parent) {
            let (to, from) = pair(up, v, child as usize, width);
            axpy(to, w[child as usize], from);
        }
    }
}
}

vectorized! {
/// From what comes from below to all: y_v = (1 - w²) up_v + w y_parent, in place.
fn descend(forest: &'a Spanning, w: &'a [f32], y: &'a mut [f32]) {
    let width = y.len() / forest.parents.len().max(1);
    for &v in forest.order.iter().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let w = w[v as usize];
        let (to, from) = pair(y, v as usize, forest.parents[v as usize] as usize, width);
        let keep = 1.0 - w * w;
        to.iter_mut().zip(&*from).for_each(|(y, p)| *y = keep * *y + w * p);
    }
}
}

/// Rows `a` and `b`, which are two.
#[inline(always)]
fn pair(rows: &mut [f32], a: usize, b: usize, width: usize) -> (&mut [f32], &mut [f32]) {
    let (low, high) = rows.split_at_mut(a.max(b) * width);
    let (low, high) = (&mut low[a.min(b) * width..][..width], &mut high[..width]);
    if a < b { (low, high) } else { (high, low) }
}

impl StepMask for Forest {
    fn n_params(_: usize) -> usize {
        1
    }

    fn reads() -> Reads {
        Reads::NOTHING
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.0.rebuild(nodes);
        Ok(())
    }
}

impl Mask for Forest {
    fn n_nodes(&self) -> usize {
        self.0.parents.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        with_scratch(self.n_nodes(), |w| {
            climb(&self.0, rate(params[0]), x, y, w);
            descend(&self.0, w, y);
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂a = -Σ_edges length · (what of dy·M x crosses the edge, either way).
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let (rate, forest) = (rate(params[0]), &self.0);
        with_scratch(4 * x.len() + self.n_nodes(), |scratch| {
            let (w, rows) = scratch.split_at_mut(self.n_nodes());
            let (of_x, of_dy) = rows.split_at_mut(2 * x.len());
            let [(up_x, all_x), (up_dy, all_dy)] = [(x, of_x), (dy, of_dy)].map(|(from, to)| {
                let (up, all) = to.split_at_mut(x.len());
                climb(forest, rate, from, up, w);
                all.copy_from_slice(up);
                descend(forest, w, all);
                (&*up, &*all)
            });
            let mut d_rate = 0.0;
            cross(forest, w, [up_x, all_x], [up_dy, all_dy], &mut d_rate);
            d_params[0] += d_rate * sigmoid(params[0]) / f64::from(LENGTH_M);
        });
    }
}

vectorized! {
/// Adds the gradient of the rate: from below each edge to all beyond it, and back, where what is beyond
/// is what the parent has without it.
fn cross(
    forest: &'a Spanning,
    w: &'a [f32],
    of_x: [&'a [f32]; 2],
    of_dy: [&'a [f32]; 2],
    d_rate: &'a mut f64,
) {
    let ([up_x, all_x], [up_dy, all_dy]) = (of_x, of_dy);
    let width = up_x.len() / forest.parents.len().max(1);
    for &v in forest.order.iter().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let (v, parent) = (v as usize, forest.parents[v as usize] as usize);
        let (here, there) = (v * width..(v + 1) * width, parent * width..(parent + 1) * width);
        let (up_x, up_dy) = (&up_x[here.clone()], &up_dy[here]);
        let crossing = dot(up_dy, &all_x[there.clone()]) + dot(up_x, &all_dy[there]);
        let part = crossing - 2.0 * w[v] * dot(up_dy, up_x);
        *d_rate -= f64::from(forest.lengths[v] * w[v]) * f64::from(part);
    }
}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masks::check::{assert_mask, softplus64, spanning_forest};

    #[test]
    fn the_forests_mask_is_the_dense_one() {
        assert_mask::<Forest>(|nodes, params| {
            let rate = softplus64(params[0]) / f64::from(LENGTH_M);
            spanning_forest(nodes).iter().map(|d| (-rate * d).exp()).collect()
        });
    }
}
