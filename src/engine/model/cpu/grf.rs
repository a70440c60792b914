//! GRF-masked attention in the engine.

use std::ops::Range;

use super::backward_buffers::Slot;
use super::views::MixerView;
use super::{CHUNK, MixerBuffers, backward, forward};
use crate::engine::model::interlacer::{Attention, Mixer, Span};
use crate::engine::ops::grf_attention::{
    EdgeGradients, grf_attention_backward_key, grf_attention_backward_query, grf_attention_forward,
};

/// ln(1 + e^x), stable for large x.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl forward::Pass<'_> {
    /// f = softplus(θ).
    pub(super) fn settle_hop_weights(&self, logits: Span, buffers: &mut MixerBuffers) {
        let thetas = logits.of(self.weights);
        buffers.state.iter_mut().zip(thetas).for_each(|(f, &theta)| *f = softplus(theta));
    }

    /// x += out(GRF attention), at a chunk's rows.
    pub(super) fn grf_attention(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        // SAFETY: each task has rows of its own; nobody writes q, k, v in this phase.
        let (out, denominators, qkv) = unsafe {
            (
                view.out.rows_mut(rows.clone()),
                view.denominators.rows_mut(rows.clone()),
                view.qkv.all(),
            )
        };
        let loads = &self.graph.loads;
        let f = view.state;
        let m = self.layout.config.heads(1).n_features;
        grf_attention_forward(rows, qkv, m, loads, f, out, denominators);
        self.of(mixer).project_out(tensors.out, out, x);
    }
}

impl backward::Pass<'_> {
    /// The queries' gradient, that of the hop weights, and what the keys' pass needs.
    pub(super) fn grf_queries(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let d = self.layout.config.width;
        let loads = &self.graph.loads;
        let last = loads.row(rows.end - 1);
        let places = loads.row(rows.start).start..last.start + last.nodes.len();
        let chunk = rows.start / CHUNK;
        // SAFETY: each task has rows of its own, and places of its own (rows of a chunk are
        // adjacent).
        let (dx, d_out, d_q, edges, d_f) = unsafe {
            (
                self.dx.rows(rows.clone()),
                slot.d_out.rows_mut(rows.clone()),
                slot.d_q.rows_mut(rows.clone()),
                EdgeGradients {
                    weights: slot.edge_weights.rows_mut(places.clone()),
                    d_scores: slot.edge_d_scores.rows_mut(places),
                },
                slot.d_params.rows_mut(chunk..chunk + 1),
            )
        };
        d_f.fill(0.0);
        let out = &saved.out[rows.start * d..rows.end * d];
        self.of(mixer).project_back(tensors.out, out, dx, d_out, gradient);
        let (denominators, f) = (&saved.denominators[rows.clone()], &saved.state[..]);
        let qkv = &saved.qkv[..];
        let m = self.layout.config.heads(1).n_features;
        grf_attention_backward_query(
            rows,
            qkv,
            m,
            loads,
            f,
            out,
            denominators,
            d_out,
            d_q,
            d_f,
            edges,
        );
    }

    /// f = softplus(θ): dθ = df · sigmoid(θ), summed over the chunks in order.
    pub(super) fn hop_logits(
        &self,
        logits: Span,
        slot: &Slot<'_>,
        gradients: &mut super::Gradients,
    ) {
        // SAFETY: no task is running.
        let chunks = unsafe { slot.d_params.all() };
        let thetas = logits.of(self.weights);
        // Every entry of the mask adds to these few numbers, and what they add nearly cancels.
        for (hop, &theta) in thetas.iter().enumerate() {
            let parts = chunks.iter().skip(hop).step_by(thetas.len());
            let d_f: f64 = parts.sum();
            let sigmoid = 1.0 / (1.0 + (-f64::from(theta)).exp());
            logits.of_mut(gradients.of_all_rows())[hop] += (d_f * sigmoid) as f32;
        }
    }

    /// The keys' and values' gradients, and on to dx.
    pub(super) fn grf_keys(
        &self,
        mixer: &Mixer,
        tensors: &Attention,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        // SAFETY: each task has rows of its own; nobody writes the queries' gradients and edges in this
        // phase.
        let (d_out, weights, d_scores, d_q, dx) = unsafe {
            (
                slot.d_out.all(),
                slot.edge_weights.all(),
                slot.edge_d_scores.all(),
                slot.d_q.rows(rows.clone()),
                self.dx.rows_mut(rows.clone()),
            )
        };
        let transposed = &self.graph.transposed;
        let qkv = &saved.qkv[..];
        let m = self.layout.config.heads(1).n_features;
        let of = rows.clone();
        let keys = |d_rows: &mut [f32]| {
            grf_attention_backward_key(of, qkv, m, transposed, d_out, weights, d_scores, d_rows);
        };
        self.of(mixer).through_qkv(tensors, saved, rows, d_q, keys, dx, gradient);
    }
}
