//! Token-mixing layers beside those that ship, and encodings of tokens. The engine knows them by
//! a registry: the laboratory (`crates/lab`) registers its own, and models that have them load wherever it is
//! linked. What runs on the robot is built without them.
//!
//! ```
//! use forecloud::engine::model::LocalLayer;
//!
//! let forest = || serde_json::from_str::<LocalLayer>("\"forest\"");
//! let problem = forest().expect_err("not registered").to_string();
//! assert!(problem.contains("`forest` is none of grf, linear, none"), "{problem}");
//! assert!(problem.contains("forecloud-lab"), "it says where others are: {problem}");
//! forecloud_lab::register();
//! assert_eq!(forest()?.name(), "forest");
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::{Arc, PoisonError, RwLock};

use crate::Result;
use crate::base::geometry::Vec3;
use crate::engine::graph::KnnGraph;
use crate::engine::graph::walks::WalkSeed;
use crate::engine::model::interlacer::{InterlacerConfig, TensorTable};
use crate::engine::step_graph::MaskConfig;

pub use crate::engine::model::cpu::{Gradients, LayerPass, MixerBuffers, chunks};

/// Where in a block a layer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the global layer's.
    Global,
    /// In the local layer's.
    Local,
}

/// Which settings of a model a layer reads; others are refused beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Weights of the graph's edges.
    pub edge_weights: bool,
    /// How walks are sampled.
    pub walks: bool,
    /// Side of the cells of a mask that counts cells.
    pub cell: bool,
    /// The feature map of queries and keys.
    pub feature_map: bool,
    /// Keys that a query chooses.
    pub top_k: bool,
    /// Tokens for each anchor.
    pub anchor_stride: bool,
}

impl Reads {
    /// None.
    pub const NOTHING: Self = Self {
        edge_weights: false,
        walks: false,
        cell: false,
        feature_map: false,
        top_k: false,
        anchor_stride: false,
    };
    /// The graph alone.
    pub const GRAPH: Self = Self { edge_weights: true, ..Self::NOTHING };
    /// Sampled walks on the graph.
    pub const WALKS: Self = Self { walks: true, ..Self::GRAPH };
    /// Cells, whatever the graph.
    pub const CELLS: Self = Self { cell: true, ..Self::NOTHING };
}

/// A layer to choose, and how it is made.
pub trait LayerSpec: Debug + Sync {
    /// Its name in options and model files.
    fn name(&self) -> &'static str;

    /// Where it stands.
    fn place(&self) -> Place;

    /// Which settings it reads.
    fn reads(&self) -> Reads;

    /// The layers that it consists of in one block, in the order in which they run. Their tensors, whose
    /// names begin with `name`, go into `table`.
    fn layers(
        &self,
        name: &str,
        table: &mut TensorTable,
        config: &InterlacerConfig,
    ) -> Vec<Arc<dyn Layer>>;

    /// Memory for what they read of a step's tokens; none if nothing.
    fn step_data(&self) -> Option<Box<dyn StepData>> {
        None
    }
}

/// A token-mixing layer with its tensors. It runs over all rows at once, in chunks of its own on all
/// threads; chunks and the order of all sums are the same for any number of threads.
pub trait Layer: Debug + Send + Sync {
    /// x += f(LayerNorm(x)), `x` `[n, d]`. What the backward pass needs stays in `kept`.
    fn forward(&self, pass: &LayerPass<'_>, kept: &mut MixerBuffers, x: &mut [f32]);

    /// From the gradient after the layer, in `dx` `[n, d]`, to that before it; adds to the weights'.
    fn backward(
        &self,
        pass: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        dx: &mut [f32],
        gradients: &mut Gradients,
    );

    /// Heads of an attention whose queries and keys pass through the feature map.
    fn mapped_heads(&self) -> Option<usize> {
        None
    }

    /// Multiply-adds × 2 of a forward pass over `n` tokens; exponentials count nothing.
    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64;
}

/// What layers read of the tokens of one step, built once for all blocks.
pub trait StepData: Any + Debug + Send + Sync {
    /// Number of tokens that it was built of.
    fn n_nodes(&self) -> usize;

    /// Builds it, in memory that it has.
    ///
    /// # Errors
    /// Says what the tokens lack.
    fn rebuild(&mut self, tokens: &StepTokens<'_>) -> Result<()>;
}

/// The tokens of one step, and how their graph is made.
#[derive(Debug, Clone, Copy)]
pub struct StepTokens<'a> {
    /// Where they are (world frame, m).
    pub positions: &'a [Vec3],
    /// Their neighbours.
    pub knn: &'a KnnGraph,
    /// The model's sizes.
    pub config: &'a InterlacerConfig,
    /// How masks are made.
    pub mask: &'a MaskConfig,
    /// Of what is drawn.
    pub seed: WalkSeed,
    /// Whether a backward pass follows.
    pub training: bool,
}

/// Features that tokens are told of their graph, to choose.
pub trait EncodingSpec: Debug + Sync {
    /// Its name in options and model files.
    fn name(&self) -> &'static str;

    /// Features a token.
    fn width(&self) -> usize;

    /// Features `[n, width]` of the tokens at `positions` (m), whose graph has `k` neighbours of each. None
    /// of it is differentiated.
    ///
    /// # Errors
    /// Says what the tokens lack.
    fn encode(&self, positions: &[Vec3], k: usize) -> Result<Vec<f32>>;
}

/// What can be registered: layers, or encodings.
pub trait Family: 'static {
    /// The name of one of them.
    fn name(&self) -> &'static str;

    /// All that are registered, in the order in which they were.
    fn known() -> &'static RwLock<Vec<Kind<Self>>>;
}

impl Family for dyn LayerSpec {
    fn name(&self) -> &'static str {
        LayerSpec::name(self)
    }

    fn known() -> &'static RwLock<Vec<Kind<Self>>> {
        static KNOWN: RwLock<Vec<LayerKind>> = RwLock::new(Vec::new());
        &KNOWN
    }
}

impl Family for dyn EncodingSpec {
    fn name(&self) -> &'static str {
        EncodingSpec::name(self)
    }

    fn known() -> &'static RwLock<Vec<Kind<Self>>> {
        static KNOWN: RwLock<Vec<EncodingKind>> = RwLock::new(Vec::new());
        &KNOWN
    }
}

/// Makes `kinds` known to models; a name that is known already stays what it is.
pub fn register<T: Family + ?Sized>(kinds: impl IntoIterator<Item = Kind<T>>) {
    let mut known = T::known().write().unwrap_or_else(PoisonError::into_inner);
    for kind in kinds {
        if !known.contains(&kind) {
            known.push(kind);
        }
    }
}

/// One of a family. Two of one name are the same.
pub struct Kind<T: ?Sized + 'static>(&'static T);

/// A layer that is registered.
pub type LayerKind = Kind<dyn LayerSpec>;
/// Encodings that are registered.
pub type EncodingKind = Kind<dyn EncodingSpec>;

impl<T: Family + ?Sized> Kind<T> {
    /// That of `spec`, which [`register`] makes known.
    pub const fn of(spec: &'static T) -> Self {
        Self(spec)
    }

    /// Its name in options and model files.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// All that are registered.
    pub fn all() -> Vec<Self> {
        #[cfg(test)]
        crate::engine::lab::register();
        T::known().read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T: ?Sized> Clone for Kind<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Kind<T> {}

impl<T: ?Sized> std::ops::Deref for Kind<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Family + ?Sized> PartialEq for Kind<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl<T: Family + ?Sized> Eq for Kind<T> {}

impl<T: Family + ?Sized> Debug for Kind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// That of `all` whose name is `name`; `n_shipped` of them are there without the laboratory.
pub(crate) fn named<T: Copy>(
    what: &str,
    name: &str,
    all: &[T],
    n_shipped: usize,
    name_of: fn(T) -> &'static str,
) -> std::result::Result<T, String> {
    all.iter().copied().find(|one| name_of(*one) == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name_of(*one)).collect();
        let more = match all.len() == n_shipped {
            true => {
                "; others are in the crate forecloud-lab, which this program is built without: use the \
                 tool `forecloud`, or call forecloud_lab::register() first"
            }
            false => "",
        };
        format!("{what} `{name}` is none of {}{more}", names.join(", "))
    })
}
