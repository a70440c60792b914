//! From tokens to outputs on the device: k-NN graph, merged loads, the Interlacer.

use super::Gpu;
use super::kernels::{
    Dense, Grid, Kernel, LoadsBuffers, TileBuffers, n_halves, n_partials, number,
};
use super::memory::{Buffer, Places};
use super::model::{DeviceModel, Precision, row_cap};
use super::stage::Stage;
use crate::engine::model::Span;
use crate::engine::model::interlacer::{Affine, Attention, MixerKind, Mlp};
use crate::engine::model::rollout::RolloutConfig;
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
    /// What tensor cores read: inputs of the layer that comes, then the MLP's hidden layer.
    split: Buffer<u32>,
    split_hidden: Buffer<u32>,
    partials: Buffer<f32>,
    folded: Buffer<f32>,
    z: Buffer<f32>,
    pub outputs: Buffer<f32>,
}

impl Buffers {
    /// Takes places for tokens of `extent`.
    pub fn take(
        config: &RolloutConfig,
        precision: Precision,
        extent: Extent,
        places: &mut Places,
    ) -> Self {
        let Extent { n_scenes, n_tokens, n_particles } = extent;
        let model = &config.interlacer;
        let (d, tokens) = (model.width, n_scenes * n_tokens);
        // Rows that one precision has as numbers and the other one split.
        let rows_of = |other: Precision| if precision == other { tokens } else { 0 };
        let (numbers, halves) = (rows_of(Precision::Full), rows_of(Precision::Half));
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
            attention: places.take(d * numbers),
            hidden: places.take(model.mlp_width() * numbers),
            split: places.take(n_halves(halves, model.n_features.max(d))),
            split_hidden: places.take(n_halves(halves, model.mlp_width())),
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
            let to = Dense { y: b.x.address(), ..Dense::default() };
            match self.model.precision {
                Precision::Full => self.numbers(Kernel::DensePlain, b.features, layout.embed, to),
                Precision::Half => {
                    self.split(Kernel::SplitRows, b.features, layout.embed, to)?;
                    self.halves(Kernel::HalfPlain, b.split, layout.embed, to)
                }
            }
        })?;
        for i in 0..=layout.mixers.len() {
            for block in layout.mlps_before(i) {
                self.mlp(&layout.mlps[block])?;
            }
            let Some(mixer) = layout.mixers.get(i) else { break };
            match &mixer.kind {
                MixerKind::Linear { tensors, n_heads } => self.linear(tensors, *n_heads)?,
                MixerKind::Grf { tensors, hop_logits } => self.grf(tensors, *hop_logits)?,
                // `unsupported` refuses such models.
                MixerKind::Registered(_) => {
                    let problem = "has a layer that runs on the CPU only".into();
                    return Err(Error::Config { key: "model.layers".into(), problem });
                }
            }
        }
        // Of the first rows of each scene.
        let Extent { n_scenes, n_tokens, n_particles } = b.extent;
        let layer = self.of(layout.head, self.normed(layout.head_norm));
        let layer = Dense {
            x: b.x.address(),
            y: b.outputs.address(),
            rows: number(n_particles),
            x_rows: number(n_tokens),
            ..layer
        };
        self.stage(Stage::Head, || self.gpu.dense(Kernel::DenseNorm, &layer, n_scenes))
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
        let layer = Dense {
            x: b.qkv.address(),
            weight: b.folded.address(),
            y: b.x.address(),
            z: b.z.address(),
            n_heads: number(n_heads),
            rows: number(n_tokens),
            x_rows: number(n_tokens),
            x_stride: number(3 * d),
            own_weights: 1,
            ..self.of(tensors.out, Dense::default())
        };
        self.stage(Stage::LinearOut, || gpu.dense(Kernel::DenseQueriesAdd, &layer, n_scenes))
    }

    /// x += out(GRF attention).
    fn grf(&self, tensors: &Attention, hop_logits: Span) -> Result<()> {
        let b = self.buffers;
        self.qkv(tensors)?;
        let (loads, logits) = (b.loads(&self.model.config), self.model.tensor(hop_logits));
        self.stage(Stage::GrfRows, || {
            self.gpu.grf_attention(b.qkv, &loads, logits, b.attention, b.split)
        })?;
        self.stage(Stage::GrfOut, || self.add(b.attention, b.split, tensors.out))
    }

    /// `[φ(q) | φ(k) | v]` of all tokens.
    fn qkv(&self, tensors: &Attention) -> Result<()> {
        let (b, d) = (self.buffers, self.model.config.interlacer.width);
        let to = Dense { y: b.qkv.address(), n_relu: number(2 * d), ..self.normed(tensors.norm) };
        self.stage(Stage::Projections, || match self.model.precision {
            Precision::Full => self.numbers(Kernel::DenseNorm, b.x, tensors.qkv, to),
            Precision::Half => {
                self.split(Kernel::SplitNorm, b.x, tensors.qkv, to)?;
                self.halves(Kernel::HalfPlain, b.split, tensors.qkv, to)
            }
        })
    }

    /// x += down(ReLU(up(LayerNorm(x)))).
    fn mlp(&self, mlp: &Mlp) -> Result<()> {
        let (b, n_relu) = (self.buffers, number(self.model.config.interlacer.mlp_width()));
        let to = Dense { n_relu, ..self.normed(mlp.norm) };
        self.stage(Stage::MlpUp, || match self.model.precision {
            Precision::Full => {
                let to = Dense { y: b.hidden.address(), ..to };
                self.numbers(Kernel::DenseNorm, b.x, mlp.up, to)
            }
            Precision::Half => {
                self.split(Kernel::SplitNorm, b.x, mlp.up, to)?;
                let to = Dense { y_halves: b.split_hidden.address(), ..to };
                self.halves(Kernel::HalfSplit, b.split, mlp.up, to)
            }
        })?;
        self.stage(Stage::MlpDown, || self.add(b.hidden, b.split_hidden, mlp.down))
    }

    /// A layer behind a LayerNorm.
    fn normed(&self, norm: Affine) -> Dense {
        Dense {
            norm_weight: self.model.tensor(norm.weight).address(),
            norm_bias: self.model.tensor(norm.bias).address(),
            ..Dense::default()
        }
    }

    /// The residual stream += rows·W + b, of rows that lie in one of both.
    fn add(&self, numbers: Buffer<f32>, halves: Buffer<u32>, affine: Affine) -> Result<()> {
        let to = Dense { y: self.buffers.x.address(), ..Dense::default() };
        match self.model.precision {
            Precision::Full => self.numbers(Kernel::DenseAdd, numbers, affine, to),
            Precision::Half => self.halves(Kernel::HalfAdd, halves, affine, to),
        }
    }

    /// A dense layer of all rows of `x`, in f32.
    fn numbers(&self, kernel: Kernel, x: Buffer<f32>, affine: Affine, to: Dense) -> Result<()> {
        self.gpu.dense(kernel, &self.of(affine, Dense { x: x.address(), ..to }), 1)
    }

    /// What [`Self::halves`] takes of all rows of `x`.
    fn split(&self, kernel: Kernel, x: Buffer<f32>, affine: Affine, to: Dense) -> Result<()> {
        let layer = Dense { x: x.address(), x_halves: self.buffers.split.address(), ..to };
        self.gpu.dense(kernel, &self.of(affine, layer), 1)
    }

    /// A dense layer of all rows, which come split, on tensor cores.
    fn halves(&self, kernel: Kernel, x: Buffer<u32>, affine: Affine, to: Dense) -> Result<()> {
        self.gpu.dense(kernel, &self.of(affine, Dense { x_halves: x.address(), ..to }), 1)
    }

    /// `layer` with the weights of `affine`, and sizes that follow from these, of all rows.
    fn of(&self, affine: Affine, layer: Dense) -> Dense {
        let (weight, bias) = (self.model.tensor(affine.weight), self.model.tensor(affine.bias));
        let (n_in, n_out) = (number(weight.len() / bias.len()), number(bias.len()));
        Dense {
            weight: weight.address(),
            halves: self.model.halves(affine.weight).address(),
            bias: bias.address(),
            rows: number(self.buffers.extent.n_scenes * self.buffers.extent.n_tokens),
            n_in,
            n_out,
            x_stride: n_in,
            ..layer
        }
    }
}
