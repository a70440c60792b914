//! From tokens to outputs on the device: k-NN graph, merged loads, the Interlacer.

use super::Gpu;
use super::kernels::{Dense, Grid, Kernel, LoadsBuffers, TileBuffers, number, state_rows};
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

/// What is between tokens and outputs, in one arena.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers {
    /// Scene particles, and tokens.
    n_scene: usize,
    n_tokens: usize,
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
    /// Takes places for `tokens`, of which the first `n_scene` are scene particles.
    pub fn take(
        config: &RolloutConfig,
        n_scene: usize,
        tokens: usize,
        places: &mut Places,
    ) -> Self {
        let (model, d) = (&config.interlacer, config.interlacer.width);
        let n_rows = tokens * row_cap(tokens, model.k, model.n_hops);
        let state_len = d * (d / model.n_heads + 1);
        Self {
            n_scene,
            n_tokens: tokens,
            token_positions: places.take(3 * tokens),
            features: places.take(model.n_features * tokens),
            neighbors: places.take(model.k * tokens),
            tiles: TileBuffers::take(tokens, places),
            row_lens: places.take(tokens),
            row_nodes: places.take(n_rows),
            row_loads: places.take(n_rows * (model.n_hops + 1)),
            x: places.take(d * tokens),
            qkv: places.take(3 * d * tokens),
            attention: places.take(d * tokens),
            hidden: places.take(model.mlp_width() * tokens),
            partials: places.take(state_len * tokens.div_ceil(state_rows(d))),
            folded: places.take(d * d),
            z: places.take(d),
            outputs: places.take(model.n_outputs * n_scene),
        }
    }

    /// What the kernels of the mask take.
    pub fn loads(&self, config: &RolloutConfig) -> LoadsBuffers {
        let (n, model) = (self.n_tokens, &config.interlacer);
        LoadsBuffers {
            lens: self.row_lens.address(),
            nodes: self.row_nodes.address(),
            loads: self.row_loads.address(),
            n: number(n),
            cap: number(row_cap(n, model.k, model.n_hops)),
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

    /// The k nearest of each token, by whichever search is quicker.
    pub fn neighbors(&self) -> Result<()> {
        let (b, k) = (self.buffers, self.model.config.interlacer.k);
        if b.n_tokens <= MAX_BRUTE_FORCE {
            return self.gpu.knn(b.token_positions, k, b.neighbors);
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
        let d = self.model.config.interlacer.width;
        let scene = b.x.part(0, d * b.n_scene);
        let (head, norm) = (layout.head, self.normed(layout.head_norm, 0));
        let matrices = [self.model.tensor(head.weight), self.model.tensor(head.bias)];
        self.stage(Stage::Head, || {
            self.product(Kernel::DenseNorm, scene, matrices, b.outputs, norm)
        })
    }

    /// x += out(linear attention).
    fn linear(&self, tensors: &Attention, n_heads: usize) -> Result<()> {
        let (gpu, b, d) = (self.gpu, self.buffers, self.model.config.interlacer.width);
        let widths = [d, d / n_heads];
        self.qkv(tensors)?;
        self.stage(Stage::LinearState, || {
            gpu.linear_state(b.qkv, widths, b.partials)?;
            gpu.linear_fold(
                b.partials,
                widths,
                self.model.tensor(tensors.out.weight),
                b.folded,
                b.z,
            )
        })?;
        let (z, n_heads) = (b.z.address(), number(n_heads));
        let bias = self.model.tensor(tensors.out.bias);
        let layer = Dense { z, n_heads, x_stride: number(3 * d), ..Dense::default() };
        self.stage(Stage::LinearOut, || {
            self.product(Kernel::DenseQueriesAdd, b.qkv, [b.folded, bias], b.x, layer)
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
        self.product(self.model.precision.kernel(kernel), x, matrices, y, layer)
    }

    /// y = x·weight + bias, or as `kernel` has it; sizes follow from the buffers'.
    fn product(
        &self,
        kernel: Kernel,
        x: Buffer<f32>,
        [weight, bias]: [Buffer<f32>; 2],
        y: Buffer<f32>,
        layer: Dense,
    ) -> Result<()> {
        let (n_out, n_in) = (bias.len(), weight.len() / bias.len());
        let layer = Dense {
            x: x.address(),
            weight: weight.address(),
            bias: bias.address(),
            y: y.address(),
            rows: number(y.len() / n_out),
            n_in: number(n_in),
            n_out: number(n_out),
            x_stride: if layer.x_stride == 0 { number(n_in) } else { layer.x_stride },
            ..layer
        };
        self.gpu.dense(kernel, &layer)
    }
}
