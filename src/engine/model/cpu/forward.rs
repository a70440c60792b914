//! The fused forward pass.

use std::ops::Range;

use rayon::prelude::*;

use super::buffers::{kept_blocks, row_len};
use super::project::LayerPass;
use super::views::{MixerView, MlpView, NormView};
use super::{CHUNK, Engine, MixerBuffers};
use crate::base::scratch::with_scratch;
use crate::engine::model::interlacer::{Affine, Mixer, MixerKind, Mlp};
use crate::engine::model::{InterlacerConfig, Layout, LocalLayer};
use crate::engine::ops::layer_norm::{Saved, layer_norm_forward};
use crate::engine::ops::linear::{linear_forward, linear_forward_add, linear_relu_forward};
use crate::engine::ops::rows::SharedRows;
use crate::engine::step_graph::StepGraph;
use crate::{Error, Result};

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
    /// Blocks whose activations are kept.
    keep: Range<usize>,
    /// The residual stream at the start of block `b` at row `(b - 1) · n`; may be empty.
    starts: SharedRows<'a>,
    output: SharedRows<'a>,
    head_norm: NormView<'a>,
}

/// What both passes are given.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub weights: &'a [f32],
    pub features: &'a [f32],
    pub graph: &'a StepGraph,
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
        self.passes[self.pass].resize(&self.layout, self.mode, n_tokens, n_scene);
        let keep = kept_blocks(&self.layout, self.mode);
        let given = Given { weights, features, graph };
        let (pass, mixers) = self.forward_pass(given, keep);
        let n_mixers = pass.layout.mixers.len();
        for i in 0..=n_mixers {
            let (current, next) = neighbors(mixers, n_mixers, i);
            pass.phase(i, current, next);
        }
        Ok(())
    }

    /// Computes the activations of `block`, which has mixers, again: those of the selected forward
    /// pass, whose arguments are `given`, to the same bits.
    pub(super) fn recompute(&mut self, block: usize, given: Given<'_>) {
        let (pass, mixers) = self.forward_pass(given, block..block + 1);
        let of_block = |mixer: &&Mixer| mixer.block == block;
        let n_mixers = pass.layout.mixers.iter().filter(of_block).count();
        let first = block * n_mixers;
        for i in first..=first + n_mixers {
            let (current, next) = neighbors(mixers, pass.layout.mixers.len(), i);
            let (is_first, is_last) = (i == first, i == first + n_mixers);
            pass.phase_again(block, i, current.filter(|_| !is_first), next.filter(|_| !is_last));
        }
    }

    /// The selected pass, its buffers sized, and those of the mixers.
    fn forward_pass<'a>(
        &'a mut self,
        given: Given<'a>,
        keep: Range<usize>,
    ) -> (Pass<'a>, &'a mut [MixerBuffers]) {
        let at = self.activations_index();
        let (activations, buffers) = (&mut self.activations[at], &mut self.passes[self.pass]);
        let InterlacerConfig { width: d, n_outputs, .. } = self.layout.config;
        let n_tokens = buffers.n_tokens;
        activations.resize(&self.layout, self.mode, n_tokens);
        activations.kept = (self.pass, keep.clone());
        self.x.resize(n_tokens * d, 0.0);
        let pass = Pass {
            weights: given.weights,
            layout: &self.layout,
            graph: given.graph,
            projections: &self.projections,
            features: given.features,
            n_tokens,
            n_scene: buffers.n_scene,
            x: SharedRows::new(&mut self.x, d),
            mlp: MlpView::new(&mut activations.mlp, &self.layout.config, n_tokens),
            keep,
            starts: SharedRows::new(&mut buffers.starts, d),
            output: SharedRows::new(&mut buffers.output, n_outputs),
            head_norm: NormView::new(
                &mut buffers.head_normalized,
                &mut buffers.head_inverse_deviation,
                d,
            ),
        };
        (pass, &mut activations.mixers)
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
            LocalLayer::Registered(kind) => {
                ("nodes of the local layer", graph.data_of(kind).map_or(0, |data| data.n_nodes()))
            }
            LocalLayer::Linear | LocalLayer::None => return Ok(()),
        };
        if got == n_tokens { Ok(()) } else { Err(Error::Shape { what, expected: n_tokens, got }) }
    }
}

/// What buffers hold of mixers `i - 1` and `i`, as far as they exist.
pub(super) fn neighbors<T>(
    buffers: &mut [T],
    n_mixers: usize,
    i: usize,
) -> (Option<&mut T>, Option<&mut T>) {
    let n_slots = buffers.len().max(1);
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

/// A mixer and its buffers.
type Mixing<'a> = (&'a Mixer, MixerView<'a>);

impl Pass<'_> {
    /// From the outputs of mixer `i - 1` to all that mixer `i` needs of every row.
    fn phase(&self, i: usize, current: Option<&mut MixerBuffers>, next: Option<&mut MixerBuffers>) {
        let (current, next) = self.views(i, current, next);
        let blocks = self.layout.mlps_before(i);
        // At the end only what the head reads is of use, unless a backward pass goes over all of it.
        let is_kept = blocks.clone().any(|block| self.keeps(block));
        let n = if next.is_some() || is_kept { self.n_tokens } else { self.n_scene };
        self.chunks(n, |rows, x| {
            match &current {
                None => self.embed(&rows, x),
                Some((mixer, view)) => self.mix(mixer, view, rows.clone(), x),
            }
            for block in blocks.clone() {
                self.mlp(block, rows.clone(), x);
            }
            match &next {
                None => self.head(rows, x),
                Some((mixer, view)) => {
                    if !blocks.is_empty() {
                        self.keep_start(mixer.block, &rows, x);
                    }
                    self.prepare(mixer, view, rows, x)
                }
            }
        });
    }

    /// As [`Pass::phase`], of one block alone: from its start to what its MLP's backward pass needs.
    fn phase_again(
        &self,
        block: usize,
        i: usize,
        current: Option<&mut MixerBuffers>,
        next: Option<&mut MixerBuffers>,
    ) {
        let (current, next) = self.views(i, current, next);
        self.chunks(self.n_tokens, |rows, x| {
            match &current {
                None if block == 0 => self.embed(&rows, x),
                None => x.copy_from_slice(self.start(block, &rows)),
                Some((mixer, view)) => self.mix(mixer, view, rows.clone(), x),
            }
            match &next {
                None => with_scratch(x.len(), |u| {
                    self.normalize_mlp(block, &self.layout.mlps[block], &rows, x, u);
                }),
                Some((mixer, view)) => self.prepare(mixer, view, rows, x),
            }
        });
    }

    /// Runs `f(rows, x of these rows)` on the chunks of the first `n` rows; the last one whole, so that
    /// its products are the same.
    fn chunks(&self, n: usize, f: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        (0..n.div_ceil(CHUNK)).into_par_iter().for_each(|c| {
            let rows = c * CHUNK..((c + 1) * CHUNK).min(self.n_tokens);
            // SAFETY: each task has rows of its own.
            let x = unsafe { self.x.rows_mut(rows.clone()) };
            f(rows, x);
        });
    }

    /// Mixers `i - 1` (what all rows share of it settled) and `i`, as far as there are buffers.
    fn views<'b>(
        &'b self,
        i: usize,
        current: Option<&'b mut MixerBuffers>,
        next: Option<&'b mut MixerBuffers>,
    ) -> (Option<Mixing<'b>>, Option<Mixing<'b>>) {
        let (n, config, mixers) = (self.n_tokens, &self.layout.config, &self.layout.mixers);
        let view = |mixer: &'b Mixer, buffers: &'b mut MixerBuffers| {
            let keep = self.keeps(mixer.block);
            let row_len = row_len(&mixer.kind, config, keep);
            (mixer, MixerView::new(buffers, (config.width, row_len), n, keep))
        };
        let current = current.map(|buffers| {
            let mixer = &mixers[i - 1];
            self.settle(mixer, buffers);
            view(mixer, buffers)
        });
        (current, next.map(|buffers| view(&mixers[i], buffers)))
    }

    fn keeps(&self, block: usize) -> bool {
        self.keep.contains(&block)
    }

    /// Rows of the residual stream at the start of `block`, which is not the first.
    fn start(&self, block: usize, rows: &Range<usize>) -> &[f32] {
        let first = (block - 1) * self.n_tokens;
        // SAFETY: nobody writes starts of blocks that are computed again.
        unsafe { self.starts.rows(first + rows.start..first + rows.end) }
    }

    fn keep_start(&self, block: usize, rows: &Range<usize>, x: &[f32]) {
        if self.starts.is_empty() {
            return;
        }
        let first = (block - 1) * self.n_tokens;
        // SAFETY: each task has rows of its own.
        let start = unsafe { self.starts.rows_mut(first + rows.start..first + rows.end) };
        start.copy_from_slice(x);
    }

    /// What a layer is given of this pass.
    pub(super) fn of(&self, mixer: &Mixer) -> LayerPass<'_> {
        LayerPass::new(mixer, self.weights, self.layout, self.graph, self.projections)
    }

    /// What all rows share of a mixer, once every row is prepared; all of one that is registered.
    fn settle(&self, mixer: &Mixer, buffers: &mut MixerBuffers) {
        match &mixer.kind {
            MixerKind::Linear { tensors, n_heads } => self.settle_state(tensors, *n_heads, buffers),
            MixerKind::Grf { hop_logits, .. } => self.settle_hop_weights(*hop_logits, buffers),
            MixerKind::Registered(layer) => {
                // SAFETY: no task is running.
                layer.forward(&self.of(mixer), buffers, unsafe { self.x.all_mut() });
            }
        }
    }

    /// x += the mixer's output, at a chunk's rows.
    fn mix(&self, mixer: &Mixer, view: &MixerView<'_>, rows: Range<usize>, x: &mut [f32]) {
        match &mixer.kind {
            MixerKind::Linear { tensors, n_heads } => {
                self.linear_attention(tensors, *n_heads, view, rows, x)
            }
            MixerKind::Grf { tensors, .. } => self.grf_attention(mixer, tensors, view, rows, x),
            MixerKind::Registered(_) => {}
        }
    }

    /// All that the mixer needs of a chunk's rows.
    fn prepare(&self, mixer: &Mixer, view: &MixerView<'_>, rows: Range<usize>, x: &[f32]) {
        match &mixer.kind {
            MixerKind::Linear { tensors, n_heads } => {
                self.prepare_linear(mixer, (tensors, *n_heads), view, rows, x)
            }
            MixerKind::Grf { tensors, .. } => {
                self.of(mixer).project_qkv(tensors, view, rows, x);
            }
            MixerKind::Registered(_) => {}
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
        with_scratch(n * (d + wide), |scratch| {
            let (u, hidden) = scratch.split_at_mut(n * d);
            self.normalize_mlp(block, mlp, &rows, x, u);
            // SAFETY: each task has rows of its own.
            let hidden = unsafe { self.mlp.hidden(block, &rows) }.unwrap_or(hidden);
            let (w, b) = (mlp.up.weight.of(weights), mlp.up.bias.of(weights));
            linear_relu_forward(u, w, b, wide, hidden);
            linear_forward_add(hidden, mlp.down.weight.of(weights), mlp.down.bias.of(weights), x);
        });
    }

    /// u = LayerNorm(x) before the MLP of `block`, kept if its activations are.
    fn normalize_mlp(
        &self,
        block: usize,
        mlp: &Mlp,
        rows: &Range<usize>,
        x: &[f32],
        u: &mut [f32],
    ) {
        // SAFETY: each task has rows of its own.
        let saved = self.keeps(block).then(|| unsafe { self.mlp.saved(block, rows) });
        normalize(self.weights, mlp.norm, x, u, saved.flatten());
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
