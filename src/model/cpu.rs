//! The Interlacer on the CPU: rows in chunks over threads, two synchronisations a block.
//!
//! Between synchronisations a chunk runs through as many operations as its data allows, so that
//! it stays in cache: (1) output of the global attention → projection → residual → LayerNorm →
//! q, k, v of the local layer; (2) GRF attention → projection → residual → MLP → the next block's
//! LayerNorm → q, k, v → this chunk's part of the global state. The backward pass mirrors it.
//! Chunks and the order of all sums are fixed, so results do not depend on the number of threads.

mod backward;
mod forward;
mod gradients;

use crate::model::{InterlacerConfig, Layout};
use crate::ops::linear_attention::Heads;
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

/// Buffers of one block.
#[derive(Debug, Default, Clone)]
struct BlockBuffers {
    global: AttentionBuffers,
    local: AttentionBuffers,
    mlp_normalized: Vec<f32>,
    mlp_inverse_deviation: Vec<f32>,
    mlp_hidden: Vec<f32>,
}

/// Buffers of one attention layer, a row a token.
#[derive(Debug, Default, Clone)]
struct AttentionBuffers {
    normalized: Vec<f32>,
    inverse_deviation: Vec<f32>,
    qkv: Vec<f32>,
    out: Vec<f32>,
    denominators: Vec<f32>,
    /// Summed state of the global attention.
    state: Vec<f32>,
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
    blocks: Vec<BlockBuffers>,
    hop_weights: Vec<f32>,
    partial_states: Vec<f32>,
    head_normalized: Vec<f32>,
    head_inverse_deviation: Vec<f32>,
    output: Vec<f32>,
    backward: backward::Buffers,
}

impl Engine {
    /// An engine for models of `config` (which must be valid).
    pub fn new(config: InterlacerConfig, mode: Mode) -> Self {
        let n_blocks = if mode == Mode::Training { config.n_blocks } else { 1 };
        Self {
            mode,
            layout: Layout::new(config),
            n_tokens: 0,
            n_scene: 0,
            x: Vec::new(),
            blocks: vec![BlockBuffers::default(); n_blocks],
            hop_weights: Vec::new(),
            partial_states: Vec::new(),
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

    /// The last forward pass's outputs, for the head to work in place.
    pub fn output_mut(&mut self) -> &mut [f32] {
        &mut self.output
    }

    fn heads(&self) -> Heads {
        Heads { width: self.layout.config.width, n_heads: self.layout.config.n_heads }
    }

    fn n_chunks(&self) -> usize {
        self.n_tokens.div_ceil(CHUNK)
    }

    /// Sizes all buffers for `n_tokens` tokens; allocates only when they grow.
    fn resize(&mut self, n_tokens: usize, n_scene: usize) {
        let config = self.layout.config;
        let d = config.width;
        self.n_tokens = n_tokens;
        self.n_scene = n_scene;
        self.x.resize(n_tokens * d, 0.0);
        self.output.resize(n_scene * config.n_outputs, 0.0);
        self.hop_weights.resize(config.n_blocks * (config.n_hops + 1), 0.0);
        self.partial_states.resize(self.n_chunks() * self.heads().state_len(), 0.0);
        let keep = if self.mode == Mode::Training { 1 } else { 0 };
        self.head_normalized.resize(keep * n_scene * d, 0.0);
        self.head_inverse_deviation.resize(keep * n_scene, 0.0);
        let state_len = self.heads().state_len();
        for block in &mut self.blocks {
            block.global.resize(n_tokens, d, config.n_heads, keep);
            block.global.state.resize(state_len, 0.0);
            block.local.resize(n_tokens, d, 1, keep);
            block.mlp_normalized.resize(keep * n_tokens * d, 0.0);
            block.mlp_inverse_deviation.resize(keep * n_tokens, 0.0);
            block.mlp_hidden.resize(keep * n_tokens * config.mlp_width(), 0.0);
        }
    }
}

impl AttentionBuffers {
    fn resize(&mut self, n_tokens: usize, d: usize, n_heads: usize, keep: usize) {
        self.normalized.resize(keep * n_tokens * d, 0.0);
        self.inverse_deviation.resize(keep * n_tokens, 0.0);
        self.qkv.resize(n_tokens * 3 * d, 0.0);
        self.out.resize(n_tokens * d, 0.0);
        self.denominators.resize(n_tokens * n_heads, 0.0);
    }
}

#[cfg(test)]
mod tests;
