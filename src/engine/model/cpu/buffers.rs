//! What the forward pass writes, and what of it is kept for the backward pass.

use std::ops::Range;

use super::{CHUNK, Mode};
use crate::engine::masks::StepGraph;
use crate::engine::model::Layout;
use crate::engine::model::interlacer::{InterlacerConfig, MixerKind, Receivers};

/// What a forward pass leaves besides activations.
#[derive(Debug, Default)]
pub(super) struct PassBuffers {
    pub n_tokens: usize,
    pub n_scene: usize,
    pub output: Vec<f32>,
    /// The residual stream at the start of each block but the first (there it is the embedding),
    /// one block behind the other; where activations are computed again, else empty.
    pub starts: Vec<f32>,
    pub head_normalized: Vec<f32>,
    pub head_inverse_deviation: Vec<f32>,
}

impl PassBuffers {
    pub fn resize(&mut self, layout: &Layout, mode: Mode, n_tokens: usize, n_scene: usize) {
        let config = &layout.config;
        let d = config.width;
        (self.n_tokens, self.n_scene) = (n_tokens, n_scene);
        self.output.resize(n_scene * config.n_outputs, 0.0);
        let keep = usize::from(mode != Mode::Inference);
        self.head_normalized.resize(keep * n_scene * d, 0.0);
        self.head_inverse_deviation.resize(keep * n_scene, 0.0);
        self.starts.resize(n_starts(layout, mode) * n_tokens * d, 0.0);
    }
}

/// Blocks whose activations a forward pass leaves whole: what its backward pass begins with.
pub(super) fn kept_blocks(layout: &Layout, mode: Mode) -> Range<usize> {
    let n_blocks = layout.config.n_blocks;
    match mode {
        Mode::Inference => 0..0,
        Mode::TrainingRecompute if !layout.mixers.is_empty() => n_blocks - 1..n_blocks,
        Mode::Training | Mode::TrainingRecompute => 0..n_blocks,
    }
}

/// Starts of blocks that a pass keeps. Without mixers, all that the backward pass needs is the
/// MLPs' normalised rows: they are kept instead.
fn n_starts(layout: &Layout, mode: Mode) -> usize {
    if mode == Mode::TrainingRecompute { kept_blocks(layout, mode).start } else { 0 }
}

/// Activations of all blocks, or of one at a time.
#[derive(Debug)]
pub(super) struct Activations {
    /// Of mixer `i` at `i`, modulo their number.
    pub mixers: Vec<MixerBuffers>,
    pub mlp: MlpBuffers,
    /// The blocks whose activations are here whole, of which pass.
    pub kept: (usize, Range<usize>),
}

/// What the MLPs keep for the backward pass, one behind the other: of block `b` at `b`, modulo
/// [`MlpBuffers::n_slots`]. Empty in inference.
#[derive(Debug, Default)]
pub(super) struct MlpBuffers {
    pub n_slots: usize,
    pub normalized: Vec<f32>,
    pub inverse_deviation: Vec<f32>,
    /// Empty where the backward pass computes it again.
    pub hidden: Vec<f32>,
}

/// Where the MLP of `block` keeps what is of the tokens `rows`, among the rows of its buffers.
pub(super) fn mlp_rows(
    n_slots: usize,
    n_tokens: usize,
    block: usize,
    rows: &Range<usize>,
) -> Range<usize> {
    let first = block % n_slots * n_tokens;
    first + rows.start..first + rows.end
}

/// Buffers of one mixer, a row a token; those that its kind has no use for stay empty.
#[derive(Debug, Default, Clone)]
pub(super) struct MixerBuffers {
    pub normalized: Vec<f32>,
    pub inverse_deviation: Vec<f32>,
    /// `[q | k | v]`, feature map applied; q alone in inference of linear attention, whose keys and
    /// values are in its state.
    pub qkv: Vec<f32>,
    /// `[q | k]` before it, where its gradient needs them.
    pub unmapped: Vec<f32>,
    /// What senders and receivers bring into their messages, a row for each of either.
    pub senders: Vec<f32>,
    pub receivers: Vec<f32>,
    /// Outputs; of linear attention in inference none, as they are folded into the projection.
    pub out: Vec<f32>,
    /// Of linear and GRF attention; the log-sum-exp of the scores of softmax attention.
    pub denominators: Vec<f32>,
    /// Keys that the k-MIP attention chose, `[n, n_heads, k]`.
    pub chosen: Vec<u32>,
    /// A chunk's part of the state, a row a chunk.
    pub partial_states: Vec<f32>,
    /// Of linear attention: the state times the weights behind it.
    pub folded: Vec<f32>,
    /// What all rows share: the summed state of linear attention, the hop weights of the GRFs.
    pub state: Vec<f32>,
}

/// Buffers of mixers that serve all blocks. Two at least: a mixer's rows are read by all while the
/// next one's are written.
pub(super) fn n_shared_slots(layout: &Layout) -> usize {
    (layout.mixers.len() / layout.config.n_blocks.max(1)).max(2)
}

impl Activations {
    pub fn new(layout: &Layout, mode: Mode) -> Self {
        let (n_mixers, n_blocks) = (layout.mixers.len(), layout.config.n_blocks);
        let all = mode == Mode::Training;
        let n_slots = if all { n_mixers } else { n_shared_slots(layout) };
        let n_mlps = if all || n_mixers == 0 { n_blocks } else { 1 };
        Self {
            mixers: vec![MixerBuffers::default(); n_slots],
            mlp: MlpBuffers { n_slots: n_mlps, ..MlpBuffers::default() },
            kept: (0, 0..0),
        }
    }

    /// Sizes all buffers for `n_tokens` tokens; allocates only when they grow.
    pub fn resize(&mut self, layout: &Layout, mode: Mode, n_tokens: usize, graph: &StepGraph) {
        let config = &layout.config;
        let keep = usize::from(mode != Mode::Inference);
        for (buffers, mixer) in self.mixers.iter_mut().zip(&layout.mixers) {
            buffers.resize(&mixer.kind, config, graph, n_tokens, keep);
        }
        let n_kept = keep * self.mlp.n_slots * n_tokens;
        self.mlp.normalized.resize(n_kept * config.width, 0.0);
        self.mlp.inverse_deviation.resize(n_kept, 0.0);
        let hidden = if mode == Mode::Training { n_kept * config.mlp_width() } else { 0 };
        self.mlp.hidden.resize(hidden, 0.0);
    }
}

impl MixerBuffers {
    fn resize(
        &mut self,
        kind: &MixerKind,
        config: &InterlacerConfig,
        graph: &StepGraph,
        n: usize,
        keep: usize,
    ) {
        let d = config.width;
        self.normalized.resize(keep * n * d, 0.0);
        self.inverse_deviation.resize(keep * n, 0.0);
        let mut n_out = n;
        match *kind {
            MixerKind::Linear { n_heads, .. } => {
                let heads = config.heads(n_heads);
                let state_len = heads.state_len();
                self.partial_states.resize(n.div_ceil(CHUNK) * state_len, 0.0);
                self.state.resize(state_len, 0.0);
                self.folded.resize(heads.features() * d, 0.0);
                // Outputs are kept to be differentiated; the forward pass has them folded.
                n_out = keep * n;
                self.denominators.resize(n_out * n_heads, 0.0);
            }
            MixerKind::Softmax { n_heads, .. } => self.denominators.resize(n * n_heads, 0.0),
            MixerKind::Masked { n_heads, .. } => self.denominators.resize(n * n_heads, 0.0),
            MixerKind::KMip { n_heads, .. } => {
                self.denominators.resize(n * n_heads, 0.0);
                self.chosen.resize(n * chosen_len(kind), 0);
            }
            MixerKind::Grf { .. } => {
                self.denominators.resize(n, 0.0);
                self.state.resize(config.n_hops + 1, 0.0);
            }
            MixerKind::Messages { to, .. } => {
                let (n_senders, n_receivers) = message_counts(to, graph);
                self.senders.resize(n_senders * d, 0.0);
                self.receivers.resize(n_receivers * d, 0.0);
                n_out = n_receivers;
            }
        }
        self.out.resize(n_out * d, 0.0);
        self.qkv.resize(n * row_len(kind, config, keep > 0), 0.0);
        let keeps_input = kind.mapped_heads().is_some() && config.layers.feature_map.keeps_input();
        self.unmapped.resize(if keeps_input { keep * n * 2 * d } else { 0 }, 0.0);
    }
}

/// Numbers in a row of a mixer's `qkv`, kept to be differentiated or not; 0 of one that has none.
pub(super) fn row_len(kind: &MixerKind, config: &InterlacerConfig, keep: bool) -> usize {
    match (kind, kind.mapped_heads()) {
        (MixerKind::Messages { .. }, _) => 0,
        // Keys and values are in the state, and only queries are read again.
        (MixerKind::Linear { n_heads, .. }, _) if !keep => config.heads(*n_heads).features(),
        (_, Some(n_heads)) => config.heads(n_heads).row_len(),
        (_, None) => 3 * config.width,
    }
}

/// Keys that a row of a mixer chooses in all heads.
pub(super) fn chosen_len(kind: &MixerKind) -> usize {
    match *kind {
        MixerKind::KMip { n_heads, k, .. } => n_heads * k,
        _ => 0,
    }
}

/// Senders and receivers of a step of message passing.
pub(super) fn message_counts(to: Receivers, graph: &StepGraph) -> (usize, usize) {
    let anchors = &graph.anchors;
    match to {
        Receivers::Anchors => (anchors.len(), anchors.n_anchors()),
        Receivers::Rest => (anchors.n_anchors(), anchors.n_rest()),
    }
}
