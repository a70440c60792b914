//! As many weights in models of other layers.

use forecloud::engine::model::{Layout, ModelConfig};

/// Hidden widths of an MLP that are tried.
const RATIOS: std::ops::RangeInclusive<usize> = 1..=16;

/// Weights of a model (which must be valid).
pub(super) fn n_parameters(model: &ModelConfig) -> usize {
    Layout::new(model.interlacer()).n_params()
}

/// `model` with the MLP by which it has as many weights as `base`, as nearly as can be: width, heads
/// and depth, and with them the tokens' state and the size of each product, stay the same.
pub(super) fn with_as_many_parameters(model: ModelConfig, base: &ModelConfig) -> ModelConfig {
    let of_ratio = |mlp_ratio| {
        let mut model = model;
        model.layers.mlp_ratio = mlp_ratio;
        model
    };
    let (target, own) = (n_parameters(base), model.layers.mlp_ratio);
    // Where two are as near, the model's own ratio.
    let distance = |model: &ModelConfig| {
        (n_parameters(model).abs_diff(target), model.layers.mlp_ratio.abs_diff(own))
    };
    RATIOS.map(of_ratio).min_by_key(distance).unwrap_or(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::numbers;
    use forecloud::engine::graph::walks::WalkSeed;
    use forecloud::engine::model::weights::initial_weights;
    use forecloud::engine::model::{Engine, Gradients, LocalLayer, Mode, StepGraph};
    use forecloud_lab::layers::MESSAGE_PASSING;

    #[test]
    fn rivals_of_the_grf_layer_get_its_weights_by_whole_widths() {
        let base = ModelConfig::default();
        let of = |local| {
            let mut model = base;
            model.layers.local = local;
            with_as_many_parameters(model, &base)
        };
        // 4 d² of weights in the GRF layer, 6 d² in message passing, 2 d² in a hidden width.
        let ratios = [LocalLayer::Grf, LocalLayer::Linear, MESSAGE_PASSING, LocalLayer::None]
            .map(|local| of(local).layers.mlp_ratio);
        assert_eq!(ratios, [4, 4, 3, 6]);
    }

    /// A hidden unit without weights changes nothing: a model of MLPs of 3 widths is that of 4, which
    /// PyTorch's golden values pin, with a quarter of the units cleared.
    #[test]
    fn a_narrower_mlp_is_a_wider_one_with_units_cleared() {
        let mut narrow =
            ModelConfig { width: 8, n_heads: 2, n_blocks: 2, ..ModelConfig::default() };
        let wide = narrow;
        narrow.layers.mlp_ratio = 3;
        let [narrow, wide] = [narrow, wide].map(|model| model.interlacer());
        let [from, to] = [narrow, wide].map(Layout::new);
        let n = 150;
        let weights = initial_weights(&from, 3);
        let weights: Vec<f32> =
            weights.iter().zip(numbers(weights.len(), 4)).map(|(w, r)| w + 0.1 * r).collect();
        let mut padded = vec![0.0; to.n_params()];
        for (a, b) in from.tensors.iter().zip(&to.tensors) {
            assert_eq!(a.name, b.name);
            // The first columns of `up`, the first rows of `down`, all of the others.
            let columns = |shape: &[usize]| shape.last().copied().unwrap_or(1);
            let (source, (ca, cb)) = (a.span.of(&weights), (columns(&a.shape), columns(&b.shape)));
            for (r, row) in source.chunks_exact(ca).enumerate() {
                b.span.of_mut(&mut padded)[r * cb..r * cb + ca].copy_from_slice(row);
            }
        }
        let positions: Vec<[f32; 3]> =
            numbers(3 * n, 5).chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect();
        let mut graph = StepGraph::default();
        let mask = ModelConfig::default().mask;
        graph.rebuild(&positions, narrow.k, narrow.n_hops, &mask, WalkSeed::default()).unwrap();
        graph.transposed.rebuild(&graph.loads);
        let features = numbers(n * narrow.n_features, 6);
        let pass = |config, weights: &[f32]| {
            let mut engine = Engine::new(config, Mode::Training);
            engine.forward(weights, &features, &graph, n).unwrap();
            let (mut gradients, mut d) =
                (Gradients::new(engine.layout()), vec![0.0; features.len()]);
            let output = engine.output().to_vec();
            engine
                .backward(
                    weights,
                    &features,
                    &graph,
                    &numbers(output.len(), 7),
                    &mut gradients,
                    &mut d,
                )
                .unwrap();
            (output, d)
        };
        let ((y, d), (y_wide, d_wide)) = (pass(narrow, &weights), pass(wide, &padded));
        crate::check::assert_close(
            &y,
            &y_wide.iter().map(|&v| v.into()).collect::<Vec<f64>>(),
            1e-5,
        );
        crate::check::assert_close(
            &d,
            &d_wide.iter().map(|&v| v.into()).collect::<Vec<f64>>(),
            1e-5,
        );
    }
}
