//! From the residual stream to an attention's q, k, v and back.

use std::ops::Range;

use super::forward::{self, normalize, with_scratch};
use super::views::{MixerView, SavedNorm};
use super::{MixerBuffers, backward};
use crate::model::interlacer::{Affine, Attention};
use crate::ops::layer_norm::{layer_norm_backward, layer_norm_output};
use crate::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_forward_add, linear_relu_forward,
};
use crate::ops::relu::relu_backward;
use crate::ops::simd::vectorize;

impl forward::Pass<'_> {
    /// `[q | k | v]` of a chunk's normalised rows, ReLU on q and k.
    pub(super) fn project_qkv<'v>(
        &self,
        tensors: &Attention,
        view: &MixerView<'v>,
        rows: Range<usize>,
        x: &[f32],
    ) -> &'v [f32] {
        let (weights, d) = (self.weights, self.layout.config.width);
        // SAFETY: each task has rows of its own.
        let (out, saved) = unsafe { (view.qkv.rows_mut(rows.clone()), view.norm.saved(&rows)) };
        with_scratch(rows.len() * d, |u| {
            normalize(weights, tensors.norm, x, u, saved);
            let (w, b) = (tensors.qkv.weight.of(weights), tensors.qkv.bias.of(weights));
            linear_relu_forward(u, w, b, 2 * d, out);
        });
        out
    }

    /// x += out·W + b: an attention's output onto the residual stream.
    pub(super) fn project_out(&self, to: Affine, out: &[f32], x: &mut [f32]) {
        linear_forward_add(out, to.weight.of(self.weights), to.bias.of(self.weights), x);
    }
}

impl backward::Pass<'_> {
    /// Through the projection behind an attention: d_out = dx·Wᵀ and the gradients of W and b.
    pub(super) fn project_back(
        &self,
        out: Affine,
        attention: &[f32],
        dx: &[f32],
        d_out: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (dw, db) = out.weight.pair_mut(out.bias, gradient);
        linear_backward_weights(attention, dx, dw, db);
        linear_backward_input(dx, out.weight.of(self.weights), db.len(), d_out);
    }

    /// From d_qkv through ReLU, projection and LayerNorm to dx.
    pub(super) fn through_qkv(
        &self,
        tensors: &Attention,
        saved: &MixerBuffers,
        rows: Range<usize>,
        d_qkv: &mut [f32],
        gradient: &mut [f32],
    ) {
        let d = self.layout.config.width;
        let qkv = &saved.qkv[rows.start * 3 * d..rows.end * 3 * d];
        vectorize(|| {
            for (y, dy) in qkv.chunks_exact(3 * d).zip(d_qkv.chunks_exact_mut(3 * d)) {
                relu_backward(&y[..2 * d], &mut dy[..2 * d]);
            }
        });
        let norm = saved.norm().rows(&rows, d);
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows) };
        self.normalized_linear(tensors.norm, tensors.qkv, norm, d_qkv, dx, gradient);
    }

    /// Through y = LayerNorm(x)·W + b: adds to dx and to the gradients of both layers.
    pub(super) fn normalized_linear(
        &self,
        norm: Affine,
        linear: Affine,
        saved: SavedNorm<'_>,
        dy: &[f32],
        dx: &mut [f32],
        gradient: &mut [f32],
    ) {
        let norm_weight = norm.weight.of(self.weights);
        with_scratch(dx.len(), |u| {
            let bias = norm.bias.of(self.weights);
            layer_norm_output(saved.normalized, norm_weight, bias, u);
            let (dw, db) = linear.weight.pair_mut(linear.bias, gradient);
            linear_backward_weights(u, dy, dw, db);
            linear_backward_input(dy, linear.weight.of(self.weights), db.len(), u);
            let (dw, db) = norm.weight.pair_mut(norm.bias, gradient);
            let (x_hat, rstd) = (saved.normalized, saved.inverse_deviation);
            vectorize(|| layer_norm_backward(u, x_hat, rstd, norm_weight, dx, dw, db));
        });
    }
}

impl MixerBuffers {
    /// What the LayerNorm before the mixer kept.
    pub(super) fn norm(&self) -> SavedNorm<'_> {
        SavedNorm { normalized: &self.normalized, inverse_deviation: &self.inverse_deviation }
    }
}
