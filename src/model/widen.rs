//! A wider model that computes the same (Net2WiderNet: Chen, Goodfellow and Shlens, ICLR 2016):
//! what a small model has learned is where a larger one starts.
//!
//! Every channel becomes `m` neighbouring ones that are alike: a dense layer's outputs are repeated,
//! and its inputs' weights divided among the copies. LayerNorm sees the same mean and variance,
//! heads stay whole, and the attentions' quotients have both parts times `m`.

use super::weights::initial_weights;
use super::{FeatureMap, GlobalLayer, Layout, Model, ModelConfig};
use crate::{Error, Result};

/// Share of a fresh layer's weights by which those of copies differ, or they would be trained alike.
const NOISE: f32 = 0.5;

impl Model {
    /// The model at `width`, a multiple of its own, with the same predictions but for rounding;
    /// `seed` draws how the copies' weights differ, which adds up to nothing.
    ///
    /// # Errors
    /// [`Error::Config`] if `width` is no multiple, or where a layer would not compute the same:
    /// softmax's scores grow with the width, and random features are drawn for one.
    pub fn widened(&self, width: usize, seed: u64) -> Result<Self> {
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("model.{key}"), problem })
        };
        if width == 0 || !width.is_multiple_of(self.config.width) {
            let problem = format!("{width} is no multiple of the model's {}", self.config.width);
            return wrong("width", problem);
        }
        let layers = self.config.layers;
        if layers.global == GlobalLayer::Softmax {
            return wrong("layers.global", "a softmax can't be widened: train it anew".into());
        }
        if matches!(layers.feature_map, FeatureMap::Favor { .. }) {
            let problem = "random features can't be widened: train the model anew".into();
            return wrong("layers.feature_map", problem);
        }
        let config = ModelConfig { width, ..self.config };
        config.validate()?;
        let (narrow, wide) =
            (Layout::new(self.config.interlacer()), Layout::new(config.interlacer()));
        let mut weights = initial_weights(&wide, seed);
        for (from, to) in narrow.tensors.iter().zip(&wide.tensors) {
            let values = to.span.of_mut(&mut weights);
            widen(from.span.of(&self.weights), &from.shape, values, &to.shape);
        }
        Self::new(config, weights)
    }
}

/// Writes the tensor `from` of `shape` (`[in, out]` or `[out]`) into `to`, where each input and output
/// may be several copies; `to` holds fresh weights, of which the differences between copies are kept.
fn widen(from: &[f32], shape: &[usize], to: &mut [f32], wide: &[usize]) {
    let [n_out, n_wide] = [shape, wide].map(|shape| shape.last().copied().unwrap_or(1));
    let in_copies = if shape.len() == 2 { wide[0] / shape[0] } else { 1 };
    let out_copies = n_wide / n_out;
    let copies_of_inputs = to.chunks_exact_mut(in_copies * n_wide);
    for (known, copies) in from.chunks_exact(n_out).zip(copies_of_inputs) {
        for column in 0..n_wide {
            let fresh = copies.iter().skip(column).step_by(n_wide);
            let mean = fresh.sum::<f32>() / in_copies as f32;
            for weight in copies.iter_mut().skip(column).step_by(n_wide) {
                *weight = known[column / out_copies] / in_copies as f32 + NOISE * (*weight - mean);
            }
        }
    }
}
