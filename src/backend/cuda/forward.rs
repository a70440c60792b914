//! From tokens to outputs on the device: k-NN graph, merged loads, the Interlacer.

use super::Gpu;
use super::kernels::{Dense, Grid, Kernel, LoadsBuffers, TileBuffers, n_partials, number};
use super::memory::{Buffer, Places};
use super::model::{DeviceModel, row_cap};
use super::stage::Stage;
use crate::model::Span;
use crate::model::interlacer::{Affine, Attention, MixerKind, Mlp};
use crate::model::rollout::RolloutConfig;
use crate::{Error, Result};

/// Most tokens that are compared all with all; more are searched by tiles.
const MAX_BRUTE_FORCE: usize = 8192;
/// Most tokens, and most points on the robot: their numbers are below 2³² then.
pub(super) const MAX_TOKENS: usize = 1 << 24;

/// Holds the number of tokens to what there is room for and to the `k` neighbours of each.
///
/// # Errors
/// [`Error::Shape`] for too many, [`Error::TooFewPoints`].
pub(super) fn check_tokens(n_tokens: usize, k: usize) -> Result<()> {
    if n_tokens > MAX_TOKENS {
        return Err(Error::Shape { what: "tokens", expected: MAX_TOKENS, got: n_tokens });
    }
    if n_tokens <= k {
        return Err(Error::TooFewPoints { needed: k + 1, got: n_tokens });
    }
    Ok(())
}

/// How much a pass takes: one scene, or several of the same sizes, one behind the other in all buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub n_scenes: usize,
    /// Of each scene: tokens, and scene particles, which are the first of them.
    pub n_tokens: usize,
    pub n_particles: usize,
}

/// What is between tokens and outputs, in one arena.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers {
    extent: Extent,
    pub token_positions: Buffer<f32>,
    pub features: Buffer<f32>,
    pub neighbors: Buffer<u32>,
    pub tiles: TileBuffers,
    pub row_lens: Buffer<u32>,
    row_nodes: Buffer<u32>,
    row_loads: Buffer<f32>,
    x: Buffer<f32>,
    qkv: Buffer<f32>,
    attention: Buffer<f32>,
    hidden: Buffer<f32>,
    partials: Buffer<f32>,
    folded: Buffer<f32>,
    z: Buffer<f32>,
    pub outputs: Buffer<f32>,
}

impl Buffers {
    /// Takes places for tokens of `extent`.
    pub fn take(config: &RolloutConfig, extent: Extent, places: &mut Places) -> Self {
        let Extent { n_scenes, n_tokens, n_particles } = extent;
        let (model, d) = (&config.interlacer, config.interlacer.width);
        let tokens = n_scenes * n_tokens;
        let n_rows = tokens * row_cap(n_tokens, model.k, model.n_hops);
        let state_len = d * (d / model.n_heads + 1);
        Self {
            extent,
            token_positions: places.take(3 * tokens),
            features: places.take(model.n_features * tokens),
            neighbors: places.take(model.k * tokens),
            tiles: TileBuffers::take(if n_scenes == 1 { tokens } else { 0 }, places),
            row_lens: places.take(tokens),
            row_nodes: places.take(n_rows),
            row_loads: places.take(n_rows * (model.n_hops + 1)),
            x: places.take(d * tokens),
            qkv: places.take(3 * d * tokens),
            attention: places.take(d * tokens),
            hidden: places.take(model.mlp_width() * tokens),
            partials: places.take(n_scenes * state_len * n_partials(n_tokens, d)),
            folded: places.take(n_scenes * d * d),
            z: places.take(n_scenes * d),
            outputs: places.take(n_scenes * model.n_outputs * n_particles),
        }
    }

    /// What the kernels of the mask take.
    pub fn loads(&self, config: &RolloutConfig) -> LoadsBuffers {
        let (extent, model) = (self.extent, &config.interlacer);
        LoadsBuffers {
            lens: self.row_lens.address(),
            nodes: self.row_nodes.address(),
            loads: self.row_loads.address(),
            n: number(extent.n_scenes * extent.n_tokens),
            cap: number(row_cap(extent.n_tokens, model.k, model.n_hops)),
            n_hops: number(model.n_hops),
        }
    }
}

/// The way from tokens to outputs, over one set of buffers.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a> {
    pub gpu: &'a Gpu,
    pub model: &'a DeviceModel,
    pub buffers: &'a Buffers,
    /// Only this stage, to measure it.
    pub only: Option<Stage>,
}

impl Forward<'_> {
    /// Begins all kernels from tokens to outputs.
    pub fn run(&self) -> Result<()> {
        self.graph()?;
        self.interlacer()
    }

    /// Begins it, unless another stage is measured.
    pub fn stage(&self, stage: Stage, begin: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.only.is_none_or(|only| only == stage) { begin() } else { Ok(()) }
    }

    /// k-NN graph and merged loads of the tokens.
    fn graph(&self) -> Result<()> {
        let (b, k) = (self.buffers, self.model.config.interlacer.k);
        self.stage(Stage::Neighbors, || self.neighbors())?;
        let loads = b.loads(&self.model.config);
        self.stage(Stage::Walks, || self.gpu.enumerate_walks(b.neighbors, k, &loads))
    }

    /// The k nearest of each token in its scene, by whichever search is quicker; tiles are of one scene.
    pub fn neighbors(&self) -> Result<()> {
        let (b, k) = (self.buffers, self.model.config.interlacer.k);
        let Extent { n_scenes, n_tokens, .. } = b.extent;
        if n_tokens <= MAX_BRUTE_FORCE || n_scenes > 1 {
            return self.gpu.knn(b.token_positions, n_scenes, k, b.neighbors);
        }
        let grid = Grid::new(&self.model.config.tokens.frame);
        self.gpu.knn_tiled(b.token_positions, k, &grid, &b.tiles, b.neighbors)
    }

    /// The Interlacer, from features to outputs.
    fn interlacer(&self) -> Result<()> {
        let (b, layout) = (self.buffers, &self.model.layout);
        self.stage(Stage::Embed, || {
            self.dense(Kernel::DensePlain, b.features, layout.embed, b.x, Dense::default())
        })?;
        for i in 0..=layout.mixers.len() {
            for block in layout.mlps_before(i) {
                self.mlp(&layout.mlps[block])?;
            }
            let Some(mixer) = layout.mixers.get(i) else { break };
            match mixer.kind {
                MixerKind::Linear { ref tensors, n_heads } => self.linear(tensors, n_heads)?,
                MixerKind::Grf { ref tensors, hop_logits } => self.grf(tensors, hop_logits)?,
                // `unsupported` refuses such models.
                MixerKind::Softmax { .. }
                | MixerKind::KMip { .. }
                | MixerKind::Messages { .. }
                | MixerKind::Masked { .. } => {
                    let problem = "has a layer that runs on the CPU only".into();
                    return Err(Error::Config { key: "model.layers".into(), problem });
                }
            }
        }
        // Of the first rows of each scene.
        let x_rows = number(b.extent.n_tokens);
        let (head, norm) = (layout.head, self.normed(layout.head_norm, 0));
        let layer = Dense { x_rows, ..norm };
        let matrices = [self.model.tensor(head.weight), self.model.tensor(head.bias)];
        self.stage(Stage::Head, || {
            self.scene_by_scene(Kernel::DenseNorm, b.x, matrices, b.outputs, layer)
        })
    }

    /// x += out(linear attention).
    fn linear(&self, tensors: &Attention, n_heads: usize) -> Result<()> {
        let (gpu, b, d) = (self.gpu, self.buffers, self.model.config.interlacer.width);
        let (widths, Extent { n_scenes, n_tokens, .. }) = ([d, d / n_heads], b.extent);
        self.qkv(tensors)?;
        self.stage(Stage::LinearState, || {
            gpu.linear_state(b.qkv, n_scenes, widths, b.partials)?;
            gpu.linear_fold(
                b.partials,
                n_scenes,
                widths,
                self.model.tensor(tensors.out.weight),
                b.folded,
                b.z,
            )
        })?;
        let (z, n_heads) = (b.z.address(), number(n_heads));
        let bias = self.model.tensor(tensors.out.bias);
        let (x_stride, x_rows) = (number(3 * d), number(n_tokens));
        let layer = Dense { z, n_heads, x_stride, x_rows, own_weights: 1, ..Dense::default() };
        self.stage(Stage::LinearOut, || {
            self.scene_by_scene(Kernel::DenseQueriesAdd, b.qkv, [b.folded, bias], b.x, layer)
        })
    }

    /// x += out(GRF attention).
    fn grf(&self, tensors: &Attention, hop_logits: Span) -> Result<()> {
        let b = self.buffers;
        self.qkv(tensors)?;
        let (loads, logits) = (b.loads(&self.model.config), self.model.tensor(hop_logits));
        self.stage(Stage::GrfRows, || self.gpu.grf_attention(b.qkv, &loads, logits, b.attention))?;
        self.stage(Stage::GrfOut, || {
            self.dense(Kernel::DenseAdd, b.attention, tensors.out, b.x, Dense::default())
        })
    }

    /// `[φ(q) | φ(k) | v]` of all tokens.
    fn qkv(&self, tensors: &Attention) -> Result<()> {
        let (b, d) = (self.buffers, self.model.config.interlacer.width);
        let layer = self.normed(tensors.norm, 2 * d);
        self.stage(Stage::Projections, || {
            self.dense(Kernel::DenseNorm, b.x, tensors.qkv, b.qkv, layer)
        })
    }

    /// x += down(ReLU(up(LayerNorm(x)))).
    fn mlp(&self, mlp: &Mlp) -> Result<()> {
        let (b, wide) = (self.buffers, self.model.config.interlacer.mlp_width());
        self.stage(Stage::MlpUp, || {
            self.dense(Kernel::DenseNorm, b.x, mlp.up, b.hidden, self.normed(mlp.norm, wide))
        })?;
        self.stage(Stage::MlpDown, || {
            self.dense(Kernel::DenseAdd, b.hidden, mlp.down, b.x, Dense::default())
        })
    }

    /// A layer behind a LayerNorm, with ReLU on its first `n_relu` columns.
    fn normed(&self, norm: Affine, n_relu: usize) -> Dense {
        Dense {
            norm_weight: self.model.tensor(norm.weight).address(),
            norm_bias: self.model.tensor(norm.bias).address(),
            n_relu: number(n_relu),
            ..Dense::default()
        }
    }

    fn dense(
        &self,
        kernel: Kernel,
        x: Buffer<f32>,
        affine: Affine,
        y: Buffer<f32>,
        layer: Dense,
    ) -> Result<()> {
        let matrices = [self.model.tensor(affine.weight), self.model.tensor(affine.bias)];
        let layer = Dense { halves: self.model.halves(affine.weight).address(), ..layer };
        self.product(self.model.precision.kernel(kernel), x, matrices, y, layer, 1)
    }

    /// As [`Self::product`], for each scene by itself.
    fn scene_by_scene(
        &self,
        kernel: Kernel,
        x: Buffer<f32>,
        matrices: [Buffer<f32>; 2],
        y: Buffer<f32>,
        layer: Dense,
    ) -> Result<()> {
        self.product(kernel, x, matrices, y, layer, self.buffers.extent.n_scenes)
    }

    /// y = x·weight + bias, or as `kernel` has it, in `n_parts`; sizes follow from the buffers'.
    fn product(
        &self,
        kernel: Kernel,
        x: Buffer<f32>,
        [weight, bias]: [Buffer<f32>; 2],
        y: Buffer<f32>,
        layer: Dense,
        n_parts: usize,
    ) -> Result<()> {
        let n_weights = if layer.own_weights == 0 { 1 } else { n_parts };
        let (n_out, n_in) = (bias.len(), weight.len() / bias.len() / n_weights);
        let layer = Dense {
            x: x.address(),
            weight: weight.address(),
            bias: bias.address(),
            y: y.address(),
            rows: number(y.len() / n_out / n_parts),
            n_in: number(n_in),
            n_out: number(n_out),
            x_stride: if layer.x_stride == 0 { number(n_in) } else { layer.x_stride },
            ..layer
        };
        self.gpu.dense(kernel, &layer, n_parts)
    }
}
