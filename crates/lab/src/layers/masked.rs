//! Attention of the model's heads under a mask.

use std::sync::Arc;

use super::super::masks::{Mask, MaskSpec, Nodes, StepMask};
use super::super::ops::masked_attention::{
    MaskedSaved, masked_attention_backward, masked_attention_forward, n_stretches,
};
use super::attention::{AllRows, Projected};
use forecloud::Result;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::model::interlacer::{InterlacerConfig, Span, TensorTable};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::registry::{
    Gradients, Layer, LayerPass, LayerSpec, MixerBuffers, Place, Reads, StepData, StepTokens,
};

impl LayerSpec for MaskSpec {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&self) -> Place {
        Place::Local
    }

    fn reads(&self) -> Reads {
        Reads { feature_map: true, ..(self.reads)() }
    }

    fn layers(
        &self,
        name: &str,
        table: &mut TensorTable,
        config: &InterlacerConfig,
    ) -> Vec<Arc<dyn Layer>> {
        let tensors = table.attention(name, config.width);
        let n_params = (self.n_params)(config.n_hops);
        let params = (n_params > 0).then(|| table.tensor(format!("{name}.mask"), vec![n_params]));
        let all_rows = Masked { heads: config.heads(config.n_heads), params };
        vec![Arc::new(Projected { tensors, all_rows })]
    }

    fn step_data(&self) -> Option<Box<dyn StepData>> {
        Some(Box::new(OfStep { graph: WeightedGraph::default(), mask: (self.build)() }))
    }
}

/// A step's mask, and the graph that it is made of.
#[derive(Debug)]
struct OfStep {
    graph: WeightedGraph,
    mask: Box<dyn StepMask>,
}

impl StepData for OfStep {
    fn n_nodes(&self) -> usize {
        self.mask.n_nodes()
    }

    fn rebuild(&mut self, tokens: &StepTokens<'_>) -> Result<()> {
        let StepTokens { positions, knn, config, mask, seed, .. } = *tokens;
        self.graph.rebuild(knn, positions, mask.edge_weights);
        let (graph, n_hops) = (&self.graph, config.n_hops);
        let (walks, cell_m) = (mask.walks, mask.cell_m);
        self.mask.rebuild(&Nodes { positions, graph, n_hops, walks, cell_m, seed })
    }
}

#[derive(Debug)]
struct Masked {
    heads: Heads,
    /// What the mask learns; none without parameters.
    params: Option<Span>,
}

impl Masked {
    fn mask<'a>(&self, pass: &LayerPass<'a>) -> Option<(&'a dyn Mask, &'a [f32])> {
        let mask: &dyn Mask = &*pass.graph.data::<OfStep>()?.mask;
        Some((mask, self.params.map_or(&[], |params| params.of(pass.weights))))
    }
}

impl AllRows for Masked {
    const MAPPED: bool = true;

    fn n_heads(&self) -> usize {
        self.heads.n_heads
    }

    fn forward(&self, pass: &LayerPass<'_>, kept: &mut MixerBuffers) {
        // The pass was held to have it.
        let Some((mask, params)) = self.mask(pass) else { return };
        let (out, denominators) = (&mut kept.out, &mut kept.denominators);
        masked_attention_forward(mask, params, &kept.qkv, self.heads, out, denominators);
    }

    fn backward(
        &self,
        pass: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        d_out: &[f32],
        d_rows: &mut [f32],
        gradients: &mut Gradients,
    ) {
        let Some((mask, params)) = self.mask(pass) else { return };
        let mut parts = kept.take_own::<Vec<f64>>();
        parts.resize(n_stretches(self.heads) * params.len(), 0.0);
        let (rows, out, denominators) = (&*kept.qkv, &*kept.out, &*kept.denominators);
        let saved = MaskedSaved { rows, out, denominators };
        masked_attention_backward(mask, params, saved, self.heads, d_out, d_rows, &mut parts);
        if let Some(span) = self.params {
            for (at, d) in span.of_mut(gradients.of_all_rows()).iter_mut().enumerate() {
                *d += parts.iter().skip(at).step_by(params.len()).sum::<f64>() as f32;
            }
        }
        kept.keep_own(parts);
    }

    /// The mask's own products count nothing.
    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64 {
        let features = self.heads.features() as f64;
        3.0 * n * features * (config.width as f64 / self.heads.n_heads as f64 + 1.0)
    }
}
