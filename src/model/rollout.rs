//! The roll-out: step after step on its own predictions, the graph rebuilt each time, and
//! back-propagation through all of it.

use super::cpu::{Engine, Gradients, Mode};
use super::interlacer::InterlacerConfig;
use super::layers::LocalLayer;
use super::tokens::{Frame, N_CANDIDATES, StateGradients, Tokens};
use crate::geometry::{self, Vec3};
use crate::graph::walks::WalkSeed;
use crate::graph::{MaskConfig, StepGraph};
use crate::ops::motion_head::{motion_head_backward, motion_head_forward};
use crate::scene::{Scene, StepState, history_index};
use crate::{Error, Result};

/// What the roll-out needs to know of the model besides its weights.
#[derive(Debug, Clone, Copy)]
pub struct RolloutConfig {
    /// Sizes of the Interlacer.
    pub interlacer: InterlacerConfig,
    /// Walks and weights of the mask.
    pub mask: MaskConfig,
    /// Frame of the positions' features.
    pub frame: Frame,
    /// Length of a step in seconds.
    pub step_secs: f32,
}

/// One step's state and results.
#[derive(Debug, Default)]
struct Step {
    state: StepState,
    tokens: Tokens,
    graph: StepGraph,
    /// Shares of the candidates and tanh of the residual, kept by the head.
    head: Vec<f32>,
    displacements: Vec<Vec3>,
}

/// Runs and differentiates roll-outs; keeps all buffers between calls.
#[derive(Debug)]
pub struct Rollout {
    config: RolloutConfig,
    mode: Mode,
    engine: Engine,
    steps: Vec<Step>,
    n_steps: usize,
    backward: Buffers,
}

#[derive(Debug, Default)]
struct Buffers {
    d_output: Vec<f32>,
    d_features: Vec<f32>,
    d_candidates: Vec<Vec3>,
    d_displacements: Vec<Vec3>,
    d_positions: Vec<Vec3>,
    state: StateGradients,
}

impl Rollout {
    /// A roll-out of models of `config`.
    pub fn new(config: RolloutConfig, mode: Mode) -> Self {
        let engine = Engine::new(config.interlacer, mode);
        Self { config, mode, engine, steps: Vec::new(), n_steps: 0, backward: Buffers::default() }
    }

    /// Predicts `n_steps` steps of `scene`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `scene.kinematic` does not reach `n_steps` ahead, [`Error::NonFinite`]
    /// if a displacement is not finite, or as
    /// [`Tokens::encode`], [`crate::graph::KnnGraph::rebuild`] and [`Engine::forward`].
    pub fn run(&mut self, weights: &[f32], scene: &Scene, n_steps: usize) -> Result<()> {
        self.run_while(weights, scene, n_steps, |_| true)
    }

    /// As [`Rollout::run`], but ends after the first step behind which `goes_on` (told the number
    /// of steps done) is false: the steps until then are the same.
    ///
    /// # Errors
    /// As [`Rollout::run`].
    pub fn run_while(
        &mut self,
        weights: &[f32],
        scene: &Scene,
        n_steps: usize,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        if scene.kinematic.len() < n_steps + 2 {
            let what = "rows of kinematic particles";
            let (expected, got) = (n_steps + 2, scene.kinematic.len());
            return Err(Error::Shape { what, expected, got });
        }
        self.n_steps = n_steps;
        self.steps.resize_with(self.steps.len().max(n_steps), Step::default);
        for t in 0..n_steps {
            let (before, rest) = self.steps.split_at_mut(t);
            let step = &mut rest[0];
            match before.last() {
                None => step.state.clone_from(&scene.start),
                Some(before) => step.state.advance(&before.state, &before.displacements),
            }
            for (particles, given) in step.state.kinematic.iter_mut().zip(&scene.kinematic[t..]) {
                particles.clone_from(given);
            }
            self.engine.select(t);
            step.predict(
                self.config,
                weights,
                &mut self.engine,
                self.mode,
                scene.walk_seed.step(t),
            )?;
            if !goes_on(t + 1) {
                self.n_steps = t + 1;
                break;
            }
        }
        Ok(())
    }

    /// Displacements of step `t` relative to the positions before it (m), `[n]`.
    pub fn displacements(&self, t: usize) -> &[Vec3] {
        &self.steps[t].displacements
    }

    /// Steps of the last run.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Merged loads of step `t`'s graph, over all tokens; 0 of models without GRF attention.
    pub fn n_entries(&self, t: usize) -> usize {
        self.steps[t].graph.loads.n_entries()
    }

    /// Back-propagates through the last run, made for training.
    ///
    /// `d_positions[t]`: gradient of the loss with respect to the positions after step `t`.
    /// Adds to `gradients`. Held constant are the graph, with the weights of its edges and what
    /// message passing sees of positions, and the choice of the nearest kinematic particle.
    ///
    /// # Errors
    /// As [`Engine::backward`]; [`Error::Shape`] unless there is a gradient for each step.
    pub fn backward(
        &mut self,
        weights: &[f32],
        d_positions: &[Vec<Vec3>],
        gradients: &mut Gradients,
    ) -> Result<()> {
        if d_positions.len() != self.n_steps {
            let (expected, got) = (self.n_steps, d_positions.len());
            return Err(Error::Shape { what: "steps' gradients", expected, got });
        }
        let buffers = &mut self.backward;
        let n = self.steps.first().map_or(0, |s| s.displacements.len());
        // Gradients that later steps send back to the positions and displacements of this one.
        buffers.d_positions.clear();
        buffers.d_positions.resize(n, [0.0; 3]);
        let mut has_later = false;
        for t in (0..self.n_steps).rev() {
            let step = &self.steps[t];
            add(&mut buffers.d_positions, &d_positions[t]);
            buffers.d_displacements.clone_from(&buffers.d_positions);
            if has_later {
                // The next step's velocity is this displacement.
                add(&mut buffers.d_displacements, &buffers.state.velocities);
            }
            let history = std::mem::take(&mut buffers.state.history_positions);
            self.engine.select(t);
            step.backward(self.config, weights, &mut self.engine, buffers, gradients)?;
            add(&mut buffers.d_positions, &buffers.state.positions);
            if has_later {
                // The next step's history are positions before this one.
                for (j, d) in history.iter().enumerate() {
                    let i = history_index(j, history.len(), n);
                    geometry::add(&mut buffers.d_positions[i], d);
                }
            }
            has_later = true;
        }
        Ok(())
    }
}

/// a += b, point by point.
fn add(a: &mut [Vec3], b: &[Vec3]) {
    a.iter_mut().zip(b).for_each(|(a, b)| geometry::add(a, b));
}

impl Step {
    fn predict(
        &mut self,
        config: RolloutConfig,
        weights: &[f32],
        engine: &mut Engine,
        mode: Mode,
        seed: WalkSeed,
    ) -> Result<()> {
        let n = self.state.positions.len();
        self.tokens.encode(&self.state, config.frame, config.step_secs)?;
        self.rebuild_graph(config, mode, seed)?;
        engine.forward(weights, &self.tokens.features, &self.graph, n)?;
        self.head.clear();
        self.head.extend_from_slice(engine.output());
        self.displacements.resize(n, [0.0; 3]);
        motion_head_forward(&mut self.head, &self.tokens.candidates, &mut self.displacements);
        if self.displacements.as_flattened().iter().all(|d| d.is_finite()) {
            return Ok(());
        }
        Err(Error::NonFinite {
            what: "predicted motion (check the model file and the joint states)",
        })
    }

    /// What the model's layers need of the graph, and nothing else.
    fn rebuild_graph(&mut self, config: RolloutConfig, mode: Mode, seed: WalkSeed) -> Result<()> {
        let InterlacerConfig { k, n_hops, layers, .. } = config.interlacer;
        let (graph, positions) = (&mut self.graph, &self.tokens.positions);
        match layers.local {
            LocalLayer::Grf => {
                graph.rebuild(positions, k, n_hops, &config.mask, seed)?;
                if mode != Mode::Inference {
                    graph.transposed.rebuild(&graph.loads);
                }
            }
            LocalLayer::MessagePassing => {
                graph.rebuild_anchors(positions, k, layers.anchor_stride)?;
                if mode != Mode::Inference {
                    graph.anchors.transpose(&graph.knn);
                }
            }
            LocalLayer::Linear | LocalLayer::None => {}
        }
        Ok(())
    }

    fn backward(
        &self,
        config: RolloutConfig,
        weights: &[f32],
        engine: &mut Engine,
        buffers: &mut Buffers,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (tokens, candidates) = (&self.tokens, &self.tokens.candidates);
        buffers.d_output.resize(self.head.len(), 0.0);
        buffers.d_features.resize(tokens.features.len(), 0.0);
        buffers.d_candidates.resize(candidates.len(), [0.0; 3]);
        motion_head_backward(
            &self.head,
            candidates,
            &buffers.d_displacements,
            &mut buffers.d_output,
            &mut buffers.d_candidates,
        );
        engine.backward(
            weights,
            &tokens.features,
            &self.graph,
            &buffers.d_output,
            gradients,
            &mut buffers.d_features,
        )?;
        let (d_features, d_candidates) = (&buffers.d_features, &buffers.d_candidates);
        tokens.backward(&self.state, config.frame, d_features, d_candidates, &mut buffers.state);
        Ok(())
    }
}

/// Outputs a scene token that the motion head needs.
pub const N_OUTPUTS: usize = N_CANDIDATES + 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tokens::tests::{FRAME, state};
    use crate::model::weights::initial_weights;
    use crate::model::{GlobalLayer, LayersConfig, Layout, Model, ModelConfig};
    use crate::ops::check::numbers;

    fn config() -> RolloutConfig {
        let interlacer = InterlacerConfig {
            n_features: super::super::tokens::N_FEATURES,
            width: 8,
            n_heads: 2,
            n_blocks: 1,
            k: 3,
            n_hops: 3,
            n_outputs: N_OUTPUTS,
            layers: super::super::LayersConfig::default(),
        };
        let mask = MaskConfig::default();
        RolloutConfig { interlacer, mask, frame: FRAME, step_secs: 0.1 }
    }

    fn scene(n_steps: usize) -> Scene {
        let start = state(12, 12, 6, 3);
        let kinematic = (0..n_steps + 2)
            .map(|t| {
                start.kinematic[1].iter().map(|p| [p[0] + 0.01 * t as f32, p[1], p[2]]).collect()
            })
            .collect();
        Scene { start, kinematic, walk_seed: WalkSeed::default() }
    }

    fn weights() -> Vec<f32> {
        let mut weights = initial_weights(&Layout::new(config().interlacer), 5);
        weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.02 * r);
        weights
    }

    /// Σ over steps of targets · positions after the step.
    fn objective(rollout: &Rollout, start: &[Vec3], targets: &[Vec<Vec3>]) -> f64 {
        let mut positions = start.to_vec();
        let mut total = 0.0;
        for (t, targets) in targets.iter().enumerate() {
            add(&mut positions, rollout.displacements(t));
            let (p, g) = (positions.as_flattened(), targets.as_flattened());
            total += p.iter().zip(g).map(|(p, g)| f64::from(*p) * f64::from(*g)).sum::<f64>();
        }
        total
    }

    #[test]
    fn backward_through_three_steps_is_the_finite_difference() {
        let (scene, mut weights) = (scene(3), weights());
        let targets: Vec<Vec<Vec3>> = (0..3)
            .map(|t| numbers(36, 50 + t).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect())
            .collect();
        let mut rollout = Rollout::new(config(), Mode::Training);
        rollout.run(&weights, &scene, 3).unwrap();
        let layout = Layout::new(config().interlacer);
        let mut gradients = Gradients::new(&layout);
        rollout.backward(&weights, &targets, &mut gradients).unwrap();
        let mut gradient = vec![0.0; layout.n_params()];
        gradients.add_to(&mut gradient);

        // Along random directions, those left out on which a neighbour changes: a jump, not a slope.
        let topology = |rollout: &Rollout| -> Vec<Vec<u32>> {
            let n = rollout.steps[0].tokens.positions.len();
            let neighbors = |step: &Step| {
                (0..n).flat_map(|i| step.graph.knn.neighbors(i).to_vec()).collect::<Vec<_>>()
            };
            rollout.steps.iter().map(neighbors).collect()
        };
        let (start, step) = (weights.clone(), 5e-5f32);
        let (mut n_compared, mut error, mut total) = (0, 0.0, 0.0);
        for seed in 0..40 {
            let direction = numbers(weights.len(), 70 + seed);
            let mut at = |sign: f32| {
                for (w, (s, d)) in weights.iter_mut().zip(start.iter().zip(&direction)) {
                    *w = s + sign * step * d;
                }
                rollout.run(&weights, &scene, 3).unwrap();
                (objective(&rollout, &scene.start.positions, &targets), topology(&rollout))
            };
            let ((above, graph_above), (below, graph_below)) = (at(1.0), at(-1.0));
            if graph_above != graph_below {
                continue;
            }
            n_compared += 1;
            let numeric = (above - below) / f64::from(2.0 * step);
            let exact: f64 =
                gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
            error += (exact - numeric).powi(2);
            total += numeric.powi(2);
        }
        // ReLU's kinks and f32 leave a little.
        let relative = (error / total).sqrt();
        assert!(relative < 0.02, "relative error {relative} over {n_compared} directions");
        assert!(n_compared >= 5, "{n_compared} directions compared");
    }

    #[test]
    fn a_widened_model_predicts_the_same_and_its_copies_learn_apart() {
        let config = ModelConfig { width: 8, n_heads: 2, n_blocks: 2, ..ModelConfig::default() };
        let layout = Layout::new(config.interlacer());
        let mut weights = initial_weights(&layout, 5);
        weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.1 * r);
        let narrow = Model::new(config, weights).unwrap();
        let wide = narrow.widened(24, 1).unwrap();
        let scene = scene(3);
        let run = |model: &Model| {
            let mut rollout = Rollout::new(model.config.rollout(), Mode::Training);
            rollout.run(&model.weights, &scene, 3).unwrap();
            rollout
        };
        let (before, mut after) = (run(&narrow), run(&wide));
        for t in 0..3 {
            let pairs = before.displacements(t).iter().zip(after.displacements(t));
            for (before, after) in pairs {
                let error = (0..3).map(|a| (before[a] - after[a]).abs()).fold(0.0, f32::max);
                assert!(error < 1e-5, "{before:?} {after:?} at step {t}");
            }
        }
        let layout = Layout::new(wide.config.interlacer());
        let mut gradients = Gradients::new(&layout);
        after
            .backward(&wide.weights, &vec![vec![[0.3, -0.2, 0.1]; 12]; 3], &mut gradients)
            .unwrap();
        let mut gradient = vec![0.0; layout.n_params()];
        gradients.add_to(&mut gradient);
        let embed = layout.embed.weight.of(&gradient);
        let alike = embed.chunks_exact(3).filter(|g| g[0] == g[1] && g.iter().any(|g| *g != 0.0));
        assert_eq!(alike.count(), 0, "copies that get one gradient stay copies");

        let refuse = |model: &Model, width: usize, reason: &str| {
            let message = model.widened(width, 0).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        };
        refuse(&narrow, 12, "12 is no multiple of the model's 8");
        refuse(&narrow, 0, "no multiple");
        let softmax = LayersConfig { global: GlobalLayer::Softmax, ..LayersConfig::default() };
        let softmax = ModelConfig { layers: softmax, ..config };
        refuse(&Model::new(softmax, narrow.weights.clone()).unwrap(), 16, "layers.global");
    }

    #[test]
    fn recomputed_activations_give_the_same_gradients() {
        let scene = scene(3);
        let targets = vec![vec![[0.3, -0.2, 0.1]; 12]; 3];
        let gradients = |mode: Mode| {
            let mut rollout = Rollout::new(
                RolloutConfig {
                    interlacer: InterlacerConfig { n_blocks: 3, ..config().interlacer },
                    ..config()
                },
                mode,
            );
            let layout = rollout.engine.layout().clone();
            let mut weights = initial_weights(&layout, 5);
            weights.iter_mut().zip(numbers(1 << 16, 6)).for_each(|(w, r)| *w += 0.02 * r);
            let mut found = Vec::new();
            // A longer roll-out, a shorter one, and the longer one again.
            for n_steps in [3, 2, 3] {
                rollout.run(&weights, &scene, n_steps).unwrap();
                let mut gradients = Gradients::new(&layout);
                rollout.backward(&weights, &targets[..n_steps], &mut gradients).unwrap();
                found.push(vec![0.0; layout.n_params()]);
                gradients.add_to(found.last_mut().unwrap());
            }
            found
        };
        let kept = gradients(Mode::Training);
        assert!(kept == gradients(Mode::TrainingRecompute));
        assert!(kept[0] == kept[2] && kept[0] != kept[1]);
    }

    #[test]
    fn inference_equals_training_and_repeats() {
        let (scene, weights) = (scene(3), weights());
        let mut training = Rollout::new(config(), Mode::Training);
        let mut inference = Rollout::new(config(), Mode::Inference);
        training.run(&weights, &scene, 3).unwrap();
        for _ in 0..2 {
            inference.run(&weights, &scene, 3).unwrap();
            (0..3).for_each(|t| assert_eq!(training.displacements(t), inference.displacements(t)));
        }
        assert!(inference.run(&weights, &scene, 4).is_err(), "the plan does not reach so far");
    }
}
