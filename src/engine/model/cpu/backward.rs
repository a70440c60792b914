//! The fused backward pass: the forward pass mirrored, one synchronisation a mixer.

use std::ops::Range;

use super::backward_buffers::Slot;
use super::buffers::{MlpBuffers, PassBuffers, mlp_rows};
use super::forward::{Given, neighbors};
use super::gradients::Gradients;
use super::project::{LayerPass, normalized_linear};
use super::views::SavedNorm;
use super::{Engine, MixerBuffers, Mode};
use crate::base::scratch::with_scratch;
use crate::base::simd::vectorize;
use crate::engine::model::Layout;
use crate::engine::model::interlacer::{Mixer, MixerKind, Mlp};
use crate::engine::ops::layer_norm::layer_norm_output;
use crate::engine::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_relu_forward,
};
use crate::engine::ops::relu::relu_backward;
use crate::engine::ops::rows::SharedRows;
use crate::engine::step_graph::StepGraph;
use crate::{Error, Result};

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

/// What the backward pass writes for the caller.
struct Results<'a> {
    gradients: &'a mut Gradients,
    d_features: &'a mut [f32],
}

impl Engine {
    /// Back-propagates through the selected pass's last forward pass.
    ///
    /// `d_output`: gradient of [`Engine::output`]; `weights`, `features`, `graph` as in that pass,
    /// built for a backward pass. Adds to `gradients`; writes `d_features`.
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
        if self.mode == Mode::Inference {
            return shape("blocks kept by an engine for training", config.n_blocks, 1);
        }
        let PassBuffers { n_tokens, output, .. } = &self.passes[self.pass];
        let n_tokens = *n_tokens;
        if d_output.len() != output.len() {
            return shape("gradient of the output", output.len(), d_output.len());
        }
        if weights.len() != self.layout.n_params() {
            return shape("weights", self.layout.n_params(), weights.len());
        }
        let n_features = n_tokens * config.n_features;
        if features.len() != n_features || d_features.len() != n_features {
            return shape("features and their gradient", n_features, d_features.len());
        }
        self.check_graph(graph, n_tokens)?;
        self.backward.resize(&self.layout, graph, n_tokens);
        let given = Given { weights, features, graph };
        let mut results = Results { gradients, d_features };
        for i in (0..=self.layout.mixers.len()).rev() {
            let Some(block) = self.missing(i) else {
                self.backward_phase(i, Part::Whole, given, d_output, &mut results);
                continue;
            };
            self.backward_phase(i, Part::Upper, given, d_output, &mut results);
            self.recompute(block, given);
            self.backward_phase(i, Part::Lower, given, d_output, &mut results);
        }
        Ok(())
    }

    /// The block of mixer `i - 1`, unless its activations are there.
    fn missing(&self, i: usize) -> Option<usize> {
        let block = self.layout.mixers[i.checked_sub(1)?].block;
        let (pass, blocks) = &self.activations[self.activations_index()].kept;
        (*pass != self.pass || !blocks.contains(&block)).then_some(block)
    }

    fn backward_phase(
        &mut self,
        i: usize,
        part: Part,
        given: Given<'_>,
        d_output: &[f32],
        results: &mut Results<'_>,
    ) {
        let (at, config) = (self.activations_index(), self.layout.config);
        if part != Part::Lower {
            self.backward_registered(i, given, results.gradients);
        }
        let (activations, saved) = (&self.activations[at], &self.passes[self.pass]);
        let n_mixers = self.layout.mixers.len();
        let (current, next) = neighbors(&mut self.backward.slots, n_mixers, i);
        let slot = |buffers| Slot::new(buffers, &config, saved.n_tokens);
        let (current, next) = (current.map(slot), next.map(slot));
        let pass = Pass {
            weights: given.weights,
            layout: &self.layout,
            graph: given.graph,
            projections: &self.projections,
            n_tokens: saved.n_tokens,
            mixers: &activations.mixers,
            mlp: &activations.mlp,
            head: SavedNorm {
                normalized: &saved.head_normalized,
                inverse_deviation: &saved.head_inverse_deviation,
            },
            features: given.features,
            d_output,
            d_features: SharedRows::new(results.d_features, config.n_features),
            dx: SharedRows::new(&mut self.backward.dx, config.width),
        };
        pass.phase(i, part, current, next, results.gradients);
    }

    /// All of mixer `i`, if it is registered: from dx after it to dx before it.
    fn backward_registered(&mut self, i: usize, given: Given<'_>, gradients: &mut Gradients) {
        let at = self.activations_index();
        let Some(mixer) = self.layout.mixers.get(i) else { return };
        let MixerKind::Registered(layer) = &mixer.kind else { return };
        let Given { weights, graph, .. } = given;
        let pass = LayerPass::new(mixer, weights, &self.layout, graph, &self.projections);
        let mixers = &mut self.activations[at].mixers;
        let slot = i % mixers.len();
        layer.backward(&pass, &mut mixers[slot], &mut self.backward.dx, gradients);
    }
}

/// Part of a phase: activations that are computed again are of one block at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// The head, or from the gradients within mixer `i` to dx before it.
    Upper,
    /// From there on.
    Lower,
}

impl Pass<'_> {
    /// From the gradients that mixer `i`'s queries left to dx before it, and on through the MLPs
    /// and the output of mixer `i - 1`: [`super::forward::Pass`]'s phase, backwards.
    fn phase(
        &self,
        i: usize,
        part: Part,
        current: Option<Slot<'_>>,
        next: Option<Slot<'_>>,
        gradients: &mut Gradients,
    ) {
        let with =
            |i: usize, slot| (&self.layout.mixers[i], &self.mixers[i % self.mixers.len()], slot);
        let next = next.map(|slot| with(i, slot));
        let current = current.map(|slot| with(i - 1, slot));
        if let (Some((mixer, _, slot)), Part::Whole | Part::Upper) = (&next, part) {
            self.settle(mixer, slot, gradients);
        }
        let blocks = self.layout.mlps_before(i);
        gradients.chunks(self.n_tokens, |rows, gradient| {
            if part != Part::Lower {
                match &next {
                    None => self.head(rows.clone(), gradient),
                    Some((mixer, saved, slot)) => {
                        self.prepare(mixer, saved, slot, rows.clone(), gradient)
                    }
                }
            }
            if part == Part::Upper {
                return;
            }
            for block in blocks.clone().rev() {
                self.mlp(block, rows.clone(), gradient);
            }
            match &current {
                None => self.embed(rows, gradient),
                Some((mixer, saved, slot)) => self.mix(mixer, saved, slot, rows, gradient),
            }
        });
    }

    /// What a layer is given of this pass.
    pub(super) fn of(&self, mixer: &Mixer) -> LayerPass<'_> {
        LayerPass::new(mixer, self.weights, self.layout, self.graph, self.projections)
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
        match &mixer.kind {
            MixerKind::Linear { tensors, n_heads } => {
                self.linear_queries(mixer, tensors, *n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Grf { tensors, .. } => {
                self.grf_queries(mixer, tensors, saved, slot, rows, gradient)
            }
            MixerKind::Registered(_) => {}
        }
    }

    /// What all rows share of a mixer's gradients, once every chunk has added its part.
    fn settle(&self, mixer: &Mixer, slot: &Slot<'_>, gradients: &mut Gradients) {
        match &mixer.kind {
            MixerKind::Linear { .. } => self.sum_d_states(slot),
            MixerKind::Grf { hop_logits, .. } => self.hop_logits(*hop_logits, slot, gradients),
            MixerKind::Registered(_) => {}
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
        match &mixer.kind {
            MixerKind::Linear { tensors, n_heads } => {
                self.linear_keys(mixer, tensors, *n_heads, saved, slot, rows, gradient)
            }
            MixerKind::Grf { tensors, .. } => {
                self.grf_keys(mixer, tensors, saved, slot, rows, gradient)
            }
            MixerKind::Registered(_) => {}
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
        let dx = &mut dx[..scene.len() * d];
        normalized_linear(self.weights, norm, head, saved, dy, dx, gradient);
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
        let kept = mlp_rows(self.mlp.n_slots, self.n_tokens, block, &rows);
        let norm = SavedNorm {
            normalized: &self.mlp.normalized,
            inverse_deviation: &self.mlp.inverse_deviation,
        };
        let norm = norm.rows(&kept, d);
        with_scratch(2 * rows.len() * wide, |scratch| {
            let (d_hidden, again) = scratch.split_at_mut(rows.len() * wide);
            let hidden = match self.mlp.hidden.get(kept.start * wide..kept.end * wide) {
                Some(hidden) => hidden,
                None => {
                    self.hidden(mlp, norm, again);
                    again
                }
            };
            let (dw, db) = mlp.down.weight.pair_mut(mlp.down.bias, gradient);
            linear_backward_weights(hidden, dx, dw, db);
            linear_backward_input(dx, mlp.down.weight.of(self.weights), d, d_hidden);
            vectorize(|| relu_backward(hidden, d_hidden));
            normalized_linear(self.weights, mlp.norm, mlp.up, norm, d_hidden, dx, gradient);
        });
    }

    /// The MLP's hidden rows, as in the forward pass.
    fn hidden(&self, mlp: &Mlp, norm: SavedNorm<'_>, hidden: &mut [f32]) {
        with_scratch(norm.normalized.len(), |u| {
            let (w, b) = (mlp.norm.weight.of(self.weights), mlp.norm.bias.of(self.weights));
            layer_norm_output(norm.normalized, w, b, u);
            let (w, b) = (mlp.up.weight.of(self.weights), mlp.up.bias.of(self.weights));
            linear_relu_forward(u, w, b, b.len(), hidden);
        });
    }
}
