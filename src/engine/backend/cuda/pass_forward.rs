//! From the tokens of a pass to its outputs, of one scene or of several side by side, as one replayed
//! graph.

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use super::Gpu;
use super::forward::{Buffers, Extent, Forward, MAX_TOKENS, check_tokens};
use super::graph::Graph;
use super::memory::{Arena, Pinned};
use super::model::{DeviceModel, Precision};
use super::rollout::Counts;
use crate::engine::backend::Forwards;
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::model::tokens::Tokens;
use crate::{Error, Result};

/// The model between tokens and outputs on one GPU; keeps all memory, and a graph for each number of
/// scenes, for as long as the scenes' sizes stay the same.
#[derive(Debug)]
pub struct PassForward {
    /// Tokens and scene particles of each scene, in all that is captured.
    sizes: [usize; 2],
    captured: Vec<Captured>,
    counts: Counts,
    // Dropped behind the graphs, which refer to them.
    positions: Pinned<f32>,
    features: Pinned<f32>,
    outputs: Pinned<f32>,
    arena: Arena,
    model: DeviceModel,
    gpu: Arc<Gpu>,
}

/// A pass of so many scenes. All lie in the same memory, and run one after the other.
#[derive(Debug)]
struct Captured {
    n_scenes: usize,
    buffers: Buffers,
    graph: Graph,
}

impl PassForward {
    /// Passes of models of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// [`Error::Device`] if they do not run there, or do not fit; [`Error::Shape`] for weights of
    /// another model.
    pub fn new(
        gpu: Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        Ok(Self {
            sizes: [0; 2],
            captured: Vec::new(),
            counts: Counts::default(),
            positions: Pinned::new(gpu.clone()),
            features: Pinned::new(gpu.clone()),
            outputs: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            model: DeviceModel::new(&gpu, config, weights, precision)?,
            gpu,
        })
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The tokens on the device, and the graph of as many scenes or a few more: its place in `captured`.
    fn prepare(&mut self, tokens: &[&Tokens]) -> Result<usize> {
        let sizes = self.check(tokens)?;
        self.gpu.bind()?;
        // A pass that failed may still be reading what is staged.
        self.gpu.synchronize()?;
        if sizes != self.sizes {
            // The old graphs would write into memory that means something else.
            self.captured.clear();
            self.sizes = sizes;
        }
        // Few different numbers, so that few graphs are captured; what is too many computes something
        // that nobody reads.
        let n_scenes = tokens.len().next_power_of_two();
        let place = match self.captured.iter().position(|known| known.n_scenes == n_scenes) {
            Some(place) => place,
            None => self.capture(n_scenes)?,
        };
        let (n_positions, n_features) = (3 * sizes[0], tokens[0].features.len());
        let Buffers { token_positions, features, .. } = self.captured[place].buffers;
        stage(&mut self.positions, n_positions, tokens, |t| t.positions.as_flattened());
        stage(&mut self.features, n_features, tokens, |t| &t.features);
        self.gpu.upload(&self.positions, token_positions.part(0, n_positions * tokens.len()))?;
        self.gpu.upload(&self.features, features.part(0, n_features * tokens.len()))?;
        Ok(place)
    }

    /// Sizes that all scenes have.
    fn check(&self, tokens: &[&Tokens]) -> Result<[usize; 2]> {
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        let model = &self.model.config.interlacer;
        let n_tokens = tokens[0].positions.len();
        check_tokens(n_tokens, model.k)?;
        for scene in tokens {
            if scene.positions.len() != n_tokens {
                return shape("tokens of each scene", n_tokens, scene.positions.len());
            }
            if scene.n_scene != tokens[0].n_scene {
                return shape("particles of each scene", tokens[0].n_scene, scene.n_scene);
            }
            let (expected, got) = (model.n_features * n_tokens, scene.features.len());
            if got != expected {
                return shape("features", expected, got);
            }
        }
        let is_finite = |t: &&Tokens| t.positions.as_flattened().iter().all(|x| x.is_finite());
        if !tokens.par_iter().all(is_finite) {
            return Err(Error::NonFinite { what: "positions of the k-NN graph" });
        }
        let n_all = n_tokens * tokens.len().next_power_of_two();
        if n_all > MAX_TOKENS {
            return shape("tokens", MAX_TOKENS, n_all);
        }
        Ok([n_tokens, tokens[0].n_scene])
    }

    /// Captures a pass of `n_scenes`: its place in `captured`.
    fn capture(&mut self, n_scenes: usize) -> Result<usize> {
        let (config, precision) = (&self.model.config, self.model.precision);
        let [n_tokens, n_particles] = self.sizes;
        let extent = Extent { n_scenes, n_tokens, n_particles };
        let (buffers, is_new) =
            self.arena.lay_out(|places| Buffers::take(config, precision, extent, places))?;
        let has_moved = self.outputs.reserve(buffers.outputs.len())?;
        self.counts.allocations += usize::from(is_new)
            + usize::from(has_moved)
            + usize::from(self.positions.reserve(buffers.token_positions.len())?)
            + usize::from(self.features.reserve(buffers.features.len())?);
        if is_new || has_moved {
            // They would write where nothing is any more.
            self.captured.clear();
        }
        let (gpu, model, outputs) = (&self.gpu, &self.model, &mut self.outputs);
        let graph = Graph::capture(gpu, || {
            Forward { gpu, model, buffers: &buffers, only: None }.run()?;
            gpu.download(buffers.outputs, outputs)
        })?;
        self.counts.captures += 1;
        self.captured.push(Captured { n_scenes, buffers, graph });
        Ok(self.captured.len() - 1)
    }

    /// Milliseconds of a pass from tokens on the device to outputs on the device, of `n_runs` runs over
    /// `tokens`: for `benches/gpu`.
    ///
    /// # Errors
    /// As [`Forwards::run`].
    pub fn measure(&mut self, tokens: &[&Tokens], n_runs: usize) -> Result<Vec<f64>> {
        let place = self.prepare(tokens)?;
        let (gpu, model, buffers) = (&self.gpu, &self.model, &self.captured[place].buffers);
        let graph = Graph::capture(gpu, || Forward { gpu, model, buffers, only: None }.run())?;
        let mut times = Vec::new();
        for _ in 0..n_runs {
            gpu.synchronize()?;
            let start = Instant::now();
            graph.launch(gpu, "a pass")?;
            gpu.synchronize()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    /// Bytes of device memory that the model and the passes of the last sizes hold.
    pub fn device_bytes(&self) -> usize {
        self.arena.bytes() + self.model.bytes()
    }

    fn replay(&mut self, place: usize) -> Result<()> {
        self.captured[place].graph.launch(&self.gpu, "a pass")?;
        self.gpu.synchronize()
    }
}

impl Forwards for PassForward {
    fn run(&mut self, tokens: &[&Tokens], outputs: &mut [&mut Vec<f32>]) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let prepared = self.prepare(tokens);
        let done = prepared.and_then(|place| self.replay(place));
        if matches!(done, Err(Error::Device { .. })) {
            self.captured.clear();
            self.sizes = [0; 2];
        }
        done?;
        let n_outputs = self.model.config.interlacer.n_outputs * tokens[0].n_scene;
        let all = self.outputs.get(n_outputs * tokens.len());
        outputs.par_iter_mut().enumerate().for_each(|(i, to)| {
            to.clear();
            to.extend_from_slice(&all[n_outputs * i..n_outputs * (i + 1)]);
        });
        Ok(())
    }

    fn name(&self) -> &str {
        self.gpu.name()
    }
}

/// Puts `len` numbers of each scene one behind the other.
fn stage<'a>(
    pinned: &mut Pinned<f32>,
    len: usize,
    tokens: &[&'a Tokens],
    of: impl Fn(&'a Tokens) -> &'a [f32] + Sync,
) {
    let to = pinned.get_mut(len * tokens.len());
    match tokens {
        [one] => to.copy_from_slice(of(one)),
        // A scene are more than a million bytes.
        _ => {
            to.par_chunks_mut(len.max(1)).zip(tokens).for_each(|(to, t)| to.copy_from_slice(of(t)))
        }
    }
}
