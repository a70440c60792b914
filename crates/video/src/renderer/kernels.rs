//! What the annular kernels see of the particles around places.
//!
//! Kernel b weighs a particle at distance d by w = exp(-½ ((d - r_b) / β_b)²). The network is given, for
//! each kernel, the mean features Σ w f / (Σ w + κ) and then, for each, Σ w / 4: how much there is.

use super::Scene;
use super::field::Sample;
use crate::config::{N_KERNELS, N_NEIGHBORS, VideoConfig};
use forecloud::base::simd::exp::exp;
use forecloud::base::simd::vectorized;

/// Added to the sum of weights (κ): what is hardly seen counts little.
const LEAST: f32 = 1e-2;
/// Scale of the sums of weights.
const PER_SUM: f32 = 0.25;
/// Softens distances (m²): a tenth of a millimetre, so that they have a slope at 0.
const SOFT_M2: f32 = 1e-8;

/// Weights of one place's neighbours by kernel, 0 behind the last; and their distances (m).
#[inline(always)]
fn weights(
    sample: &Sample,
    config: &VideoConfig,
) -> ([[f32; N_NEIGHBORS]; N_KERNELS], [f32; N_NEIGHBORS]) {
    let mut distances = [0.0; N_NEIGHBORS];
    for (distance, squared) in distances.iter_mut().zip(&sample.squared) {
        *distance = (squared + SOFT_M2).sqrt();
    }
    let mut weights = [[0.0; N_NEIGHBORS]; N_KERNELS];
    for (b, weights) in weights.iter_mut().enumerate() {
        let (radius, per_width) = (config.radii_m[b], 1.0 / config.bandwidths_m[b]);
        for (weight, distance) in weights.iter_mut().zip(&distances) {
            let z = (distance - radius) * per_width;
            *weight = exp(-0.5 * z * z);
        }
        weights[sample.n..].fill(0.0);
    }
    (weights, distances)
}

vectorized! {
    /// What the network is given of each place, `[places, N_KERNELS · (n_features + 1)]`, into zeros.
    pub(super) fn gather(
        samples: &'a [Sample],
        features: &'a [f32],
        config: &'a VideoConfig,
        inputs: &'a mut [f32],
    ) {
        let n = config.n_features;
        for (sample, inputs) in samples.iter().zip(inputs.chunks_exact_mut(config.n_inputs())) {
            let (weights, _) = weights(sample, config);
            for (b, weights) in weights.iter().enumerate() {
                let mut sum = 0.0;
                weights.iter().for_each(|weight| sum += weight);
                let scale = 1.0 / (sum + LEAST);
                let mean = &mut inputs[b * n..][..n];
                for (weight, &index) in weights[..sample.n].iter().zip(&sample.indices) {
                    let share = weight * scale;
                    let features = &features[index as usize * n..][..n];
                    for (mean, feature) in mean.iter_mut().zip(features) {
                        *mean += share * feature;
                    }
                }
                inputs[N_KERNELS * n + b] = PER_SUM * sum;
            }
        }
    }
}

/// Gradients of each place's neighbours one after the other, position then features, from those of
/// what the network was given (`inputs`).
pub(super) fn gather_backward(
    samples: &[Sample],
    scene: &Scene,
    config: &VideoConfig,
    inputs: &[f32],
    d_inputs: &[f32],
) -> Vec<f32> {
    let n = config.n_features;
    let n_neighbors: usize = samples.iter().map(|sample| sample.n).sum();
    let mut d_neighbors = vec![0.0; n_neighbors * (3 + n)];
    let mut rows = d_neighbors.chunks_exact_mut(3 + n);
    let given =
        inputs.chunks_exact(config.n_inputs()).zip(d_inputs.chunks_exact(config.n_inputs()));
    for (sample, (inputs, d_inputs)) in samples.iter().zip(given) {
        let (weights, distances) = weights(sample, config);
        let scales = weights.map(|weights| 1.0 / (weights.iter().sum::<f32>() + LEAST));
        for ((i, index), row) in sample.neighbors().enumerate().zip(&mut rows) {
            let features = &scene.features[index * n..][..n];
            let (d_position, d_features) = row.split_at_mut(3);
            let mut d_distance = 0.0;
            for b in 0..N_KERNELS {
                let (mean, d_mean) = (&inputs[b * n..][..n], &d_inputs[b * n..][..n]);
                let share = weights[b][i] * scales[b];
                let mut d_weight = PER_SUM * d_inputs[N_KERNELS * n + b];
                for c in 0..n {
                    d_features[c] += share * d_mean[c];
                    d_weight += (features[c] - mean[c]) * d_mean[c] * scales[b];
                }
                let offset = distances[i] - config.radii_m[b];
                d_distance -= d_weight * weights[b][i] * offset / config.bandwidths_m[b].powi(2);
            }
            let position = &scene.field.positions[index];
            for axis in 0..3 {
                let way = position[axis] - sample.place[axis];
                d_position[axis] = d_distance * way / distances[i];
            }
        }
    }
    d_neighbors
}
