//! The kernels, each a method with the arguments that it takes (`kernels/*.cuh`).
//!
//! Which types a kernel takes stands in the table below, and every launch is held to it. How long
//! the buffers are that addresses lead to is said at each launch, and where they are made.

use super::Gpu;
use super::launch::{Argument, Parameter};
use super::memory::{Buffer, Places};
use crate::Result;
use crate::engine::model::tokens::Frame;

/// Threads of a warp.
const WARP: usize = 32;
/// Dynamic shared memory that every card gives without asking.
pub(super) const SHARED_BYTES: usize = 48 << 10;
/// Rows and columns of a dense layer that a block takes.
const DENSE_TILE: [usize; 2] = [128, 64];
/// What the numbers of a row that is split are filled up to a multiple of.
const SPLIT_DEPTH: usize = 16;
/// Partial states of linear attention, at most about: two blocks for each multiprocessor of a large card.
const MAX_PARTIALS: usize = 256;
/// Blocks of GRF attention at most, more than a large card runs at once.
const MAX_GRF_BLOCKS: usize = 2048;
/// Threads of a block of linear attention, each with 16 sums.
const STATE_BLOCK: usize = 256;
/// Keys that a block of 512 threads sorts in shared memory.
const SORTED: usize = 1024;
/// Threads of kernels that take one for each particle or token.
const BLOCK: usize = 128;

macro_rules! kernels {
    ($($Kernel:ident = $name:literal($($Parameter:ident),*)),* $(,)?) => {
        /// A kernel of the module.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Kernel {
            $($Kernel),*
        }

        impl Kernel {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Kernel),*];

            /// Its name in the module.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Kernel => $name),*
                }
            }

            /// What it takes.
            pub fn parameters(self) -> &'static [Parameter] {
                match self {
                    $(Self::$Kernel => &[$(Parameter::$Parameter),*]),*
                }
            }
        }
    };
}
kernels! {
    NearestRobot = "nearest_robot"(Pass),
    FollowLinks = "follow_links"(Pass),
    BoundStill = "bound_still"(Pass),
    RaiseHeights = "raise_heights"(Pass),
    RaiseSecondHeights = "raise_second_heights"(Pass),
    Fly = "fly"(Pass),
    Propose = "propose"(Pass),
    Strike = "strike"(Pass),
    Encode = "encode"(Pass),
    MoveParticles = "move_particles"(Pass),
    EndPass = "end_pass"(Pass),
    Knn4 = "knn_4"(Address, Number, Number, Address),
    Knn8 = "knn_8"(Address, Number, Number, Address),
    Knn32 = "knn_32"(Address, Number, Number, Address),
    MortonKeys = "morton_keys"(Address, Number, Number, Grid, Address),
    SortBlocks = "sort_blocks"(Address),
    MergePairs = "merge_pairs"(Address, Number, Number),
    MergeBlocks = "merge_blocks"(Address, Number),
    MakeTiles = "make_tiles"(Address, Number, Number, Address, Address, Address),
    KnnTiles4 = "knn_tiles_4"(Address, Address, Number, Number, Number, Address),
    KnnTiles8 = "knn_tiles_8"(Address, Address, Number, Number, Number, Address),
    KnnTiles32 = "knn_tiles_32"(Address, Address, Number, Number, Number, Address),
    EnumerateWalks = "enumerate_walks"(Address, Number, Loads),
    DensePlain = "dense_plain"(Dense),
    DenseAdd = "dense_add"(Dense),
    DenseNorm = "dense_norm"(Dense),
    DenseQueriesAdd = "dense_queries_add"(Dense),
    HalfPlain = "half_plain"(Dense),
    HalfAdd = "half_add"(Dense),
    HalfSplit = "half_split"(Dense),
    SplitWeights = "split_weights"(Address, Number, Number, Address),
    SplitRows = "split_rows"(Dense),
    SplitNorm = "split_norm"(Dense),
    LinearState = "linear_state"(Address, Number, Number, Number, Number, Number, Address),
    LinearFold = "linear_fold"(Address, Number, Number, Number, Address, Number, Address, Address),
    Grf64 = "grf_attention_64"(Address, Number, Loads, Address, Address, Address),
    Grf128 = "grf_attention_128"(Address, Number, Loads, Address, Address, Address),
    Grf256 = "grf_attention_256"(Address, Number, Loads, Address, Address, Address),
    UnprojectPixels = "unproject_pixels"(Cloud),
    CountHeights = "count_heights"(Cloud),
    SumHeights = "sum_heights"(Cloud),
    DrawKeys = "draw_keys"(Cloud),
    CountDigits = "count_digits"(Cloud, Draw, Number),
    CollectDrawn = "collect_drawn"(Cloud, Draw),
    GatherDrawn = "gather_drawn"(Cloud, Draw),
}

/// The images of a camera: `Picture` of `kernels/cloud.cuh`, field for field.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Picture {
    pub depth: u64,
    pub color: u64,
    pub rays: u64,
    pub first: u32,
    pub first_source: u32,
    pub width: u32,
    pub has_table: u32,
    pub depth_bytes: u32,
    pub depth_step: u32,
    pub is_big: u32,
    pub color_bytes: u32,
    pub color_step: u32,
    pub channels: [u32; 3],
    pub origin: [f32; 3],
    pub per_column: [f32; 3],
    pub rotation: [[f32; 3]; 3],
}

/// What changes from frame to frame: `Settings` of `kernels/cloud.cuh`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct SamplerSettings {
    pub low: [f32; 3],
    pub high: [f32; 3],
    pub cells_per_m: [f32; 3],
    pub stride: u32,
    pub wanted: [u32; 2],
    pub seed: u64,
    pub stamp: u64,
}

/// A frame's points: `Cloud` of `kernels/cloud.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct CloudBuffers {
    pub pictures: u64,
    pub settings: u64,
    pub positions: u64,
    pub colors: u64,
    pub keys: u64,
    pub histogram: u64,
    pub sum: u64,
    pub bounds: u64,
    pub counts: u64,
    pub support: u64,
    pub n_pictures: u32,
    pub n: u32,
}

/// A draw from them: `cloud::Draw` of `kernels/cloud.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct DrawBuffers {
    pub ranks: u64,
    pub counts: u64,
    pub n_drawn: u64,
    pub sorted: u64,
    pub positions: u64,
    pub colors: u64,
    pub pixels: u64,
    pub number: u32,
    pub n_sorted: u32,
}

/// Bins of the histogram of heights, and rounds of a draw: see `kernels/cloud.cuh`.
pub(super) const HEIGHT_BINS: usize = 4096 + 2;
pub(super) const DRAW_ROUNDS: usize = 12;
/// Threads of a block of the sampler, and blocks at most where they take points by turns.
const POINT_BLOCK: usize = 256;
const MAX_BLOCKS: usize = 512;

/// Keys that are sorted for `n` of them.
pub(super) fn sorted_len(n: usize) -> usize {
    n.next_power_of_two().max(SORTED)
}

/// Merged loads: `Loads` of `kernels/loads.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct LoadsBuffers {
    pub lens: u64,
    pub nodes: u64,
    pub loads: u64,
    pub n: u32,
    pub cap: u32,
    pub n_hops: u32,
}

/// A dense layer: `Dense` of `kernels/dense.cuh`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Dense {
    pub x: u64,
    pub weight: u64,
    pub halves: u64,
    pub x_halves: u64,
    pub y_halves: u64,
    pub bias: u64,
    pub y: u64,
    pub norm_weight: u64,
    pub norm_bias: u64,
    pub z: u64,
    pub rows: u32,
    pub n_in: u32,
    pub n_out: u32,
    pub x_stride: u32,
    pub n_relu: u32,
    pub n_heads: u32,
    pub x_rows: u32,
    pub own_weights: u32,
}

/// Cells that Morton codes number: `tiles::Grid` of `kernels/knn_tiles.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Grid {
    pub low: [f32; 3],
    pub cells_per_m: f32,
}

impl Grid {
    /// 1024 cells an axis over the frame of a model's positions.
    pub fn new(frame: &Frame) -> Self {
        let (center, half_side) = (frame.center_m, frame.half_side_m);
        Self { low: center.map(|c| c - half_side), cells_per_m: 512.0 / half_side }
    }
}

/// What the search by tiles sorts and sums up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TileBuffers {
    pub keys: Buffer<u64>,
    pub points: Buffer<u32>,
    pub boxes: Buffer<f32>,
}

impl TileBuffers {
    /// Places for `n` points.
    pub fn take(n: usize, places: &mut Places) -> Self {
        let n_tiles = n.div_ceil(WARP);
        Self {
            keys: places.take(sorted_len(n)),
            points: places.take(4 * WARP * n_tiles),
            boxes: places.take(6 * n_tiles),
        }
    }
}

/// A size as kernels take it: below 2³², which `check_tokens` and the model's own limits hold all of them to.
pub(super) fn number(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Rows that a block of `linear_state` sums up of `n`, and how many of them at once: as many as its shared
/// memory takes, 64 at most.
fn state_rows(n: usize, d: usize) -> [usize; 2] {
    let at_once = (SHARED_BYTES / (2 * d * size_of::<f32>())).clamp(1, 64);
    [n.div_ceil(MAX_PARTIALS).next_multiple_of(at_once).max(at_once), at_once]
}

/// Partial states of `n` rows.
pub(super) fn n_partials(n: usize, d: usize) -> usize {
    n.div_ceil(state_rows(n, d)[0])
}

/// Pairs of halves, rounded ones and rests, that `rows` of `n` numbers are split into.
pub(super) fn n_halves(rows: usize, n: usize) -> usize {
    rows * n.next_multiple_of(SPLIT_DEPTH)
}

/// Bytes of shared memory in which a warp merges the walks of a row.
pub(super) fn merge_bytes(cap: usize, n_hops: usize) -> usize {
    (n_hops + 2) * cap * size_of::<u32>()
}

impl Gpu {
    /// `neighbors` `[n_scenes, n, k]`, numbered over all scenes, of `positions` `[n_scenes, n, 3]`; more
    /// than `k` positions a scene, `k` at most 32.
    pub(super) fn knn(
        &self,
        positions: Buffer<f32>,
        n_scenes: usize,
        k: usize,
        neighbors: Buffer<u32>,
    ) -> Result<()> {
        let n = positions.len() / 3 / n_scenes;
        let kernel = match k {
            0..=4 => Kernel::Knn4,
            5..=8 => Kernel::Knn8,
            _ => Kernel::Knn32,
        };
        // SAFETY: of each scene `positions` are 3·n, `neighbors` n·k.
        unsafe {
            self.launch(
                kernel,
                [n.div_ceil(BLOCK), n_scenes],
                BLOCK,
                0,
                &[positions.into(), n.into(), k.into(), neighbors.into()],
            )
        }
    }

    /// The same neighbours as [`Gpu::knn`], for many points: time of about n log n.
    pub(super) fn knn_tiled(
        &self,
        positions: Buffer<f32>,
        k: usize,
        grid: &Grid,
        work: &TileBuffers,
        neighbors: Buffer<u32>,
    ) -> Result<()> {
        let (n, keys) = (positions.len() / 3, work.keys);
        let (padded, n_tiles) = (keys.len(), n.div_ceil(WARP));
        // SAFETY: `positions` are 3·n, `keys` `padded`.
        unsafe {
            self.launch(
                Kernel::MortonKeys,
                [padded.div_ceil(BLOCK), 1],
                BLOCK,
                0,
                &[positions.into(), n.into(), padded.into(), grid.into(), keys.into()],
            )
        }?;
        self.sort(keys)?;
        let grid = [n_tiles.div_ceil(BLOCK / WARP), 1];
        // SAFETY: of `TileBuffers::take`: `keys` n at least, 4·WARP `points` and 6 `boxes` a tile.
        unsafe {
            self.launch(
                Kernel::MakeTiles,
                grid,
                BLOCK,
                0,
                &[
                    positions.into(),
                    n.into(),
                    n_tiles.into(),
                    keys.into(),
                    work.points.into(),
                    work.boxes.into(),
                ],
            )
        }?;
        let kernel = match k {
            0..=4 => Kernel::KnnTiles4,
            5..=8 => Kernel::KnnTiles8,
            _ => Kernel::KnnTiles32,
        };
        // SAFETY: as above; `neighbors` are n·k.
        unsafe {
            self.launch(
                kernel,
                grid,
                BLOCK,
                0,
                &[
                    work.points.into(),
                    work.boxes.into(),
                    n_tiles.into(),
                    n.into(),
                    k.into(),
                    neighbors.into(),
                ],
            )
        }
    }

    /// Sorts a power of two of keys, 1024 at least: bitonic, so always in the same steps.
    fn sort(&self, keys: Buffer<u64>) -> Result<()> {
        let grid = [keys.len() / SORTED, 1];
        // SAFETY: `keys` are a multiple of SORTED, one block each.
        unsafe { self.launch(Kernel::SortBlocks, grid, SORTED / 2, 0, &[keys.into()]) }?;
        let mut length = 2 * SORTED;
        while length <= keys.len() {
            let mut stride = length / 2;
            while stride >= SORTED {
                // SAFETY: as above; `length` and `stride` are powers of two, up to all keys.
                unsafe {
                    self.launch(
                        Kernel::MergePairs,
                        grid,
                        SORTED / 2,
                        0,
                        &[keys.into(), length.into(), stride.into()],
                    )
                }?;
                stride /= 2;
            }
            // SAFETY: as above.
            unsafe {
                self.launch(Kernel::MergeBlocks, grid, SORTED / 2, 0, &[keys.into(), length.into()])
            }?;
            length *= 2;
        }
        Ok(())
    }

    /// Points, heights and drawing keys of a frame.
    pub(super) fn make_cloud(&self, cloud: &CloudBuffers) -> Result<()> {
        let all = [(cloud.n as usize).div_ceil(POINT_BLOCK), 1];
        let by_turns = [all[0].min(MAX_BLOCKS), 1];
        // SAFETY: `cloud` leads to its pictures and to positions, colours, keys of n pixels.
        unsafe { self.launch(Kernel::UnprojectPixels, all, POINT_BLOCK, 0, &[cloud.into()]) }?;
        // SAFETY: as above; the histogram has HEIGHT_BINS bins.
        unsafe { self.launch(Kernel::CountHeights, by_turns, POINT_BLOCK, 0, &[cloud.into()]) }?;
        // SAFETY: as above.
        unsafe { self.launch(Kernel::SumHeights, by_turns, POINT_BLOCK, 0, &[cloud.into()]) }?;
        // One block at least, which tells how many points there are.
        // SAFETY: as above.
        unsafe {
            self.launch(Kernel::DrawKeys, [all[0].max(1), 1], POINT_BLOCK, 0, &[cloud.into()])
        }
    }

    /// Draws at most `room` points into `sorted`, and on in Morton order.
    pub(super) fn draw_particles(
        &self,
        cloud: &CloudBuffers,
        draw: &DrawBuffers,
        room: usize,
        sorted: Buffer<u64>,
    ) -> Result<()> {
        let n = cloud.n as usize;
        let by_turns = [n.div_ceil(POINT_BLOCK).min(MAX_BLOCKS), 1];
        for round in 0..DRAW_ROUNDS {
            // SAFETY: `cloud` leads to n keys, `draw` to digits of DRAW_ROUNDS rounds.
            unsafe {
                self.launch(
                    Kernel::CountDigits,
                    by_turns,
                    POINT_BLOCK,
                    0,
                    &[cloud.into(), draw.into(), round.into()],
                )
            }?;
        }
        let grid = [n.max(sorted.len()).div_ceil(POINT_BLOCK), 1];
        // SAFETY: as above; `sorted` has room for what is drawn.
        unsafe {
            self.launch(Kernel::CollectDrawn, grid, POINT_BLOCK, 0, &[cloud.into(), draw.into()])
        }?;
        self.sort(sorted)?;
        let grid = [room.div_ceil(POINT_BLOCK), 1];
        // SAFETY: as above; `draw` leads to positions, colours and pixels of `room` points.
        unsafe {
            self.launch(Kernel::GatherDrawn, grid, POINT_BLOCK, 0, &[cloud.into(), draw.into()])
        }
    }

    /// Loads of all walks on `neighbors` `[n, k]`.
    pub(super) fn enumerate_walks(
        &self,
        neighbors: Buffer<u32>,
        k: usize,
        loads: &LoadsBuffers,
    ) -> Result<()> {
        let bytes = merge_bytes(loads.cap as usize, loads.n_hops as usize);
        let n_warps = (SHARED_BYTES / bytes).clamp(1, 4);
        let grid = [(loads.n as usize).div_ceil(n_warps), 1];
        // SAFETY: `neighbors` are n·k, `loads` lead to n rows of `cap`; a warp has `bytes` for one.
        unsafe {
            self.launch(
                Kernel::EnumerateWalks,
                grid,
                n_warps * WARP,
                n_warps * bytes,
                &[neighbors.into(), k.into(), loads.into()],
            )
        }
    }

    /// One of the dense kernels, for each of `n_scenes`; those of halves take one scene.
    pub(super) fn dense(&self, kernel: Kernel, layer: &Dense, n_scenes: usize) -> Result<()> {
        let tiles = |size: u32, tile: usize| (size as usize).div_ceil(tile);
        let [rows, columns] = DENSE_TILE;
        let n_tiles = tiles(layer.rows, rows) * tiles(layer.n_out, columns);
        let (n_blocks, block) = match kernel {
            Kernel::SplitRows | Kernel::SplitNorm => (tiles(layer.rows, 256 / 4), 256),
            Kernel::HalfPlain | Kernel::HalfAdd | Kernel::HalfSplit => (n_tiles, 128),
            _ => (n_tiles, 256),
        };
        // SAFETY: `layer` leads to rows·x_stride inputs a scene, x_rows rows apart, n_in·n_out weights, or
        // as many for each scene, rows·n_out outputs a scene; or to the halves of each.
        unsafe { self.launch(kernel, [n_blocks, n_scenes], block, 0, &[layer.into()]) }
    }

    /// `halves` of `weight` `[n_in, n_out]`.
    pub(super) fn split_weights(
        &self,
        weight: Buffer<f32>,
        n_out: usize,
        halves: Buffer<u32>,
    ) -> Result<()> {
        let n_in = weight.len() / n_out;
        // SAFETY: `weight` are n_in·n_out, `halves` those of n_out rows of n_in, two for each thread.
        unsafe {
            self.launch(
                Kernel::SplitWeights,
                [(halves.len() / 2).div_ceil(256), 1],
                256,
                0,
                &[weight.into(), n_in.into(), n_out.into(), halves.into()],
            )
        }
    }

    /// Partial states of `qkv` `[n_scenes, n, 3 d]`, [`n_partials`] for each scene.
    pub(super) fn linear_state(
        &self,
        qkv: Buffer<f32>,
        n_scenes: usize,
        [d, head_width]: [usize; 2],
        partials: Buffer<f32>,
    ) -> Result<()> {
        let n = qkv.len() / (3 * d) / n_scenes;
        let [rows, at_once] = state_rows(n, d);
        let shared_bytes = (2 * d * at_once).max(16 * STATE_BLOCK) * size_of::<f32>();
        // SAFETY: `qkv` are 3·n·d a scene, `partials` d·(head_width + 1) for each of the grid's blocks.
        unsafe {
            self.launch(
                Kernel::LinearState,
                [n_partials(n, d), n_scenes],
                STATE_BLOCK,
                shared_bytes,
                &[
                    qkv.into(),
                    n.into(),
                    rows.into(),
                    at_once.into(),
                    d.into(),
                    head_width.into(),
                    partials.into(),
                ],
            )
        }
    }

    /// `folded` `[n_scenes, d, n_out]` and `z` `[n_scenes, d]` of partial states and of `weight` `[d, n_out]`.
    pub(super) fn linear_fold(
        &self,
        partials: Buffer<f32>,
        n_scenes: usize,
        [d, head_width]: [usize; 2],
        weight: Buffer<f32>,
        folded: Buffer<f32>,
        z: Buffer<f32>,
    ) -> Result<()> {
        let n_partials = partials.len() / (d * (head_width + 1)) / n_scenes;
        // SAFETY: `partials` hold d·(head_width + 1) each, `weight` d·n_out; of each scene `folded` d·n_out,
        // `z` d.
        unsafe {
            self.launch(
                Kernel::LinearFold,
                [d, n_scenes],
                256,
                0,
                &[
                    partials.into(),
                    n_partials.into(),
                    d.into(),
                    head_width.into(),
                    weight.into(),
                    (weight.len() / d).into(),
                    folded.into(),
                    z.into(),
                ],
            )
        }
    }

    /// `numbers` `[n, d]` of `qkv` `[n, 3 d]`, or the `halves` of such rows, wherever there is room for
    /// them; `d` at most 256.
    pub(super) fn grf_attention(
        &self,
        qkv: Buffer<f32>,
        loads: &LoadsBuffers,
        hop_logits: Buffer<f32>,
        numbers: Buffer<f32>,
        halves: Buffer<u32>,
    ) -> Result<()> {
        let n = loads.n as usize;
        let d = qkv.len() / (3 * n.max(1));
        let kernel = match d {
            0..=64 => Kernel::Grf64,
            65..=128 => Kernel::Grf128,
            _ => Kernel::Grf256,
        };
        // SAFETY: `qkv` are 3·n·d, `loads` lead to n rows, `hop_logits` are one a hop; `numbers` n·d, and
        // `halves` of n rows of d, or none.
        unsafe {
            self.launch(
                kernel,
                [n.div_ceil(BLOCK / WARP).min(MAX_GRF_BLOCKS), 1],
                BLOCK,
                0,
                &[
                    qkv.into(),
                    d.into(),
                    loads.into(),
                    hop_logits.into(),
                    Argument::Address(numbers.address_or_none()),
                    Argument::Address(halves.address_or_none()),
                ],
            )
        }
    }
}
