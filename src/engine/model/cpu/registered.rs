//! Registered layers in the engine: they run over all rows at once, where those that ship settle what all
//! rows share. Here is what attentions among them have in common, all rows in chunks over threads.

use std::ops::Range;

use rayon::prelude::*;

use super::project::LayerPass;
use super::views::MixerView;
use super::{CHUNK, Gradients, MixerBuffers};
use crate::engine::model::interlacer::{Affine, Attention};
use crate::engine::ops::rows::SharedRows;

/// Runs `f` on the chunks of `n` rows, in parallel.
pub fn chunks(n: usize, f: impl Fn(Range<usize>) + Sync) {
    let of_rows = |chunk: usize| f(chunk * CHUNK..((chunk + 1) * CHUNK).min(n));
    (0..n.div_ceil(CHUNK)).into_par_iter().for_each(of_rows);
}

impl LayerPass<'_> {
    /// Rows `[q | k | v]` of LayerNorm(x), the feature map on q and k of layers that have one, into
    /// `kept.qkv`; `x` `[n, d]`.
    pub fn project_rows(&self, tensors: &Attention, kept: &mut MixerBuffers, x: &[f32]) {
        let (d, len) = (self.config.width, self.row_len());
        let n = x.len() / d;
        kept.qkv.resize(n * len, 0.0);
        let keeps_input =
            self.mapped_heads.is_some() && self.config.layers.feature_map.keeps_input();
        let n_kept = if keeps_input { 2 * kept.normalized.len() } else { 0 };
        kept.unmapped.resize(n_kept, 0.0);
        let view = MixerView::new(kept, (d, len), n, true);
        chunks(n, |rows| {
            self.project_qkv(tensors, &view, rows.clone(), &x[rows.start * d..rows.end * d]);
        });
    }

    /// x += out·W + b, `out` and `x` `[n, d]`.
    pub fn add_output(&self, to: Affine, out: &[f32], x: &mut [f32]) {
        let len = CHUNK * self.config.width;
        let both = x.par_chunks_mut(len).zip(out.par_chunks(len));
        both.for_each(|(x, out)| self.project_out(to, out, x));
    }

    /// [`Self::project_back`] of all rows.
    pub fn outputs_gradient(
        &self,
        to: Affine,
        out: &[f32],
        dx: &[f32],
        d_out: &mut [f32],
        gradients: &mut Gradients,
    ) {
        let d = self.config.width;
        let d_out = SharedRows::new(d_out, d);
        gradients.chunks(dx.len() / d, |rows, gradient| {
            let at = rows.start * d..rows.end * d;
            // SAFETY: each task has rows of its own.
            let d_out = unsafe { d_out.rows_mut(rows) };
            self.project_back(to, &out[at.clone()], &dx[at], d_out, gradient);
        });
    }

    /// From the gradients `d_rows` of all rows of [`Self::project_rows`] to dx, to which it adds.
    pub fn rows_gradient(
        &self,
        tensors: &Attention,
        kept: &MixerBuffers,
        d_rows: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients,
    ) {
        let (d, len) = (self.config.width, self.row_len());
        let (n, dx) = (dx.len() / d, SharedRows::new(dx, d));
        gradients.chunks(n, |rows, gradient| {
            let d_rows = &d_rows[rows.start * len..rows.end * len];
            // SAFETY: each task has rows of its own.
            let dx = unsafe { dx.rows_mut(rows.clone()) };
            let fill = |to: &mut [f32]| to.copy_from_slice(d_rows);
            self.through_rows(tensors, kept, rows, fill, dx, gradient);
        });
    }
}
