//! The roll-out on the device: scene and plan go there once, each pass is a replayed graph, and its
//! displacements and sigmas come back.

use std::sync::Arc;

pub mod measure;
mod upload;

use super::Gpu;
use super::forward::Forward;
use super::graph::Graph;
use super::memory::{Arena, Pinned};
use super::model::{DeviceModel, Precision};
use super::pass::{Buffers, Pass, Sizes};
use super::stage::Stage;
use crate::engine::backend::Rollouts;
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::rollout_input::RolloutInput;
use crate::{Error, Result};
pub(super) use upload::{checked_sizes, stage};

/// Bits of the flag word, as in `kernels/common.cuh`.
const FLAG_POSITION: u32 = 1;
const FLAG_DISPLACEMENT: u32 = 2;

/// Runs roll-outs of one model on one GPU; keeps all memory between calls.
#[derive(Debug)]
pub struct Rollout {
    n_steps: usize,
    /// Of each step of the last run; sigmas also of steps beyond it, and none of models that don't tell.
    displacements: Vec<Vec<[f32; 3]>>,
    sigmas: Vec<Vec<f32>>,
    sizes: Sizes,
    buffers: Buffers,
    graph: Option<Graph>,
    counts: Counts,
    // Dropped behind the graph, which refers to them.
    staged: Pinned<u32>,
    moved: Pinned<f32>,
    expected: Pinned<f32>,
    counters: Pinned<u32>,
    arena: Arena,
    model: DeviceModel,
    gpu: Arc<Gpu>,
}

/// What was made anew so far; in the steady state nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations on the device and of pinned memory.
    pub allocations: usize,
    /// Captures of a pass's graph: one for each change of sizes.
    pub captures: usize,
}

impl Rollout {
    /// Roll-outs of models of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// [`Error::Device`] if they do not run there, or do not fit; [`Error::Shape`] for weights of
    /// another model, or other features and outputs than tokens and motions have.
    pub fn new(
        gpu: Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        let (tokens, model) = (&config.tokens, &config.interlacer);
        let n_outputs = tokens.steps_per_pass * config.n_step_outputs().max(N_OUTPUTS);
        for (what, expected, got) in [
            ("features", tokens.n_features(), model.n_features),
            ("outputs", n_outputs, model.n_outputs),
        ] {
            if got != expected {
                return Err(Error::Shape { what, expected, got });
            }
        }
        let model = DeviceModel::new(&gpu, config, weights, precision)?;
        Ok(Self {
            n_steps: 0,
            displacements: Vec::new(),
            sigmas: Vec::new(),
            sizes: Sizes::default(),
            buffers: Buffers::default(),
            graph: None,
            counts: Counts::default(),
            staged: Pinned::new(gpu.clone()),
            moved: Pinned::new(gpu.clone()),
            expected: Pinned::new(gpu.clone()),
            counters: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            model,
            gpu,
        })
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Buffers of the scene's sizes with the scene in them, and the graph of a pass.
    fn prepare(&mut self, scene: &RolloutInput, n_steps: usize) -> Result<()> {
        let config = self.model.config;
        let sizes = checked_sizes(scene, &config, n_steps, &self.sizes)?;
        self.gpu.bind()?;
        // A run that ended early may still be reading what is staged.
        self.gpu.synchronize()?;
        if sizes != self.sizes {
            // The old graph would write into memory that means something else.
            self.graph = None;
            let (buffers, is_new) = self
                .arena
                .lay_out(|places| Buffers::take(&config, self.model.precision, sizes, places))?;
            self.counts.allocations += usize::from(is_new)
                + usize::from(self.staged.reserve(sizes.n_uploaded())?)
                + usize::from(self.moved.reserve(buffers.displacements.len())?)
                + usize::from(self.expected.reserve(buffers.sigmas.len())?)
                + usize::from(self.counters.reserve(2)?);
            (self.buffers, self.sizes) = (buffers, sizes);
        }
        let n_rows = config.n_rows(n_steps);
        stage(scene, &sizes, n_rows, self.staged.get_mut(sizes.n_uploaded()));
        self.gpu.upload(&self.staged, self.buffers.uploaded)?;
        self.gpu.clear(self.buffers.counters)?;
        if self.graph.is_none() {
            let gpu = self.gpu.clone();
            self.graph = Some(Graph::capture(&gpu, || self.record())?);
            self.counts.captures += 1;
        }
        Ok(())
    }

    /// A pass with the copies of its results.
    fn record(&mut self) -> Result<()> {
        let (buffers, gpu) = (&self.buffers, &self.gpu);
        self.pass(None).run()?;
        gpu.download(buffers.displacements, &mut self.moved)?;
        gpu.download(buffers.sigmas, &mut self.expected)?;
        gpu.download(buffers.counters, &mut self.counters)
    }

    /// All of a pass, or one stage.
    fn pass(&self, only: Option<Stage>) -> Pass<'_> {
        let (gpu, model, buffers) = (&self.gpu, &self.model, &self.buffers);
        Pass { forward: Forward { gpu, model, buffers: &buffers.forward, only }, buffers }
    }

    fn passes(&mut self, n_steps: usize, goes_on: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        let config = self.model.config;
        for index in 0..config.n_passes(n_steps) {
            if let Some(graph) = &self.graph {
                graph.launch(&self.gpu, "a pass")?;
            }
            self.gpu.synchronize()?;
            check_flags(self.counters.get(2)[1])?;
            self.read(index);
            self.n_steps = ((index + 1) * config.replan_interval).min(n_steps);
            if !goes_on(self.n_steps) {
                break;
            }
        }
        Ok(())
    }

    /// Takes over what pass `index` gave: its own steps, and sigmas of those that it looks at first.
    fn read(&mut self, index: usize) {
        let (config, n) = (&self.model.config, self.sizes.n);
        let (steps, kept) = (config.tokens.steps_per_pass, config.replan_interval);
        let (first, n_known) = (index * kept, index * kept + steps);
        let n_known = self.displacements.len().max(n_known);
        self.displacements.resize_with(n_known, Vec::new);
        self.sigmas.resize_with(n_known, Vec::new);
        let (vectors, _) = self.moved.get(3 * n * kept).as_chunks();
        for (j, displacements) in self.displacements[first..first + kept].iter_mut().enumerate() {
            displacements.clear();
            displacements.extend_from_slice(&vectors[j * n..(j + 1) * n]);
        }
        if !config.tells_sigma() {
            return;
        }
        let told = self.expected.get(n * steps);
        for (j, sigmas) in self.sigmas[first..first + steps].iter_mut().enumerate() {
            if config.first_look(first + j) == index {
                sigmas.clear();
                sigmas.extend_from_slice(&told[j * n..(j + 1) * n]);
            }
        }
    }
}

impl Rollouts for Rollout {
    fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        self.n_steps = 0;
        let done = self.prepare(scene, n_steps).and_then(|()| self.passes(n_steps, goes_on));
        if matches!(done, Err(Error::Device { .. })) {
            self.graph = None;
            self.sizes = Sizes::default();
        }
        done
    }

    fn displacements(&self, t: usize) -> &[[f32; 3]] {
        &self.displacements[t]
    }

    fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.model.config.tells_sigma().then(|| &*self.sigmas[t])
    }

    fn n_steps(&self) -> usize {
        self.n_steps
    }

    fn name(&self) -> &str {
        self.gpu.name()
    }
}

fn check_flags(flags: u32) -> Result<()> {
    if flags & FLAG_POSITION != 0 {
        return Err(Error::NonFinite { what: "positions of the k-NN graph" });
    }
    if flags & FLAG_DISPLACEMENT != 0 {
        let what = "predicted motion (check the model file and the joint states)";
        return Err(Error::NonFinite { what });
    }
    Ok(())
}
