//! k-MIP attention in the engine: forward each chunk for itself, backward all rows at once, as attention
//! under a mask ([`super::masked`]), since each key must find the queries that chose it.

use std::ops::Range;

use super::backward_buffers::Slot;
use super::views::MixerView;
use super::{CHUNK, MixerBuffers, backward, forward};
use crate::engine::model::interlacer::Attention;
use crate::engine::ops::k_mip_attention::{
    BLOCK, KMipSaved, k_mip_attention_backward, k_mip_attention_forward,
};

// A chunk of rows is one call.
const _: () = assert!(CHUNK <= BLOCK);

impl forward::Pass<'_> {
    /// x += out(k-MIP attention), at a chunk's rows.
    pub(super) fn k_mip_attention(
        &self,
        tensors: &Attention,
        n_heads: usize,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        let heads = self.layout.config.heads(n_heads);
        // SAFETY: each task has rows of its own; nobody writes q, k, v in this phase.
        let (out, log_sums, chosen, qkv) = unsafe {
            (
                view.out.rows_mut(rows.clone()),
                view.denominators.rows_mut(rows.clone()),
                view.chosen.rows_mut(rows.clone()),
                view.qkv.all(),
            )
        };
        k_mip_attention_forward(rows, qkv, heads, out, log_sums, chosen);
        self.project_out(tensors.out, out, x);
    }
}

impl backward::Pass<'_> {
    /// The gradients of all rows `[q | k | v]`.
    pub(super) fn k_mip_gradients(&self, n_heads: usize, saved: &MixerBuffers, slot: &Slot<'_>) {
        let heads = self.layout.config.heads(n_heads);
        // SAFETY: no task is running.
        let (d_out, d_rows, scratch) =
            unsafe { (slot.d_out.all(), slot.d_rows.all_mut(), slot.k_mip.all_mut()) };
        let Some(scratch) = scratch.first_mut() else { return };
        let (qkv, out, chosen) = (&*saved.qkv, &*saved.out, &*saved.chosen);
        let saved = KMipSaved { qkv, out, log_sums: &saved.denominators, chosen };
        k_mip_attention_backward(saved, heads, d_out, d_rows, scratch);
    }
}
