//! Trees: M_ij = exp(-a·d_ij), d_ij the length of the way from i to j along the forest, 0 between
//! trees (exp of affine distance, masked attention, section 3.3; the affine constant cancels in a
//! normalised attention). Two passes over the forest, up and down, give all products.

use super::passes::{climb, descend};
use super::spanning::{ROOT, Spanning};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use forecloud::Result;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::exp::exp;
use forecloud::base::simd::{dot, vectorized};

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
/// The mask along each node's edge to its parent: exp(-a·length).
fn along_edges(lengths: &'a [f32], rate: f32, w: &'a mut [f32]) {
    w.iter_mut().zip(lengths).for_each(|(w, length)| *w = exp(-rate * length));
}
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
            along_edges(&self.0.lengths, rate(params[0]), w);
            climb(&self.0, w, x, y);
            descend(&self.0, w, y);
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// ∂a = -Σ_edges length · (what of dy·M x crosses the edge, either way).
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        let (rate, forest) = (rate(params[0]), &self.0);
        with_scratch(2 * x.len() + self.n_nodes(), |scratch| {
            let (ups, w) = scratch.split_at_mut(2 * x.len());
            let (up_x, up_dy) = ups.split_at_mut(x.len());
            along_edges(&forest.lengths, rate, w);
            for (from, up, all) in [(x, &mut *up_x, &mut *y), (dy, &mut *up_dy, &mut *dx)] {
                climb(forest, w, from, up);
                all.copy_from_slice(up);
                descend(forest, w, all);
            }
            let mut d_rate = 0.0;
            cross(forest, w, [up_x, y], [up_dy, dx], &mut d_rate);
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
    use super::super::check::{assert_mask, softplus64, spanning_forest};
    use super::*;

    #[test]
    fn the_forests_mask_is_the_dense_one() {
        assert_mask::<Forest>(|nodes, params| {
            let rate = softplus64(params[0]) / f64::from(LENGTH_M);
            spanning_forest(nodes).iter().map(|d| (-rate * d).exp()).collect()
        });
    }
}
