//! From the residual stream to an attention's q, k, v and back.

use std::ops::Range;

use super::MixerBuffers;
use super::forward::normalize;
use super::views::{MixerView, SavedNorm};
use crate::base::scratch::with_scratch;
use crate::engine::model::interlacer::{Affine, Attention, Mixer};
use crate::engine::model::{InterlacerConfig, Layout};
use crate::engine::ops::favor::{favor_backward, favor_forward};
use crate::engine::ops::feature_map::{FeatureMap, feature_map_backward, feature_map_forward};
use crate::engine::ops::layer_norm::{layer_norm_backward, layer_norm_output};
use crate::engine::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_forward, linear_forward_add,
    linear_relu_forward,
};
use crate::engine::ops::linear_attention::Heads;
use crate::engine::step_graph::StepGraph;

/// What a layer is given in a pass, forward or backward.
#[derive(Clone, Copy)]
pub struct LayerPass<'a> {
    /// All weights of the model.
    pub weights: &'a [f32],
    /// Its sizes.
    pub config: &'a InterlacerConfig,
    /// The step's graph.
    pub graph: &'a StepGraph,
    /// Heads whose queries and keys pass through the feature map.
    pub(super) mapped_heads: Option<usize>,
    /// Projections of its random features; empty without.
    random: &'a [f32],
}

impl<'a> LayerPass<'a> {
    pub(super) fn new(
        mixer: &Mixer,
        weights: &'a [f32],
        layout: &'a Layout,
        graph: &'a StepGraph,
        projections: &'a [Vec<f32>],
    ) -> Self {
        let (mapped_heads, random) = (mixer.kind.mapped_heads(), &projections[mixer.index]);
        Self { weights, config: &layout.config, graph, mapped_heads, random }
    }
}

impl LayerPass<'_> {
    /// Numbers in a row `[q | k | v]`, feature map applied.
    pub(super) fn row_len(&self) -> usize {
        self.mapped_heads.map_or(3 * self.config.width, |heads| self.config.heads(heads).row_len())
    }

    /// `[q | k | v]` of a chunk's normalised rows, the feature map on q and k of a layer that has
    /// one.
    pub(super) fn project_qkv<'v>(
        &self,
        tensors: &Attention,
        view: &MixerView<'v>,
        rows: Range<usize>,
        x: &[f32],
    ) -> &'v [f32] {
        let (d, n) = (self.config.width, rows.len());
        // SAFETY: each task has rows of its own.
        let (out, saved) = unsafe { (view.qkv.rows_mut(rows.clone()), view.saved(&rows)) };
        // SAFETY: as above.
        let kept = unsafe { view.unmapped(rows) };
        with_scratch(n * 4 * d, |scratch| {
            let (u, unmapped) = scratch.split_at_mut(n * d);
            normalize(self.weights, tensors.norm, x, u, saved);
            self.map_projection(tensors, (u, unmapped), kept, out);
        });
        out
    }

    /// `[φ(q) | φ(k) | v]` of normalised rows `u`; what the map keeps goes to `kept`. Random features
    /// take the rows before the map to `unmapped`, `[rows, 3d]`.
    pub(super) fn map_projection(
        &self,
        tensors: &Attention,
        (u, unmapped): (&[f32], &mut [f32]),
        kept: Option<&mut [f32]>,
        out: &mut [f32],
    ) {
        let d = self.config.width;
        let (w, b) = (tensors.qkv.weight.of(self.weights), tensors.qkv.bias.of(self.weights));
        match (self.config.layers.feature_map, self.mapped_heads) {
            (_, None) => linear_forward(u, w, b, out),
            // ReLU, in the pass that adds the bias.
            (FeatureMap::Relu, _) => linear_relu_forward(u, w, b, 2 * d, out),
            (FeatureMap::Favor { .. }, Some(n_heads)) => {
                linear_forward(u, w, b, unmapped);
                keep(unmapped, kept, d);
                map_randomly(self.config.heads(n_heads), self.random, unmapped, out);
            }
            (map, _) => {
                linear_forward(u, w, b, out);
                keep(out, kept, d);
                feature_map_forward(map, out, 3 * d, 2 * d);
            }
        }
    }

    /// x += out·W + b: the output `out` of a chunk onto the residual stream.
    pub(super) fn project_out(&self, to: Affine, out: &[f32], x: &mut [f32]) {
        linear_forward_add(out, to.weight.of(self.weights), to.bias.of(self.weights), x);
    }

    /// Through the projection `to` after a layer whose output was `out`, at a chunk's rows: d_out = dx·Wᵀ,
    /// and the gradients of W and b.
    pub fn project_back(
        &self,
        to: Affine,
        out: &[f32],
        dx: &[f32],
        d_out: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (dw, db) = to.weight.pair_mut(to.bias, gradient);
        linear_backward_weights(out, dx, dw, db);
        linear_backward_input(dx, to.weight.of(self.weights), db.len(), d_out);
    }

    /// From the queries' gradient `d_q` and those of keys and values, which `keys` writes into rows
    /// `[q | k | v]`, through feature map, projection and LayerNorm to the rows' dx.
    pub(super) fn through_qkv(
        &self,
        tensors: &Attention,
        saved: &MixerBuffers,
        rows: Range<usize>,
        d_q: &[f32],
        keys: impl FnOnce(&mut [f32]),
        dx: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (len, features) = (self.row_len(), d_q.len() / rows.len().max(1));
        let all = |d_rows: &mut [f32]| {
            keys(d_rows);
            for (row, d_q) in d_rows.chunks_exact_mut(len).zip(d_q.chunks_exact(features)) {
                row[..features].copy_from_slice(d_q);
            }
        };
        self.through_rows(tensors, saved, rows, all, dx, gradient);
    }

    /// From the gradient of rows `[q | k | v]`, which `fill` writes, through feature map, projection
    /// and LayerNorm to the rows' dx.
    pub(super) fn through_rows(
        &self,
        tensors: &Attention,
        saved: &MixerBuffers,
        rows: Range<usize>,
        fill: impl FnOnce(&mut [f32]),
        dx: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (d, n, len) = (self.config.width, rows.len(), self.row_len());
        let random = self.mapped_heads.is_some() && self.config.has_random_features();
        let len_unmapped = if random { 3 * d } else { 0 };
        with_scratch(n * (len + len_unmapped), |scratch| {
            let (d_rows, d_unmapped) = scratch.split_at_mut(n * len);
            fill(d_rows);
            let d_qkv = self.unmap(saved, &rows, d_rows, d_unmapped);
            let norm = saved.norm().rows(&rows, d);
            normalized_linear(self.weights, tensors.norm, tensors.qkv, norm, d_qkv, dx, gradient);
        });
    }

    /// Gradient of `[q | k | v]` from that of `[φ(q) | φ(k) | v]`, in its place or, of random
    /// features, in `d_unmapped`.
    fn unmap<'s>(
        &self,
        saved: &MixerBuffers,
        rows: &Range<usize>,
        d_rows: &'s mut [f32],
        d_unmapped: &'s mut [f32],
    ) -> &'s [f32] {
        let (d, map) = (self.config.width, self.config.layers.feature_map);
        let Some(n_heads) = self.mapped_heads else { return d_rows };
        if self.config.has_random_features() {
            let (heads, len) = (self.config.heads(n_heads), self.row_len());
            let features = &saved.qkv[rows.start * len..rows.end * len];
            let kept = &saved.unmapped[rows.start * 2 * d..rows.end * 2 * d];
            map_randomly_back(heads, self.random, kept, features, d_rows, d_unmapped);
            return d_unmapped;
        }
        // What the map kept, and how wide its rows are.
        let (kept, width) =
            if map.keeps_input() { (&saved.unmapped, 2 * d) } else { (&saved.qkv, 3 * d) };
        let kept = &kept[rows.start * width..rows.end * width];
        feature_map_backward(map, kept, width, d_rows, 3 * d, 2 * d);
        d_rows
    }
}

/// Through y = LayerNorm(x)·W + b: adds to dx and to the gradients of both layers.
pub(super) fn normalized_linear(
    weights: &[f32],
    norm: Affine,
    linear: Affine,
    saved: SavedNorm<'_>,
    dy: &[f32],
    dx: &mut [f32],
    gradient: &mut [f32],
) {
    let norm_weight = norm.weight.of(weights);
    with_scratch(dx.len(), |u| {
        layer_norm_output(saved.normalized, norm_weight, norm.bias.of(weights), u);
        let (dw, db) = linear.weight.pair_mut(linear.bias, gradient);
        linear_backward_weights(u, dy, dw, db);
        linear_backward_input(dy, linear.weight.of(weights), db.len(), u);
        let (dw, db) = norm.weight.pair_mut(norm.bias, gradient);
        let (x_hat, rstd) = (saved.normalized, saved.inverse_deviation);
        layer_norm_backward(u, x_hat, rstd, norm_weight, dx, dw, db);
    });
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
