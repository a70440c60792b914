//! What the forward pass writes, and what of it is kept for the backward pass.

use std::any::Any;
use std::ops::Range;

use super::{CHUNK, Mode};
use crate::engine::model::Layout;
use crate::engine::model::interlacer::{InterlacerConfig, MixerKind};

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
#[derive(Debug, Default)]
pub struct MixerBuffers {
    /// Rows `[n, d]` that its LayerNorm normalised, before weight and bias; empty in inference.
    pub normalized: Vec<f32>,
    /// 1 over their standard deviations, `[n]`; likewise.
    pub inverse_deviation: Vec<f32>,
    /// `[q | k | v]`, feature map applied; q alone in inference of linear attention, whose keys and
    /// values are in its state.
    pub qkv: Vec<f32>,
    /// `[q | k]` before it, where its gradient needs them.
    pub(super) unmapped: Vec<f32>,
    /// Outputs; of linear attention in inference none, as they are folded into the projection.
    pub out: Vec<f32>,
    /// Of each output and head; the log-sum-exp of the scores of softmax attention.
    pub denominators: Vec<f32>,
    /// A chunk's part of the state, a row a chunk.
    pub(super) partial_states: Vec<f32>,
    /// Of linear attention: the state times the weights behind it.
    pub(super) folded: Vec<f32>,
    /// What all rows share: the summed state of linear attention, the hop weights of the GRFs.
    pub(super) state: Vec<f32>,
    /// What a registered layer keeps besides.
    own: Option<Box<dyn Any + Send + Sync>>,
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
            mixers: std::iter::repeat_with(MixerBuffers::default).take(n_slots).collect(),
            mlp: MlpBuffers { n_slots: n_mlps, ..MlpBuffers::default() },
            kept: (0, 0..0),
        }
    }

    /// Sizes all buffers for `n_tokens` tokens; allocates only when they grow.
    pub fn resize(&mut self, layout: &Layout, mode: Mode, n_tokens: usize) {
        let config = &layout.config;
        let keep = usize::from(mode != Mode::Inference);
        for (buffers, mixer) in self.mixers.iter_mut().zip(&layout.mixers) {
            buffers.resize(&mixer.kind, config, n_tokens, keep);
        }
        let n_kept = keep * self.mlp.n_slots * n_tokens;
        self.mlp.normalized.resize(n_kept * config.width, 0.0);
        self.mlp.inverse_deviation.resize(n_kept, 0.0);
        let hidden = if mode == Mode::Training { n_kept * config.mlp_width() } else { 0 };
        self.mlp.hidden.resize(hidden, 0.0);
    }
}

impl MixerBuffers {
    fn resize(&mut self, kind: &MixerKind, config: &InterlacerConfig, n: usize, keep: usize) {
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
            MixerKind::Grf { .. } => {
                self.denominators.resize(n, 0.0);
                self.state.resize(config.n_hops + 1, 0.0);
            }
            // It sizes the rest itself.
            MixerKind::Registered(_) => return,
        }
        self.out.resize(n_out * d, 0.0);
        self.qkv.resize(n * row_len(kind, config, keep > 0), 0.0);
        let keeps_input = config.layers.feature_map.keeps_input();
        self.unmapped.resize(if keeps_input { keep * n * 2 * d } else { 0 }, 0.0);
    }

    /// Takes what the registered layer itself keeps, a new one at first; [`Self::keep_own`] puts it back.
    pub fn take_own<T: Any + Default + Send + Sync>(&mut self) -> Box<T> {
        self.own.take().and_then(|own| own.downcast().ok()).unwrap_or_default()
    }

    /// Puts back what [`Self::take_own`] took.
    pub fn keep_own<T: Any + Send + Sync>(&mut self, own: Box<T>) {
        self.own = Some(own);
    }
}

/// Numbers in a row of a mixer's `qkv`, kept to be differentiated or not; 0 of one that is registered.
pub(super) fn row_len(kind: &MixerKind, config: &InterlacerConfig, keep: bool) -> usize {
    match *kind {
        // Keys and values are in the state, and only queries are read again.
        MixerKind::Linear { n_heads, .. } if !keep => config.heads(n_heads).features(),
        MixerKind::Linear { n_heads, .. } => config.heads(n_heads).row_len(),
        MixerKind::Grf { .. } => config.heads(1).row_len(),
        MixerKind::Registered(_) => 0,
    }
}
