//! What the Interlacer is: its sizes, and where each tensor lies in the flat weight vector.
//!
//! x ← embed(features), then `n_blocks` times
//! - global: x += out(linear attention of LayerNorm(x)), every token with every other;
//! - local: x += out(GRF-masked attention of LayerNorm(x)), along the walks of the graph;
//! - MLP: x += down(ReLU(up(LayerNorm(x)))),
//!
//! and y = head(LayerNorm(x)) at the scene tokens (Whitney et al. 2024; GRF masking, section 4.4).
//! The global layer carries what is far apart, the local layer the geometry. Both can be others, or
//! left out ([`LayersConfig`]): the layout holds the flat sequence of what there is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::layers::{FeatureMap, GlobalLayer, LayersConfig, LocalLayer};
use crate::engine::graph::loads::MAX_PREFIXES;
use crate::engine::ops::grf_attention::MAX_HOP_WEIGHTS;
use crate::engine::ops::linear_attention::Heads;
use crate::engine::registry::{Layer, LayerKind};
use crate::{Error, Result};

/// Sizes of an Interlacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterlacerConfig {
    /// Input features a token.
    pub n_features: usize,
    /// Width d of the residual stream.
    pub width: usize,
    /// Heads of the global attention; divides `width`.
    pub n_heads: usize,
    /// Blocks of global attention, local attention and MLP.
    pub n_blocks: usize,
    /// Neighbours k of each token in the graph.
    pub k: usize,
    /// Hops of the walks.
    pub n_hops: usize,
    /// Outputs a scene token.
    pub n_outputs: usize,
    /// Token-mixing layers.
    pub layers: LayersConfig,
}

/// Largest value of each size that a model file may ask for.
const MAX_SIZE: usize = 4096;

impl InterlacerConfig {
    /// Checks sizes before anything is allocated for them.
    ///
    /// # Errors
    /// [`Error::Config`] names the first size that is out of range.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("n_features", self.n_features, MAX_SIZE),
            ("width", self.width, MAX_SIZE),
            ("n_heads", self.n_heads, self.width),
            ("n_blocks", self.n_blocks, 64),
            ("k", self.k, 32),
            ("n_hops", self.n_hops, MAX_HOP_WEIGHTS - 1),
            ("n_outputs", self.n_outputs, MAX_SIZE),
        ];
        for (name, value, max) in sizes {
            if value == 0 || value > max {
                let problem = format!("{value} is not in 1..={max}");
                return Err(Error::Config { key: format!("model.{name}"), problem });
            }
        }
        if !self.width.is_multiple_of(self.n_heads) {
            let problem = format!("{} does not divide width {}", self.n_heads, self.width);
            return Err(Error::Config { key: "model.n_heads".into(), problem });
        }
        self.layers.validate()?;
        if self.layers.local != LocalLayer::Grf {
            return Ok(());
        }
        if let FeatureMap::Favor { n_features, .. } = self.layers.feature_map
            && n_features * self.n_heads > MAX_SIZE
        {
            let all = n_features * self.n_heads;
            let problem = format!("{all} random features of all heads are more than {MAX_SIZE}");
            return Err(Error::Config { key: "model.layers.feature_map".into(), problem });
        }
        let hops = 0..=self.n_hops as u32;
        let n_prefixes = hops.fold(0usize, |n, t| n.saturating_add(self.k.saturating_pow(t)));
        if n_prefixes > MAX_PREFIXES {
            let problem = format!("{n_prefixes} walks a token are more than {MAX_PREFIXES}");
            return Err(Error::Config { key: "model.n_hops".into(), problem });
        }
        Ok(())
    }

    /// Width of the MLP's hidden layer.
    pub fn mlp_width(&self) -> usize {
        self.layers.mlp_ratio * self.width
    }

    /// Multiply-adds × 2 of one forward pass over `n_tokens` tokens with `n_entries` merged loads,
    /// `n_outputs` read at `n_scene` tokens. Exponentials count nothing.
    pub fn flops(&self, n_tokens: usize, n_entries: usize, n_scene: usize) -> f64 {
        let (n, d) = (n_tokens as f64, self.width as f64);
        let mixers = Layout::new(*self).mixers;
        let mixing: f64 = mixers.iter().map(|mixer| self.mixer_flops(mixer, n, n_entries)).sum();
        let mlps = self.n_blocks as f64 * 4.0 * n * d * self.mlp_width() as f64;
        mixing
            + mlps
            + 2.0 * n * d * self.n_features as f64
            + 2.0 * n_scene as f64 * d * self.n_outputs as f64
    }

    fn mixer_flops(&self, mixer: &Mixer, n: f64, n_entries: usize) -> f64 {
        let d = self.width as f64;
        match &mixer.kind {
            MixerKind::Linear { n_heads, .. } => {
                let features = self.heads(*n_heads).features() as f64;
                let width = self.heads(*n_heads).n_features as f64;
                self.projection_flops(n, true) + 4.0 * n * d * width + 2.0 * n * features
            }
            MixerKind::Grf { .. } => {
                let width = self.heads(1).n_features as f64;
                let entry = 2.0 * (width + d) + 2.0 * (self.n_hops + 1) as f64;
                self.projection_flops(n, true) + n_entries as f64 * entry
            }
            MixerKind::Registered(layer) => layer.flops(self, n),
        }
    }

    /// Multiply-adds × 2 of the projections around an attention, and of the feature map, if it has one, over
    /// `n` tokens.
    pub fn projection_flops(&self, n: f64, mapped: bool) -> f64 {
        let d = self.width as f64;
        let random = match self.layers.feature_map {
            FeatureMap::Favor { n_features, .. } if mapped => n_features as f64,
            _ => 0.0,
        };
        8.0 * n * d * d + 4.0 * n * random * d
    }

    /// Widths of an attention of `n_heads` heads that passes through the feature map.
    pub fn heads(&self, n_heads: usize) -> Heads {
        let heads = Heads::new(self.width, n_heads);
        match self.layers.feature_map {
            FeatureMap::Favor { n_features, .. } => Heads { n_features, ..heads },
            _ => heads,
        }
    }

    /// Whether features are random, and thus of a width of their own.
    pub(crate) fn has_random_features(&self) -> bool {
        matches!(self.layers.feature_map, FeatureMap::Favor { .. })
    }
}

/// Where a tensor lies in the flat weight vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// `len` numbers from `start` on.
    pub fn new(start: usize, len: usize) -> Self {
        Self { start, len }
    }

    /// How many numbers it has.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(self) -> usize {
        self.len
    }

    /// Its places in the vector.
    #[inline]
    pub fn range(self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }

    /// The tensor in `weights`.
    #[inline]
    pub fn of(self, weights: &[f32]) -> &[f32] {
        &weights[self.start..self.start + self.len]
    }

    /// The tensor in `weights`, to write.
    #[inline]
    pub fn of_mut(self, weights: &mut [f32]) -> &mut [f32] {
        &mut weights[self.start..self.start + self.len]
    }

    /// Two tensors that lie one behind the other, to write both.
    #[inline]
    pub fn pair_mut(self, next: Span, weights: &mut [f32]) -> (&mut [f32], &mut [f32]) {
        debug_assert_eq!(self.start + self.len, next.start);
        weights[self.start..next.start + next.len].split_at_mut(self.len)
    }
}

/// Weight and bias of a dense layer or of a LayerNorm, one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct Affine {
    /// Weight: `[in, out]`, or `[d]` of a LayerNorm.
    pub weight: Span,
    /// Bias `[out]`.
    pub bias: Span,
}

/// Tensors of an attention layer.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    /// LayerNorm before it.
    pub norm: Affine,
    /// Projection to `[q | k | v]`, `[d, 3d]`.
    pub qkv: Affine,
    /// Projection back, `[d, d]`.
    pub out: Affine,
}

/// A token-mixing layer. Between two synchronisations the engine runs the output of one and the
/// preparation of the next.
#[derive(Debug, Clone)]
pub struct Mixer {
    /// Its place among the model's mixers.
    pub index: usize,
    /// Its block.
    pub block: usize,
    /// What it does, and its tensors.
    pub kind: MixerKind,
}

/// Kinds of token-mixing layers.
#[derive(Debug, Clone)]
pub enum MixerKind {
    /// Linear attention, every token with every other.
    Linear {
        /// Projections.
        tensors: Attention,
        /// Heads.
        n_heads: usize,
    },
    /// GRF-masked attention of one head, along the walks of the graph.
    Grf {
        /// Projections.
        tensors: Attention,
        /// θ_t: f_t = softplus(θ_t), `[n_hops + 1]`.
        hop_logits: Span,
    },
    /// A registered layer, or one of those that it consists of.
    Registered(Arc<dyn Layer>),
}

impl MixerKind {
    /// Heads of an attention whose queries and keys pass through the feature map.
    pub(crate) fn mapped_heads(&self) -> Option<usize> {
        match self {
            Self::Linear { n_heads, .. } => Some(*n_heads),
            Self::Grf { .. } => Some(1),
            Self::Registered(layer) => layer.mapped_heads(),
        }
    }
}

/// The MLP that ends a block.
#[derive(Debug, Clone, Copy)]
pub struct Mlp {
    /// LayerNorm before it.
    pub norm: Affine,
    /// `[d, 4d]`.
    pub up: Affine,
    /// `[4d, d]`.
    pub down: Affine,
}

/// Name, shape and place of one tensor.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Name in model files.
    pub name: String,
    /// Shape in model files.
    pub shape: Vec<usize>,
    /// Place in the flat vector.
    pub span: Span,
}

/// The table of all tensors: the one definition that training, real time and files share.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Sizes.
    pub config: InterlacerConfig,
    /// Features to width, `[n_features, d]`.
    pub embed: Affine,
    /// Token-mixing layers of all blocks, in the order in which they run.
    pub mixers: Vec<Mixer>,
    /// The blocks' MLPs.
    pub mlps: Vec<Mlp>,
    /// LayerNorm before the head.
    pub head_norm: Affine,
    /// Width to outputs, `[d, n_outputs]`.
    pub head: Affine,
    /// All tensors, by place.
    pub tensors: Vec<Tensor>,
}

impl Layout {
    /// Lays out the tensors of `config` (which must be valid).
    pub fn new(config: InterlacerConfig) -> Self {
        let d = config.width;
        let mut table = TensorTable::default();
        let embed = table.dense("embed", config.n_features, d);
        let (mut mixers, mut mlps) = (Vec::new(), Vec::new());
        for block in 0..config.n_blocks {
            let mut kinds = table.global(&format!("blocks.{block}.global"), &config);
            kinds.extend(table.local(&format!("blocks.{block}.local"), &config));
            for kind in kinds {
                mixers.push(Mixer { index: mixers.len(), block, kind });
            }
            mlps.push(table.mlp(&format!("blocks.{block}.mlp"), &config));
        }
        let head_norm = table.norm("head.norm", d);
        let head = table.dense("head", d, config.n_outputs);
        Self { config, embed, mixers, mlps, head_norm, head, tensors: table.tensors }
    }

    /// The blocks whose MLP runs between mixer `i - 1` (the embedding, if 0) and mixer `i` (the
    /// head, behind the last).
    pub(crate) fn mlps_before(&self, i: usize) -> std::ops::Range<usize> {
        let block = |mixer: Option<&Mixer>| mixer.map(|mixer| mixer.block);
        let first = i.checked_sub(1).and_then(|before| block(self.mixers.get(before))).unwrap_or(0);
        first..block(self.mixers.get(i)).unwrap_or(self.mlps.len())
    }

    /// Numbers in the flat weight vector.
    pub fn n_params(&self) -> usize {
        self.tensors.last().map_or(0, |t| t.span.start + t.span.len)
    }
}

/// The tensors of a model that is laid out, one behind the other.
#[derive(Debug, Default)]
pub struct TensorTable {
    tensors: Vec<Tensor>,
    len: usize,
}

impl TensorTable {
    /// A tensor of this name and shape.
    pub fn tensor(&mut self, name: String, shape: Vec<usize>) -> Span {
        let span = Span { start: self.len, len: shape.iter().product() };
        self.len += span.len;
        self.tensors.push(Tensor { name, shape, span });
        span
    }

    /// `name.weight` `[n_in, n_out]` and `name.bias`.
    pub fn dense(&mut self, name: &str, n_in: usize, n_out: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![n_in, n_out]),
            bias: self.tensor(format!("{name}.bias"), vec![n_out]),
        }
    }

    /// Those of a LayerNorm of width `d`.
    pub fn norm(&mut self, name: &str, d: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![d]),
            bias: self.tensor(format!("{name}.bias"), vec![d]),
        }
    }

    /// Those around an attention of width `d`.
    pub fn attention(&mut self, name: &str, d: usize) -> Attention {
        Attention {
            norm: self.norm(&format!("{name}.norm"), d),
            qkv: self.dense(&format!("{name}.qkv"), d, 3 * d),
            out: self.dense(&format!("{name}.out"), d, d),
        }
    }

    fn global(&mut self, name: &str, config: &InterlacerConfig) -> Vec<MixerKind> {
        match config.layers.global {
            GlobalLayer::Linear => {
                let tensors = self.attention(name, config.width);
                vec![MixerKind::Linear { tensors, n_heads: config.n_heads }]
            }
            GlobalLayer::None => Vec::new(),
            GlobalLayer::Registered(kind) => self.registered(kind, name, config),
        }
    }

    fn local(&mut self, name: &str, config: &InterlacerConfig) -> Vec<MixerKind> {
        match config.layers.local {
            LocalLayer::Grf => {
                let tensors = self.attention(name, config.width);
                let hop_logits = self.tensor(format!("{name}.hop_logits"), vec![config.n_hops + 1]);
                vec![MixerKind::Grf { tensors, hop_logits }]
            }
            LocalLayer::Linear => {
                vec![MixerKind::Linear { tensors: self.attention(name, config.width), n_heads: 1 }]
            }
            LocalLayer::None => Vec::new(),
            LocalLayer::Registered(kind) => self.registered(kind, name, config),
        }
    }

    fn registered(
        &mut self,
        kind: LayerKind,
        name: &str,
        config: &InterlacerConfig,
    ) -> Vec<MixerKind> {
        kind.layers(name, self, config).into_iter().map(MixerKind::Registered).collect()
    }

    fn mlp(&mut self, name: &str, config: &InterlacerConfig) -> Mlp {
        let (d, wide) = (config.width, config.mlp_width());
        Mlp {
            norm: self.norm(&format!("{name}.norm"), d),
            up: self.dense(&format!("{name}.up"), d, wide),
            down: self.dense(&format!("{name}.down"), wide, d),
        }
    }
}
