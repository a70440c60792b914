//! Masks of linear attention: what a token may hear of another, as a matrix M that is never written
//! out. Attention under any of them (general efficient low-rank masked attention, Choromanski et al.
//! 2022, Algorithm 1: [`super::super::ops::masked_attention`]) needs M only as products with columns.

use std::fmt::Debug;
use std::sync::Arc;

use super::MASKS;
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::base::scratch::with_scratch;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::graph::walks::{WalkConfig, WalkSeed};
use forecloud::engine::registry::{LayerKind, Reads};

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

/// A mask that several hold: a part of others, and for itself.
impl<M: Mask + ?Sized> Mask for Arc<M> {
    fn n_nodes(&self) -> usize {
        (**self).n_nodes()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        (**self).apply(params, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        (**self).apply_transposed(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        (**self).gradients(params, x, dy, d_params);
    }

    fn groups(&self) -> Option<(&[u32], &dyn Mask)> {
        (**self).groups()
    }

    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        (**self).backward(params, columns, d_params);
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

/// A mask to choose: its name, what it is, and how it is made.
#[derive(Debug)]
pub struct MaskSpec {
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) n_params: fn(usize) -> usize,
    pub(crate) reads: fn() -> Reads,
    pub(crate) build: fn() -> Box<dyn StepMask>,
}

impl MaskSpec {
    /// The mask of type `T`: its name in options and model files, and what it is, in a few words.
    pub(super) const fn of<T: StepMask + Default + 'static>(
        name: &'static str,
        about: &'static str,
    ) -> Self {
        fn build<T: StepMask + Default + 'static>() -> Box<dyn StepMask> {
            Box::new(T::default())
        }
        Self { name, about, n_params: T::n_params, reads: T::reads, build: build::<T> }
    }
}

/// A mask of the table.
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
    /// All: what the tool's options, the comparison and the tests run through.
    pub fn all() -> Vec<Self> {
        MASKS.iter().map(Self).collect()
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

    /// Attention under it, as a local layer.
    pub fn layer(self) -> LayerKind {
        LayerKind::of(self.0)
    }

    /// The mask over any graph: of pixels ([`WeightedGraph::of_depth`]), of a robot's links, of
    /// a sentence. Parameters: [`MaskKind::n_params`] of the nodes' hops.
    ///
    /// # Errors
    /// As [`StepMask::rebuild`].
    pub fn over(self, nodes: &Nodes<'_>) -> Result<Box<dyn Mask>> {
        let mut mask = (self.0.build)();
        mask.rebuild(nodes)?;
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::check::graphs;
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
            let mut mask = (kind.0.build)();
            for graph in graphs() {
                mask.rebuild(&graph.nodes()).unwrap();
                let n = graph.positions.len();
                assert_eq!(mask.n_nodes(), n, "{} of {}", kind.name(), graph.name);
                let params = vec![0.0; kind.n_params(graph.nodes().n_hops)];
                let (x, mut again) = (vec![1.0; 3 * n], vec![f32::NAN; 3 * n]);
                let mut y = again.clone();
                mask.apply(&params, &x, &mut y);
                let fresh = kind.over(&graph.nodes()).unwrap();
                fresh.apply(&params, &x, &mut again);
                assert_eq!(y, again, "{} of {}", kind.name(), graph.name);
                assert!(y.iter().all(|y| *y >= 0.0), "a mask is no sign");
            }
        }
    }
}
