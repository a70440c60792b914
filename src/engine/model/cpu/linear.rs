//! Linear attention in the engine.

use std::ops::Range;

use super::backward_buffers::Slot;
use super::forward::{self, normalize};
use super::views::MixerView;
use super::{CHUNK, MixerBuffers, backward};
use crate::base::scratch::with_scratch;
use crate::engine::model::interlacer::{Attention, Mixer};
use crate::engine::ops::linear::linear_forward_add;
use crate::engine::ops::linear_attention::{
    linear_attention_backward_key, linear_attention_backward_query, linear_attention_fold,
    linear_attention_forward, linear_attention_queries, linear_attention_state,
};

impl forward::Pass<'_> {
    /// The cloud's state from the chunks', in order, and what the projection makes of it.
    pub(super) fn settle_state(
        &self,
        tensors: &Attention,
        n_heads: usize,
        buffers: &mut MixerBuffers,
    ) {
        add_up(&buffers.partial_states, &mut buffers.state);
        let (heads, weight) = (self.layout.config.heads(n_heads), tensors.out.weight);
        linear_attention_fold(&buffers.state, heads, weight.of(self.weights), &mut buffers.folded);
    }
}

/// sum = Σ parts, in order.
fn add_up(parts: &[f32], sum: &mut [f32]) {
    sum.fill(0.0);
    for part in parts.chunks_exact(sum.len()) {
        sum.iter_mut().zip(part).for_each(|(s, p)| *s += p);
    }
}

impl forward::Pass<'_> {
    /// A chunk's q, k, v and its part of the state.
    pub(super) fn prepare_linear(
        &self,
        mixer: &Mixer,
        (tensors, n_heads): (&Attention, usize),
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &[f32],
    ) {
        let config = &self.layout.config;
        let (d, n, chunk) = (config.width, rows.len(), rows.start / CHUNK);
        // SAFETY: each task has a chunk of its own.
        let state = unsafe { view.partial_states.rows_mut(chunk..chunk + 1) };
        let heads = config.heads(n_heads);
        if view.keep {
            let qkv = self.of(mixer).project_qkv(tensors, view, rows, x);
            linear_attention_state(qkv, heads, state);
            return;
        }
        // SAFETY: each task has rows of its own.
        let queries = unsafe { view.qkv.rows_mut(rows) };
        let (features, len) = (heads.features(), heads.row_len());
        // Keys and values never leave the chunk.
        with_scratch(n * (4 * d + len), |scratch| {
            let (u, rest) = scratch.split_at_mut(n * d);
            let (unmapped, qkv) = rest.split_at_mut(n * 3 * d);
            normalize(self.weights, tensors.norm, x, u, None);
            self.of(mixer).map_projection(tensors, (u, unmapped), None, qkv);
            for (q, row) in queries.chunks_exact_mut(features).zip(qkv.chunks_exact(len)) {
                q.copy_from_slice(&row[..features]);
            }
            linear_attention_state(qkv, heads, state);
        });
    }

    /// x += out(linear attention), at a chunk's rows.
    pub(super) fn linear_attention(
        &self,
        tensors: &Attention,
        n_heads: usize,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        let (config, state) = (&self.layout.config, view.state);
        // SAFETY: nobody writes q, k, v in this phase.
        let qkv = unsafe { view.qkv.rows(rows.clone()) };
        let (heads, stride) = (config.heads(n_heads), qkv.len() / rows.len().max(1));
        if view.keep {
            // SAFETY: each task has rows of its own.
            let (out, denominators) = unsafe {
                (view.out.rows_mut(rows.clone()), view.denominators.rows_mut(rows.clone()))
            };
            linear_attention_forward(qkv, state, heads, out, denominators);
        }
        with_scratch(rows.len() * heads.features(), |queries| {
            linear_attention_queries(qkv, stride, state, heads, queries);
            linear_forward_add(queries, view.folded, tensors.out.bias.of(self.weights), x);
        });
    }
}

impl backward::Pass<'_> {
    /// The queries' gradient and a chunk's share of the state's gradient.
    pub(super) fn linear_queries(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        n_heads: usize,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let config = &self.layout.config;
        let d = config.width;
        let chunk = rows.start / CHUNK;
        // SAFETY: each task has rows of its own.
        let (dx, d_q, d_state) = unsafe {
            (
                self.dx.rows(rows.clone()),
                slot.d_q.rows_mut(rows.clone()),
                slot.partial_d_states.rows_mut(chunk..chunk + 1),
            )
        };
        let out = &saved.out[rows.start * d..rows.end * d];
        let qkv = saved.qkv_rows(&rows, self.n_tokens);
        let denominators = &saved.denominators[rows.start * n_heads..rows.end * n_heads];
        with_scratch(out.len(), |d_out| {
            self.of(mixer).project_back(tensors.out, out, dx, d_out, gradient);
            let state = &saved.state;
            let heads = config.heads(n_heads);
            linear_attention_backward_query(
                qkv,
                state,
                heads,
                out,
                denominators,
                d_out,
                d_q,
                d_state,
            );
        });
    }

    /// The state's gradient from the chunks', in order.
    pub(super) fn sum_d_states(&self, slot: &Slot<'_>) {
        // SAFETY: no task is running.
        let (parts, sum) = unsafe { (slot.partial_d_states.all(), slot.d_state.rows_mut(0..1)) };
        add_up(parts, sum);
    }

    /// The keys' and values' gradients, and on to dx.
    pub(super) fn linear_keys(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        n_heads: usize,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let config = &self.layout.config;
        // SAFETY: each task has rows of its own; nobody writes the gradients of queries and state in
        // this phase.
        let (d_q, d_state, dx) = unsafe {
            (slot.d_q.rows(rows.clone()), slot.d_state.all(), self.dx.rows_mut(rows.clone()))
        };
        let qkv = saved.qkv_rows(&rows, self.n_tokens);
        let keys = |d_rows: &mut [f32]| {
            linear_attention_backward_key(qkv, config.heads(n_heads), d_state, d_rows);
        };
        self.of(mixer).through_qkv(tensors, saved, rows, d_q, keys, dx, gradient);
    }
}
