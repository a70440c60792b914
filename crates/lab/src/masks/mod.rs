//! Masks beside that of the GRF attention, each in a file of its own, with a line in the table below.

mod causal;
mod centrality;
mod centroids;
#[cfg(test)]
pub(super) mod check;
mod diffusion;
mod factorised;
mod forest;
mod grid_heat;
mod grouped;
mod learnt_features;
mod low_rank;
mod mask;
mod packed;
mod padded_grid;
mod pagerank;
mod passes;
mod plain_diffusion;
mod products;
mod random_walk;
mod rwgnk;
mod series;
mod smoothing;
mod spanning;
mod stochastic_positions;
mod symmetric_grf;
mod toeplitz;
mod tree;
mod voxels;
mod walked;

use forecloud::engine::registry::Reads;
use mask::gradients_by_backward;

pub use causal::Causal;
pub use factorised::Factorised;
pub use grid_heat::GridHeat;
pub use low_rank::LowRank;
pub use mask::{BackwardColumns, Mask, MaskKind, MaskSpec, Nodes, StepMask};
pub use packed::{Packed, Part};
pub use rwgnk::Rwgnk;
pub use stochastic_positions::StochasticPositions;
pub use toeplitz::Toeplitz;
pub use tree::Tree;

/// A mask's type, its name in options and model files, what it is.
static MASKS: [MaskSpec; 13] = [
    MaskSpec::of::<series::Series>(
        "series",
        "power series of the graph, all walks up to the model's hops, by products with the graph",
    ),
    MaskSpec::of::<forest::Forest>(
        "forest",
        "exp(-a·distance) along the minimum spanning forest of the graph",
    ),
    MaskSpec::of::<tree::Tree>(
        "tree",
        "a number learnt for each distance along that forest up to 31 edges, 0 beyond",
    ),
    MaskSpec::of::<voxels::Voxels>(
        "voxels",
        "a number learnt for each offset between cells of a grid (mask.cell_m)",
    ),
    MaskSpec::of::<symmetric_grf::SymmetricGrf>(
        "symmetric_grf",
        "graph random features with sampled walks on both sides, of low rank",
    ),
    MaskSpec::of::<rwgnk::Rwgnk>(
        "rwgnk",
        "random walk graph-nodes kernel, the mask of graph kernel attention (GKAT)",
    ),
    MaskSpec::of::<diffusion::Diffusion>(
        "diffusion",
        "heat that spreads on the graph, exp(-λ·Laplacian)",
    ),
    MaskSpec::of::<plain_diffusion::LaplacianDiffusion>(
        "laplacian_diffusion",
        "heat that spreads faster where nodes have more edges, exp(-λ·(D - A))",
    ),
    MaskSpec::of::<plain_diffusion::AdjacencyDiffusion>(
        "adjacency_diffusion",
        "all walks, those of t hops by λ^t / t!, exp(λ·A) up to a factor",
    ),
    MaskSpec::of::<random_walk::RandomWalk>(
        "random_walk",
        "a walker who leaves at random times, exp(-λ·random walk's Laplacian)",
    ),
    MaskSpec::of::<pagerank::PageRank>(
        "pagerank",
        "a walker who may stop before each hop (personalised PageRank), (1 + σ·Laplacian)⁻¹",
    ),
    MaskSpec::of::<centrality::Centrality>(
        "centrality",
        "an ablation: a number learnt for each number of neighbours, whoever they are",
    ),
    MaskSpec::of::<learnt_features::LearntFeatures>(
        "learnt_features",
        "an ablation: features learnt for each stretch of the tokens' order, whatever the graph",
    ),
];

/// ln(1 + e^x), stable for large x: what makes parameters positive.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Derivative of [`softplus`].
fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}
