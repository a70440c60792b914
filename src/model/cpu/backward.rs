//! The fused backward pass: the forward pass mirrored, one synchronisation a mixer.

use std::ops::Range;

use rayon::prelude::*;

use super::gradients::{GRADIENT_GROUPS, Gradients};
use super::views::SavedNorm;
use super::{CHUNK, Engine, MixerBuffers, MlpBuffers, Mode, row_len};
use crate::graph::StepGraph;
use crate::model::Layout;
use crate::model::interlacer::{InterlacerConfig, Mixer, MixerKind};
use crate::ops::linear::{linear_backward_input, linear_backward_weights};
use crate::ops::relu::relu_backward;
use crate::ops::rows::SharedRows;
use crate::ops::simd::vectorize;
use crate::{Error, Result};

/// Buffers of the backward pass, shared by all mixers.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    dx: Vec<f32>,
    /// Of mixer `i` at `i`, modulo their number.
    slots: Vec<SlotBuffers>,
}

/// Gradients within one mixer; those that its kind has no use for stay empty.
#[derive(Debug, Default)]
struct SlotBuffers {
    d_qkv: Vec<f32>,
    d_out: Vec<f32>,
    /// Gradient of what receivers bring into their messages.
    d_receivers: Vec<f32>,
    /// Products of outputs and their gradients, for softmax attention.
    deltas: Vec<f32>,
    edge_weights: Vec<f32>,
    edge_d_scores: Vec<f32>,
    partial_d_states: Vec<f32>,
    d_state: Vec<f32>,
    d_hop_weights: Vec<f32>,
}

impl SlotBuffers {
    fn resize(&mut self, kind: &MixerKind, config: &InterlacerConfig, graph: &StepGraph, n: usize) {
        let d = config.width;
        self.d_qkv.resize(n * row_len(kind, config, 1), 0.0);
        match *kind {
            MixerKind::Linear { n_heads, .. } => {
                let state_len = config.heads(n_heads).state_len();
                self.partial_d_states.resize(n.div_ceil(CHUNK) * state_len, 0.0);
                self.d_state.resize(state_len, 0.0);
            }
            MixerKind::Grf { .. } => {
                self.d_out.resize(n * d, 0.0);
                self.edge_weights.resize(graph.loads.n_places(), 0.0);
                self.edge_d_scores.resize(graph.loads.n_places(), 0.0);
                self.d_hop_weights.resize(n.div_ceil(CHUNK) * (config.n_hops + 1), 0.0);
            }
            MixerKind::Softmax { n_heads, .. } => {
                self.d_out.resize(n * d, 0.0);
                self.deltas.resize(n * n_heads, 0.0);
            }
            MixerKind::Messages { to, .. } => {
                let (_, n_receivers) = super::messages::counts(to, graph);
                self.d_out.resize(n_receivers * d, 0.0);
                self.d_receivers.resize(n_receivers * d, 0.0);
            }
        }
    }
}

/// Gradients within one mixer, shared by the chunks.
pub(super) struct Slot<'a> {
    pub d_qkv: SharedRows<'a>,
    pub d_out: SharedRows<'a>,
    pub d_receivers: SharedRows<'a>,
    pub deltas: SharedRows<'a>,
    pub edge_weights: SharedRows<'a>,
    pub edge_d_scores: SharedRows<'a>,
    pub partial_d_states: SharedRows<'a>,
    pub d_state: SharedRows<'a>,
    pub d_hop_weights: SharedRows<'a>,
}

impl<'a> Slot<'a> {
    fn new(buffers: &'a mut SlotBuffers, config: &InterlacerConfig, n: usize) -> Self {
        let (d, state_len) = (config.width, buffers.d_state.len());
        let per_token = |data: &'a mut Vec<f32>| {
            let width = data.len() / n.max(1);
            SharedRows::new(data, width)
        };
        Self {
            d_qkv: per_token(&mut buffers.d_qkv),
            d_out: SharedRows::new(&mut buffers.d_out, d),
            d_receivers: SharedRows::new(&mut buffers.d_receivers, d),
            deltas: per_token(&mut buffers.deltas),
            edge_weights: SharedRows::new(&mut buffers.edge_weights, 1),
            edge_d_scores: SharedRows::new(&mut buffers.edge_d_scores, 1),
            partial_d_states: SharedRows::new(&mut buffers.partial_d_states, state_len),
            d_state: SharedRows::new(&mut buffers.d_state, state_len),
            d_hop_weights: SharedRows::new(&mut buffers.d_hop_weights, config.n_hops + 1),
        }
    }
}

/// What all phases read and write.
pub(super) struct Pass<'a> {
    pub weights: &'a [f32],
    pub layout: &'a Layout,
    pub graph: &'a StepGraph,
    pub projections: &'a [Vec<f32>],
    pub n_tokens: usize,
    mixers: &'a [MixerBuffers],
    mlp: &'a MlpBuffers,
    head: SavedNorm<'a>,
    features: &'a [f32],
    d_output: &'a [f32],
    d_features: SharedRows<'a>,
    pub dx: SharedRows<'a>,
}

impl Engine {
    /// Back-propagates through the last forward pass.
    ///
    /// `d_output`: gradient of [`Engine::output`]; `weights`, `features`, `graph` as in that pass,
    /// its transposed loads or anchors up to date. Adds to `gradients`; writes `d_features`.
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
        let config = self.layout.config;
        if self.mode != Mode::Training {
            return shape("blocks kept by an engine for training", config.n_blocks, 1);
        }
        if d_output.len() != self.output.len() {
            return shape("gradient of the output", self.output.len(), d_output.len());
        }
        let n_features = self.n_tokens * config.n_features;
        if features.len() != n_features || d_features.len() != n_features {
            return shape("features and their gradient", n_features, d_features.len());
        }
        self.check_graph(graph, self.n_tokens)?;
        let (mut slots, n) = (self.resize_slots(graph), self.n_tokens);
        let pass = Pass {
            weights,
            layout: &self.layout,
            graph,
            projections: &self.projections,
            n_tokens: self.n_tokens,
            mixers: &self.mixers,
            mlp: &self.mlp,
            head: SavedNorm {
                normalized: &self.head_normalized,
                inverse_deviation: &self.head_inverse_deviation,
            },
            features,
            d_output,
            d_features: SharedRows::new(d_features, config.n_features),
            dx: SharedRows::new(&mut self.backward.dx, config.width),
        };
        let views: Vec<Slot<'_>> =
            slots.iter_mut().map(|slot| Slot::new(slot, &config, n)).collect();
        for i in (0..=self.layout.mixers.len()).rev() {
            pass.phase(i, &views, gradients);
        }
        drop(views);
        self.backward.slots = slots;
        Ok(())
    }

    /// Sizes the buffers, and takes those of the mixers.
    fn resize_slots(&mut self, graph: &StepGraph) -> Vec<SlotBuffers> {
        let (config, mixers) = (&self.layout.config, &self.layout.mixers);
        self.backward.dx.resize(self.n_tokens * config.width, 0.0);
        let mut slots = std::mem::take(&mut self.backward.slots);
        // As in inference: a block's buffers serve all blocks, but two at least.
        slots.resize_with((mixers.len() / config.n_blocks.max(1)).max(2), SlotBuffers::default);
        for (slot, mixer) in slots.iter_mut().zip(mixers) {
            slot.resize(&mixer.kind, config, graph, self.n_tokens);
        }
        slots
    }
}

impl Pass<'_> {
    /// From the gradients that mixer `i`'s queries left to dx before it, and on through the MLPs
    /// and the output of mixer `i - 1`: [`super::forward::Pass`]'s phase, backwards.
    fn phase(&self, i: usize, slots: &[Slot<'_>], gradients: &mut Gradients) {
        let mixers = &self.layout.mixers;
        let slot = |i: usize| &slots[i % slots.len()];
        let next = mixers.get(i).map(|mixer| (mixer, &self.mixers[i], slot(i)));
        let current = i.checked_sub(1).map(|i| (&mixers[i], &self.mixers[i], slot(i)));
        if let Some((mixer, _, slot)) = next {
            self.settle(mixer, slot, gradients);
        }
        let blocks = self.layout.mlps_before(i);
        self.chunks(gradients, |rows, gradient| {
            match next {
                None => self.head(rows.clone(), gradient),
                Some((mixer, saved, slot)) => {
                    self.prepare(mixer, saved, slot, rows.clone(), gradient)
                }
            }
            for block in blocks.clone().rev() {
                self.mlp(block, rows.clone(), gradient);
            }
            match current {
                None => self.embed(rows, gradient),
                Some((mixer, saved, slot)) => self.mix(mixer, saved, slot, rows, gradient),
            }
        });
    }

    /// Runs `f(rows, gradient)` on all chunks: groups in parallel, a group's chunks in order.
    fn chunks(&self, gradients: &mut Gradients, f: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let per_group = self.n_tokens.div_ceil(CHUNK).div_ceil(GRADIENT_GROUPS) * CHUNK;
        gradients.groups.par_iter_mut().enumerate().for_each(|(group, gradient)| {
            let end = ((group + 1) * per_group).min(self.n_tokens);
            for start in (group * per_group..end).step_by(CHUNK) {
                f(start..(start + CHUNK).min(end), gradient);
            }
        });
    }

    /// From dx to the gradients within a mixer, as far as a chunk's outputs tell.
    fn mix(
        &self,
        mixer: &Mixer,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        match mixer.kind {
            MixerKind::Linear { ref tensors, n_heads } => {
                self.linear_queries(tensors, n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Softmax { ref tensors, n_heads } => {
                self.softmax_queries(tensors, n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Grf { ref tensors, .. } => {
                self.grf_queries(tensors, saved, slot, rows, gradient)
            }
            MixerKind::Messages { ref tensors, to } => {
                self.message_receivers(tensors, to, saved, slot, rows, gradient)
            }
        }
    }

    /// What all rows share of a mixer's gradients, once every chunk has added its part.
    fn settle(&self, mixer: &Mixer, slot: &Slot<'_>, gradients: &mut Gradients) {
        match mixer.kind {
            MixerKind::Linear { .. } => self.sum_d_states(slot),
            MixerKind::Grf { hop_logits, .. } => self.hop_logits(hop_logits, slot, gradients),
            MixerKind::Softmax { .. } | MixerKind::Messages { .. } => {}
        }
    }

    /// From the gradients within a mixer to dx of a chunk's rows before it.
    fn prepare(
        &self,
        mixer: &Mixer,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        match mixer.kind {
            MixerKind::Linear { ref tensors, n_heads } => {
                self.linear_keys(mixer, tensors, n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Softmax { ref tensors, n_heads } => {
                self.softmax_keys(mixer, tensors, n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Grf { ref tensors, .. } => {
                self.grf_keys(mixer, tensors, saved, slot, rows, gradient)
            }
            MixerKind::Messages { ref tensors, to } => {
                self.message_senders(tensors, to, saved, slot, rows, gradient)
            }
        }
    }

    /// dx of the last block's output.
    fn head(&self, rows: Range<usize>, gradient: &mut [f32]) {
        let d = self.layout.config.width;
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows.clone()) };
        dx.fill(0.0);
        let n_scene = self.head.inverse_deviation.len();
        let scene = rows.start.min(n_scene)..rows.end.min(n_scene);
        if scene.is_empty() {
            return;
        }
        let n_outputs = self.layout.config.n_outputs;
        let dy = &self.d_output[scene.start * n_outputs..scene.end * n_outputs];
        let saved = self.head.rows(&scene, d);
        let (norm, head) = (self.layout.head_norm, self.layout.head);
        self.normalized_linear(norm, head, saved, dy, &mut dx[..scene.len() * d], gradient);
    }

    fn embed(&self, rows: Range<usize>, gradient: &mut [f32]) {
        let (embed, n) = (self.layout.embed, self.layout.config.n_features);
        // SAFETY: each task has rows of its own.
        let (dx, d_features) =
            unsafe { (self.dx.rows(rows.clone()), self.d_features.rows_mut(rows.clone())) };
        let (dw, db) = embed.weight.pair_mut(embed.bias, gradient);
        linear_backward_weights(&self.features[rows.start * n..rows.end * n], dx, dw, db);
        linear_backward_input(dx, embed.weight.of(self.weights), db.len(), d_features);
    }

    fn mlp(&self, block: usize, rows: Range<usize>, gradient: &mut [f32]) {
        let (d, wide) = (self.layout.config.width, self.layout.config.mlp_width());
        let mlp = &self.layout.mlps[block];
        // SAFETY: each task has rows of its own.
        let dx = unsafe { self.dx.rows_mut(rows.clone()) };
        let kept = block * self.n_tokens + rows.start..block * self.n_tokens + rows.end;
        let hidden = &self.mlp.hidden[kept.start * wide..kept.end * wide];
        let (dw, db) = mlp.down.weight.pair_mut(mlp.down.bias, gradient);
        linear_backward_weights(hidden, dx, dw, db);
        let norm = SavedNorm {
            normalized: &self.mlp.normalized,
            inverse_deviation: &self.mlp.inverse_deviation,
        };
        let mut d_hidden = SCRATCH.take();
        d_hidden.resize(rows.len() * wide, 0.0);
        linear_backward_input(dx, mlp.down.weight.of(self.weights), d, &mut d_hidden);
        vectorize(|| relu_backward(hidden, &mut d_hidden));
        self.normalized_linear(mlp.norm, mlp.up, norm.rows(&kept, d), &d_hidden, dx, gradient);
        SCRATCH.set(d_hidden);
    }
}

std::thread_local! {
    /// Gradient of the MLP's hidden rows of a chunk (beside the other scratch, which is in use).
    static SCRATCH: std::cell::Cell<Vec<f32>> = const { std::cell::Cell::new(Vec::new()) };
}
