//! The Interlacer on the CPU: rows in chunks over threads, one synchronisation a mixer.
//!
//! The engine runs the flat sequence of the token-mixing layers (mixers). Between two
//! synchronisations a chunk of rows runs through as many operations as its data allows, so that it
//! stays in cache: output of mixer i → projection → residual → the MLP where the block ends →
//! LayerNorm → q, k, v of mixer i + 1 → this chunk's part of its state, if it has one. The
//! embedding stands in the place of the first output, the head in that of the last preparation.
//! The backward pass mirrors it. Chunks and the order of all sums are fixed, so results do not
//! depend on the number of threads.

mod backward;
mod forward;
mod gradients;
mod grf;
mod linear;
mod messages;
mod project;
mod softmax;
mod views;

use crate::graph::StepGraph;
use crate::model::interlacer::{Mixer, MixerKind};
use crate::model::{FeatureMap, InterlacerConfig, Layout};
pub use gradients::Gradients;

/// Rows that a task takes at a time: their activations stay in the second-level cache.
const CHUNK: usize = 256;

/// What a forward pass keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: one block's buffers serve all blocks.
    Inference,
    /// All that the backward pass needs.
    Training,
}

/// Buffers of one mixer, a row a token; those that its kind has no use for stay empty.
#[derive(Debug, Default, Clone)]
struct MixerBuffers {
    normalized: Vec<f32>,
    inverse_deviation: Vec<f32>,
    /// `[q | k | v]`, feature map applied; q alone in inference of linear attention, whose keys and
    /// values are in its state.
    qkv: Vec<f32>,
    /// `[q | k]` before it, where its gradient needs them.
    unmapped: Vec<f32>,
    /// What senders and receivers bring into their messages, a row for each of either.
    senders: Vec<f32>,
    receivers: Vec<f32>,
    /// Outputs; of linear attention in inference none, as they are folded into the projection.
    out: Vec<f32>,
    /// Of linear and GRF attention; the log-sum-exp of the scores of softmax attention.
    denominators: Vec<f32>,
    /// A chunk's part of the state, a row a chunk.
    partial_states: Vec<f32>,
    /// Of linear attention: the state times the weights behind it.
    folded: Vec<f32>,
    /// What all rows share: the summed state of linear attention, the hop weights of the GRFs.
    state: Vec<f32>,
}

/// What the MLPs keep for the backward pass, one block behind the other; empty in inference.
#[derive(Debug, Default, Clone)]
struct MlpBuffers {
    normalized: Vec<f32>,
    inverse_deviation: Vec<f32>,
    hidden: Vec<f32>,
}

/// Forward and backward passes of one model over one set of tokens, with their buffers.
///
/// One engine holds the activations of one forward pass; a roll-out that is differentiated takes
/// one engine for each step.
#[derive(Debug)]
pub struct Engine {
    mode: Mode,
    layout: Layout,
    n_tokens: usize,
    n_scene: usize,
    x: Vec<f32>,
    /// Of mixer `i` at `i`, modulo their number.
    mixers: Vec<MixerBuffers>,
    mlp: MlpBuffers,
    /// Projections of each mixer's random features; empty without.
    projections: Vec<Vec<f32>>,
    head_normalized: Vec<f32>,
    head_inverse_deviation: Vec<f32>,
    output: Vec<f32>,
    backward: backward::Buffers,
}

impl Engine {
    /// An engine for models of `config` (which must be valid).
    pub fn new(config: InterlacerConfig, mode: Mode) -> Self {
        let layout = Layout::new(config);
        // In inference a block's buffers serve all blocks. Two at least: a mixer's rows are read
        // by all while the next one's are written.
        let per_block = (layout.mixers.len() / config.n_blocks.max(1)).max(2);
        let n_slots = if mode == Mode::Training { layout.mixers.len() } else { per_block };
        Self {
            mode,
            projections: projections(&layout),
            layout,
            n_tokens: 0,
            n_scene: 0,
            x: Vec::new(),
            mixers: vec![MixerBuffers::default(); n_slots],
            mlp: MlpBuffers::default(),
            head_normalized: Vec::new(),
            head_inverse_deviation: Vec::new(),
            output: Vec::new(),
            backward: backward::Buffers::default(),
        }
    }

    /// The model's tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Outputs of the last forward pass, `[n_scene, n_outputs]`.
    pub fn output(&self) -> &[f32] {
        &self.output
    }

    /// Sizes all buffers for `n_tokens` tokens; allocates only when they grow.
    fn resize(&mut self, n_tokens: usize, n_scene: usize, graph: &StepGraph) {
        let config = self.layout.config;
        let d = config.width;
        self.n_tokens = n_tokens;
        self.n_scene = n_scene;
        self.x.resize(n_tokens * d, 0.0);
        self.output.resize(n_scene * config.n_outputs, 0.0);
        let keep = if self.mode == Mode::Training { 1 } else { 0 };
        self.head_normalized.resize(keep * n_scene * d, 0.0);
        self.head_inverse_deviation.resize(keep * n_scene, 0.0);
        for (i, mixer) in self.layout.mixers.iter().enumerate().take(self.mixers.len()) {
            self.mixers[i].resize(&mixer.kind, &config, graph, n_tokens, keep);
        }
        let n_kept = keep * config.n_blocks * n_tokens;
        self.mlp.normalized.resize(n_kept * d, 0.0);
        self.mlp.inverse_deviation.resize(n_kept, 0.0);
        self.mlp.hidden.resize(n_kept * config.mlp_width(), 0.0);
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
            MixerKind::Grf { .. } => {
                self.denominators.resize(n, 0.0);
                self.state.resize(config.n_hops + 1, 0.0);
            }
            MixerKind::Messages { to, .. } => {
                let (n_senders, n_receivers) = messages::counts(to, graph);
                self.senders.resize(n_senders * d, 0.0);
                self.receivers.resize(n_receivers * d, 0.0);
                n_out = n_receivers;
            }
        }
        self.out.resize(n_out * d, 0.0);
        self.qkv.resize(n * row_len(kind, config, keep), 0.0);
        let keeps_input = kind.mapped_heads().is_some() && config.layers.feature_map.keeps_input();
        self.unmapped.resize(if keeps_input { keep * n * 2 * d } else { 0 }, 0.0);
    }
}

/// Numbers in a row of a mixer's `qkv`; 0 of one that has none.
fn row_len(kind: &MixerKind, config: &InterlacerConfig, keep: usize) -> usize {
    match (kind, kind.mapped_heads()) {
        (MixerKind::Messages { .. }, _) => 0,
        // Keys and values are in the state, and only queries are read again.
        (MixerKind::Linear { n_heads, .. }, _) if keep == 0 => config.heads(*n_heads).features(),
        (_, Some(n_heads)) => config.heads(n_heads).row_len(),
        (_, None) => 3 * config.width,
    }
}

/// Projections of each mixer's random features: drawn by counter from the configuration's seed,
/// others for each mixer.
fn projections(layout: &Layout) -> Vec<Vec<f32>> {
    let FeatureMap::Favor { seed, .. } = layout.config.layers.feature_map else {
        return vec![Vec::new(); layout.mixers.len()];
    };
    let of = |mixer: &Mixer| {
        let heads = mixer.kind.mapped_heads().map(|n_heads| layout.config.heads(n_heads));
        heads.map_or(Vec::new(), |heads| heads.favor().projections(seed, mixer.index as u64))
    };
    layout.mixers.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
