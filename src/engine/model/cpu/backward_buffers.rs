//! Buffers of the backward pass.

use super::CHUNK;
use super::buffers::n_shared_slots;
use crate::engine::model::Layout;
use crate::engine::model::interlacer::{InterlacerConfig, MixerKind};
use crate::engine::ops::rows::SharedRows;
use crate::engine::step_graph::StepGraph;

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
    d_out: Vec<f32>,
    edge_weights: Vec<f32>,
    edge_d_scores: Vec<f32>,
    partial_d_states: Vec<f32>,
    d_state: Vec<f32>,
    /// Of hop weights, a row a chunk.
    d_params: Vec<f64>,
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
            // Its gradients never leave it.
            MixerKind::Registered(_) => {}
        }
    }
}

/// Gradients within one mixer, shared by the chunks.
pub(super) struct Slot<'a> {
    pub d_q: SharedRows<'a>,
    pub d_out: SharedRows<'a>,
    pub edge_weights: SharedRows<'a>,
    pub edge_d_scores: SharedRows<'a>,
    pub partial_d_states: SharedRows<'a>,
    pub d_state: SharedRows<'a>,
    pub d_params: SharedRows<'a, f64>,
}

impl<'a> Slot<'a> {
    pub fn new(buffers: &'a mut SlotBuffers, config: &InterlacerConfig, n: usize) -> Self {
        let (d, state_len) = (config.width, buffers.d_state.len());
        let per_token = |data: &'a mut Vec<f32>| {
            let width = data.len() / n.max(1);
            SharedRows::new(data, width)
        };
        Self {
            d_q: per_token(&mut buffers.d_q),
            d_out: SharedRows::new(&mut buffers.d_out, d),
            edge_weights: SharedRows::new(&mut buffers.edge_weights, 1),
            edge_d_scores: SharedRows::new(&mut buffers.edge_d_scores, 1),
            partial_d_states: SharedRows::new(&mut buffers.partial_d_states, state_len),
            d_state: SharedRows::new(&mut buffers.d_state, state_len),
            d_params: SharedRows::new(&mut buffers.d_params, config.n_hops + 1),
        }
    }
}
