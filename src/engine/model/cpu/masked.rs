//! Attention under a mask of the table in the engine: the one mixer whose rows need all others at once,
//! so that it runs where the others settle what all rows share.

use std::ops::Range;

use super::backward_buffers::Slot;
use super::views::MixerView;
use super::{Gradients, MixerBuffers, backward, forward};
use crate::engine::masks::MaskKind;
use crate::engine::model::interlacer::{Attention, Mixer, Span};
use crate::engine::ops::masked_attention::{
    MaskedSaved, masked_attention_backward, masked_attention_forward,
};

/// A mask's parameters among the weights.
fn of(params: Option<Span>, weights: &[f32]) -> &[f32] {
    params.map_or(&[], |params| params.of(weights))
}

impl forward::Pass<'_> {
    /// Outputs of all rows.
    pub(super) fn masked_attention(
        &self,
        n_heads: usize,
        mask: MaskKind,
        params: Option<Span>,
        buffers: &mut MixerBuffers,
    ) {
        let (heads, params) = (self.layout.config.heads(n_heads), of(params, self.weights));
        // The pass was held to have it ([`super::Engine::check_graph`]).
        let Some(mask) = self.graph.mask(mask) else { return };
        let (out, denominators) = (&mut buffers.out, &mut buffers.denominators);
        masked_attention_forward(mask, params, &buffers.qkv, heads, out, denominators);
    }

    /// x += out(outputs), at a chunk's rows.
    pub(super) fn masked_output(
        &self,
        tensors: &Attention,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        // SAFETY: nobody writes outputs in this phase.
        let out = unsafe { view.out.rows(rows) };
        self.project_out(tensors.out, out, x);
    }
}

impl backward::Pass<'_> {
    /// The outputs' gradient, at a chunk's rows.
    pub(super) fn outputs_gradient(
        &self,
        tensors: &Attention,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let d = self.layout.config.width;
        // SAFETY: each task has rows of its own.
        let (dx, d_out) =
            unsafe { (self.dx.rows(rows.clone()), slot.d_out.rows_mut(rows.clone())) };
        let out = &saved.out[rows.start * d..rows.end * d];
        self.project_back(tensors.out, out, dx, d_out, gradient);
    }

    /// The gradients of all rows `[q | k | v]`, and of the mask's parameters.
    pub(super) fn masked_gradients(
        &self,
        (n_heads, mask, params): (usize, MaskKind, Option<Span>),
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        gradients: &mut Gradients,
    ) {
        let heads = self.layout.config.heads(n_heads);
        let Some(mask) = self.graph.mask(mask) else { return };
        // SAFETY: no task is running.
        let (d_out, d_rows, parts) =
            unsafe { (slot.d_out.all(), slot.d_rows.all_mut(), slot.d_params.all_mut()) };
        let (rows, out, denominators) = (&*saved.qkv, &*saved.out, &*saved.denominators);
        let saved = MaskedSaved { rows, out, denominators };
        let values = of(params, self.weights);
        masked_attention_backward(mask, values, saved, heads, d_out, d_rows, parts);
        let Some(params) = params else { return };
        for (at, d) in params.of_mut(&mut gradients.groups[0]).iter_mut().enumerate() {
            *d += parts.iter().skip(at).step_by(values.len()).sum::<f64>() as f32;
        }
    }

    /// From the rows' gradients on to dx, at a chunk's rows.
    pub(super) fn rows_gradient(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        // SAFETY: nobody writes the rows' gradients in this phase.
        let d_rows = unsafe { slot.d_rows.rows(rows.clone()) };
        let fill = |rows: &mut [f32]| rows.copy_from_slice(d_rows);
        self.through_rows(mixer, tensors, saved, rows, fill, gradient);
    }
}
