//! The fused backward pass: the forward pass mirrored, two synchronisations a block.

use std::ops::Range;

use rayon::prelude::*;

use super::forward::with_scratch;
use super::gradients::{GRADIENT_GROUPS, Gradients};
use super::{AttentionBuffers, BlockBuffers, CHUNK, Engine, Mode};
use crate::graph::StepGraph;
use crate::model::Layout;
use crate::model::interlacer::{Affine, Attention, Block};
use crate::ops::grf_attention::{
    EdgeGradients, grf_attention_backward_key, grf_attention_backward_query,
};
use crate::ops::layer_norm::{layer_norm_backward, layer_norm_output};
use crate::ops::linear::{linear_backward_input, linear_backward_weights};
use crate::ops::linear_attention::{
    Heads, linear_attention_backward_key, linear_attention_backward_query,
};
use crate::ops::relu::relu_backward;
use crate::ops::rows::SharedRows;
use crate::ops::simd::vectorize;
use crate::{Error, Result};

/// Buffers of the backward pass, shared by all blocks.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    dx: Vec<f32>,
    d_local_qkv: Vec<f32>,
    d_local_out: Vec<f32>,
    d_global_qkv: Vec<f32>,
    edge_weights: Vec<f32>,
    edge_d_scores: Vec<f32>,
    partial_d_states: Vec<f32>,
    d_state: Vec<f32>,
    d_hop_weights: Vec<f32>,
}

impl Buffers {
    fn resize(&mut self, n_tokens: usize, n_places: usize, heads: Heads, n_hops: usize) {
        let d = heads.width;
        self.dx.resize(n_tokens * d, 0.0);
        self.d_local_qkv.resize(n_tokens * 3 * d, 0.0);
        self.d_local_out.resize(n_tokens * d, 0.0);
        self.d_global_qkv.resize(n_tokens * 3 * d, 0.0);
        self.edge_weights.resize(n_places, 0.0);
        self.edge_d_scores.resize(n_places, 0.0);
        self.partial_d_states.resize(n_tokens.div_ceil(CHUNK) * heads.state_len(), 0.0);
        self.d_state.resize(heads.state_len(), 0.0);
        self.d_hop_weights.resize(GRADIENT_GROUPS * (n_hops + 1), 0.0);
    }
}

/// What all phases read and write.
struct Pass<'a> {
    weights: &'a [f32],
    layout: &'a Layout,
    graph: &'a StepGraph,
    heads: Heads,
    n_tokens: usize,
    dx: SharedRows<'a>,
    d_local_qkv: SharedRows<'a>,
    d_local_out: SharedRows<'a>,
    d_global_qkv: SharedRows<'a>,
    edge_weights: SharedRows<'a>,
    edge_d_scores: SharedRows<'a>,
    partial_d_states: SharedRows<'a>,
    d_hop_weights: SharedRows<'a>,
}

impl Engine {
    /// Back-propagates through the last forward pass.
    ///
    /// `d_output`: gradient of [`Engine::output`]; `weights`, `features`, `graph` as in that pass,
    /// `graph.transposed` up to date. Adds to `gradients`; writes `d_features`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the arguments do not belong to the last forward pass, or the engine was
    /// made for inference.
    pub fn backward(
        &mut self,
        weights: &[f32],
        features: &[f32],
        graph: &StepGraph,
        d_output: &[f32],
        gradients: &mut Gradients,
        d_features: &mut [f32],
    ) -> Result<()> {
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        if self.mode != Mode::Training {
            return shape("blocks kept by an engine for training", self.layout.config.n_blocks, 1);
        }
        if d_output.len() != self.output.len() {
            return shape("gradient of the output", self.output.len(), d_output.len());
        }
        let n_features = self.n_tokens * self.layout.config.n_features;
        if features.len() != n_features || d_features.len() != n_features {
            return shape("features and their gradient", n_features, d_features.len());
        }
        if graph.loads.len() != self.n_tokens {
            return shape("rows of the loads", self.n_tokens, graph.loads.len());
        }
        let heads = self.heads();
        let n_hops = self.layout.config.n_hops;
        self.backward.resize(self.n_tokens, graph.loads.n_places(), heads, n_hops);
        let buffers = &mut self.backward;
        let mut d_state = std::mem::take(&mut buffers.d_state);
        let pass = Pass {
            weights,
            layout: &self.layout,
            graph,
            heads,
            n_tokens: self.n_tokens,
            dx: SharedRows::new(&mut buffers.dx, heads.width),
            d_local_qkv: SharedRows::new(&mut buffers.d_local_qkv, 3 * heads.width),
            d_local_out: SharedRows::new(&mut buffers.d_local_out, heads.width),
            d_global_qkv: SharedRows::new(&mut buffers.d_global_qkv, 3 * heads.width),
            edge_weights: SharedRows::new(&mut buffers.edge_weights, 1),
            edge_d_scores: SharedRows::new(&mut buffers.edge_d_scores, 1),
            partial_d_states: SharedRows::new(&mut buffers.partial_d_states, heads.state_len()),
            d_hop_weights: SharedRows::new(&mut buffers.d_hop_weights, n_hops + 1),
        };
        let normalized = (&self.head_normalized[..], &self.head_inverse_deviation[..]);
        pass.chunks(gradients, |rows, _, gradient| pass.head(normalized, d_output, rows, gradient));
        for b in (0..self.layout.config.n_blocks).rev() {
            let hop_weights = &self.hop_weights[b * (n_hops + 1)..(b + 1) * (n_hops + 1)];
            pass.block(b, &self.blocks[b], hop_weights, gradients, &mut d_state);
        }
        let d_features = SharedRows::new(d_features, self.layout.config.n_features);
        pass.chunks(gradients, |rows, _, gradient| {
            pass.embed(features, &d_features, rows, gradient)
        });
        self.backward.d_state = d_state;
        Ok(())
    }
}

impl Pass<'_> {
    /// Runs `f(rows, group, gradient)` on all chunks: groups in parallel, a group's chunks in order.
    fn chunks(
        &self,
        gradients: &mut Gradients,
        f: impl Fn(Range<usize>, usize, &mut [f32]) + Sync,
    ) {
        let per_group = self.n_tokens.div_ceil(CHUNK).div_ceil(GRADIENT_GROUPS) * CHUNK;
        gradients.groups.par_iter_mut().enumerate().for_each(|(group, gradient)| {
            let end = ((group + 1) * per_group).min(self.n_tokens);
            for start in (group * per_group..end).step_by(CHUNK) {
                f(start..(start + CHUNK).min(end), group, gradient);
            }
        });
    }

    /// dx of the last block's output.
    fn head(
        &self,
        (normalized, inverse_deviation): (&[f32], &[f32]),
        d_output: &[f32],
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let d = self.heads.width;
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows.clone()) };
        dx.fill(0.0);
        let scene = rows.start.min(inverse_deviation.len())..rows.end.min(inverse_deviation.len());
        if scene.is_empty() {
            return;
        }
        let n_outputs = self.layout.config.n_outputs;
        let dy = &d_output[scene.start * n_outputs..scene.end * n_outputs];
        let saved = SavedNorm { normalized, inverse_deviation }.rows(&scene, d);
        let (norm, head) = (self.layout.head_norm, self.layout.head);
        self.normalized_linear(norm, head, saved, dy, &mut dx[..scene.len() * d], gradient);
    }

    fn embed(
        &self,
        features: &[f32],
        d_features: &SharedRows<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let (embed, n) = (self.layout.embed, self.layout.config.n_features);
        // SAFETY: each task has rows of its own.
        let (dx, d_features) =
            unsafe { (self.dx.rows(rows.clone()), d_features.rows_mut(rows.clone())) };
        let (dw, db) = embed.weight.pair_mut(embed.bias, gradient);
        linear_backward_weights(&features[rows.start * n..rows.end * n], dx, dw, db);
        linear_backward_input(dx, embed.weight.of(self.weights), self.heads.width, d_features);
    }

    /// From dx behind block `b` to dx before it.
    fn block(
        &self,
        b: usize,
        saved: &BlockBuffers,
        hop_weights: &[f32],
        gradients: &mut Gradients,
        d_state: &mut [f32],
    ) {
        let block = &self.layout.blocks[b];
        // SAFETY: no task is running.
        unsafe { self.d_hop_weights.rows_mut(0..GRADIENT_GROUPS) }.fill(0.0);
        self.chunks(gradients, |rows, group, gradient| {
            self.mlp(block, saved, rows.clone(), gradient);
            self.local_queries(block, &saved.local, hop_weights, rows, group, gradient);
        });
        self.hop_logits(block, gradients);
        self.chunks(gradients, |rows, _, gradient| {
            self.local_keys(block, &saved.local, rows.clone(), gradient);
            self.global_queries(block, &saved.global, rows, gradient);
        });
        d_state.fill(0.0);
        // SAFETY: no task is running.
        for part in unsafe { self.partial_d_states.all() }.chunks_exact(d_state.len()) {
            d_state.iter_mut().zip(part).for_each(|(s, p)| *s += p);
        }
        self.chunks(gradients, |rows, _, gradient| {
            self.global_keys(block, &saved.global, d_state, rows, gradient);
        });
    }

    fn mlp(&self, block: &Block, saved: &BlockBuffers, rows: Range<usize>, gradient: &mut [f32]) {
        let (d, n) = (self.heads.width, rows.len());
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows.clone()) };
        let hidden = &saved.mlp_hidden[rows.start * 4 * d..rows.end * 4 * d];
        let (dw, db) = block.down.weight.pair_mut(block.down.bias, gradient);
        linear_backward_weights(hidden, dx, dw, db);
        let norm = SavedNorm {
            normalized: &saved.mlp_normalized,
            inverse_deviation: &saved.mlp_inverse_deviation,
        };
        let mut d_hidden = SCRATCH.take();
        d_hidden.resize(n * 4 * d, 0.0);
        linear_backward_input(dx, block.down.weight.of(self.weights), d, &mut d_hidden);
        vectorize(|| relu_backward(hidden, &mut d_hidden));
        let norm = norm.rows(&rows, d);
        self.normalized_linear(block.mlp_norm, block.up, norm, &d_hidden, dx, gradient);
        SCRATCH.set(d_hidden);
    }

    /// Through y = LayerNorm(x)·W + b: adds to dx and to the gradients of both layers.
    fn normalized_linear(
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
            vectorize(|| layer_norm_output(saved.normalized, norm_weight, bias, u));
            let (dw, db) = linear.weight.pair_mut(linear.bias, gradient);
            linear_backward_weights(u, dy, dw, db);
            linear_backward_input(dy, linear.weight.of(self.weights), db.len(), u);
            let (dw, db) = norm.weight.pair_mut(norm.bias, gradient);
            let (x_hat, rstd) = (saved.normalized, saved.inverse_deviation);
            vectorize(|| layer_norm_backward(u, x_hat, rstd, norm_weight, dx, dw, db));
        });
    }

    /// Through the projection behind an attention: d_out = dx·Wᵀ and the gradients of W and b.
    fn project_back(
        &self,
        out: Affine,
        attention: &[f32],
        dx: &[f32],
        d_out: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (dw, db) = out.weight.pair_mut(out.bias, gradient);
        linear_backward_weights(attention, dx, dw, db);
        linear_backward_input(dx, out.weight.of(self.weights), self.heads.width, d_out);
    }

    fn local_queries(
        &self,
        block: &Block,
        saved: &AttentionBuffers,
        hop_weights: &[f32],
        rows: Range<usize>,
        group: usize,
        gradient: &mut [f32],
    ) {
        let d = self.heads.width;
        let loads = &self.graph.loads;
        let last = loads.row(rows.end - 1);
        let places = loads.row(rows.start).start..last.start + last.nodes.len();
        // SAFETY: each task has rows of its own, places of its own (rows of a chunk are adjacent),
        // and a group runs one task at a time.
        let (dx, d_out, d_qkv, edges, d_f) = unsafe {
            (
                self.dx.rows(rows.clone()),
                self.d_local_out.rows_mut(rows.clone()),
                self.d_local_qkv.rows_mut(rows.clone()),
                EdgeGradients {
                    weights: self.edge_weights.rows_mut(places.clone()),
                    d_scores: self.edge_d_scores.rows_mut(places),
                },
                self.d_hop_weights.rows_mut(group..group + 1),
            )
        };
        let narrow = rows.start * d..rows.end * d;
        let out = &saved.out[narrow];
        self.project_back(block.local.out, out, dx, d_out, gradient);
        let denominators = &saved.denominators[rows.clone()];
        vectorize(|| {
            grf_attention_backward_query(
                rows,
                &saved.qkv,
                loads,
                hop_weights,
                out,
                denominators,
                d_out,
                d_qkv,
                d_f,
                edges,
            )
        });
    }

    /// f = softplus(θ): dθ = df · sigmoid(θ), into the first group.
    fn hop_logits(&self, block: &Block, gradients: &mut Gradients) {
        // SAFETY: no task is running.
        let d_f = unsafe { self.d_hop_weights.all() };
        let logits = block.hop_logits.of(self.weights);
        for (group, d_f) in gradients.groups.iter_mut().zip(d_f.chunks_exact(logits.len())) {
            let d_logits = block.hop_logits.of_mut(group);
            for ((d, theta), d_f) in d_logits.iter_mut().zip(logits).zip(d_f) {
                *d += d_f / (1.0 + (-theta).exp());
            }
        }
    }

    fn local_keys(
        &self,
        block: &Block,
        saved: &AttentionBuffers,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        // SAFETY: nobody writes the queries' gradients and edges in this phase; each task has rows
        // of its own.
        let (d_out, weights, d_scores, d_qkv) = unsafe {
            (
                self.d_local_out.all(),
                self.edge_weights.all(),
                self.edge_d_scores.all(),
                self.d_local_qkv.rows_mut(rows.clone()),
            )
        };
        let transposed = &self.graph.transposed;
        vectorize(|| {
            let keys = rows.clone();
            grf_attention_backward_key(
                keys, &saved.qkv, transposed, d_out, weights, d_scores, d_qkv,
            )
        });
        self.through_qkv(&block.local, saved, rows, d_qkv, gradient);
    }

    /// From d_qkv through ReLU, projection and LayerNorm to dx.
    fn through_qkv(
        &self,
        attention: &Attention,
        saved: &AttentionBuffers,
        rows: Range<usize>,
        d_qkv: &mut [f32],
        gradient: &mut [f32],
    ) {
        let d = self.heads.width;
        let qkv = &saved.qkv[rows.start * 3 * d..rows.end * 3 * d];
        vectorize(|| {
            for (y, dy) in qkv.chunks_exact(3 * d).zip(d_qkv.chunks_exact_mut(3 * d)) {
                relu_backward(&y[..2 * d], &mut dy[..2 * d]);
            }
        });
        let norm = SavedNorm {
            normalized: &saved.normalized,
            inverse_deviation: &saved.inverse_deviation,
        };
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows.clone()) };
        let norm = norm.rows(&rows, d);
        self.normalized_linear(attention.norm, attention.qkv, norm, d_qkv, dx, gradient);
    }

    fn global_queries(
        &self,
        block: &Block,
        saved: &AttentionBuffers,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let (d, heads) = (self.heads.width, self.heads);
        let chunk = rows.start / CHUNK;
        // SAFETY: each task has rows of its own.
        let (dx, d_qkv, d_state) = unsafe {
            (
                self.dx.rows(rows.clone()),
                self.d_global_qkv.rows_mut(rows.clone()),
                self.partial_d_states.rows_mut(chunk..chunk + 1),
            )
        };
        let out = &saved.out[rows.start * d..rows.end * d];
        let qkv = &saved.qkv[rows.start * 3 * d..rows.end * 3 * d];
        let denominators =
            &saved.denominators[rows.start * heads.n_heads..rows.end * heads.n_heads];
        with_scratch(out.len(), |d_out| {
            self.project_back(block.global.out, out, dx, d_out, gradient);
            let state = &saved.state;
            vectorize(|| {
                linear_attention_backward_query(
                    qkv,
                    state,
                    heads,
                    out,
                    denominators,
                    d_out,
                    d_qkv,
                    d_state,
                )
            });
        });
    }

    fn global_keys(
        &self,
        block: &Block,
        saved: &AttentionBuffers,
        d_state: &[f32],
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let d = self.heads.width;
        // SAFETY: each task has rows of its own.
        let d_qkv = unsafe { self.d_global_qkv.rows_mut(rows.clone()) };
        let qkv = &saved.qkv[rows.start * 3 * d..rows.end * 3 * d];
        linear_attention_backward_key(qkv, self.heads, d_state, d_qkv);
        self.through_qkv(&block.global, saved, rows, d_qkv, gradient);
    }
}

std::thread_local! {
    /// Gradient of the MLP's hidden rows of a chunk (beside the other scratch, which is in use).
    static SCRATCH: std::cell::Cell<Vec<f32>> = const { std::cell::Cell::new(Vec::new()) };
}

/// What a LayerNorm of the forward pass kept.
#[derive(Clone, Copy)]
struct SavedNorm<'a> {
    normalized: &'a [f32],
    inverse_deviation: &'a [f32],
}

impl SavedNorm<'_> {
    fn rows(self, rows: &Range<usize>, d: usize) -> Self {
        Self {
            normalized: &self.normalized[rows.start * d..rows.end * d],
            inverse_deviation: &self.inverse_deviation[rows.clone()],
        }
    }
}
