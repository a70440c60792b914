//! What masks of sampled walks share: which walks, and products with the features they make.

use super::Nodes;
use crate::base::simd::{axpys, dot, vectorized};
use crate::engine::graph::Loads;
use crate::engine::graph::walks::{Halting, Sampler, WalkConfig};

/// Walks of each node, without settings.
const N_WALKS: usize = 9;

/// The walks that the settings ask for, or repelling ones of the model's hops.
pub(super) fn walks_of(nodes: &Nodes<'_>) -> WalkConfig {
    let (sampler, halting) = (Sampler::Repelling, Halting::Hops(nodes.n_hops));
    let default = WalkConfig { sampler, n_walks: N_WALKS, halting, importance: true };
    nodes.walks.unwrap_or(default)
}

vectorized! {
/// y = Φ x, or Φᵀ x, of Φ_ij = Σ_t f_t c(i, j, t).
pub(super) fn features[simd](loads: &'a Loads, f: &'a [f32], back: bool, x: &'a [f32], y: &'a mut [f32]) {
    let width = x.len() / loads.len().max(1);
    y.fill(0.0);
    for i in 0..loads.len() {
        let row = loads.row(i);
        for (&j, loads) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
            let (to, from) = if back { (j as usize, i) } else { (i, j as usize) };
            let x = &x[from * width..][..width];
            axpys(simd, &mut y[to * width..][..width], [dot(f, loads)], [x]);
        }
    }
}
}
