//! Softmax attention of all tokens.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::ops::softmax_attention::{
    BLOCK, SCRATCH_LEN, SoftmaxSaved, softmax_attention_backward_key,
    softmax_attention_backward_query, softmax_attention_deltas, softmax_attention_forward,
};
use super::attention::{AllRows, Projected};
use forecloud::base::scratch::with_scratch;
use forecloud::engine::model::interlacer::{InterlacerConfig, TensorTable};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::registry::{
    Gradients, Layer, LayerPass, LayerSpec, MixerBuffers, Place, Reads,
};

/// How it is made.
#[derive(Debug)]
pub(super) struct Spec;

impl LayerSpec for Spec {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn place(&self) -> Place {
        Place::Global
    }

    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn layers(
        &self,
        name: &str,
        table: &mut TensorTable,
        config: &InterlacerConfig,
    ) -> Vec<Arc<dyn Layer>> {
        let all_rows = Softmax(Heads::new(config.width, config.n_heads));
        vec![Arc::new(Projected { tensors: table.attention(name, config.width), all_rows })]
    }
}

/// Rows of a block are one call.
#[derive(Debug)]
struct Softmax(Heads);

impl AllRows for Softmax {
    const MAPPED: bool = false;

    fn n_heads(&self) -> usize {
        self.0.n_heads
    }

    fn forward(&self, _: &LayerPass<'_>, kept: &mut MixerBuffers) {
        let (heads, d) = (self.0, self.0.width);
        let (n, qkv) = (kept.out.len() / d, &kept.qkv);
        let outs = kept.out.par_chunks_mut(BLOCK * d);
        let blocks = outs.zip(kept.denominators.par_chunks_mut(BLOCK * heads.n_heads));
        blocks.enumerate().for_each(|(block, (out, log_sums))| {
            let rows = block * BLOCK..((block + 1) * BLOCK).min(n);
            with_scratch(SCRATCH_LEN, |scratch| {
                softmax_attention_forward(rows, qkv, heads, out, log_sums, scratch);
            });
        });
    }

    fn backward(
        &self,
        _: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        d_out: &[f32],
        d_rows: &mut [f32],
        _: &mut Gradients,
    ) {
        let (heads, d) = (self.0, self.0.width);
        let (narrow, wide) = (BLOCK * d, BLOCK * 3 * d);
        let (n, thin) = (d_out.len() / d, BLOCK * heads.n_heads);
        with_scratch(kept.denominators.len(), |deltas| {
            let outs = kept.out.par_chunks(narrow).zip(d_out.par_chunks(narrow));
            deltas.par_chunks_mut(thin).zip(outs).for_each(|(deltas, (out, d_out))| {
                softmax_attention_deltas(heads, out, d_out, deltas);
            });
            let deltas = &*deltas;
            let (qkv, log_sums) = (&kept.qkv[..], &kept.denominators[..]);
            let all = SoftmaxSaved { qkv, log_sums, d_out, deltas };
            d_rows.par_chunks_mut(wide).enumerate().for_each(|(block, d_rows)| {
                let rows = block * BLOCK..((block + 1) * BLOCK).min(n);
                let of = |per_row: usize| rows.start * per_row..rows.end * per_row;
                let (d_out, deltas) = (&d_out[of(d)], &deltas[of(heads.n_heads)]);
                let own = SoftmaxSaved { d_out, deltas, ..all };
                with_scratch(SCRATCH_LEN + rows.len() * d, |scratch| {
                    let (d_q, scratch) = scratch.split_at_mut(rows.len() * d);
                    softmax_attention_backward_query(rows.clone(), own, heads, d_q, scratch);
                    softmax_attention_backward_key(rows.clone(), all, heads, d_rows, scratch);
                    for (row, d_q) in d_rows.chunks_exact_mut(3 * d).zip(d_q.chunks_exact(d)) {
                        row[..d].copy_from_slice(d_q);
                    }
                });
            });
        });
    }

    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64 {
        4.0 * n * n * config.width as f64
    }
}
