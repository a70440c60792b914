//! From the residual stream to an attention's q, k, v and back.

use std::ops::Range;

use super::buffers::row_len;
use super::forward::{self, normalize};
use super::views::{MixerView, SavedNorm};
use super::{MixerBuffers, backward};
use crate::base::scratch::with_scratch;
use crate::engine::model::interlacer::{Affine, Attention, Mixer};
use crate::engine::ops::favor::{favor_backward, favor_forward};
use crate::engine::ops::feature_map::{FeatureMap, feature_map_backward, feature_map_forward};
use crate::engine::ops::layer_norm::{layer_norm_backward, layer_norm_output};
use crate::engine::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_forward, linear_forward_add,
    linear_relu_forward,
};
use crate::engine::ops::linear_attention::Heads;

impl forward::Pass<'_> {
    /// `[q | k | v]` of a chunk's normalised rows, the feature map on q and k of a mixer that has
    /// one.
    pub(super) fn project_qkv<'v>(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        view: &MixerView<'v>,
        rows: Range<usize>,
        x: &[f32],
    ) -> &'v [f32] {
        let (weights, d, n) = (self.weights, self.layout.config.width, rows.len());
        // SAFETY: each task has rows of its own.
        let (out, saved) = unsafe { (view.qkv.rows_mut(rows.clone()), view.saved(&rows)) };
        // SAFETY: as above.
        let kept = unsafe { view.unmapped(rows) };
        with_scratch(n * 4 * d, |scratch| {
            let (u, unmapped) = scratch.split_at_mut(n * d);
            normalize(weights, tensors.norm, x, u, saved);
            self.map_projection(mixer, tensors, (u, unmapped), kept, out);
        });
        out
    }

    /// `[φ(q) | φ(k) | v]` of normalised rows `u`; what the map keeps goes to `kept`. Random features
    /// take the rows before the map to `unmapped`, `[rows, 3d]`.
    pub(super) fn map_projection(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        (u, unmapped): (&[f32], &mut [f32]),
        kept: Option<&mut [f32]>,
        out: &mut [f32],
    ) {
        let config = &self.layout.config;
        let (d, n_heads) = (config.width, mixer.kind.mapped_heads());
        let (w, b) = (tensors.qkv.weight.of(self.weights), tensors.qkv.bias.of(self.weights));
        match (config.layers.feature_map, n_heads) {
            (_, None) => linear_forward(u, w, b, out),
            // ReLU, in the pass that adds the bias.
            (FeatureMap::Relu, _) => linear_relu_forward(u, w, b, 2 * d, out),
            (FeatureMap::Favor { .. }, Some(n_heads)) => {
                linear_forward(u, w, b, unmapped);
                keep(unmapped, kept, d);
                let projections = &self.projections[mixer.index];
                map_randomly(config.heads(n_heads), projections, unmapped, out);
            }
            (map, _) => {
                linear_forward(u, w, b, out);
                keep(out, kept, d);
                feature_map_forward(map, out, 3 * d, 2 * d);
            }
        }
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

    /// From the queries' gradient `d_q` and those of keys and values, which `keys` writes into rows
    /// `[q | k | v]`, through feature map, projection and LayerNorm to dx.
    pub(super) fn through_qkv(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        saved: &MixerBuffers,
        rows: Range<usize>,
        d_q: &[f32],
        keys: impl FnOnce(&mut [f32]),
        gradient: &mut [f32],
    ) {
        let len = row_len(&mixer.kind, &self.layout.config, true);
        let features = d_q.len() / rows.len().max(1);
        let all = |d_rows: &mut [f32]| {
            keys(d_rows);
            for (row, d_q) in d_rows.chunks_exact_mut(len).zip(d_q.chunks_exact(features)) {
                row[..features].copy_from_slice(d_q);
            }
        };
        self.through_rows(mixer, tensors, saved, rows, all, gradient);
    }

    /// From the gradient of rows `[q | k | v]`, which `fill` writes, through feature map, projection
    /// and LayerNorm to dx.
    pub(super) fn through_rows(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        saved: &MixerBuffers,
        rows: Range<usize>,
        fill: impl FnOnce(&mut [f32]),
        gradient: &mut [f32],
    ) {
        let config = &self.layout.config;
        let (d, n, len) = (config.width, rows.len(), row_len(&mixer.kind, config, true));
        let random = mixer.kind.mapped_heads().is_some() && config.has_random_features();
        let len_unmapped = if random { 3 * d } else { 0 };
        with_scratch(n * (len + len_unmapped), |scratch| {
            let (d_rows, d_unmapped) = scratch.split_at_mut(n * len);
            fill(d_rows);
            let d_qkv = self.unmap(mixer, saved, &rows, d_rows, d_unmapped);
            let norm = saved.norm().rows(&rows, d);
            // SAFETY: each task has rows of its own.
            let dx = unsafe { self.dx.rows_mut(rows) };
            self.normalized_linear(tensors.norm, tensors.qkv, norm, d_qkv, dx, gradient);
        });
    }

    /// Gradient of `[q | k | v]` from that of `[φ(q) | φ(k) | v]`, in its place or, of random
    /// features, in `d_unmapped`.
    fn unmap<'s>(
        &self,
        mixer: &Mixer,
        saved: &MixerBuffers,
        rows: &Range<usize>,
        d_rows: &'s mut [f32],
        d_unmapped: &'s mut [f32],
    ) -> &'s [f32] {
        let config = &self.layout.config;
        let (d, map) = (config.width, config.layers.feature_map);
        let Some(n_heads) = mixer.kind.mapped_heads() else { return d_rows };
        if config.has_random_features() {
            let heads = config.heads(n_heads);
            let features = saved.qkv_rows(rows, self.n_tokens);
            let projections = &self.projections[mixer.index];
            let kept = &saved.unmapped[rows.start * 2 * d..rows.end * 2 * d];
            map_randomly_back(heads, projections, kept, features, d_rows, d_unmapped);
            return d_unmapped;
        }
        // What the map kept, and how wide its rows are.
        let (kept, width) =
            if map.keeps_input() { (&saved.unmapped, 2 * d) } else { (&saved.qkv, 3 * d) };
        let kept = &kept[rows.start * width..rows.end * width];
        feature_map_backward(map, kept, width, d_rows, 3 * d, 2 * d);
        d_rows
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
            layer_norm_backward(u, x_hat, rstd, norm_weight, dx, dw, db);
        });
    }
}

/// Copies q and k of rows `[q | k | v]`, if they are kept.
fn keep(qkv: &[f32], kept: Option<&mut [f32]>, d: usize) {
    let Some(kept) = kept else { return };
    for (kept, row) in kept.chunks_exact_mut(2 * d).zip(qkv.chunks_exact(3 * d)) {
        kept.copy_from_slice(&row[..2 * d]);
    }
}

/// `[φ(q) | φ(k) | v]` of rows `[q | k | v]`.
fn map_randomly(heads: Heads, projections: &[f32], qkv: &[f32], out: &mut [f32]) {
    let (d, len) = (heads.width, heads.row_len());
    favor_forward(heads.favor(), projections, qkv, 3 * d, out, len);
    for (row, qkv) in out.chunks_exact_mut(len).zip(qkv.chunks_exact(3 * d)) {
        row[2 * heads.features()..].copy_from_slice(&qkv[2 * d..]);
    }
}

/// Gradient of `[q | k | v]` from that of `[φ(q) | φ(k) | v]`, which it overwrites.
fn map_randomly_back(
    heads: Heads,
    projections: &[f32],
    kept: &[f32],
    features: &[f32],
    d_rows: &mut [f32],
    d_qkv: &mut [f32],
) {
    let (d, len) = (heads.width, heads.row_len());
    for (row, d_qkv) in d_rows.chunks_exact(len).zip(d_qkv.chunks_exact_mut(3 * d)) {
        d_qkv[2 * d..].copy_from_slice(&row[2 * heads.features()..]);
    }
    let sizes = heads.favor();
    favor_backward(sizes, projections, kept, 2 * d, features, d_rows, len, d_qkv, 3 * d);
}

impl MixerBuffers {
    /// Rows `[q | k | v]` of some of `n` tokens.
    pub(super) fn qkv_rows(&self, rows: &Range<usize>, n: usize) -> &[f32] {
        let len = self.qkv.len() / n.max(1);
        &self.qkv[rows.start * len..rows.end * len]
    }

    /// What the LayerNorm before the mixer kept.
    pub(super) fn norm(&self) -> SavedNorm<'_> {
        SavedNorm { normalized: &self.normalized, inverse_deviation: &self.inverse_deviation }
    }
}
