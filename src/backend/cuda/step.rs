//! One step on the device: its buffers, and the kernels in the order in which they run.

use std::ops::Range;

use super::Gpu;
use super::kernels::{
    Dense, Grid, Kernel, LoadsBuffers, SHARED_BYTES, StepBuffers, TileBuffers, merge_bytes, number,
    state_rows,
};
use super::memory::{Buffer, Places};
use super::stage::Stage;
use crate::model::interlacer::{Affine, Attention, MixerKind, Mlp};
use crate::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::model::tokens::{Inputs, N_CANDIDATES, N_FEATURES, TokenConfig};
use crate::model::{FeatureMap, GlobalLayer, Layout, LocalLayer, Span};
use crate::motion::N_BODY_FEATURES;
use crate::{Error, Result};

/// Widest model, most heads and most hops that the kernels take.
const MAX_WIDTH: usize = 256;
const MAX_HEADS: usize = 16;
const MAX_HOPS: usize = 8;
/// Numbers of a rigid motion: see `kernels/step.cuh`.
pub(super) const N_MOTION: usize = 15;
/// Most tokens that are compared all with all; more are searched by tiles.
const MAX_BRUTE_FORCE: usize = 8192;

// What `kernels/step.cuh` counts on.
const _: () = assert!(N_FEATURES == 70 && N_BODY_FEATURES == 17);
const _: () = assert!(N_CANDIDATES == 4 && N_OUTPUTS == 7);

/// Why models of `config` do not run on a GPU; none if they do.
pub fn unsupported(config: &RolloutConfig) -> Option<String> {
    let (model, layers) = (&config.interlacer, &config.interlacer.layers);
    let not = |what: &str| Some(format!("{what} runs on the CPU only so far: take device: cpu"));
    let setting = |key: &str, value: serde_json::Result<String>| {
        let value = value.unwrap_or_default();
        not(&format!("a model of {key} {}", value.trim_matches('"')))
    };
    if layers.global != GlobalLayer::Linear {
        return setting("layers.global", serde_json::to_string(&layers.global));
    }
    if layers.local != LocalLayer::Grf {
        return setting("layers.local", serde_json::to_string(&layers.local));
    }
    if layers.feature_map != FeatureMap::Relu {
        return setting("layers.feature_map", serde_json::to_string(&layers.feature_map));
    }
    let TokenConfig { chunk, inputs, .. } = config.tokens;
    if chunk > 1 || inputs != Inputs::First || config.tells_sigma() {
        let sigma = if config.tells_sigma() { " that tells sigma" } else { "" };
        return not(&format!("a model of chunk {chunk} and {} inputs{sigma}", inputs.name()));
    }
    if config.mask.walks.is_some() {
        return setting("mask.walks (sampled walks)", serde_json::to_string(&config.mask.walks));
    }
    if !config.mask.is_default() {
        return setting("mask.edge_weights", serde_json::to_string(&config.mask.edge_weights));
    }
    let cap = row_cap(usize::MAX, model.k, model.n_hops);
    let is_too_big = model.width > MAX_WIDTH
        || model.n_heads > MAX_HEADS
        || model.n_hops > MAX_HOPS
        || merge_bytes(cap, model.n_hops) > SHARED_BYTES;
    if is_too_big {
        let sizes = format!(
            "a model of width {}, {} heads, {} neighbours and {} hops (at most {MAX_WIDTH}, \
             {MAX_HEADS}, and 1024 walks of {MAX_HOPS} hops)",
            model.width, model.n_heads, model.k, model.n_hops
        );
        return not(&sizes);
    }
    None
}

/// What matrix products are made of; all else is in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// f32: what the other one is checked against.
    Full,
    /// Inputs and weights as sums of two of half precision, on tensor cores; sums in f32. Products with
    /// the state of linear attention, which has no bound, and those of the head stay in f32.
    Half,
}

impl Precision {
    /// The kernel for a layer that `kernel` has in f32.
    fn kernel(self, kernel: Kernel) -> Kernel {
        match (self, kernel) {
            (Self::Half, Kernel::DensePlain) => Kernel::HalfPlain,
            (Self::Half, Kernel::DenseAdd) => Kernel::HalfAdd,
            (Self::Half, Kernel::DenseNorm) => Kernel::HalfNorm,
            _ => kernel,
        }
    }
}

/// Most entries of a row of merged loads over `n` tokens.
pub(super) fn row_cap(n: usize, k: usize, n_hops: usize) -> usize {
    let prefixes = (0..=n_hops as u32).map(|t| k.saturating_pow(t));
    prefixes.fold(0, usize::saturating_add).min(n).max(1)
}

/// How many of what a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sizes {
    /// Scene particles.
    pub n: usize,
    /// History particles.
    pub h: usize,
    /// Kinematic particles of one time: one in `stride` of the points on the robot.
    pub k: usize,
    pub stride: usize,
    /// Points on the robot at one time, and the links that hold them.
    pub n_robot: usize,
    pub n_links: usize,
    /// Times of points on the robot: two more than steps.
    pub n_times: usize,
}

impl Sizes {
    pub fn n_tokens(&self) -> usize {
        self.n + self.h + 3 * self.k
    }

    /// Numbers of the state that the host sends.
    pub fn n_uploaded(&self) -> usize {
        let n_steps = self.n_times.saturating_sub(2);
        let robot = (3 * self.n_times + 1) * self.n_robot + N_MOTION * self.n_links * n_steps;
        (13 + N_BODY_FEATURES) * self.n + 6 * self.h + robot
    }
}

/// All buffers of a step, in one arena.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers {
    sizes: Sizes,
    /// Steps done, and flags.
    pub counters: Buffer<u32>,
    /// Positions, velocities, whether they are known, colours; history positions and colours;
    /// points on the robot of all times; motions onward; what particles are told of their
    /// bodies; links of the robot's points and the motions of
    /// these links.
    pub uploaded: Buffer<f32>,
    nearest: Buffer<u32>,
    pub token_positions: Buffer<f32>,
    pub features: Buffer<f32>,
    pub candidates: Buffer<f32>,
    pub neighbors: Buffer<u32>,
    pub tiles: TileBuffers,
    pub row_lens: Buffer<u32>,
    pub row_nodes: Buffer<u32>,
    pub row_loads: Buffer<f32>,
    x: Buffer<f32>,
    qkv: Buffer<f32>,
    attention: Buffer<f32>,
    hidden: Buffer<f32>,
    partials: Buffer<f32>,
    folded: Buffer<f32>,
    z: Buffer<f32>,
    pub outputs: Buffer<f32>,
    pub displacements: Buffer<f32>,
}

impl Buffers {
    /// Takes places for a step of `sizes`.
    pub fn take(config: &RolloutConfig, sizes: Sizes, places: &mut Places) -> Self {
        let model = &config.interlacer;
        let (n, tokens, d) = (sizes.n, sizes.n_tokens(), model.width);
        let n_rows = tokens * row_cap(tokens, model.k, model.n_hops);
        let state_len = d * (d / model.n_heads + 1);
        Self {
            sizes,
            counters: places.take(2),
            uploaded: places.take(sizes.n_uploaded()),
            nearest: places.take(2 * (n + sizes.h)),
            token_positions: places.take(3 * tokens),
            features: places.take(N_FEATURES * tokens),
            candidates: places.take(3 * N_CANDIDATES * n),
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
            outputs: places.take(N_OUTPUTS * n),
            displacements: places.take(3 * n),
        }
    }

    /// What the kernels of tokens and motion take.
    pub fn step(&self, config: &RolloutConfig) -> StepBuffers {
        let Sizes { n, h, k, stride, n_robot, n_links, n_times } = self.sizes;
        let mut first = 0;
        let mut next = |len: usize| {
            first += len;
            self.uploaded.part(first - len, len).address()
        };
        StepBuffers {
            counters: self.counters.address(),
            positions: next(3 * n),
            velocities: next(3 * n),
            velocity_known: next(n),
            colors: next(3 * n),
            history_positions: next(3 * h),
            history_colors: next(3 * h),
            robot: next(3 * n_robot * n_times),
            onward: next(3 * n),
            bodies: next(N_BODY_FEATURES * n),
            links: next(n_robot),
            motions: next(N_MOTION * n_links * n_times.saturating_sub(2)),
            nearest: self.nearest.address(),
            token_positions: self.token_positions.address(),
            features: self.features.address(),
            candidates: self.candidates.address(),
            outputs: self.outputs.address(),
            displacements: self.displacements.address(),
            n: number(n),
            h: number(h),
            k: number(k),
            n_robot: number(n_robot),
            n_links: number(n_links),
            stride: number(stride),
            center: config.tokens.frame.center_m,
            half_side: config.tokens.frame.half_side_m,
            step_secs: config.tokens.step_secs,
        }
    }

    /// What the kernels of the mask take.
    pub fn loads(&self, config: &RolloutConfig) -> LoadsBuffers {
        let (n, model) = (self.sizes.n_tokens(), &config.interlacer);
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

/// A step of one model over one set of buffers.
pub(super) struct Step<'a> {
    pub gpu: &'a Gpu,
    pub config: &'a RolloutConfig,
    pub layout: &'a Layout,
    pub weights: Buffer<f32>,
    pub precision: Precision,
    pub buffers: &'a Buffers,
    /// Only this stage, to measure it.
    pub only: Option<Stage>,
}

impl Step<'_> {
    /// Begins all kernels of the step; the state is the next step's then.
    pub fn run(&self) -> Result<()> {
        let (gpu, b) = (self.gpu, self.buffers);
        let step = b.step(self.config);
        self.stage(Stage::Tokens, || gpu.encode(&step))?;
        self.graph()?;
        self.model()?;
        self.stage(Stage::Motion, || {
            gpu.move_particles(&step)?;
            gpu.end_step(&step)
        })
    }

    fn stage(&self, stage: Stage, begin: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.only.is_none_or(|only| only == stage) { begin() } else { Ok(()) }
    }

    /// k-NN graph and merged loads of the tokens.
    fn graph(&self) -> Result<()> {
        let (b, k) = (self.buffers, self.config.interlacer.k);
        self.stage(Stage::Neighbors, || self.neighbors())?;
        let loads = b.loads(self.config);
        self.stage(Stage::Walks, || self.gpu.enumerate_walks(b.neighbors, k, &loads))
    }

    /// The k nearest of each token, by whichever search is quicker.
    pub fn neighbors(&self) -> Result<()> {
        let (b, k) = (self.buffers, self.config.interlacer.k);
        if b.sizes.n_tokens() <= MAX_BRUTE_FORCE {
            return self.gpu.knn(b.token_positions, k, b.neighbors);
        }
        let grid = Grid::new(&self.config.tokens.frame);
        self.gpu.knn_tiled(b.token_positions, k, &grid, &b.tiles, b.neighbors)
    }

    /// The Interlacer, from features to outputs.
    fn model(&self) -> Result<()> {
        let b = self.buffers;
        self.stage(Stage::Embed, || {
            self.dense(Kernel::DensePlain, b.features, self.layout.embed, b.x, Dense::default())
        })?;
        for i in 0..=self.layout.mixers.len() {
            for block in self.layout.mlps_before(i) {
                self.mlp(&self.layout.mlps[block])?;
            }
            let Some(mixer) = self.layout.mixers.get(i) else { break };
            match mixer.kind {
                MixerKind::Linear { ref tensors, n_heads } => self.linear(tensors, n_heads)?,
                MixerKind::Grf { ref tensors, hop_logits } => self.grf(tensors, hop_logits)?,
                // `unsupported` refuses such models.
                MixerKind::Softmax { .. } | MixerKind::Messages { .. } => {
                    let problem = "has a layer that runs on the CPU only".into();
                    return Err(Error::Config { key: "model.layers".into(), problem });
                }
            }
        }
        let d = self.config.interlacer.width;
        let scene = b.x.part(0, d * b.sizes.n);
        let (head, norm) = (self.layout.head, self.normed(self.layout.head_norm, 0));
        let matrices = [self.tensor(head.weight), self.tensor(head.bias)];
        self.stage(Stage::Head, || {
            self.product(Kernel::DenseNorm, scene, matrices, b.outputs, norm)
        })
    }

    /// x += out(linear attention).
    fn linear(&self, tensors: &Attention, n_heads: usize) -> Result<()> {
        let (gpu, b, d) = (self.gpu, self.buffers, self.config.interlacer.width);
        let widths = [d, d / n_heads];
        self.qkv(tensors)?;
        self.stage(Stage::LinearState, || {
            gpu.linear_state(b.qkv, widths, b.partials)?;
            gpu.linear_fold(b.partials, widths, self.tensor(tensors.out.weight), b.folded, b.z)
        })?;
        let (z, n_heads) = (b.z.address(), number(n_heads));
        let bias = self.tensor(tensors.out.bias);
        let layer = Dense { z, n_heads, x_stride: number(3 * d), ..Dense::default() };
        self.stage(Stage::LinearOut, || {
            self.product(Kernel::DenseQueriesAdd, b.qkv, [b.folded, bias], b.x, layer)
        })
    }

    /// x += out(GRF attention).
    fn grf(&self, tensors: &Attention, hop_logits: Span) -> Result<()> {
        let b = self.buffers;
        self.qkv(tensors)?;
        let (loads, logits) = (b.loads(self.config), self.tensor(hop_logits));
        self.stage(Stage::GrfRows, || self.gpu.grf_attention(b.qkv, &loads, logits, b.attention))?;
        self.stage(Stage::GrfOut, || {
            self.dense(Kernel::DenseAdd, b.attention, tensors.out, b.x, Dense::default())
        })
    }

    /// `[φ(q) | φ(k) | v]` of all tokens.
    fn qkv(&self, tensors: &Attention) -> Result<()> {
        let (b, d) = (self.buffers, self.config.interlacer.width);
        let layer = self.normed(tensors.norm, 2 * d);
        self.stage(Stage::Projections, || {
            self.dense(Kernel::DenseNorm, b.x, tensors.qkv, b.qkv, layer)
        })
    }

    /// x += down(ReLU(up(LayerNorm(x)))).
    fn mlp(&self, mlp: &Mlp) -> Result<()> {
        let (b, wide) = (self.buffers, self.config.interlacer.mlp_width());
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
            norm_weight: self.tensor(norm.weight).address(),
            norm_bias: self.tensor(norm.bias).address(),
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
        let matrices = [self.tensor(affine.weight), self.tensor(affine.bias)];
        self.product(self.precision.kernel(kernel), x, matrices, y, layer)
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

    fn tensor(&self, span: Span) -> Buffer<f32> {
        let Range { start, end } = span.range();
        self.weights.part(start, end - start)
    }
}
