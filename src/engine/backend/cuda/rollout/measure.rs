//! How long the parts of a pass take, for `benches/gpu`: each is recorded many times over as a graph of
//! its own, and the graph's replay is timed from launch to end.

use std::sync::Arc;
use std::time::Instant;

use super::super::Gpu;
use super::super::kernels::{Grid, TileBuffers};
use super::super::memory::{Arena, Buffer, Pinned};
use super::super::pass::Sizes;
use super::super::stage::Stage;
use super::{Graph, Rollout};
use crate::engine::backend::Rollouts;
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::model::tokens::{Frame, N_CANDIDATES};
use crate::engine::rollout_input::RolloutInput;
use crate::{Error, Result};

/// What a part of a pass takes.
#[derive(Debug, Clone, Copy)]
pub struct StageTime {
    /// Which part, in all blocks together.
    pub stage: Stage,
    /// Milliseconds, the least of several replays.
    pub ms: f64,
    /// Multiply-adds × 2, without searches and what is done element by element.
    pub flops: f64,
    /// Bytes that must at least be read and written: each number once, weights not counted.
    pub bytes: f64,
}

impl Rollout {
    /// Times of the parts of a pass from `scene`, each recorded `n_repeats` times over, and replayed
    /// `n_replays` times (once more to warm up), of which the least counts.
    ///
    /// # Errors
    /// As [`Rollouts::run_while`].
    pub fn measure_stages(
        &mut self,
        scene: &RolloutInput,
        n_repeats: usize,
        n_replays: usize,
    ) -> Result<Vec<StageTime>> {
        // What stages read of one another is there then; they are measured as parts of the first pass.
        let n_entries = self.n_entries(scene)?;
        let place = self.prepare(&[(scene, 1)])?;
        let buffers = self.captured[place].buffers;
        let mut times = Vec::new();
        for stage in Stage::ALL {
            let graph = Graph::capture(&self.gpu, || {
                (0..n_repeats).try_for_each(|_| self.pass(&buffers, Some(stage)).run())
            })?;
            let mut least = f64::INFINITY;
            for _ in 0..=n_replays {
                least = least.min(self.replay_ms(&graph, 1)? / n_repeats as f64);
            }
            let [flops, bytes] = work(stage, &self.model.config, &self.sizes, n_entries as f64);
            times.push(StageTime { stage, ms: least, flops, bytes });
        }
        Ok(times)
    }

    /// Milliseconds a pass over the passes of `n_steps` steps of `scene`, of `n_runs` runs: from positions on
    /// the device to displacements on the device.
    ///
    /// # Errors
    /// As [`Rollouts::run_while`].
    pub fn measure_passes(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        n_runs: usize,
    ) -> Result<Vec<f64>> {
        let place = self.prepare(&[(scene, n_steps)])?;
        let buffers = self.captured[place].buffers;
        let n_passes = self.model.config.n_passes(n_steps);
        let graph = Graph::capture(&self.gpu, || self.pass(&buffers, None).run())?;
        let mut times = Vec::new();
        for _ in 0..n_runs {
            self.prepare(&[(scene, n_steps)])?;
            times.push(self.replay_ms(&graph, n_passes)? / n_passes as f64);
        }
        Ok(times)
    }

    /// Bytes of device memory that the model and the passes of the last run hold.
    pub fn device_bytes(&self) -> usize {
        self.arena.bytes() + self.model.bytes()
    }

    /// Merged loads of the first pass of `scene`.
    ///
    /// # Errors
    /// As [`Rollouts::run_while`].
    pub fn n_entries(&mut self, scene: &RolloutInput) -> Result<usize> {
        self.run_while(scene, 1, &mut |_| true)?;
        let place = self.prepare(&[(scene, 1)])?;
        let lens = read(&self.gpu, self.captured[place].buffers.forward.row_lens)?;
        Ok(lens.iter().map(|&len| len as usize).sum())
    }

    fn replay_ms(&self, graph: &Graph, n: usize) -> Result<f64> {
        self.gpu.synchronize()?;
        let start = Instant::now();
        for _ in 0..n {
            graph.launch(&self.gpu, "a replay")?;
        }
        self.gpu.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

/// Multiply-adds × 2, and bytes: see [`StageTime`].
fn work(stage: Stage, config: &RolloutConfig, sizes: &Sizes, n_entries: f64) -> [f64; 2] {
    let model = &config.interlacer;
    let (tokens, n, d) = (sizes.n_tokens() as f64, sizes.n as f64, model.width as f64);
    let (blocks, mlp) = (model.n_blocks as f64, model.mlp_width() as f64);
    let (features, outputs) = (model.n_features as f64, model.n_outputs as f64);
    let steps = config.tokens.steps_per_pass as f64;
    let candidates = 3.0 * N_CANDIDATES as f64 * steps;
    let head = d / model.n_heads as f64;
    let loads = (model.n_hops + 2) as f64 * n_entries;
    // A product of `rows`, with what is read of y too.
    let product = |rows: f64, n_in: f64, n_out: f64, read: f64| {
        [2.0 * rows * n_in * n_out, rows * (n_in + n_out + read)]
    };
    let [flops, numbers] = match stage {
        Stage::Tokens => {
            [0.0, sizes.n_uploaded() as f64 + tokens * (features + 3.0) + n * candidates]
        }
        Stage::Neighbors => [0.0, tokens * (3.0 + model.k as f64)],
        Stage::Walks => [0.0, tokens * model.k as f64 + loads],
        Stage::Embed => product(tokens, features, d, 0.0),
        Stage::Projections => product(2.0 * blocks * tokens, d, 3.0 * d, 0.0),
        Stage::LinearState => [blocks * 2.0 * tokens * d * (head + 1.0), blocks * tokens * 2.0 * d],
        Stage::LinearOut => product(blocks * tokens, d, d, d),
        Stage::GrfRows => [blocks * 4.0 * n_entries * d, blocks * (4.0 * tokens * d + loads)],
        Stage::GrfOut => product(blocks * tokens, d, d, d),
        Stage::MlpUp => product(blocks * tokens, d, mlp, 0.0),
        Stage::MlpDown => product(blocks * tokens, mlp, d, d),
        Stage::Head => product(n, d, outputs, 0.0),
        Stage::Motion => [0.0, n * (outputs + candidates + steps + 12.0)],
    };
    [flops, 4.0 * numbers]
}

/// The searches for neighbours on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// All against all.
    BruteForce,
    /// By tiles in Morton order.
    Tiles,
}

/// The `k` nearest of each of `positions` `[n, k]`, and the milliseconds that the search took, the
/// least of `n_runs`.
///
/// # Errors
/// [`Error::TooFewPoints`] unless there are more than `k` positions, [`Error::Shape`] for `k` above 32,
/// [`Error::Device`].
pub fn neighbors(
    gpu: &Arc<Gpu>,
    positions: &[[f32; 3]],
    k: usize,
    frame: &Frame,
    search: Search,
    n_runs: usize,
) -> Result<(Vec<u32>, f64)> {
    let n = positions.len();
    if n <= k {
        return Err(Error::TooFewPoints { needed: k + 1, got: n });
    }
    if k > 32 {
        return Err(Error::Shape { what: "neighbours at most", expected: 32, got: k });
    }
    let (mut arena, mut pinned) = (Arena::new(gpu.clone()), Pinned::new(gpu.clone()));
    let ((on_device, found, tiles), _) = arena
        .lay_out(|places| (places.take(3 * n), places.take(n * k), TileBuffers::take(n, places)))?;
    pinned.reserve(3 * n)?;
    pinned.get_mut(3 * n).copy_from_slice(positions.as_flattened());
    gpu.upload(&pinned, on_device)?;
    let mut least = f64::INFINITY;
    for _ in 0..n_runs.max(1) {
        gpu.synchronize()?;
        let start = Instant::now();
        match search {
            Search::BruteForce => gpu.knn(on_device, 1, k, found)?,
            Search::Tiles => gpu.knn_tiled(on_device, k, &Grid::new(frame), &tiles, found)?,
        }
        gpu.synchronize()?;
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok((read(gpu, found)?, least))
}

/// Bytes a second at which the device sets `n_bytes` of its memory: what writes can reach at most.
///
/// # Errors
/// [`Error::Device`].
pub fn write_bytes_per_sec(gpu: &Arc<Gpu>, n_bytes: usize) -> Result<f64> {
    let mut arena = Arena::new(gpu.clone());
    let (buffer, _) = arena.lay_out(|places| places.take::<u8>(n_bytes))?;
    let mut least_secs = f64::INFINITY;
    for _ in 0..10 {
        gpu.synchronize()?;
        let start = Instant::now();
        gpu.clear(buffer)?;
        gpu.synchronize()?;
        least_secs = least_secs.min(start.elapsed().as_secs_f64());
    }
    Ok(n_bytes as f64 / least_secs)
}

fn read<T: Copy + Default>(gpu: &Arc<Gpu>, buffer: Buffer<T>) -> Result<Vec<T>> {
    let mut pinned = Pinned::new(gpu.clone());
    pinned.reserve(buffer.len())?;
    gpu.download(buffer, &mut pinned)?;
    gpu.synchronize()?;
    Ok(pinned.get(buffer.len()).to_vec())
}
