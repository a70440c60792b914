//! Positional encodings of nodes: features that tell where in its graph a node lies.

use super::{Laplacian, bottom_eigenvectors, heat_kernel};
use forecloud::Result;
use forecloud::base::random::{draw, normal_pair};

/// What an encoding is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionalConfig {
    /// Random demands a scale of the heat kernel.
    pub n_demands: usize,
    /// Scales s · λ, λ the bound of λ_max: 0 to 5 (see [`heat_kernel`]).
    pub scales: Vec<f32>,
    /// Layers of the heat kernel.
    pub n_layers: usize,
    /// Bottom eigenvectors other than the constants.
    pub n_eigenvectors: usize,
    /// Iterations for them; a gap g of eigenvalues needs about λ / g.
    pub n_iterations: usize,
    /// Of the random demands.
    pub seed: u64,
}

impl PositionalConfig {
    /// Features a node.
    pub fn width(&self) -> usize {
        self.n_demands * self.scales.len() + self.n_eigenvectors
    }
}

/// Features `[n, width]` of the nodes: heat-kernel columns scale by scale, then bottom eigenvectors,
/// times √n, so that entries are about 1 on any graph. The same seed gives the same features.
///
/// Costs layers·scales + iterations products with the graph.
///
/// # Errors
/// As [`heat_kernel`]; none in practice.
pub fn positional_encoding(laplacian: &Laplacian, config: &PositionalConfig) -> Result<Vec<f32>> {
    let (n, width) = (laplacian.len(), config.width());
    let mut features = vec![0.0; n * width];
    let demands = random_columns(laplacian, config.n_demands, config.seed, 0);
    for (at, scale) in config.scales.iter().enumerate() {
        let s = scale * laplacian.step();
        let heat = heat_kernel(laplacian, &demands, s, config.n_layers)?;
        place(&mut features, width, at * config.n_demands, &heat, config.n_demands, 1.0);
    }
    let k = config.n_eigenvectors;
    let start = random_columns(laplacian, k, config.seed, 1);
    let mu = laplacian.lambda_bound();
    let mut vectors = bottom_eigenvectors(laplacian, &start, config.n_iterations, mu)?;
    fix_signs(&mut vectors, k);
    place(&mut features, width, width - k, &vectors, k, (n as f32).sqrt());
    Ok(features)
}

/// Standard normal columns `[n, width]`, centred on each component.
fn random_columns(laplacian: &Laplacian, width: usize, seed: u64, stream: u64) -> Vec<f32> {
    let entry = |at| normal_pair(draw(seed, 0, at as u64, stream))[0];
    let mut columns: Vec<f32> = (0..laplacian.len() * width).map(entry).collect();
    laplacian.center(&mut columns);
    columns
}

/// Copies `columns` `[n, k]`, scaled, to the features from `first` on.
fn place(out: &mut [f32], width: usize, first: usize, columns: &[f32], k: usize, scale: f32) {
    if k == 0 {
        return;
    }
    for (out, row) in out.chunks_exact_mut(width).zip(columns.chunks_exact(k)) {
        out[first..first + k].iter_mut().zip(row).for_each(|(out, x)| *out = scale * x);
    }
}

/// Makes each column's first entry of nearly the largest size positive: an eigenvector has no sign.
fn fix_signs(columns: &mut [f32], width: usize) {
    for c in 0..width {
        let largest = columns.chunks_exact(width).map(|row| row[c].abs()).fold(0.0, f32::max);
        // Nearly: symmetric graphs have several, and rounding must not choose among them.
        let lead = columns.chunks_exact(width).map(|row| row[c]).find(|x| x.abs() > 0.99 * largest);
        if lead.is_some_and(|x| x < 0.0) {
            columns.chunks_exact_mut(width).for_each(|row| row[c] = -row[c]);
        }
    }
}
