//! Larger models that start from what a smaller one has learned.
//!
//! A wider one computes the same (Net2WiderNet: Chen, Goodfellow and Shlens, ICLR 2016): every channel
//! becomes `m` neighbouring ones that are alike, a dense layer's outputs are repeated, and its inputs'
//! weights divided among the copies. LayerNorm sees the same mean and variance, heads stay whole, and
//! the attentions' quotients have both parts times `m`.
//!
//! One of longer passes begins deaf to what is new: those weights are 0. Each step of its pass begins with
//! the head that was learned for it, or for the last step before it.

use super::weights::initial_weights;
use super::{FeatureMap, GlobalLayer, Layout, Model, ModelConfig, tokens};
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
        if let GlobalLayer::Registered(kind) = layers.global {
            let problem = format!("{} can't be widened: train the model anew", kind.name());
            return wrong("layers.global", problem);
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

    /// The model with passes of `steps_per_pass` steps. With its own it is the same. With more it predicts something
    /// else: its robot's particles are of other times, and each step after those of its own passes is
    /// predicted from the pass's start as their last one was.
    ///
    /// # Errors
    /// [`Error::Config`] for fewer: what was learned of the last steps would be lost.
    pub fn extended(&self, steps_per_pass: usize) -> Result<Self> {
        let from = self.config;
        if steps_per_pass < from.steps_per_pass {
            let own = from.steps_per_pass;
            let problem =
                format!("the model has passes of {own} steps: {steps_per_pass} would lose some");
            return Err(Error::Config { key: "model.chunk".into(), problem });
        }
        if steps_per_pass == from.steps_per_pass {
            return Ok(self.clone());
        }
        let config = from.with_steps_per_pass(steps_per_pass);
        config.validate()?;
        let (old, new) = (Layout::new(from.interlacer()), Layout::new(config.interlacer()));
        let mut weights = vec![0.0; new.n_params()];
        let rows: Vec<usize> = tokens::places(&from.rollout().tokens, &config.rollout().tokens);
        let columns = outputs(&from, &config);
        let own = |n: usize| (0..n).collect::<Vec<_>>();
        for (a, b) in old.tensors.iter().zip(&new.tensors) {
            let (source, target) = (a.span.of(&self.weights), b.span.of_mut(&mut weights));
            if a.span == old.embed.weight {
                let width = from.width;
                for (row, &place) in source.chunks_exact(width).zip(&rows) {
                    target[place * width..][..width].copy_from_slice(row);
                }
                continue;
            }
            let (n_old, n_new) = (a.shape.last().copied(), b.shape.last().copied());
            let (n_old, n_new) = (n_old.unwrap_or(1), n_new.unwrap_or(1));
            let is_head = a.span == old.head.weight || a.span == old.head.bias;
            let columns = if is_head { columns.clone() } else { own(n_new) };
            for (source, target) in source.chunks_exact(n_old).zip(target.chunks_exact_mut(n_new)) {
                for (value, &column) in target.iter_mut().zip(&columns) {
                    *value = source[column];
                }
            }
        }
        Self::new(config, weights)
    }
}

/// For each output of a scene token, the one that it starts from.
fn outputs(from: &ModelConfig, to: &ModelConfig) -> Vec<usize> {
    let width = from.interlacer().n_outputs / from.steps_per_pass;
    let of_step =
        |step: usize| (0..width).map(move |i| step.min(from.steps_per_pass - 1) * width + i);
    (0..to.steps_per_pass).flat_map(of_step).collect()
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
