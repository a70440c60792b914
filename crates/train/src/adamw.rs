//! AdamW (Loshchilov and Hutter 2019) with a clip of the gradient's norm.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use forecloud::Result;
use forecloud::predict::config::check;

/// Numbers that a task updates at a time.
const SLICE: usize = 4096;

/// Settings of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay of the mean gradient.
    pub beta1: f32,
    /// Decay of the mean squared gradient.
    pub beta2: f32,
    /// Added to the root of the mean squared gradient.
    pub epsilon: f32,
    /// Weight decay, times the learning rate.
    pub weight_decay: f32,
    /// Largest norm of a gradient; larger ones are scaled down to it.
    pub max_norm: f32,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 1e-3, max_norm: 1.0 }
    }
}

impl AdamWConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// [`forecloud::Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        for (key, value, allowed) in [
            ("adamw.beta1", self.beta1, 0.0..=0.9999),
            ("adamw.beta2", self.beta2, 0.0..=0.999999),
            ("adamw.epsilon", self.epsilon, 1e-30..=1.0),
            ("adamw.weight_decay", self.weight_decay, 0.0..=1.0),
            ("adamw.max_norm", self.max_norm, 1e-9..=1e9),
        ] {
            check(key, value, allowed, "")?;
        }
        Ok(())
    }
}

/// The optimiser's state.
#[derive(Debug, Clone)]
pub struct AdamW {
    config: AdamWConfig,
    /// Steps taken.
    pub step: u64,
    /// Mean gradient.
    pub mean: Vec<f32>,
    /// Mean squared gradient.
    pub square: Vec<f32>,
}

impl AdamW {
    /// A fresh state for `n_params` weights.
    pub fn new(config: AdamWConfig, n_params: usize) -> Self {
        Self { config, step: 0, mean: vec![0.0; n_params], square: vec![0.0; n_params] }
    }

    /// Clips `gradient` in place, updates `weights`; returns the norm before the clip.
    ///
    /// A gradient that is not finite changes nothing: the caller sees it by the norm.
    pub fn update(&mut self, weights: &mut [f32], gradient: &mut [f32], learning_rate: f32) -> f32 {
        // Fixed slices: the same sum on any number of threads.
        let squares: Vec<f64> = gradient
            .par_chunks(SLICE)
            .map(|slice| slice.iter().map(|&g| f64::from(g) * f64::from(g)).sum())
            .collect();
        let norm = squares.iter().sum::<f64>().sqrt() as f32;
        if !norm.is_finite() {
            return norm;
        }
        let scale = (self.config.max_norm / (norm + 1e-6)).min(1.0);
        self.step += 1;
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, .. } = self.config;
        let steps = self.step.min(i32::MAX as u64) as i32;
        let mean_correction = 1.0 - f64::from(beta1).powi(steps);
        let square_correction = (1.0 - f64::from(beta2).powi(steps)).sqrt();
        let rate = (f64::from(learning_rate) / mean_correction) as f32;
        let square_scale = (1.0 / square_correction) as f32;
        let states = self.mean.par_chunks_mut(SLICE).zip(self.square.par_chunks_mut(SLICE));
        let slices = weights.par_chunks_mut(SLICE).zip(gradient.par_chunks_mut(SLICE)).zip(states);
        slices.for_each(|((weights, gradient), (mean, square))| {
            for i in 0..weights.len() {
                gradient[i] *= scale;
                let g = gradient[i];
                mean[i] = beta1 * mean[i] + (1.0 - beta1) * g;
                square[i] = beta2 * square[i] + (1.0 - beta2) * g * g;
                weights[i] -= learning_rate * weight_decay * weights[i];
                weights[i] -= rate * mean[i] / (square[i].sqrt() * square_scale + epsilon);
            }
        });
        norm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Golden, assert_close};

    #[test]
    fn steps_are_those_of_pytorch() {
        let golden = Golden::read("adamw");
        let config = AdamWConfig { beta2: 0.95, ..AdamWConfig::default() };
        let (mut weights, mut gradients) = (golden.f32("initial"), golden.f32("gradients"));
        let (want, norms) = (golden.f64("parameters"), golden.f64("norms"));
        let mut optimizer = AdamW::new(config, weights.len());
        for (step, gradient) in gradients.chunks_exact_mut(weights.len()).enumerate() {
            let norm = optimizer.update(&mut weights, gradient, 1e-3);
            assert!((f64::from(norm) / norms[step] - 1.0).abs() < 1e-5, "norm of step {step}");
            assert_close(&weights, &want[step * 33..(step + 1) * 33], 1e-6);
        }
        // What is not finite changes nothing.
        let before = weights.clone();
        assert!(optimizer.update(&mut weights, &mut [f32::NAN; 33], 1e-3).is_nan());
        assert_eq!(weights, before);
    }
}
