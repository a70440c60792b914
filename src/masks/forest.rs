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

/// exp(-a·length) for θ.
fn fade(theta: f32, length: f32) -> f32 {
    (-softplus(theta) / LENGTH_M * length).exp()
}

vectorized! {
/// up_v = x_v + Σ_children w_c up_c: what comes from below.
fn climb(forest: &'a Spanning, theta: f32, x: &'a [f32], up: &'a mut [f32]) {
    let width = x.len() / forest.parents.len().max(1);
    up.copy_from_slice(x);
    for &v in forest.order.iter().rev().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let (from, to) = pair(up, v as usize, forest.parents[v as usize] as usize, width);
        axpy(to, fade(theta, forest.lengths[v as usize]), from);
    }
}
}

vectorized! {
/// From what comes from below to all: y_v = (1 - w²) up_v + w y_parent, in place.
fn descend(forest: &'a Spanning, theta: f32, y: &'a mut [f32]) {
    let width = y.len() / forest.parents.len().max(1);
    for &v in forest.order.iter().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let w = fade(theta, forest.lengths[v as usize]);
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
        climb(&self.0, params[0], x, y);
        descend(&self.0, params[0], y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂a = -Σ_edges length · (what of dy·M x crosses the edge, either way).
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let (theta, forest) = (params[0], &self.0);
        let width = x.len() / self.n_nodes().max(1);
        with_scratch(4 * x.len(), |scratch| {
            let (of_x, of_dy) = scratch.split_at_mut(2 * x.len());
            let [(up_x, all_x), (up_dy, all_dy)] = [(x, of_x), (dy, of_dy)].map(|(from, to)| {
                let (up, all) = to.split_at_mut(x.len());
                climb(forest, theta, from, up);
                all.copy_from_slice(up);
                descend(forest, theta, all);
                (&*up, &*all)
            });
            let row = |node: usize| node * width..(node + 1) * width;
            let mut d_rate = 0.0;
            let edges = forest.parents.iter().enumerate().filter(|(_, parent)| **parent != ROOT);
            for (v, &parent) in edges {
                let (length, here, there) = (forest.lengths[v], row(v), row(parent as usize));
                let w = fade(theta, length);
                // From below the edge to all beyond it, and back: what the parent has without it.
                let crossing = dot(&up_dy[here.clone()], &all_x[there.clone()])
                    + dot(&up_x[here.clone()], &all_dy[there]);
                let twice = dot(&up_dy[here.clone()], &up_x[here]);
                d_rate -= f64::from(length * w) * f64::from(crossing - 2.0 * w * twice);
            }
            d_params[0] += d_rate * sigmoid(theta) / f64::from(LENGTH_M);
        });
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
