//! How much memory a training run takes.

use super::config::TrainConfig;
use forecloud::engine::model::{Layout, ModelConfig};

/// Bytes that training takes at least, apart from the recordings: weights, gradients and activations
/// of one batch. With `recompute`, activations are not kept.
///
/// Both configurations must be valid.
pub fn least_bytes(config: &TrainConfig, model: &ModelConfig, recompute: bool) -> u64 {
    let layout = Layout::new(model.interlacer());
    let [n_weights, width, blocks] =
        [layout.n_params(), model.width, model.n_blocks].map(|n| n as u64);
    let [batch, longest] = [config.batch, config.longest()].map(|n| n as u64);
    let tokens = (model.n_particles + model.n_history + 3 * model.n_kinematic) as u64;
    // Of a mixer: its normalised input, queries, keys, values and output; of an MLP: its normalised
    // input and hidden layer.
    let mixers = (layout.mixers.len() as u64).div_ceil(blocks);
    let kept = if recompute { 1 } else { 5 * mixers + 1 + model.layers.mlp_ratio as u64 };
    let activations = tokens * width * blocks * kept;
    // Weights, their average, two moments, and the gradient; a gradient more for each window.
    4 * ((5 + batch) * n_weights + batch * longest * activations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_windows_steps_and_particles_take_more_and_recomputing_less() {
        let (config, model) = (TrainConfig::default(), ModelConfig::default());
        let base = least_bytes(&config, &model, false);
        assert!((50 << 20..1 << 30).contains(&base), "{base}");
        let larger = TrainConfig { batch: 1024, ..config.clone() };
        assert!(least_bytes(&larger, &model, false) > 400 * base);
        let longer = TrainConfig { curriculum: vec![(0.0, 20)], ..config.clone() };
        assert!(2 * least_bytes(&longer, &model, false) > 3 * base);
        assert!(4 * least_bytes(&config, &model, true) < base);
        // The largest model and batch that there are.
        let model = ModelConfig { n_particles: 1 << 20, n_history: 1 << 20, width: 512, ..model };
        let largest = TrainConfig { batch: 1024, ..longer };
        assert!(least_bytes(&largest, &model, false) > 1 << 50);
    }
}
