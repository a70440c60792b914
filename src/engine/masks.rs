//! Masks of linear attention: what a token may hear of another, as a matrix M that is never written
//! out. Attention under any of them (general efficient low-rank masked attention, Choromanski et al.
//! 2022, Algorithm 1: [`crate::engine::ops::masked_attention`]) needs M only as products with columns.
//!
//! The masks themselves are the laboratory's (`crates/lab`), which registers them; models that have one load
//! wherever the laboratory is linked.

// Tests of the engine run under every mask; what runs on the robot is built without them.
#[cfg(test)]
#[path = "../../crates/lab/src/masks/mod.rs"]
#[allow(unused_imports, reason = "what other crates take of it")]
mod lab;
mod step;

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

use crate::Result;
use crate::base::geometry::Vec3;
use crate::base::scratch::with_scratch;
use crate::engine::graph::WeightedGraph;
use crate::engine::graph::walks::{WalkConfig, WalkSeed};

pub use step::{MaskConfig, StepGraph};

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
    pub const GRAPH: Self = Self { edge_weights: true, walks: false, cell: false };
    /// Sampled walks on the graph.
    pub const WALKS: Self = Self { walks: true, ..Self::GRAPH };
    /// Cells, whatever the graph.
    pub const CELLS: Self = Self { edge_weights: false, walks: false, cell: true };
    /// Nothing of it.
    pub const NOTHING: Self = Self { cell: false, ..Self::CELLS };
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
pub fn gradients_by_backward(
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
pub trait StepMask: Mask + CloneMask {
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

/// Copies of a mask whose type is not known.
pub trait CloneMask {
    /// The same mask once more.
    fn boxed(&self) -> Box<dyn StepMask>;
}

impl<T: StepMask + Clone + 'static> CloneMask for T {
    fn boxed(&self) -> Box<dyn StepMask> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn StepMask> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// A mask to choose: its name, what it is, and how it is made.
#[derive(Debug)]
pub struct MaskSpec {
    name: &'static str,
    about: &'static str,
    n_params: fn(usize) -> usize,
    reads: fn() -> Reads,
    build: fn() -> Box<dyn StepMask>,
}

impl MaskSpec {
    /// The mask of type `T`: its name in options and model files, and what it is, in a few words.
    pub const fn of<T: StepMask + Clone + Default + 'static>(
        name: &'static str,
        about: &'static str,
    ) -> Self {
        fn build<T: StepMask + Default + 'static>() -> Box<dyn StepMask> {
            Box::new(T::default())
        }
        Self { name, about, n_params: T::n_params, reads: T::reads, build: build::<T> }
    }
}

/// All that were registered, in the order in which they were.
static REGISTERED: RwLock<Vec<MaskKind>> = RwLock::new(Vec::new());

/// Makes masks known to models; a name that is known already stays what it is.
pub fn register(specs: &'static [MaskSpec]) {
    let mut known = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    for spec in specs {
        if known.iter().all(|kind| kind.name() != spec.name) {
            known.push(MaskKind(spec));
        }
    }
}

/// A registered mask.
#[derive(Clone, Copy)]
pub struct MaskKind(&'static MaskSpec);

impl PartialEq for MaskKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for MaskKind {}

impl Debug for MaskKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl MaskKind {
    /// All that are registered: what the tool's options, the comparison and the tests run through.
    pub fn all() -> Vec<Self> {
        #[cfg(test)]
        lab::register();
        REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// That of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// Parameters that a layer of it learns: see [`StepMask::n_params`].
    pub fn n_params(self, n_hops: usize) -> usize {
        (self.0.n_params)(n_hops)
    }

    /// Which settings it reads.
    pub fn reads(self) -> Reads {
        (self.0.reads)()
    }

    /// The mask over any graph: of pixels ([`WeightedGraph::of_depth`]), of a robot's links, of
    /// a sentence. Parameters: [`MaskKind::n_params`] of the nodes' hops.
    ///
    /// # Errors
    /// As [`StepMask::rebuild`].
    pub fn over(self, nodes: &Nodes<'_>) -> Result<Box<dyn Mask>> {
        let mut mask = self.build();
        mask.rebuild(nodes)?;
        Ok(mask)
    }

    pub(super) fn build(self) -> Box<dyn StepMask> {
        (self.0.build)()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mask_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = MaskKind::all().iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), MaskKind::all().len());
        for kind in MaskKind::all() {
            assert!(!kind.about().is_empty());
        }
    }

    /// Of no nodes, and of fewer nodes than before.
    #[test]
    fn every_mask_is_rebuilt_for_other_nodes() {
        for kind in MaskKind::all() {
            let mut mask = kind.build();
            for graph in lab::check::graphs() {
                mask.rebuild(&graph.nodes()).unwrap();
                let n = graph.positions.len();
                assert_eq!(mask.n_nodes(), n, "{} of {}", kind.name(), graph.name);
                let params = vec![0.0; kind.n_params(graph.nodes().n_hops)];
                let (x, mut again) = (vec![1.0; 3 * n], vec![f32::NAN; 3 * n]);
                let mut y = again.clone();
                mask.apply(&params, &x, &mut y);
                let mut fresh = kind.build();
                fresh.rebuild(&graph.nodes()).unwrap();
                fresh.apply(&params, &x, &mut again);
                assert_eq!(y, again, "{} of {}", kind.name(), graph.name);
                assert!(y.iter().all(|y| *y >= 0.0), "a mask is no sign");
            }
        }
    }
}
