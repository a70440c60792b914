//! Attentions whose rows need all others, between the projections that all of them have.

use std::fmt::Debug;

use forecloud::base::scratch::with_scratch;
use forecloud::engine::model::interlacer::{Attention, InterlacerConfig};
use forecloud::engine::registry::{Gradients, Layer, LayerPass, MixerBuffers};

/// What is between the projections of an attention.
pub(super) trait AllRows: Debug + Send + Sync {
    /// Heads; each output has a denominator of each.
    fn n_heads(&self) -> usize;

    /// Whether queries and keys pass through the feature map.
    const MAPPED: bool;

    /// Outputs `kept.out` `[n, d]` of rows `kept.qkv`, and `kept.denominators` `[n, n_heads]`.
    fn forward(&self, pass: &LayerPass<'_>, kept: &mut MixerBuffers);

    /// Gradients `d_rows` of the rows from those of the outputs, `[n, d]`.
    fn backward(
        &self,
        pass: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        d_out: &[f32],
        d_rows: &mut [f32],
        gradients: &mut Gradients,
    );

    /// Multiply-adds × 2 of [`Self::forward`] over `n` rows.
    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64;
}

/// An attention of all rows with its projections.
#[derive(Debug)]
pub(super) struct Projected<A> {
    pub tensors: Attention,
    pub all_rows: A,
}

impl<A: AllRows> Layer for Projected<A> {
    fn forward(&self, pass: &LayerPass<'_>, kept: &mut MixerBuffers, x: &mut [f32]) {
        pass.project_rows(&self.tensors, kept, x);
        kept.out.resize(x.len(), 0.0);
        let n = x.len() / pass.config.width;
        kept.denominators.resize(n * self.all_rows.n_heads(), 0.0);
        self.all_rows.forward(pass, kept);
        pass.add_output(self.tensors.out, &kept.out, x);
    }

    fn backward(
        &self,
        pass: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        dx: &mut [f32],
        gradients: &mut Gradients,
    ) {
        with_scratch(dx.len() + kept.qkv.len(), |scratch| {
            let (d_out, d_rows) = scratch.split_at_mut(dx.len());
            pass.outputs_gradient(self.tensors.out, &kept.out, dx, d_out, gradients);
            self.all_rows.backward(pass, kept, d_out, d_rows, gradients);
            pass.rows_gradient(&self.tensors, kept, d_rows, dx, gradients);
        });
    }

    fn mapped_heads(&self) -> Option<usize> {
        A::MAPPED.then(|| self.all_rows.n_heads())
    }

    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64 {
        config.projection_flops(n, A::MAPPED) + self.all_rows.flops(config, n)
    }
}
