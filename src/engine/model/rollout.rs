//! The roll-out: step after step on its own predictions, the graph rebuilt each time, and
//! back-propagation through all of it.

mod passes;

use super::cpu::{Engine, Gradients, Mode};
use super::interlacer::InterlacerConfig;
use super::layers::LocalLayer;
use super::tokens::{N_CANDIDATES, StateGradients, TokenConfig};
use crate::base::geometry::{self, Vec3};
use crate::engine::graph::walks::WalkSeed;
use crate::engine::ops::motion_head::motion_head_backward;
use crate::engine::rollout_input::{RolloutInput, history_index};
use crate::engine::step_graph::{MaskConfig, StepGraph};
use crate::{Error, Result};
use passes::{MAX_LOG_SIGMA, Pass, Passes};

/// What the roll-out needs to know of the model besides its weights.
#[derive(Debug, Clone, Copy)]
pub struct RolloutConfig {
    /// Sizes of the Interlacer.
    pub interlacer: InterlacerConfig,
    /// Walks and weights of the mask.
    pub mask: MaskConfig,
    /// How tokens are made, and the steps of a pass.
    pub tokens: TokenConfig,
    /// Steps of a pass behind which the next one starts; divides those of a pass.
    pub replan_interval: usize,
}

impl RolloutConfig {
    /// Outputs a scene token and step.
    pub(crate) fn n_step_outputs(&self) -> usize {
        self.interlacer.n_outputs / self.tokens.steps_per_pass
    }

    /// Whether the model tells how sure it is.
    pub fn tells_sigma(&self) -> bool {
        self.n_step_outputs() > N_OUTPUTS
    }

    /// Passes for `n_steps` steps.
    pub(crate) fn n_passes(&self, n_steps: usize) -> usize {
        n_steps.div_ceil(self.replan_interval)
    }

    /// Rows of kinematic particles for `n_steps` steps: to the end of the last pass.
    pub(crate) fn n_rows(&self, n_steps: usize) -> usize {
        let last = self.n_passes(n_steps).checked_sub(1);
        last.map_or(0, |last| last * self.replan_interval + self.tokens.steps_per_pass) + 2
    }

    /// The first pass that looks at step `t`.
    pub(crate) fn first_look(&self, t: usize) -> usize {
        (t + self.replan_interval).saturating_sub(self.tokens.steps_per_pass) / self.replan_interval
    }
}

/// Runs and differentiates roll-outs; keeps all buffers between calls.
#[derive(Debug)]
pub struct Rollout {
    config: RolloutConfig,
    mode: Mode,
    engine: Engine,
    passes: Passes,
    /// Of each pass.
    graphs: Vec<StepGraph>,
    backward: Buffers,
}

#[derive(Debug, Default)]
struct Buffers {
    d_output: Vec<f32>,
    d_mixed: Vec<Vec3>,
    d_features: Vec<f32>,
    d_candidates: Vec<Vec3>,
    /// Of the displacements of each step of a pass, `[steps_per_pass][n]`.
    d_displacements: Vec<Vec<Vec3>>,
    d_positions: Vec<Vec3>,
    state: StateGradients,
}

impl Rollout {
    /// A roll-out of models of `config`. For training, the next pass starts behind all steps of the one
    /// before: each of them is to be learned.
    pub fn new(mut config: RolloutConfig, mode: Mode) -> Self {
        if mode != Mode::Inference {
            config.replan_interval = config.tokens.steps_per_pass;
        }
        let engine = Engine::new(config.interlacer, mode);
        let (passes, graphs) = (Passes::new(config), Vec::new());
        Self { config, mode, engine, passes, graphs, backward: Buffers::default() }
    }

    /// Predicts `n_steps` steps of `scene`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `scene.kinematic` does not reach to the end of the last pass,
    /// [`Error::NonFinite`] if a displacement is not finite, or as
    /// [`super::tokens::Tokens::encode`], [`crate::engine::graph::KnnGraph::rebuild`] and [`Engine::forward`].
    pub fn run(&mut self, weights: &[f32], scene: &RolloutInput, n_steps: usize) -> Result<()> {
        self.run_while(weights, scene, n_steps, |_| true)
    }

    /// As [`Rollout::run`], but ends after the first pass behind which `goes_on` (told the number
    /// of steps done) is false: the steps until then are the same.
    ///
    /// # Errors
    /// As [`Rollout::run`].
    pub fn run_while(
        &mut self,
        weights: &[f32],
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        let (config, mode) = (self.config, self.mode);
        let (engine, graphs) = (&mut self.engine, &mut self.graphs);
        self.passes.run_while(scene, n_steps, goes_on, |index, tokens, outputs| {
            graphs.resize_with(graphs.len().max(index + 1), StepGraph::default);
            let (graph, seed) = (&mut graphs[index], scene.walk_seed.step(index));
            rebuild_graph(graph, &tokens.positions, config, mode, seed)?;
            engine.select(index);
            engine.forward(weights, &tokens.features, graph, tokens.n_scene)?;
            outputs.clear();
            outputs.extend_from_slice(engine.output());
            Ok(())
        })
    }

    /// Displacements of step `t` relative to the positions before it (m), `[n]`.
    pub fn displacements(&self, t: usize) -> &[Vec3] {
        self.passes.displacements(t)
    }

    /// How far off the positions after step `t` are expected to be (m), `[n]`, as the model has it;
    /// none of models that don't tell.
    pub fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.passes.sigmas(t)
    }

    /// Writes where the first pass of the last run has led into `state`: what a second one starts from, but
    /// for the robot's particles.
    pub fn lead_on(&self, state: &mut crate::engine::rollout_input::StepState) {
        self.passes.all[0].lead_on(self.config.replan_interval, state);
    }

    /// Steps of the last run.
    pub fn n_steps(&self) -> usize {
        self.passes.n_steps()
    }

    /// Merged loads of pass `index`'s graph, over all tokens; 0 of models without GRF attention.
    pub fn n_entries(&self, index: usize) -> usize {
        self.graphs[index].loads.n_entries()
    }

    /// Back-propagates through the last run, made for training.
    ///
    /// `d_positions[t]`: gradient of the loss with respect to the positions after step `t`;
    /// `d_log_sigmas[t]`: with respect to the logarithms of [`Rollout::sigmas`], empty of models that
    /// don't tell them. Adds to `gradients`. Held constant are the graph, with the weights of its
    /// edges and what message passing sees of positions, and the choice of the nearest kinematic
    /// particle.
    ///
    /// # Errors
    /// As [`Engine::backward`]; [`Error::Shape`] unless there is a gradient for each step.
    pub fn backward(
        &mut self,
        weights: &[f32],
        d_positions: &[Vec<Vec3>],
        d_log_sigmas: &[Vec<f32>],
        gradients: &mut Gradients,
    ) -> Result<()> {
        let n_steps = self.n_steps();
        let shape = |got| Error::Shape { what: "steps' gradients", expected: n_steps, got };
        if d_positions.len() != n_steps {
            return Err(shape(d_positions.len()));
        }
        if !d_log_sigmas.is_empty() && d_log_sigmas.len() != n_steps {
            return Err(shape(d_log_sigmas.len()));
        }
        let steps_per_pass = self.config.tokens.steps_per_pass;
        let buffers = &mut self.backward;
        let n = self.passes.all.first().map_or(0, |pass| pass.state.positions.len());
        // Gradients that later passes send back to the positions and displacements of this one.
        buffers.d_positions.clear();
        buffers.d_positions.resize(n, [0.0; 3]);
        buffers.d_displacements.resize_with(steps_per_pass, Vec::new);
        for index in (0..self.config.n_passes(n_steps)).rev() {
            let buffers = &mut self.backward;
            let has_later = (index + 1) * steps_per_pass < n_steps;
            for j in (0..steps_per_pass).rev() {
                let t = index * steps_per_pass + j;
                if let Some(d_positions) = d_positions.get(t) {
                    add(&mut buffers.d_positions, d_positions);
                }
                buffers.d_displacements[j].clone_from(&buffers.d_positions);
                if has_later && j + 1 == steps_per_pass {
                    // The next pass's velocity is this displacement.
                    add(&mut buffers.d_displacements[j], &buffers.state.velocities);
                    // Its history are positions before it.
                    for (place, d) in buffers.state.history_positions.iter().enumerate() {
                        let i = history_index(place, buffers.state.history_positions.len(), n);
                        geometry::add(&mut buffers.d_positions[i], d);
                    }
                }
            }
            let steps = index * steps_per_pass..(index + 1) * steps_per_pass;
            let d_log_sigmas = steps.map(|t| d_log_sigmas.get(t).map(Vec::as_slice));
            self.backward_pass(index, weights, d_log_sigmas, gradients)?;
            add(&mut self.backward.d_positions, &self.backward.state.positions);
        }
        Ok(())
    }

    /// Back through a pass, from the gradients of its displacements and sigmas to those of its state.
    fn backward_pass<'a>(
        &mut self,
        index: usize,
        weights: &[f32],
        d_log_sigmas: impl Iterator<Item = Option<&'a [f32]>>,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (config, buffers) = (self.config, &mut self.backward);
        let (pass, graph) = (&self.passes.all[index], &self.graphs[index]);
        let tokens = &pass.tokens;
        pass.backward_head(config, d_log_sigmas, buffers);
        buffers.d_features.resize(tokens.features.len(), 0.0);
        self.engine.select(index);
        self.engine.backward(
            weights,
            &tokens.features,
            graph,
            &buffers.d_output,
            gradients,
            &mut buffers.d_features,
        )?;
        let (d_features, d_candidates) = (&buffers.d_features, &buffers.d_candidates);
        tokens.backward(&pass.state, &config.tokens, d_features, d_candidates, &mut buffers.state);
        Ok(())
    }
}

/// a += b, point by point.
fn add(a: &mut [Vec3], b: &[Vec3]) {
    a.iter_mut().zip(b).for_each(|(a, b)| geometry::add(a, b));
}

/// What the model's layers need of the graph of tokens at `positions`, and nothing else.
fn rebuild_graph(
    graph: &mut StepGraph,
    positions: &[Vec3],
    config: RolloutConfig,
    mode: Mode,
    seed: WalkSeed,
) -> Result<()> {
    let InterlacerConfig { k, n_hops, layers, .. } = config.interlacer;
    match layers.local {
        LocalLayer::Grf => {
            graph.rebuild(positions, k, n_hops, &config.mask, seed)?;
            if mode != Mode::Inference {
                graph.transposed.rebuild(&graph.loads);
            }
        }
        LocalLayer::Registered(kind) => {
            let (model, training) = (&config.interlacer, mode != Mode::Inference);
            graph.rebuild_registered(kind, positions, model, &config.mask, seed, training)?;
        }
        LocalLayer::Linear | LocalLayer::None => {}
    }
    Ok(())
}

impl Pass {
    /// From the gradients of displacements and sigmas to those of the outputs and candidates.
    fn backward_head<'a>(
        &self,
        config: RolloutConfig,
        d_log_sigmas: impl Iterator<Item = Option<&'a [f32]>>,
        buffers: &mut Buffers,
    ) {
        let candidates = &self.tokens.candidates;
        let (steps_per_pass, width) = (config.tokens.steps_per_pass, config.n_step_outputs());
        buffers.d_mixed.resize(self.mixed.len(), [0.0; 3]);
        for (j, given) in buffers.d_displacements.iter().enumerate() {
            let places = buffers.d_mixed.iter_mut().skip(j).step_by(steps_per_pass);
            places.zip(given).for_each(|(d, given)| *d = *given);
        }
        buffers.d_output.clear();
        buffers.d_output.resize(self.head.len(), 0.0);
        buffers.d_candidates.resize(candidates.len(), [0.0; 3]);
        motion_head_backward(
            &self.head,
            width,
            candidates,
            &buffers.d_mixed,
            &mut buffers.d_output,
            &mut buffers.d_candidates,
        );
        for (j, given) in d_log_sigmas.enumerate().filter(|_| config.tells_sigma()) {
            let rows = self.head.chunks_exact(width).zip(buffers.d_output.chunks_exact_mut(width));
            let rows = rows.skip(j).step_by(steps_per_pass);
            for ((row, d), given) in rows.zip(given.unwrap_or_default()) {
                // What is clamped can come back, but goes no farther.
                d[N_OUTPUTS] = if goes_on(row[N_OUTPUTS], *given) { *given } else { 0.0 };
            }
        }
    }
}

/// Outputs a scene token and step that the motion head needs; one more tells how sure it is.
pub const N_OUTPUTS: usize = N_CANDIDATES + 3;

/// Whether a step of the optimiser against the gradient `d` keeps `output` within its bounds, or
/// brings it back.
fn goes_on(output: f32, d: f32) -> bool {
    if d > 0.0 { output > -MAX_LOG_SIGMA } else { output < MAX_LOG_SIGMA }
}

#[cfg(test)]
mod tests;
