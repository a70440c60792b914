//! Accumulators of the weights' gradients.

use rayon::prelude::*;

use crate::engine::model::Layout;

/// Accumulators of weight gradients: rows are split into as many fixed groups, whatever the
/// number of threads, and the groups' sums are added in order.
pub(super) const GRADIENT_GROUPS: usize = 8;

/// Gradients of all weights, accumulated over any number of backward passes.
///
/// Each of a fixed number of groups of rows adds into a vector of its own.
#[derive(Debug, Clone)]
pub struct Gradients {
    pub(super) groups: Vec<Vec<f32>>,
}

impl Gradients {
    /// Zero gradients of a model.
    pub fn new(layout: &Layout) -> Self {
        Self { groups: vec![vec![0.0; layout.n_params()]; GRADIENT_GROUPS] }
    }

    /// Sets all to zero.
    pub fn clear(&mut self) {
        self.groups.par_iter_mut().for_each(|group| group.fill(0.0));
    }

    /// Adds the groups to `gradient`, in their order.
    pub fn add_to(&self, gradient: &mut [f32]) {
        const SLICE: usize = 4096;
        gradient.par_chunks_mut(SLICE).enumerate().for_each(|(slice, out)| {
            let range = slice * SLICE..slice * SLICE + out.len();
            for group in &self.groups {
                out.iter_mut().zip(&group[range.clone()]).for_each(|(o, g)| *o += g);
            }
        });
    }
}
