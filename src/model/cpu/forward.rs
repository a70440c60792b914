//! The fused forward pass.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::views::{MixerView, MlpView, NormView};
use super::{CHUNK, Engine, MixerBuffers, Mode};
use crate::graph::StepGraph;
use crate::model::interlacer::{Affine, Mixer, MixerKind};
use crate::model::{Layout, LocalLayer};
use crate::ops::layer_norm::{Saved, layer_norm_forward};
use crate::ops::linear::{linear_forward, linear_forward_add, linear_relu_forward};
use crate::ops::rows::SharedRows;
use crate::{Error, Result};

thread_local! {
    /// A chunk's intermediate rows: normalised and hidden ones, queries, scores.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with a thread's scratch of `len` numbers.
pub(super) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        f(&mut scratch[..len])
    })
}

/// What all phases read and write.
pub(super) struct Pass<'a> {
    pub weights: &'a [f32],
    pub layout: &'a Layout,
    pub graph: &'a StepGraph,
    pub projections: &'a [Vec<f32>],
    features: &'a [f32],
    n_tokens: usize,
    n_scene: usize,
    x: SharedRows<'a>,
    mlp: MlpView<'a>,
    pub keep: bool,
    output: SharedRows<'a>,
    head_norm: NormView<'a>,
}

impl Engine {
    /// Runs the model. `features` `[n_tokens, n_features]`, `graph` of the same tokens; outputs at
    /// the first `n_scene` tokens: see [`Engine::output`].
    ///
    /// # Errors
    /// [`Error::Shape`] if the arguments do not belong together or to the model.
    pub fn forward(
        &mut self,
        weights: &[f32],
        features: &[f32],
        graph: &StepGraph,
        n_scene: usize,
    ) -> Result<()> {
        let config = self.layout.config;
        let n_tokens = features.len() / config.n_features;
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        if weights.len() != self.layout.n_params() {
            return shape("weights", self.layout.n_params(), weights.len());
        }
        if features.len() != n_tokens * config.n_features {
            return shape("features", n_tokens * config.n_features, features.len());
        }
        self.check_graph(graph, n_tokens)?;
        if n_scene > n_tokens {
            return shape("scene tokens", n_tokens, n_scene);
        }
        self.resize(n_tokens, n_scene, graph);
        let d = config.width;
        let pass = Pass {
            weights,
            layout: &self.layout,
            graph,
            projections: &self.projections,
            features,
            n_tokens,
            n_scene,
            x: SharedRows::new(&mut self.x, d),
            mlp: MlpView::new(&mut self.mlp, d, config.mlp_width()),
            keep: self.mode == Mode::Training,
            output: SharedRows::new(&mut self.output, config.n_outputs),
            head_norm: NormView::new(
                &mut self.head_normalized,
                &mut self.head_inverse_deviation,
                d,
            ),
        };
        for i in 0..=self.layout.mixers.len() {
            let (current, next) = neighbors(&mut self.mixers, &self.layout, i);
            pass.phase(i, current, next);
        }
        Ok(())
    }
}

impl Engine {
    /// Holds what the layers read of `graph` to the number of tokens.
    pub(super) fn check_graph(&self, graph: &StepGraph, n_tokens: usize) -> Result<()> {
        let config = &self.layout.config;
        let (what, got) = match config.layers.local {
            LocalLayer::Grf if graph.loads.n_hops() != config.n_hops => {
                ("rows of the loads (of other hops)", 0)
            }
            LocalLayer::Grf => ("rows of the loads", graph.loads.len()),
            LocalLayer::MessagePassing => (
                "nodes of neighbours and anchors",
                if graph.knn.len() == n_tokens { graph.anchors.len() } else { graph.knn.len() },
            ),
            LocalLayer::Linear | LocalLayer::None => return Ok(()),
        };
        if got == n_tokens { Ok(()) } else { Err(Error::Shape { what, expected: n_tokens, got }) }
    }
}

/// The buffers of mixers `i - 1` and `i`, as far as they exist.
fn neighbors<'a>(
    buffers: &'a mut [MixerBuffers],
    layout: &Layout,
    i: usize,
) -> (Option<&'a mut MixerBuffers>, Option<&'a mut MixerBuffers>) {
    let (n_slots, n_mixers) = (buffers.len().max(1), layout.mixers.len());
    let (current, next) = ((i + n_slots - 1) % n_slots, i % n_slots);
    match (i > 0, i < n_mixers) {
        (false, false) => (None, None),
        (false, true) => (None, buffers.get_mut(next)),
        (true, false) => (buffers.get_mut(current), None),
        (true, true) if next == 0 => {
            let (first, rest) = buffers.split_at_mut(current);
            (rest.first_mut(), first.first_mut())
        }
        (true, true) => {
            let (first, rest) = buffers.split_at_mut(next);
            (first.last_mut(), rest.first_mut())
        }
    }
}

impl Pass<'_> {
    /// From the outputs of mixer `i - 1` to all that mixer `i` needs of every row.
    fn phase(&self, i: usize, current: Option<&mut MixerBuffers>, next: Option<&mut MixerBuffers>) {
        let (n, d) = (self.n_tokens, self.layout.config.width);
        let mixers = &self.layout.mixers;
        let current = current.map(|buffers| {
            let mixer = &mixers[i - 1];
            self.settle(mixer, buffers);
            (mixer, MixerView::new(buffers, n, d))
        });
        let next = next.map(|buffers| (&mixers[i], MixerView::new(buffers, n, d)));
        let blocks = self.layout.mlps_before(i);
        (0..n.div_ceil(CHUNK)).into_par_iter().for_each(|c| {
            let rows = c * CHUNK..((c + 1) * CHUNK).min(n);
            // SAFETY: each task has rows of its own.
            let x = unsafe { self.x.rows_mut(rows.clone()) };
            match &current {
                None => self.embed(&rows, x),
                Some((mixer, view)) => self.mix(mixer, view, rows.clone(), x),
            }
            for block in blocks.clone() {
                self.mlp(block, rows.clone(), x);
            }
            match &next {
                None => self.head(rows, x),
                Some((mixer, view)) => self.prepare(mixer, view, rows, x),
            }
        });
    }

    /// What all rows share of a mixer, once every row is prepared.
    fn settle(&self, mixer: &Mixer, buffers: &mut MixerBuffers) {
        match mixer.kind {
            MixerKind::Linear { ref tensors, n_heads } => {
                self.settle_state(tensors, n_heads, buffers)
            }
            MixerKind::Grf { hop_logits, .. } => {
                super::grf::hop_weights(hop_logits.of(self.weights), &mut buffers.state);
            }
            MixerKind::Softmax { .. } | MixerKind::Messages { .. } => {}
        }
    }

    /// x += the mixer's output, at a chunk's rows.
    fn mix(&self, mixer: &Mixer, view: &MixerView<'_>, rows: Range<usize>, x: &mut [f32]) {
        match mixer.kind {
            MixerKind::Linear { ref tensors, n_heads } => {
                self.linear_attention(tensors, n_heads, view, rows, x)
            }
            MixerKind::Softmax { ref tensors, n_heads } => {
                self.softmax_attention(tensors, n_heads, view, rows, x)
            }
            MixerKind::Grf { ref tensors, .. } => self.grf_attention(tensors, view, rows, x),
            MixerKind::Messages { ref tensors, to } => {
                self.hear_messages(tensors, to, view, rows, x)
            }
        }
    }

    /// All that the mixer needs of a chunk's rows.
    fn prepare(&self, mixer: &Mixer, view: &MixerView<'_>, rows: Range<usize>, x: &[f32]) {
        match mixer.kind {
            MixerKind::Linear { ref tensors, n_heads } => {
                self.prepare_linear(mixer, (tensors, n_heads), view, rows, x)
            }
            MixerKind::Grf { ref tensors, .. } | MixerKind::Softmax { ref tensors, .. } => {
                self.project_qkv(mixer, tensors, view, rows, x);
            }
            MixerKind::Messages { ref tensors, to } => {
                self.prepare_messages(tensors, to, view, rows, x)
            }
        }
    }

    fn embed(&self, rows: &Range<usize>, x: &mut [f32]) {
        let (embed, n) = (self.layout.embed, self.layout.config.n_features);
        let features = &self.features[rows.start * n..rows.end * n];
        linear_forward(features, embed.weight.of(self.weights), embed.bias.of(self.weights), x);
    }

    /// x += down(ReLU(up(LayerNorm(x)))).
    fn mlp(&self, block: usize, rows: Range<usize>, x: &mut [f32]) {
        let (weights, mlp) = (self.weights, &self.layout.mlps[block]);
        let (n, d, wide) = (rows.len(), self.layout.config.width, self.layout.config.mlp_width());
        let kept = block * self.n_tokens + rows.start..block * self.n_tokens + rows.end;
        // SAFETY: each task has rows of its own.
        let saved = unsafe { self.mlp.norm.saved(&kept) };
        with_scratch(n * (d + wide), |scratch| {
            let (u, hidden) = scratch.split_at_mut(n * d);
            // SAFETY: as above.
            let hidden = if self.keep { unsafe { self.mlp.hidden.rows_mut(kept) } } else { hidden };
            normalize(weights, mlp.norm, x, u, saved);
            let (w, b) = (mlp.up.weight.of(weights), mlp.up.bias.of(weights));
            linear_relu_forward(u, w, b, wide, hidden);
            linear_forward_add(hidden, mlp.down.weight.of(weights), mlp.down.bias.of(weights), x);
        });
    }

    /// The outputs at the chunk's scene tokens.
    fn head(&self, rows: Range<usize>, x: &[f32]) {
        let scene = rows.start.min(self.n_scene)..rows.end.min(self.n_scene);
        if scene.is_empty() {
            return;
        }
        let d = self.layout.config.width;
        // SAFETY: each task has rows of its own.
        let (y, saved) =
            unsafe { (self.output.rows_mut(scene.clone()), self.head_norm.saved(&scene)) };
        with_scratch(scene.len() * d, |u| {
            normalize(self.weights, self.layout.head_norm, &x[..scene.len() * d], u, saved);
            let head = self.layout.head;
            linear_forward(u, head.weight.of(self.weights), head.bias.of(self.weights), y);
        });
    }
}

/// LayerNorm of a chunk.
pub(super) fn normalize(
    weights: &[f32],
    norm: Affine,
    x: &[f32],
    u: &mut [f32],
    saved: Option<Saved<'_>>,
) {
    let (w, b) = (norm.weight.of(weights), norm.bias.of(weights));
    layer_norm_forward(x, w, b, u, saved);
}
