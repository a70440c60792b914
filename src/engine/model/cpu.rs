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
mod backward_buffers;
mod buffers;
mod forward;
mod gradients;
mod grf;
mod linear;
mod project;
mod registered;
mod views;

use crate::engine::model::interlacer::Mixer;
use crate::engine::model::{FeatureMap, InterlacerConfig, Layout};
pub use buffers::MixerBuffers;
use buffers::{Activations, PassBuffers};
pub use gradients::Gradients;
pub use project::LayerPass;
pub use registered::chunks;

/// Rows that a task takes at a time: their activations stay in the second-level cache.
const CHUNK: usize = 256;

/// What a forward pass keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: one block's buffers serve all blocks.
    Inference,
    /// All that the backward pass needs.
    Training,
    /// The residual stream at the start of each block. The backward pass computes the activations
    /// again, block by block, to the same bits: one block's buffers serve all blocks of all passes
    /// (gradient checkpointing, Chen et al. 2016).
    TrainingRecompute,
}

/// Forward and backward passes of one model, with their buffers.
///
/// An engine for training can hold what several passes left at once, as a roll-out that is
/// differentiated needs it: [`Engine::select`].
#[derive(Debug)]
pub struct Engine {
    mode: Mode,
    layout: Layout,
    /// Projections of each mixer's random features; empty without.
    projections: Vec<Vec<f32>>,
    /// The pass that is selected, and what each has left.
    pass: usize,
    passes: Vec<PassBuffers>,
    /// Of each pass in [`Mode::Training`], else one for all.
    activations: Vec<Activations>,
    /// The residual stream `[n_tokens, d]`.
    x: Vec<f32>,
    backward: backward_buffers::Buffers,
}

impl Engine {
    /// An engine for models of `config` (which must be valid).
    pub fn new(config: InterlacerConfig, mode: Mode) -> Self {
        let layout = Layout::new(config);
        let mut engine = Self {
            mode,
            projections: projections(&layout),
            layout,
            pass: 0,
            passes: Vec::new(),
            activations: Vec::new(),
            x: Vec::new(),
            backward: backward_buffers::Buffers::default(),
        };
        engine.select(0);
        engine
    }

    /// The model's tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes `pass` (0 at first; counted from there, without gaps) the one that
    /// [`Engine::forward`], [`Engine::output`] and [`Engine::backward`] are of. Passes may be
    /// differentiated in any order. An engine for inference has one pass alone.
    pub fn select(&mut self, pass: usize) {
        self.pass = if self.mode == Mode::Inference { 0 } else { pass };
        if self.passes.len() <= self.pass {
            self.passes.resize_with(self.pass + 1, PassBuffers::default);
        }
        let n_activations = if self.mode == Mode::Training { self.passes.len() } else { 1 };
        if self.activations.len() < n_activations {
            let new = || Activations::new(&self.layout, self.mode);
            self.activations.resize_with(n_activations, new);
        }
    }

    /// Outputs of the selected pass's last forward pass, `[n_scene, n_outputs]`.
    pub fn output(&self) -> &[f32] {
        &self.passes[self.pass].output
    }

    /// Place of the selected pass's activations.
    fn activations_index(&self) -> usize {
        if self.mode == Mode::Training { self.pass } else { 0 }
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
