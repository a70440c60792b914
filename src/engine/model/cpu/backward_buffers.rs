//! Buffers of the backward pass.

use super::CHUNK;
use super::buffers::{message_counts, n_shared_slots};
use crate::engine::masks::StepGraph;
use crate::engine::model::Layout;
use crate::engine::model::interlacer::{InterlacerConfig, MixerKind, Span};
use crate::engine::ops::k_mip_attention::KMipScratch;
use crate::engine::ops::masked_attention::n_stretches;
use crate::engine::ops::rows::SharedRows;

/// Buffers of the backward pass, shared by all mixers.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub dx: Vec<f32>,
    /// Of mixer `i` at `i`, modulo their number.
    pub slots: Vec<SlotBuffers>,
}

impl Buffers {
    /// Sizes all for `n` tokens; allocates only when they grow.
    pub fn resize(&mut self, layout: &Layout, graph: &StepGraph, n: usize) {
        self.dx.resize(n * layout.config.width, 0.0);
        self.slots.resize_with(n_shared_slots(layout), SlotBuffers::default);
        for (slot, mixer) in self.slots.iter_mut().zip(&layout.mixers) {
            slot.resize(&mixer.kind, &layout.config, graph, n);
        }
    }
}

/// Gradients within one mixer; those that its kind has no use for stay empty.
#[derive(Debug, Default)]
pub(super) struct SlotBuffers {
    /// Of the queries. Those of keys and values stay in their chunk.
    d_q: Vec<f32>,
    /// Of rows `[q | k | v]`, of attention under a mask of the table.
    d_rows: Vec<f32>,
    d_out: Vec<f32>,
    /// Gradient of what receivers bring into their messages.
    d_receivers: Vec<f32>,
    /// Products of outputs and their gradients, for softmax attention.
    deltas: Vec<f32>,
    edge_weights: Vec<f32>,
    edge_d_scores: Vec<f32>,
    partial_d_states: Vec<f32>,
    d_state: Vec<f32>,
    /// Of hop weights a row a chunk, of a mask's parameters a row a stretch.
    d_params: Vec<f64>,
    k_mip: KMipScratch,
}

impl SlotBuffers {
    fn resize(&mut self, kind: &MixerKind, config: &InterlacerConfig, graph: &StepGraph, n: usize) {
        let d = config.width;
        match *kind {
            MixerKind::Linear { n_heads, .. } => {
                let heads = config.heads(n_heads);
                self.d_q.resize(n * heads.features(), 0.0);
                self.partial_d_states.resize(n.div_ceil(CHUNK) * heads.state_len(), 0.0);
                self.d_state.resize(heads.state_len(), 0.0);
            }
            MixerKind::Grf { .. } => {
                self.d_q.resize(n * config.heads(1).n_features, 0.0);
                self.d_out.resize(n * d, 0.0);
                self.edge_weights.resize(graph.loads.n_places(), 0.0);
                self.edge_d_scores.resize(graph.loads.n_places(), 0.0);
                self.d_params.resize(n.div_ceil(CHUNK) * (config.n_hops + 1), 0.0);
            }
            MixerKind::Masked { n_heads, params, .. } => {
                let (heads, n_params) = (config.heads(n_heads), params.map_or(0, Span::len));
                self.d_rows.resize(n * heads.row_len(), 0.0);
                self.d_out.resize(n * d, 0.0);
                self.d_params.resize(n_stretches(heads) * n_params, 0.0);
            }
            MixerKind::KMip { .. } => {
                self.d_rows.resize(3 * n * d, 0.0);
                self.d_out.resize(n * d, 0.0);
            }
            MixerKind::Softmax { n_heads, .. } => {
                self.d_q.resize(n * d, 0.0);
                self.d_out.resize(n * d, 0.0);
                self.deltas.resize(n * n_heads, 0.0);
            }
            MixerKind::Messages { to, .. } => {
                let (_, n_receivers) = message_counts(to, graph);
                self.d_out.resize(n_receivers * d, 0.0);
                self.d_receivers.resize(n_receivers * d, 0.0);
            }
        }
    }
}

/// Gradients within one mixer, shared by the chunks.
pub(super) struct Slot<'a> {
    pub d_q: SharedRows<'a>,
    pub d_rows: SharedRows<'a>,
    pub d_out: SharedRows<'a>,
    pub d_receivers: SharedRows<'a>,
    pub deltas: SharedRows<'a>,
    pub edge_weights: SharedRows<'a>,
    pub edge_d_scores: SharedRows<'a>,
    pub partial_d_states: SharedRows<'a>,
    pub d_state: SharedRows<'a>,
    pub d_params: SharedRows<'a, f64>,
    pub k_mip: SharedRows<'a, KMipScratch>,
}

impl<'a> Slot<'a> {
    pub fn new(
        buffers: &'a mut SlotBuffers,
        kind: &MixerKind,
        config: &InterlacerConfig,
        n: usize,
    ) -> Self {
        let (d, state_len) = (config.width, buffers.d_state.len());
        let n_params = match *kind {
            MixerKind::Masked { params, .. } => params.map_or(0, Span::len),
            _ => config.n_hops + 1,
        };
        let per_token = |data: &'a mut Vec<f32>| {
            let width = data.len() / n.max(1);
            SharedRows::new(data, width)
        };
        Self {
            d_q: per_token(&mut buffers.d_q),
            d_rows: per_token(&mut buffers.d_rows),
            d_out: SharedRows::new(&mut buffers.d_out, d),
            d_receivers: SharedRows::new(&mut buffers.d_receivers, d),
            deltas: per_token(&mut buffers.deltas),
            edge_weights: SharedRows::new(&mut buffers.edge_weights, 1),
            edge_d_scores: SharedRows::new(&mut buffers.edge_d_scores, 1),
            partial_d_states: SharedRows::new(&mut buffers.partial_d_states, state_len),
            d_state: SharedRows::new(&mut buffers.d_state, state_len),
            d_params: SharedRows::new(&mut buffers.d_params, n_params),
            k_mip: SharedRows::new(std::slice::from_mut(&mut buffers.k_mip), 1),
        }
    }
}
