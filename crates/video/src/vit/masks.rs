//! Masks between the patches of a frame, and of several frames: what is drawn of them is drawn once for
//! each size of pictures, and stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::config::{PatchMask, VitConfig};
use super::patches::Patches;
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud_lab::masks::{Causal, Factorised, Mask, Nodes, Packed, Part, Toeplitz};

/// Chance that a walk ends before a hop, as in GRF masking, Table 2.
const P_HALT: f32 = 0.1;
/// Seed of the walks.
const SEED: u64 = 0x0076_6974;
/// From one patch to the next, where masks ask for places: the side of their cells (m).
const CELL_M: f32 = 0.04;
/// Sizes of pictures whose masks are kept.
const MOST_KEPT: usize = 16;

/// Masks of the grids that were met so far, which do not hang on depths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frozen(Arc<Mutex<HashMap<[usize; 2], Shared>>>);

/// A mask that several frames have.
#[derive(Debug, Clone)]
struct Shared(Arc<dyn Mask>);

/// Toeplitz over a grid that may be smaller than the layer's offsets.
#[derive(Debug)]
struct Offsets {
    mask: Toeplitz,
    /// Where its parameters stand among the layer's.
    places: Vec<usize>,
}

/// Those of the frames at hand.
pub(super) struct Masks {
    /// Between the patches of each frame.
    pub space: Packed,
    /// Between the patches of all frames: of each with those of its own and of earlier ones, as far as
    /// the other mask lets it.
    pub time: Factorised<Causal, Packed>,
}

impl Masks {
    /// Of frames, the oldest first, whose patches lie at `depths_m`.
    ///
    /// # Errors
    /// As [`Toeplitz::new`], [`WeightedGraph::of_depth`] and [`forecloud_lab::masks::MaskKind::over`].
    pub fn new(
        config: &VitConfig,
        patches: &Patches,
        depths_m: &[Vec<f32>],
        frozen: &Frozen,
    ) -> Result<Self> {
        let part = |depths_m: &Vec<f32>| -> Result<Part> {
            Ok(match (config.mask, config.cut_m) {
                (PatchMask::None, _) => Part::Open(patches.len()),
                (_, Some(cut_m)) => Part::Scene(over(config, patches.grid, depths_m, cut_m)?),
                _ => Part::Scene(Box::new(frozen.of(config, patches.grid)?)),
            })
        };
        let space = Packed(depths_m.iter().map(part).collect::<Result<_>>()?);
        let inner = Packed(depths_m.last().map(part).transpose()?.into_iter().collect());
        let times: Vec<f32> = (0..depths_m.len()).map(|frame| frame as f32).collect();
        let time = Factorised { outer: Causal::new(&times), inner, n_outer_params: 0 };
        Ok(Self { space, time })
    }

    /// That of block number `index`.
    pub fn of(&self, index: usize, config: &VitConfig) -> &dyn Mask {
        if index < config.n_blocks { &self.space } else { &self.time }
    }
}

impl Frozen {
    fn of(&self, config: &VitConfig, grid: [usize; 2]) -> Result<Shared> {
        // A thread that panicked with it left it whole.
        let mut kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(mask) = kept.get(&grid) {
            return Ok(mask.clone());
        }
        let mask: Arc<dyn Mask> = match config.mask {
            PatchMask::Toeplitz => Arc::new(Offsets::new(grid, config.n_hops)?),
            _ => over(config, grid, &vec![1.0; grid[0] * grid[1]], f32::INFINITY)?.into(),
        };
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(grid, Shared(Arc::clone(&mask)));
        Ok(Shared(mask))
    }
}

/// The mask of the table over a grid whose neighbours are joined unless they lie more than `cut_m` apart
/// in depth.
fn over(
    config: &VitConfig,
    grid: [usize; 2],
    depths_m: &[f32],
    cut_m: f32,
) -> Result<Box<dyn Mask>> {
    let PatchMask::Graph(kind) = config.mask else {
        return Ok(Box::new(Packed(vec![Part::Open(depths_m.len())])));
    };
    let graph = WeightedGraph::of_depth(depths_m, grid[0], cut_m)?;
    let place =
        |i: usize| -> Vec3 { [(i % grid[0]) as f32 * CELL_M, (i / grid[0]) as f32 * CELL_M, 0.0] };
    let positions: Vec<Vec3> = (0..depths_m.len()).map(place).collect();
    let walks = kind.reads().walks.then_some(WalkConfig {
        sampler: Sampler::Iid,
        n_walks: config.n_walks,
        halting: Halting::Probability { p_halt: P_HALT, max_hops: config.n_hops },
        importance: true,
    });
    kind.over(&Nodes {
        positions: &positions,
        graph: &graph,
        n_hops: config.n_hops,
        walks,
        cell_m: CELL_M,
        seed: WalkSeed { seed: SEED, stamp_ns: 0 },
    })
}

impl Offsets {
    fn new(grid: [usize; 2], most: usize) -> Result<Self> {
        // Rows first: nodes lie row by row.
        let shape = [grid[1], grid[0]];
        let reach = shape.map(|len| most.min(len.saturating_sub(1)));
        let mask = Toeplitz::new(&shape, &reach)?;
        let [down, along] = reach.map(|reach| most - reach..=most + reach);
        let side = 2 * most + 1;
        let places = down.flat_map(|y| along.clone().map(move |x| y * side + x)).collect();
        Ok(Self { mask, places })
    }

    fn own(&self, params: &[f32]) -> Vec<f32> {
        self.places.iter().map(|&at| params[at]).collect()
    }
}

impl Mask for Offsets {
    fn n_nodes(&self) -> usize {
        self.mask.n_nodes()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.mask.apply(&self.own(params), x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.mask.apply_transposed(&self.own(params), x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let mut d_own = vec![0.0; self.places.len()];
        self.mask.gradients(&self.own(params), x, dy, &mut d_own);
        self.places.iter().zip(d_own).for_each(|(&at, d)| d_params[at] += d);
    }
}

impl Mask for Shared {
    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.0.apply(params, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.0.apply_transposed(params, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        self.0.gradients(params, x, dy, d_params);
    }
}
