//! What the Interlacer is: its sizes, and where each tensor lies in the flat weight vector.
//!
//! x ← embed(features), then `n_blocks` times
//! - global: x += out(linear attention of LayerNorm(x)), every token with every other;
//! - local: x += out(GRF-masked attention of LayerNorm(x)), along the walks of the graph;
//! - MLP: x += down(ReLU(up(LayerNorm(x)))),
//!
//! and y = head(LayerNorm(x)) at the scene tokens (Whitney et al. 2024; GRF masking, section 4.4).
//! The global layer carries what is far apart, the local layer the geometry.

use serde::{Deserialize, Serialize};

use crate::graph::loads::MAX_PREFIXES;
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
            ("n_hops", self.n_hops, 8),
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
        4 * self.width
    }

    /// Multiply-adds × 2 of one forward pass over `n_tokens` tokens with `n_entries` merged loads,
    /// `n_outputs` read at `n_scene` tokens.
    pub fn flops(&self, n_tokens: usize, n_entries: usize, n_scene: usize) -> f64 {
        let (n, d) = (n_tokens as f64, self.width as f64);
        let head = d / self.n_heads as f64;
        let dense = 2.0 * n * d * (8.0 * d + 8.0 * d) + 4.0 * n * d * head + 2.0 * n * d;
        let local = n_entries as f64 * (4.0 * d + 2.0 * (self.n_hops + 1) as f64);
        self.n_blocks as f64 * (dense + local)
            + 2.0 * n * d * self.n_features as f64
            + 2.0 * n_scene as f64 * d * self.n_outputs as f64
    }
}

/// Where a tensor lies in the flat weight vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
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

/// A token-mixing layer: what the engine runs between two synchronisations.
#[derive(Debug, Clone, Copy)]
pub struct Mixer {
    /// Its block.
    pub block: usize,
    /// What it does, and its tensors.
    pub kind: MixerKind,
}

/// Kinds of token-mixing layers.
#[derive(Debug, Clone, Copy)]
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
        let mut table = Table::default();
        let embed = table.dense("embed", config.n_features, d);
        let (mut mixers, mut mlps) = (Vec::new(), Vec::new());
        for block in 0..config.n_blocks {
            let mut push = |kind| mixers.push(Mixer { block, kind });
            let tensors = table.attention(&format!("blocks.{block}.global"), d);
            push(MixerKind::Linear { tensors, n_heads: config.n_heads });
            let tensors = table.attention(&format!("blocks.{block}.local"), d);
            let hop_logits =
                table.tensor(format!("blocks.{block}.local.hop_logits"), vec![config.n_hops + 1]);
            push(MixerKind::Grf { tensors, hop_logits });
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

#[derive(Default)]
struct Table {
    tensors: Vec<Tensor>,
    len: usize,
}

impl Table {
    fn tensor(&mut self, name: String, shape: Vec<usize>) -> Span {
        let span = Span { start: self.len, len: shape.iter().product() };
        self.len += span.len;
        self.tensors.push(Tensor { name, shape, span });
        span
    }

    fn dense(&mut self, name: &str, n_in: usize, n_out: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![n_in, n_out]),
            bias: self.tensor(format!("{name}.bias"), vec![n_out]),
        }
    }

    fn norm(&mut self, name: &str, d: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![d]),
            bias: self.tensor(format!("{name}.bias"), vec![d]),
        }
    }

    fn mlp(&mut self, name: &str, config: &InterlacerConfig) -> Mlp {
        let (d, wide) = (config.width, config.mlp_width());
        Mlp {
            norm: self.norm(&format!("{name}.norm"), d),
            up: self.dense(&format!("{name}.up"), d, wide),
            down: self.dense(&format!("{name}.down"), wide, d),
        }
    }

    fn attention(&mut self, name: &str, d: usize) -> Attention {
        Attention {
            norm: self.norm(&format!("{name}.norm"), d),
            qkv: self.dense(&format!("{name}.qkv"), d, 3 * d),
            out: self.dense(&format!("{name}.out"), d, d),
        }
    }
}
