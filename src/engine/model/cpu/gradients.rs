//! Accumulators of the weights' gradients.

use std::ops::Range;

use rayon::prelude::*;

use super::CHUNK;
use crate::engine::model::Layout;

/// Accumulators of weight gradients: rows are split into as many fixed groups, whatever the
/// number of threads, and the groups' sums are added in order.
const GRADIENT_GROUPS: usize = 8;

/// Gradients of all weights, accumulated over any number of backward passes.
///
/// Each of a fixed number of groups of rows adds into a vector of its own.
#[derive(Debug, Clone)]
pub struct Gradients {
    groups: Vec<Vec<f32>>,
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
    /// Runs `f(rows, gradient)` on the chunks of `n` rows: groups in parallel, a group's chunks in order.
    pub fn chunks(&mut self, n: usize, f: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let per_group = n.div_ceil(CHUNK).div_ceil(GRADIENT_GROUPS) * CHUNK;
        self.groups.par_iter_mut().enumerate().for_each(|(group, gradient)| {
            let end = ((group + 1) * per_group).min(n);
            for start in (group * per_group..end).step_by(CHUNK) {
                f(start..(start + CHUNK).min(end), gradient);
            }
        });
    }

    /// The accumulator of what is not of some rows alone.
    pub fn of_all_rows(&mut self) -> &mut [f32] {
        &mut self.groups[0]
    }
}
