//! Softmax attention in the engine.

use std::ops::Range;

use super::slots::Slot;
use super::views::MixerView;
use super::{CHUNK, MixerBuffers, backward, forward};
use crate::base::scratch::with_scratch;
use crate::engine::model::interlacer::{Attention, Mixer};
use crate::engine::ops::softmax_attention::{
    BLOCK, SCRATCH_LEN, SoftmaxSaved, softmax_attention_backward_key,
    softmax_attention_backward_query, softmax_attention_deltas, softmax_attention_forward,
};

// A chunk of rows is one call.
const _: () = assert!(CHUNK <= BLOCK);

impl forward::Pass<'_> {
    /// x += out(softmax attention), at a chunk's rows.
    pub(super) fn softmax_attention(
        &self,
        tensors: &Attention,
        n_heads: usize,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        let heads = self.layout.config.heads(n_heads);
        // SAFETY: each task has rows of its own; nobody writes q, k, v in this phase.
        let (out, log_sums, qkv) = unsafe {
            (
                view.out.rows_mut(rows.clone()),
                view.denominators.rows_mut(rows.clone()),
                view.qkv.all(),
            )
        };
        with_scratch(SCRATCH_LEN, |scratch| {
            softmax_attention_forward(rows, qkv, heads, out, log_sums, scratch);
        });
        self.project_out(tensors.out, out, x);
    }
}

impl backward::Pass<'_> {
    /// The queries' gradient, and what the keys' pass needs.
    pub(super) fn softmax_queries(
        &self,
        tensors: &Attention,
        n_heads: usize,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let heads = self.layout.config.heads(n_heads);
        let d = heads.width;
        // SAFETY: each task has rows of its own.
        let (dx, d_out, deltas, d_q) = unsafe {
            (
                self.dx.rows(rows.clone()),
                slot.d_out.rows_mut(rows.clone()),
                slot.deltas.rows_mut(rows.clone()),
                slot.d_q.rows_mut(rows.clone()),
            )
        };
        let out = &saved.out[rows.start * d..rows.end * d];
        self.project_back(tensors.out, out, dx, d_out, gradient);
        with_scratch(SCRATCH_LEN, |scratch| {
            softmax_attention_deltas(heads, out, d_out, deltas);
            let (qkv, log_sums) = (&saved.qkv[..], &saved.denominators[..]);
            let saved = SoftmaxSaved { qkv, log_sums, d_out, deltas };
            softmax_attention_backward_query(rows, saved, heads, d_q, scratch);
        });
    }

    /// The keys' and values' gradients, and on to dx.
    pub(super) fn softmax_keys(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        n_heads: usize,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let heads = self.layout.config.heads(n_heads);
        // SAFETY: nobody writes the gradients of outputs and queries in this phase.
        let (d_out, deltas, d_q) =
            unsafe { (slot.d_out.all(), slot.deltas.all(), slot.d_q.rows(rows.clone())) };
        let (qkv, log_sums) = (&saved.qkv[..], &saved.denominators[..]);
        let all = SoftmaxSaved { qkv, log_sums, d_out, deltas };
        let of = rows.clone();
        let keys = |d_rows: &mut [f32]| {
            with_scratch(SCRATCH_LEN, |scratch| {
                softmax_attention_backward_key(of, all, heads, d_rows, scratch);
            });
        };
        self.through_qkv(mixer, tensors, saved, rows, d_q, keys, gradient);
    }
}
