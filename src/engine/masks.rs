//! Masks of linear attention: what a token may hear of another, as a matrix M that is never written
//! out. Attention under any of them (general efficient low-rank masked attention, Choromanski et al.
//! 2022, Algorithm 1: [`crate::engine::ops::masked_attention`]) needs M only as products with columns.
//!
//! A mask has a file of its own and a line in the table below; nothing else knows it by name.

mod causal;
mod centrality;
mod centroids;
#[cfg(test)]
mod check;
mod diffusion;
mod factorised;
mod forest;
mod grid_heat;
mod grouped;
mod learnt_features;
mod packed;
mod padded_grid;
mod pagerank;
mod passes;
mod products;
mod random_walk;
mod rwgnk;
mod series;
mod smoothing;
mod spanning;
mod step;
mod symmetric_grf;
mod toeplitz;
mod tree;
mod voxels;
mod walked;

use std::fmt::Debug;

use crate::Result;
use crate::base::geometry::Vec3;
use crate::base::scratch::with_scratch;
use crate::engine::graph::WeightedGraph;
use crate::engine::graph::walks::{WalkConfig, WalkSeed};

pub use causal::Causal;
pub use factorised::Factorised;
pub use grid_heat::GridHeat;
pub use packed::{Packed, Part};
pub use step::{MaskConfig, StepGraph};
pub use toeplitz::Toeplitz;

/// What a mask is made of: the tokens of one step, which are the graph's nodes.
#[derive(Debug, Clone, Copy)]
pub struct Nodes<'a> {
    /// Where they are (world frame, m).
    pub positions: &'a [Vec3],
    /// Their k-NN graph; the weights of each node's edges sum to one.
    pub graph: &'a WeightedGraph,
    /// Hops T of the model's graph: how far masks reach that count hops.
    pub n_hops: usize,
    /// How walks are sampled, of masks that sample them; none is as they have it without settings.
    pub walks: Option<WalkConfig>,
    /// Side of the cells of masks that count cells (m).
    pub cell_m: f32,
    /// Of what is drawn.
    pub seed: WalkSeed,
}

/// Which settings of [`MaskConfig`] a mask reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Weights of the graph's edges.
    pub edge_weights: bool,
    /// How walks are sampled.
    pub walks: bool,
    /// Side of the cells.
    pub cell: bool,
}

impl Reads {
    /// The graph alone.
    const GRAPH: Self = Self { edge_weights: true, walks: false, cell: false };
    /// Sampled walks on the graph.
    const WALKS: Self = Self { walks: true, ..Self::GRAPH };
    /// Cells, whatever the graph.
    const CELLS: Self = Self { edge_weights: false, walks: false, cell: true };
    /// Nothing of it.
    const NOTHING: Self = Self { cell: false, ..Self::CELLS };
}

/// A matrix M `[n, n]`, known by its products with columns.
///
/// Columns lie in rows `[n, width]`, a row a node. Parameters are any real numbers, which start at 0.
/// Products are of one thread: attention runs those of many columns side by side.
pub trait Mask: Debug + Send + Sync {
    /// Number of nodes n.
    fn n_nodes(&self) -> usize;

    /// y = M x.
    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]);

    /// y = Mᵀ x.
    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]);

    /// Adds the gradient of Σ dy·(M x) by the parameters to `d_params`.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]);

    /// Where nodes of a group hear the same and are heard alike, M = G F Gᵀ: the group of each node
    /// (G_ig = 1), and F. Attention then sums over groups first, and asks for products with F alone.
    fn groups(&self) -> Option<(&[u32], &dyn Mask)> {
        None
    }

    /// All that a backward pass asks for: y = M x, dx = Mᵀ dy, and [`Self::gradients`]. For masks that
    /// make the same products on the way to all three, and make them once here.
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.apply(params, x, y);
        self.apply_transposed(params, dy, dx);
        self.gradients(params, x, dy, d_params);
    }
}

/// Columns of a backward pass, all of one size.
#[derive(Debug)]
pub struct BackwardColumns<'a> {
    /// What the forward pass was given.
    pub x: &'a [f32],
    /// Gradients of what it gave.
    pub dy: &'a [f32],
    /// Where M x is written.
    pub y: &'a mut [f32],
    /// Where Mᵀ dy is written.
    pub dx: &'a mut [f32],
}

/// [`Mask::gradients`] of a mask that has a [`Mask::backward`] of its own.
fn gradients_by_backward(
    mask: &impl Mask,
    params: &[f32],
    [x, dy]: [&[f32]; 2],
    d_params: &mut [f64],
) {
    with_scratch(2 * x.len(), |scratch| {
        let (y, dx) = scratch.split_at_mut(x.len());
        mask.backward(params, BackwardColumns { x, dy, y, dx }, d_params);
    });
}

/// A mask over the tokens of one step. What is built of them serves all layers of the step; each layer
/// has parameters of its own.
pub trait StepMask: Mask {
    /// Parameters that a layer learns, in a model whose graph has `n_hops` hops.
    fn n_params(n_hops: usize) -> usize
    where
        Self: Sized;

    /// Which settings it reads; others are refused beside it.
    fn reads() -> Reads
    where
        Self: Sized;

    /// Builds the mask for `nodes`, in memory that it has.
    ///
    /// # Errors
    /// Says what the nodes lack.
    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()>;
}

/// The table of masks: a line is a mask's type, its name in options and model files, what it is.
macro_rules! table {
    ($($kind:ident($type:ty), $name:literal, $about:literal;)*) => {
        /// Masks to choose from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MaskKind {
            $(#[doc = $about] $kind,)*
        }

        impl MaskKind {
            /// All: what the tool's options, the comparison and the tests run through.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Its name in options and model files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// What it is, in a few words.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$kind => $about,)* }
            }

            /// Parameters that a layer of it learns: see [`StepMask::n_params`].
            pub fn n_params(self, n_hops: usize) -> usize {
                match self { $(Self::$kind => <$type>::n_params(n_hops),)* }
            }

            /// Which settings it reads.
            pub fn reads(self) -> Reads {
                match self { $(Self::$kind => <$type>::reads(),)* }
            }

            /// The mask over any graph: of pixels ([`WeightedGraph::of_depth`]), of a robot's links, of
            /// a sentence. Parameters: [`MaskKind::n_params`] of the nodes' hops.
            ///
            /// # Errors
            /// As [`StepMask::rebuild`].
            pub fn over(self, nodes: &Nodes<'_>) -> Result<Box<dyn Mask>> {
                match self {
                    $(Self::$kind => {
                        let mut mask = <$type>::default();
                        mask.rebuild(nodes)?;
                        Ok(Box::new(mask))
                    })*
                }
            }

            fn build(self) -> BuiltMask {
                match self { $(Self::$kind => BuiltMask::$kind(<$type>::default()),)* }
            }
        }

        /// A mask of one of the kinds, built of a step's nodes.
        #[derive(Debug, Clone)]
        enum BuiltMask {
            $($kind($type),)*
        }

        impl BuiltMask {
            fn kind(&self) -> MaskKind {
                match self { $(Self::$kind(_) => MaskKind::$kind,)* }
            }

            fn get(&self) -> &dyn Mask {
                match self { $(Self::$kind(mask) => mask,)* }
            }

            fn get_mut(&mut self) -> &mut dyn StepMask {
                match self { $(Self::$kind(mask) => mask,)* }
            }
        }
    };
}

table! {
    Series(series::Series), "series",
        "power series of the graph, all walks up to the model's hops, by products with the graph";
    Forest(forest::Forest), "forest",
        "exp(-a·distance) along the minimum spanning forest of the graph";
    Tree(tree::Tree), "tree",
        "a number learnt for each distance in edges along that forest";
    Voxels(voxels::Voxels), "voxels",
        "a number learnt for each offset between cells of a grid (mask.cell_m)";
    SymmetricGrf(symmetric_grf::SymmetricGrf), "symmetric_grf",
        "graph random features with sampled walks on both sides, of low rank";
    Rwgnk(rwgnk::Rwgnk), "rwgnk",
        "random walk graph-nodes kernel, the mask of graph kernel attention (GKAT)";
    Diffusion(diffusion::Diffusion), "diffusion",
        "heat that spreads on the graph, exp(-λ·Laplacian)";
    RandomWalk(random_walk::RandomWalk), "random_walk",
        "a walker who leaves at random times, exp(-λ·random walk's Laplacian)";
    PageRank(pagerank::PageRank), "pagerank",
        "a walker who may stop before each hop (personalised PageRank), (1 + σ·Laplacian)⁻¹";
    Centrality(centrality::Centrality), "centrality",
        "an ablation: a number learnt for each number of neighbours, whoever they are";
    LearntFeatures(learnt_features::LearntFeatures), "learnt_features",
        "an ablation: features learnt for each stretch of the tokens' order, whatever the graph";
}

/// ln(1 + e^x), stable for large x: what makes parameters positive.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Derivative of [`softplus`].
fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mask_has_a_name_of_its_own_and_builds_itself() {
        let names: BTreeSet<&str> = MaskKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), MaskKind::ALL.len());
        for kind in MaskKind::ALL {
            assert_eq!(kind.build().kind(), kind);
            assert!(!kind.about().is_empty());
        }
    }

    /// Of no nodes, and of fewer nodes than before.
    #[test]
    fn every_mask_is_rebuilt_for_other_nodes() {
        for kind in MaskKind::ALL {
            let mut mask = kind.build();
            for graph in check::graphs() {
                mask.get_mut().rebuild(&graph.nodes()).unwrap();
                let n = graph.positions.len();
                assert_eq!(mask.get().n_nodes(), n, "{} of {}", kind.name(), graph.name);
                let params = vec![0.0; kind.n_params(graph.nodes().n_hops)];
                let (x, mut again) = (vec![1.0; 3 * n], vec![f32::NAN; 3 * n]);
                let mut y = again.clone();
                mask.get().apply(&params, &x, &mut y);
                let mut fresh = kind.build();
                fresh.get_mut().rebuild(&graph.nodes()).unwrap();
                fresh.get().apply(&params, &x, &mut again);
                assert_eq!(y, again, "{} of {}", kind.name(), graph.name);
                assert!(y.iter().all(|y| *y >= 0.0), "a mask is no sign");
            }
        }
    }
}
