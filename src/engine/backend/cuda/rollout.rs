//! The roll-out on the device: the state goes there once, each step is a replayed graph, and the
//! displacements come back step by step.

use std::sync::Arc;

pub mod measure;

use super::Gpu;
use super::forward::{Forward, MAX_TOKENS, check_tokens};
use super::graph::Graph;
use super::memory::{Arena, Pinned};
use super::model::{DeviceModel, Precision};
use super::stage::Stage;
use super::step::{Buffers, Sizes, Step, is_known};
use crate::base::geometry::RigidMotion;
use crate::base::geometry::follow_links;
use crate::engine::backend::Rollouts;
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::rollout_input::RolloutInput;
use crate::vision::motion::N_BODY_FEATURES;
use crate::{Error, Result};

/// Bits of the flag word, as in `kernels/common.cuh`.
const FLAG_POSITION: u32 = 1;
const FLAG_DISPLACEMENT: u32 = 2;

/// Runs roll-outs of one model, whole steps of it, on one GPU; keeps all memory between calls.
#[derive(Debug)]
pub struct Rollout {
    n_steps: usize,
    displacements: Vec<Vec<[f32; 3]>>,
    sizes: Sizes,
    buffers: Buffers,
    graph: Option<Graph>,
    counts: Counts,
    links: Vec<RigidMotion>,
    // Dropped behind the graph, which refers to them.
    staged: Pinned<f32>,
    results: Pinned<f32>,
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
    /// Captures of a step's graph: one for each change of sizes.
    pub captures: usize,
}

impl Rollout {
    /// Roll-outs of models of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// [`Error::Device`] if they do not run there, or do not fit, or are for [`super::PassRollout`];
    /// [`Error::Shape`] for weights of another model.
    pub fn new(
        gpu: Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        let model = DeviceModel::new(&gpu, config, weights, precision)?;
        if !is_known(&config) {
            let problem =
                "whole steps are of models of one step per pass, first inputs and no sigma".into();
            return Err(Error::Device { device: gpu.name().into(), problem });
        }
        Ok(Self {
            n_steps: 0,
            displacements: Vec::new(),
            sizes: Sizes::default(),
            buffers: Buffers::default(),
            graph: None,
            counts: Counts::default(),
            links: Vec::new(),
            staged: Pinned::new(gpu.clone()),
            results: Pinned::new(gpu.clone()),
            counters: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            model,
            gpu,
        })
    }

    /// Predicts `n_steps` steps of `scene`, but ends after the first step behind which `goes_on` (told
    /// the number of steps done) is false, as [`crate::engine::model::Rollout::run_while`] does.
    ///
    /// # Errors
    /// As there, and [`Error::Device`] if the GPU fails; the next run starts afresh then.
    pub fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        self.n_steps = 0;
        let done = self.prepare(scene, n_steps).and_then(|()| self.steps(n_steps, goes_on));
        if matches!(done, Err(Error::Device { .. })) {
            self.graph = None;
            self.sizes = Sizes::default();
        }
        done
    }

    /// Buffers of the scene's sizes with the scene in them, and the graph of a step.
    fn prepare(&mut self, scene: &RolloutInput, n_steps: usize) -> Result<()> {
        let sizes =
            checked_sizes(scene, n_steps, self.model.config.interlacer.k, self.sizes.n_times)?;
        self.gpu.bind()?;
        // A run that ended early may still be reading what is staged.
        self.gpu.synchronize()?;
        if sizes != self.sizes {
            // The old graph would write into memory that means something else.
            self.graph = None;
            let config = &self.model.config;
            let (buffers, is_new) = self
                .arena
                .lay_out(|places| Buffers::take(config, self.model.precision, sizes, places))?;
            self.counts.allocations += usize::from(is_new)
                + usize::from(self.staged.reserve(sizes.n_uploaded())?)
                + usize::from(self.results.reserve(3 * sizes.n)?)
                + usize::from(self.counters.reserve(2)?);
            (self.buffers, self.sizes) = (buffers, sizes);
        }
        stage(scene, &sizes, n_steps, &mut self.links, self.staged.get_mut(sizes.n_uploaded()));
        self.gpu.upload(&self.staged, self.buffers.uploaded)?;
        self.gpu.clear(self.buffers.counters)?;
        if self.graph.is_none() {
            let gpu = self.gpu.clone();
            self.graph = Some(Graph::capture(&gpu, || self.record())?);
            self.counts.captures += 1;
        }
        Ok(())
    }

    /// A step with the copies of its results.
    fn record(&mut self) -> Result<()> {
        let (buffers, gpu) = (&self.buffers, &self.gpu);
        self.step(None).run()?;
        gpu.download(buffers.displacements, &mut self.results)?;
        gpu.download(buffers.counters, &mut self.counters)
    }

    /// All of a step, or one stage.
    fn step(&self, only: Option<Stage>) -> Step<'_> {
        let (gpu, model, buffers) = (&self.gpu, &self.model, &self.buffers);
        Step { forward: Forward { gpu, model, buffers: &buffers.forward, only }, buffers }
    }

    fn steps(&mut self, n_steps: usize, goes_on: &mut dyn FnMut(usize) -> bool) -> Result<()> {
        let n_known = self.displacements.len().max(n_steps);
        self.displacements.resize_with(n_known, Vec::new);
        for t in 0..n_steps {
            if let Some(graph) = &self.graph {
                graph.launch(&self.gpu, "a step")?;
            }
            self.gpu.synchronize()?;
            check_flags(self.counters.get(2)[1])?;
            let (vectors, _) = self.results.get(3 * self.sizes.n).as_chunks();
            self.displacements[t].clear();
            self.displacements[t].extend_from_slice(vectors);
            self.n_steps = t + 1;
            if !goes_on(t + 1) {
                break;
            }
        }
        Ok(())
    }

    /// Displacements of step `t` relative to the positions before it (m), `[n]`.
    pub fn displacements(&self, t: usize) -> &[[f32; 3]] {
        &self.displacements[t]
    }

    /// Steps of the last run.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl Rollouts for Rollout {
    fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        self.run_while(scene, n_steps, goes_on)
    }

    fn displacements(&self, t: usize) -> &[[f32; 3]] {
        self.displacements(t)
    }

    /// None: models that tell them are not run here.
    fn sigmas(&self, _t: usize) -> Option<&[f32]> {
        None
    }

    fn n_steps(&self) -> usize {
        self.n_steps()
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

/// Sizes of a run, its parts held to each other. Room for kinematic particles never shrinks, so that
/// shorter horizons replay the same graph.
pub(super) fn checked_sizes(
    scene: &RolloutInput,
    n_steps: usize,
    k: usize,
    n_times: usize,
) -> Result<Sizes> {
    let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
    let (kinematic, start) = (&scene.kinematic, &scene.start);
    if kinematic.len() < n_steps + 2 {
        return shape("rows of kinematic particles", n_steps + 2, kinematic.len());
    }
    let n_robot = kinematic.first().map_or(0, Vec::len);
    let used = &kinematic[..n_steps + 2];
    if let Some(row) = used.iter().find(|row| row.len() != n_robot) {
        return shape("points on the robot", n_robot, row.len());
    }
    start.check_particles()?;
    start.check_links(n_robot)?;
    let sizes = Sizes {
        n: start.positions.len(),
        h: start.history_positions.len(),
        k: n_robot.div_ceil(start.stride()),
        stride: start.stride(),
        n_robot,
        n_links: start.kinematic_links.last().map_or(0, |&link| link as usize + 1),
        n_times: n_times.max(n_steps + 2),
    };
    if n_robot > MAX_TOKENS {
        return shape("points on the robot", MAX_TOKENS, n_robot);
    }
    check_tokens(sizes.n_tokens(), k)?;
    Ok(sizes)
}

/// Writes the scene in the order of [`Buffers::uploaded`]; `motions` is scratch.
pub(super) fn stage(
    scene: &RolloutInput,
    sizes: &Sizes,
    n_steps: usize,
    motions: &mut Vec<RigidMotion>,
    to: &mut [f32],
) {
    let start = &scene.start;
    let mut rest = to;
    let mut put = |numbers: &[f32]| {
        let (first, behind) = std::mem::take(&mut rest).split_at_mut(numbers.len());
        first.copy_from_slice(numbers);
        rest = behind;
    };
    put(start.positions.as_flattened());
    put(start.velocities.as_flattened());
    put(&start.velocity_known);
    put(start.colors.as_flattened());
    put(start.history_positions.as_flattened());
    put(start.history_colors.as_flattened());
    for t in 0..sizes.n_times {
        // Times beyond this run are not read.
        put(scene.kinematic[t.min(n_steps + 1)].as_flattened());
    }
    let goes_on = if start.extrapolated_motion.is_empty() {
        &start.velocities
    } else {
        &start.extrapolated_motion
    };
    put(goes_on.as_flattened());
    if start.bodies.is_empty() {
        start.positions.iter().for_each(|_| put(&[0.0; N_BODY_FEATURES]));
    }
    put(start.bodies.as_flattened());
    let links = &start.kinematic_links;
    links.iter().for_each(|&link| put(&[link as f32]));
    for ends in scene.kinematic[1..n_steps + 2].windows(2) {
        follow_links(links, &ends[0], &ends[1], motions);
        motions.iter().for_each(|motion| put(&motion.numbers()));
    }
}
