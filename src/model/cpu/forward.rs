//! The fused forward pass.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::{BlockBuffers, CHUNK, Engine, Mode};
use crate::graph::Loads;
use crate::model::Layout;
use crate::model::interlacer::{Affine, Block};
use crate::ops::grf_attention::grf_attention_forward;
use crate::ops::layer_norm::{Saved, layer_norm_forward};
use crate::ops::linear::{linear_forward, linear_forward_add};
use crate::ops::linear_attention::{Heads, linear_attention_forward, linear_attention_state};
use crate::ops::relu::relu_forward;
use crate::ops::rows::SharedRows;
use crate::ops::simd::vectorize;
use crate::{Error, Result};

thread_local! {
    /// A chunk's intermediate rows: normalised rows, then the MLP's hidden rows.
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

/// f = softplus(θ), stable for large θ.
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// One block's buffers and the residual stream, shared by the chunks.
struct View<'a> {
    x: SharedRows<'a>,
    global_qkv: SharedRows<'a>,
    global_out: SharedRows<'a>,
    global_denominators: SharedRows<'a>,
    global_norm: NormView<'a>,
    local_qkv: SharedRows<'a>,
    local_out: SharedRows<'a>,
    local_denominators: SharedRows<'a>,
    local_norm: NormView<'a>,
    mlp_norm: NormView<'a>,
    mlp_hidden: SharedRows<'a>,
}

/// What a LayerNorm keeps for the backward pass; empty in inference.
struct NormView<'a> {
    normalized: SharedRows<'a>,
    inverse_deviation: SharedRows<'a>,
    keep: bool,
}

impl<'a> NormView<'a> {
    fn new(normalized: &'a mut [f32], inverse_deviation: &'a mut [f32], d: usize) -> Self {
        let keep = !normalized.is_empty();
        Self {
            normalized: SharedRows::new(normalized, d),
            inverse_deviation: SharedRows::new(inverse_deviation, 1),
            keep,
        }
    }

    /// # Safety
    /// As [`SharedRows::rows_mut`].
    unsafe fn saved(&self, rows: &Range<usize>) -> Option<Saved<'a>> {
        // SAFETY: the caller's.
        self.keep.then(|| unsafe {
            Saved {
                normalized: self.normalized.rows_mut(rows.clone()),
                inverse_deviation: self.inverse_deviation.rows_mut(rows.clone()),
            }
        })
    }
}

impl<'a> View<'a> {
    fn new(x: &'a mut [f32], block: &'a mut BlockBuffers, heads: Heads) -> Self {
        let d = heads.width;
        let (global, local) = (&mut block.global, &mut block.local);
        Self {
            x: SharedRows::new(x, d),
            global_qkv: SharedRows::new(&mut global.qkv, 3 * d),
            global_out: SharedRows::new(&mut global.out, d),
            global_denominators: SharedRows::new(&mut global.denominators, heads.n_heads),
            global_norm: NormView::new(&mut global.normalized, &mut global.inverse_deviation, d),
            local_qkv: SharedRows::new(&mut local.qkv, 3 * d),
            local_out: SharedRows::new(&mut local.out, d),
            local_denominators: SharedRows::new(&mut local.denominators, 1),
            local_norm: NormView::new(&mut local.normalized, &mut local.inverse_deviation, d),
            mlp_norm: NormView::new(&mut block.mlp_normalized, &mut block.mlp_inverse_deviation, d),
            mlp_hidden: SharedRows::new(&mut block.mlp_hidden, 4 * d),
        }
    }
}

impl Engine {
    /// Runs the model. `features` `[n_tokens, n_features]`, `loads` of the same tokens; outputs at
    /// the first `n_scene` tokens: see [`Engine::output`].
    ///
    /// # Errors
    /// [`Error::Shape`] if the arguments do not belong together or to the model.
    pub fn forward(
        &mut self,
        weights: &[f32],
        features: &[f32],
        loads: &Loads,
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
        if loads.len() != n_tokens || loads.n_hops() != config.n_hops {
            return shape("rows of the loads", n_tokens, loads.len());
        }
        if n_scene > n_tokens {
            return shape("scene tokens", n_tokens, n_scene);
        }
        self.resize(n_tokens, n_scene);
        self.update_hop_weights(weights);
        self.embed(weights, features);
        for b in 0..config.n_blocks {
            self.sum_states(b);
            self.attend_globally(weights, b);
            self.attend_locally(weights, b, loads);
        }
        Ok(())
    }

    fn slot(&self, block: usize) -> usize {
        if self.mode == Mode::Training { block } else { 0 }
    }

    fn update_hop_weights(&mut self, weights: &[f32]) {
        let per_block = self.hop_weights.chunks_exact_mut(self.layout.config.n_hops + 1);
        for (block, f) in self.layout.blocks.iter().zip(per_block) {
            for (f, &theta) in f.iter_mut().zip(block.hop_logits.of(weights)) {
                *f = softplus(theta);
            }
        }
    }

    /// x = embed(features), and the first block's global q, k, v and partial states.
    fn embed(&mut self, weights: &[f32], features: &[f32]) {
        let heads = self.heads();
        let (layout, n) = (&self.layout, self.n_tokens);
        let view = View::new(&mut self.x, &mut self.blocks[0], heads);
        let n_features = layout.config.n_features;
        self.partial_states.par_chunks_mut(heads.state_len()).enumerate().for_each(|(c, state)| {
            let rows = c * CHUNK..((c + 1) * CHUNK).min(n);
            // SAFETY: each task has rows of its own.
            let x = unsafe { view.x.rows_mut(rows.clone()) };
            let features = &features[rows.start * n_features..rows.end * n_features];
            linear_forward(
                features,
                layout.embed.weight.of(weights),
                layout.embed.bias.of(weights),
                x,
            );
            project_global(weights, &layout.blocks[0], &view, heads, rows, x, state);
        });
    }

    /// The cloud's state of block `b`, from the chunks' in order.
    fn sum_states(&mut self, b: usize) {
        let slot = self.slot(b);
        let state = &mut self.blocks[slot].global.state;
        state.fill(0.0);
        for part in self.partial_states.chunks_exact(state.len()) {
            state.iter_mut().zip(part).for_each(|(s, p)| *s += p);
        }
    }

    /// Phase 1: the global attention's output up to the local layer's q, k, v.
    fn attend_globally(&mut self, weights: &[f32], b: usize) {
        let (heads, n, slot) = (self.heads(), self.n_tokens, self.slot(b));
        let block = self.layout.blocks[b];
        let state = std::mem::take(&mut self.blocks[slot].global.state);
        let view = View::new(&mut self.x, &mut self.blocks[slot], heads);
        let d = heads.width;
        (0..n.div_ceil(CHUNK)).into_par_iter().for_each(|c| {
            let rows = c * CHUNK..((c + 1) * CHUNK).min(n);
            // SAFETY: each task has rows of its own, in every matrix.
            let (x, out, denominators, qkv) = unsafe {
                (
                    view.x.rows_mut(rows.clone()),
                    view.global_out.rows_mut(rows.clone()),
                    view.global_denominators.rows_mut(rows.clone()),
                    view.local_qkv.rows_mut(rows.clone()),
                )
            };
            // SAFETY: nobody writes the global q, k, v in this phase.
            let global_qkv = unsafe { view.global_qkv.rows(rows.clone()) };
            vectorize(|| linear_attention_forward(global_qkv, &state, heads, out, denominators));
            linear_forward_add(
                out,
                block.global.out.weight.of(weights),
                block.global.out.bias.of(weights),
                x,
            );
            // SAFETY: as above.
            let saved = unsafe { view.local_norm.saved(&rows) };
            with_scratch(rows.len() * d, |u| {
                normalize(weights, block.local.norm, x, u, saved);
                project_qkv(weights, block.local.qkv, u, qkv, d);
            });
        });
        self.blocks[slot].global.state = state;
    }

    /// Phase 2: the local attention, the MLP, and the next block's global q, k, v or the head.
    fn attend_locally(&mut self, weights: &[f32], b: usize, loads: &Loads) {
        let (heads, n, n_scene, slot) = (self.heads(), self.n_tokens, self.n_scene, self.slot(b));
        let (layout, keep) = (&self.layout, self.mode == Mode::Training);
        let (block, d) = (layout.blocks[b], heads.width);
        let hops = layout.config.n_hops + 1;
        let hop_weights = &self.hop_weights[b * hops..(b + 1) * hops];
        let is_last = b + 1 == layout.blocks.len();
        let head = HeadView {
            layout,
            output: SharedRows::new(&mut self.output, layout.config.n_outputs),
            norm: NormView::new(&mut self.head_normalized, &mut self.head_inverse_deviation, d),
            n_scene,
        };
        let (current, rest) = self.blocks.split_at_mut(slot + 1);
        let view = View::new(&mut self.x, &mut current[slot], heads);
        let next = rest.first_mut().map(|next| View::new(&mut [], next, heads));
        let next = next.as_ref().unwrap_or(&view);
        let states = self.partial_states.par_chunks_mut(heads.state_len());
        states.enumerate().for_each(|(c, state)| {
            let rows = c * CHUNK..((c + 1) * CHUNK).min(n);
            // SAFETY: each task has rows of its own.
            let (x, out, denominators) = unsafe {
                (
                    view.x.rows_mut(rows.clone()),
                    view.local_out.rows_mut(rows.clone()),
                    view.local_denominators.rows_mut(rows.clone()),
                )
            };
            // SAFETY: nobody writes the local q, k, v in this phase.
            let qkv = unsafe { view.local_qkv.all() };
            vectorize(|| {
                grf_attention_forward(rows.clone(), qkv, loads, hop_weights, out, denominators)
            });
            linear_forward_add(
                out,
                block.local.out.weight.of(weights),
                block.local.out.bias.of(weights),
                x,
            );
            mlp(weights, &block, &view, keep, rows.clone(), x, d);
            if is_last {
                head.forward(weights, rows, x, d);
            } else {
                project_global(weights, &layout.blocks[b + 1], next, heads, rows, x, state);
            }
        });
    }
}

/// LayerNorm of a chunk.
fn normalize(weights: &[f32], norm: Affine, x: &[f32], u: &mut [f32], saved: Option<Saved<'_>>) {
    let (w, b) = (norm.weight.of(weights), norm.bias.of(weights));
    vectorize(|| layer_norm_forward(x, w, b, u, saved));
}

/// `[q | k | v]` of normalised rows, ReLU on q and k.
fn project_qkv(weights: &[f32], qkv: Affine, u: &[f32], out: &mut [f32], d: usize) {
    linear_forward(u, qkv.weight.of(weights), qkv.bias.of(weights), out);
    vectorize(|| out.chunks_exact_mut(3 * d).for_each(|row| relu_forward(&mut row[..2 * d])));
}

/// The global layer's q, k, v of a chunk, and its part of the state.
fn project_global(
    weights: &[f32],
    block: &Block,
    view: &View<'_>,
    heads: Heads,
    rows: Range<usize>,
    x: &[f32],
    state: &mut [f32],
) {
    let d = heads.width;
    // SAFETY: each task has rows of its own.
    let (qkv, saved) =
        unsafe { (view.global_qkv.rows_mut(rows.clone()), view.global_norm.saved(&rows)) };
    with_scratch(rows.len() * d, |u| {
        normalize(weights, block.global.norm, x, u, saved);
        project_qkv(weights, block.global.qkv, u, qkv, d);
    });
    linear_attention_state(qkv, heads, state);
}

/// x += down(ReLU(up(LayerNorm(x)))).
fn mlp(
    weights: &[f32],
    block: &Block,
    view: &View<'_>,
    keep: bool,
    rows: Range<usize>,
    x: &mut [f32],
    d: usize,
) {
    let n = rows.len();
    // SAFETY: each task has rows of its own.
    let saved = unsafe { view.mlp_norm.saved(&rows) };
    with_scratch(n * 5 * d, |scratch| {
        let (u, hidden) = scratch.split_at_mut(n * d);
        // SAFETY: as above.
        let hidden = if keep { unsafe { view.mlp_hidden.rows_mut(rows) } } else { hidden };
        normalize(weights, block.mlp_norm, x, u, saved);
        linear_forward(u, block.up.weight.of(weights), block.up.bias.of(weights), hidden);
        vectorize(|| relu_forward(hidden));
        linear_forward_add(hidden, block.down.weight.of(weights), block.down.bias.of(weights), x);
    });
}

/// The head at the scene tokens.
struct HeadView<'a> {
    layout: &'a Layout,
    output: SharedRows<'a>,
    norm: NormView<'a>,
    n_scene: usize,
}

impl HeadView<'_> {
    fn forward(&self, weights: &[f32], rows: Range<usize>, x: &[f32], d: usize) {
        let scene = rows.start.min(self.n_scene)..rows.end.min(self.n_scene);
        if scene.is_empty() {
            return;
        }
        // SAFETY: each task has rows of its own.
        let (y, saved) = unsafe { (self.output.rows_mut(scene.clone()), self.norm.saved(&scene)) };
        with_scratch(scene.len() * d, |u| {
            normalize(weights, self.layout.head_norm, &x[..scene.len() * d], u, saved);
            let head = self.layout.head;
            linear_forward(u, head.weight.of(weights), head.bias.of(weights), y);
        });
    }
}
