//! A step of training, to time.

use anyhow::ensure;
use forecloud::engine::model::{Gradients, Layout, Mode, ModelConfig, Rollout};
use forecloud::engine::ops::charbonnier::charbonnier;
use forecloud::engine::ops::likelihood::likelihood;
use forecloud::engine::rollout_input::RolloutInput;
use forecloud_train::adamw::{AdamW, AdamWConfig};

use super::{Demo, Turning, weights};

/// As early in the warm-up of `TrainConfig`.
pub const LEARNING_RATE: f32 = 1e-4;
/// The loss is in metres; as in training, gradients are of centimetres.
pub const LOSS_SCALE: f32 = 100.0;
/// How much the likelihood of the errors counts beside it, as in training.
const SIGMA_SCALE: f32 = 0.3;

/// Training on one window of one pass, over and over: tokens, graph, forward pass, loss, backward
/// pass and AdamW, as `Trainer` does it.
pub struct Training {
    rollout: Rollout,
    scene: RolloutInput,
    /// Displacements of each step.
    targets: Vec<[f32; 3]>,
    point_weights: Vec<f32>,
    weights: Vec<f32>,
    optimizer: AdamW,
    gradients: Gradients,
    /// Of the last pass.
    pub gradient: Vec<f32>,
    d_positions: Vec<Vec<[f32; 3]>>,
    d_log_sigmas: Vec<Vec<f32>>,
}

impl Training {
    /// `n` turning points of the demo.
    pub fn new(demo: &Demo, n: usize, config: &ModelConfig) -> anyhow::Result<Self> {
        let Turning { state, targets } = Turning::new(demo, n, config)?;
        let layout = Layout::new(config.interlacer());
        Ok(Self {
            rollout: Rollout::new(config.rollout(), Mode::Training),
            // A pass looks at the robot one step back, now, and after each of its steps: there is none.
            scene: RolloutInput {
                start: state,
                kinematic: vec![vec![]; config.steps_per_pass + 2],
                ..RolloutInput::default()
            },
            targets,
            point_weights: vec![1.0; n],
            weights: weights(&layout),
            optimizer: AdamW::new(AdamWConfig::default(), layout.n_params()),
            gradients: Gradients::new(&layout),
            gradient: vec![0.0; layout.n_params()],
            d_positions: vec![vec![[0.0; 3]; n]; config.steps_per_pass],
            d_log_sigmas: vec![Vec::new(); config.steps_per_pass],
        })
    }

    /// Sets the gradient; the mean loss of the steps (m).
    pub fn differentiate(&mut self) -> forecloud::Result<f64> {
        let n_steps = self.d_positions.len();
        self.rollout.run(&self.weights, &self.scene, n_steps)?;
        let start = &self.scene.start.positions;
        let (mut there, mut wanted) = (start.clone(), start.clone());
        let mut loss = 0.0;
        for t in 0..n_steps {
            advance(&mut there, self.rollout.displacements(t));
            advance(&mut wanted, &self.targets);
            let (d, weights) = (&mut self.d_positions[t], &self.point_weights);
            d.fill([0.0; 3]);
            let scale = LOSS_SCALE / n_steps as f32;
            loss += charbonnier(&there, &wanted, weights, scale, d) / n_steps as f64;
            if let Some(sigmas) = self.rollout.sigmas(t) {
                let d = &mut self.d_log_sigmas[t];
                likelihood(&there, &wanted, sigmas, weights, SIGMA_SCALE * scale, d);
            }
        }
        self.gradients.clear();
        let (d_positions, d_log_sigmas) = (&self.d_positions, &self.d_log_sigmas);
        self.rollout.backward(&self.weights, d_positions, d_log_sigmas, &mut self.gradients)?;
        self.gradient.fill(0.0);
        self.gradients.add_to(&mut self.gradient);
        Ok(loss)
    }

    /// One step of AdamW; the loss before it (m).
    pub fn step(&mut self) -> anyhow::Result<f64> {
        let loss = self.differentiate()?;
        let norm = self.optimizer.update(&mut self.weights, &mut self.gradient, LEARNING_RATE);
        ensure!(norm.is_finite(), "the gradient's norm is {norm}");
        Ok(loss)
    }
}

fn advance(positions: &mut [[f32; 3]], displacements: &[[f32; 3]]) {
    for (p, d) in positions.iter_mut().zip(displacements) {
        (0..3).for_each(|axis| p[axis] += d[axis]);
    }
}
