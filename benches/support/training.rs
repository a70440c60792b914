//! A step of training, to time.

use anyhow::ensure;
use forecloud::engine::model::{Gradients, Layout, Mode, ModelConfig, Rollout};
use forecloud::engine::ops::charbonnier::charbonnier;
use forecloud::engine::scene::Scene;
use forecloud_train::adamw::{AdamW, AdamWConfig};

use super::{Demo, Turning, weights};

/// As early in the warm-up of `TrainConfig`.
pub const LEARNING_RATE: f32 = 1e-4;
/// The loss is in metres; as in training, gradients are of centimetres.
pub const LOSS_SCALE: f32 = 100.0;

/// Training on one window of one step, over and over: tokens, graph, forward pass, loss, backward
/// pass and AdamW, as `Trainer` does it.
pub struct Training {
    rollout: Rollout,
    scene: Scene,
    targets: Vec<[f32; 3]>,
    point_weights: Vec<f32>,
    weights: Vec<f32>,
    optimizer: AdamW,
    gradients: Gradients,
    /// Of the last pass.
    pub gradient: Vec<f32>,
    d_positions: Vec<Vec<[f32; 3]>>,
}

impl Training {
    /// `n` turning points of the demo.
    pub fn new(demo: &Demo, n: usize, config: &ModelConfig) -> anyhow::Result<Self> {
        let Turning { state, targets } = Turning::new(demo, n, config)?;
        let layout = Layout::new(config.interlacer());
        Ok(Self {
            rollout: Rollout::new(config.rollout(), Mode::Training),
            // One step looks at the robot one back, now, and one ahead: there is none.
            scene: Scene { start: state, kinematic: vec![vec![]; 3], ..Scene::default() },
            targets,
            point_weights: vec![1.0; n],
            weights: weights(&layout),
            optimizer: AdamW::new(AdamWConfig::default(), layout.n_params()),
            gradients: Gradients::new(&layout),
            gradient: vec![0.0; layout.n_params()],
            d_positions: vec![vec![[0.0; 3]; n]],
        })
    }

    /// Sets the gradient; the loss (m).
    pub fn differentiate(&mut self) -> forecloud::Result<f64> {
        self.rollout.run(&self.weights, &self.scene, 1)?;
        self.d_positions[0].fill([0.0; 3]);
        // As the displacements are the new positions less the old ones, their gradients are equal.
        let loss = charbonnier(
            self.rollout.displacements(0),
            &self.targets,
            &self.point_weights,
            LOSS_SCALE,
            &mut self.d_positions[0],
        );
        self.gradients.clear();
        self.rollout.backward(&self.weights, &self.d_positions, &[], &mut self.gradients)?;
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
