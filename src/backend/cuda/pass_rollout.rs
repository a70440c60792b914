//! The roll-out of models that predict several steps a pass, are told more, or tell how sure they are:
//! the host makes the tokens of a pass and reads its outputs, as on the CPU; what lies between them runs
//! on the device as one replayed graph.

use std::sync::Arc;

use super::Gpu;
use super::forward::{Buffers, Forward, check_tokens};
use super::graph::Graph;
use super::memory::{Arena, Pinned};
use super::model::{DeviceModel, Precision};
use super::rollout::Counts;
use crate::backend::Rollouts;
use crate::model::rollout::{Passes, RolloutConfig};
use crate::model::tokens::Tokens;
use crate::scene::Scene;
use crate::{Error, Result};

/// Runs roll-outs of one model, of any chunk and inputs, on one GPU; keeps all memory between calls.
#[derive(Debug)]
pub struct PassRollout {
    passes: Passes,
    device: DeviceForward,
}

/// From the tokens of a pass to its outputs.
#[derive(Debug)]
struct DeviceForward {
    /// Scene particles and tokens that buffers and graph are of.
    sizes: [usize; 2],
    buffers: Buffers,
    graph: Option<Graph>,
    counts: Counts,
    // Dropped behind the graph, which refers to them.
    positions: Pinned<f32>,
    features: Pinned<f32>,
    outputs: Pinned<f32>,
    arena: Arena,
    model: DeviceModel,
    gpu: Arc<Gpu>,
}

impl PassRollout {
    /// Roll-outs of models of `config` with `weights`, on `gpu`.
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
        let device = DeviceForward {
            sizes: [0; 2],
            buffers: Buffers::default(),
            graph: None,
            counts: Counts::default(),
            positions: Pinned::new(gpu.clone()),
            features: Pinned::new(gpu.clone()),
            outputs: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            model: DeviceModel::new(&gpu, config, weights, precision)?,
            gpu,
        };
        Ok(Self { passes: Passes::new(config), device })
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.device.counts
    }
}

impl Rollouts for PassRollout {
    fn run_while(
        &mut self,
        scene: &Scene,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        let device = &mut self.device;
        let forward = |_, tokens: &Tokens, outputs: &mut Vec<f32>| device.run(tokens, outputs);
        self.passes.run_while(scene, n_steps, goes_on, forward)
    }

    fn displacements(&self, t: usize) -> &[[f32; 3]] {
        self.passes.displacements(t)
    }

    fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.passes.sigmas(t)
    }

    fn n_steps(&self) -> usize {
        self.passes.n_steps()
    }

    fn name(&self) -> &str {
        self.device.gpu.name()
    }
}

impl DeviceForward {
    /// Outputs `[n_scene, n_outputs]` of `tokens`.
    ///
    /// # Errors
    /// As [`crate::graph::KnnGraph::rebuild`]; [`Error::Shape`] for too many tokens or features of
    /// another model; [`Error::Device`] if the GPU fails, and the next pass starts afresh then.
    fn run(&mut self, tokens: &Tokens, outputs: &mut Vec<f32>) -> Result<()> {
        let done = self.prepare(tokens).and_then(|()| self.replay());
        if matches!(done, Err(Error::Device { .. })) {
            self.graph = None;
            self.sizes = [0; 2];
        }
        done?;
        outputs.clear();
        outputs.extend_from_slice(self.outputs.get(self.buffers.outputs.len()));
        Ok(())
    }

    /// Buffers of the tokens' sizes with the tokens in them, and the graph.
    fn prepare(&mut self, tokens: &Tokens) -> Result<()> {
        let (positions, features) = (tokens.positions.as_flattened(), &tokens.features);
        let sizes = [tokens.n_scene, tokens.positions.len()];
        let model = &self.model.config.interlacer;
        check_tokens(sizes[1], model.k)?;
        let (expected, got) = (model.n_features * sizes[1], features.len());
        if got != expected {
            return Err(Error::Shape { what: "features", expected, got });
        }
        if !positions.iter().all(|x| x.is_finite()) {
            return Err(Error::NonFinite { what: "positions of the k-NN graph" });
        }
        self.gpu.bind()?;
        // A pass that failed may still be reading what is staged.
        self.gpu.synchronize()?;
        if sizes != self.sizes {
            // The old graph would write into memory that means something else.
            self.graph = None;
            let config = &self.model.config;
            let (buffers, is_new) =
                self.arena.lay_out(|places| Buffers::take(config, sizes[0], sizes[1], places))?;
            self.counts.allocations += usize::from(is_new)
                + usize::from(self.positions.reserve(positions.len())?)
                + usize::from(self.features.reserve(features.len())?)
                + usize::from(self.outputs.reserve(buffers.outputs.len())?);
            (self.buffers, self.sizes) = (buffers, sizes);
        }
        self.positions.get_mut(positions.len()).copy_from_slice(positions);
        self.features.get_mut(features.len()).copy_from_slice(features);
        self.gpu.upload(&self.positions, self.buffers.token_positions)?;
        self.gpu.upload(&self.features, self.buffers.features)?;
        if self.graph.is_none() {
            let gpu = self.gpu.clone();
            self.graph = Some(Graph::capture(&gpu, || self.record())?);
            self.counts.captures += 1;
        }
        Ok(())
    }

    /// All kernels of a pass, and the copy of its outputs.
    fn record(&mut self) -> Result<()> {
        let (gpu, model, buffers) = (&self.gpu, &self.model, &self.buffers);
        Forward { gpu, model, buffers, only: None }.run()?;
        gpu.download(buffers.outputs, &mut self.outputs)
    }

    fn replay(&mut self) -> Result<()> {
        if let Some(graph) = &self.graph {
            graph.launch(&self.gpu, "a pass")?;
        }
        self.gpu.synchronize()
    }
}
