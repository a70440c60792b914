//! Nodes in groups whose members hear the same and are heard alike: M = G F Gᵀ, G_ig = 1 for the group g
//! of node i. A product is a sum over each group, a product with F, and a copy to each node.

use super::Mask;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpys, vectorized};

/// Nodes in groups under the mask F of the groups; no group is empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Grouped<F> {
    /// The group of each node.
    pub groups: Vec<u32>,
    /// The mask of the groups.
    pub of_groups: F,
}

impl<F: Mask> Grouped<F> {
    /// Columns of the groups' sums and of their products, given by `multiply`, and those copied to nodes.
    fn product(&self, x: &[f32], y: &mut [f32], multiply: impl FnOnce(&[f32], &mut [f32])) {
        let width = x.len() / self.groups.len().max(1);
        with_scratch(2 * self.of_groups.n_nodes() * width, |scratch| {
            let (of_x, of_y) = scratch.split_at_mut(scratch.len() / 2);
            sum_up(&self.groups, x, of_x);
            multiply(of_x, of_y);
            for (y, &group) in y.chunks_exact_mut(width.max(1)).zip(&self.groups) {
                y.copy_from_slice(&of_y[group as usize * width..][..width]);
            }
        });
    }
}

vectorized! {
/// Sums of the nodes of each group.
fn sum_up[simd](groups: &'a [u32], x: &'a [f32], sums: &'a mut [f32]) {
    let width = x.len() / groups.len().max(1);
    sums.fill(0.0);
    for (x, &group) in x.chunks_exact(width.max(1)).zip(groups) {
        axpys(simd, &mut sums[group as usize * width..][..width], [1.0], [x]);
    }
}
}

impl<F: Mask> Mask for Grouped<F> {
    fn n_nodes(&self) -> usize {
        self.groups.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(x, y, |x, y| self.of_groups.apply(params, x, y));
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(x, y, |x, y| self.of_groups.apply_transposed(params, x, y));
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let width = x.len() / self.groups.len().max(1);
        with_scratch(2 * self.of_groups.n_nodes() * width, |scratch| {
            let (of_x, of_dy) = scratch.split_at_mut(scratch.len() / 2);
            sum_up(&self.groups, x, of_x);
            sum_up(&self.groups, dy, of_dy);
            self.of_groups.gradients(params, of_x, of_dy, d_params);
        });
    }

    fn groups(&self) -> Option<(&[u32], &dyn Mask)> {
        Some((&self.groups, &self.of_groups))
    }
}
