//! k-MIP attention: forward each block of rows for itself, backward all rows at once, since each key must
//! find the queries that chose it.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::ops::k_mip_attention::{
    BLOCK, KMipSaved, KMipScratch, k_mip_attention_backward, k_mip_attention_forward,
};
use super::attention::{AllRows, Projected};
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
        "k_mip"
    }

    fn place(&self) -> Place {
        Place::Global
    }

    fn reads(&self) -> Reads {
        Reads { top_k: true, ..Reads::NOTHING }
    }

    fn layers(
        &self,
        name: &str,
        table: &mut TensorTable,
        config: &InterlacerConfig,
    ) -> Vec<Arc<dyn Layer>> {
        let heads = Heads::new(config.width, config.n_heads);
        let all_rows = KMip { heads, k: config.layers.top_k };
        vec![Arc::new(Projected { tensors: table.attention(name, config.width), all_rows })]
    }
}

#[derive(Debug)]
struct KMip {
    heads: Heads,
    /// Keys of each query and head.
    k: usize,
}

/// What it keeps besides rows and outputs.
#[derive(Debug, Default)]
struct Own {
    /// Keys that were chosen, `[n, n_heads, k]`.
    chosen: Vec<u32>,
    scratch: KMipScratch,
}

impl AllRows for KMip {
    const MAPPED: bool = false;

    fn n_heads(&self) -> usize {
        self.heads.n_heads
    }

    fn forward(&self, _: &LayerPass<'_>, kept: &mut MixerBuffers) {
        let (heads, d) = (self.heads, self.heads.width);
        let mut own = kept.take_own::<Own>();
        own.chosen.resize(kept.denominators.len() * self.k, 0);
        let (n, qkv, thin) = (kept.out.len() / d, &kept.qkv, BLOCK * heads.n_heads);
        let outs = kept.out.par_chunks_mut(BLOCK * d);
        let blocks = outs.zip(kept.denominators.par_chunks_mut(thin));
        let blocks = blocks.zip(own.chosen.par_chunks_mut(thin * self.k));
        blocks.enumerate().for_each(|(block, ((out, log_sums), chosen))| {
            let rows = block * BLOCK..((block + 1) * BLOCK).min(n);
            k_mip_attention_forward(rows, qkv, heads, out, log_sums, chosen);
        });
        kept.keep_own(own);
    }

    fn backward(
        &self,
        _: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        d_out: &[f32],
        d_rows: &mut [f32],
        _: &mut Gradients,
    ) {
        let mut own = kept.take_own::<Own>();
        let (qkv, out, log_sums) = (&kept.qkv[..], &kept.out[..], &kept.denominators[..]);
        let saved = KMipSaved { qkv, out, log_sums, chosen: &own.chosen };
        k_mip_attention_backward(saved, self.heads, d_out, d_rows, &mut own.scratch);
        kept.keep_own(own);
    }

    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64 {
        2.0 * n * (n + self.k as f64) * config.width as f64
    }
}
