//! The training loop: windows, roll-out, loss, back-propagation, AdamW; checkpoints that resume
//! exactly.

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

use super::adamw::AdamW;
use super::checkpoint::{self, Vectors};
use super::config::TrainConfig;
use super::dataset::{Dataset, Window};
use super::pixels::{PixelConfig, PixelLoss, Pixels};
use super::validation::{Sums, Validation, advance};
use crate::geometry::Vec3;
use crate::model::weights::initial_weights;
use crate::model::{Gradients, Layout, Mode, Model, ModelConfig, Rollout};
use crate::ops::charbonnier::charbonnier;
use crate::ops::likelihood::likelihood;
use crate::recording::BodyKind;
use crate::{Error, Result};

/// The loss is in metres; gradients in centimetres are of order 1.
const LOSS_SCALE: f32 = 100.0;
/// How much the likelihood of the errors counts in the loss: it is to teach what sigma is, and to
/// change the motions little.
const SIGMA_SCALE: f32 = 0.3;

/// What one step of training gave.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StepReport {
    /// Loss in millimetres; 0 of windows that pixels alone teach.
    pub loss_mm: f64,
    /// Mean squared error of the rays that were drawn; none where pixels don't teach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixel_loss: Option<f64>,
    /// Norm of the gradient before the clip.
    pub gradient_norm: f32,
    /// Learning rate.
    pub learning_rate: f32,
}

/// A training run.
pub struct Trainer {
    config: TrainConfig,
    model: ModelConfig,
    layout: Layout,
    weights: Vec<f32>,
    /// Moving average of the weights: the model.
    average: Vec<f32>,
    optimizer: AdamW,
    gradient: Vec<f32>,
    lanes: Vec<Lane>,
    pixels: Option<Pixels>,
}

/// One window of a batch on its way through the model; windows of a batch run side by side.
struct Lane {
    window: Window,
    rollout: Rollout,
    gradients: Gradients,
    d_positions: Vec<Vec<Vec3>>,
    d_log_sigmas: Vec<Vec<f32>>,
}

impl Trainer {
    /// Starts afresh.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting of training or model that makes no sense.
    pub fn new(config: TrainConfig, model: ModelConfig) -> Result<Self> {
        config.validate()?;
        model.validate()?;
        let layout = Layout::new(model.interlacer());
        let weights = initial_weights(&layout, config.seed);
        let optimizer = AdamW::new(config.adamw, weights.len());
        Ok(Self::with_state(config, model, layout, weights, optimizer))
    }

    fn with_state(
        config: TrainConfig,
        model: ModelConfig,
        layout: Layout,
        weights: Vec<f32>,
        optimizer: AdamW,
    ) -> Self {
        let lane = || Lane {
            window: Window::default(),
            rollout: Rollout::new(model.rollout(), Mode::Training),
            gradients: Gradients::new(&layout),
            d_positions: Vec::new(),
            d_log_sigmas: Vec::new(),
        };
        Self {
            lanes: (0..config.batch).map(|_| lane()).collect(),
            pixels: None,
            config,
            model,
            gradient: vec![0.0; weights.len()],
            average: weights.clone(),
            layout,
            weights,
            optimizer,
        }
    }

    /// Starts from the weights of `model`, with a fresh optimiser and schedule: fine-tuning.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting that makes no sense.
    pub fn fine_tune(config: TrainConfig, model: Model) -> Result<Self> {
        config.validate()?;
        model.config.validate()?;
        let layout = Layout::new(model.config.interlacer());
        let optimizer = AdamW::new(config.adamw, model.weights.len());
        Ok(Self::with_state(config, model.config, layout, model.weights, optimizer))
    }

    /// Has pixels teach, too, as its configuration says how: of windows that have pictures
    /// ([`Dataset::with_pixels`] with the same).
    pub fn with_pixels(self, pixels: Pixels) -> Self {
        Self { pixels: Some(pixels), ..self }
    }

    /// Has backward passes compute activations again instead of keeping them
    /// ([`Mode::TrainingRecompute`]): less memory, more time, the same result to the bit.
    pub fn recompute(mut self) -> Self {
        for lane in &mut self.lanes {
            lane.rollout = Rollout::new(self.model.rollout(), Mode::TrainingRecompute);
        }
        self
    }

    /// Goes on from a checkpoint as if it had never stopped.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be read; [`Error::Checkpoint`] if it is damaged, or of other
    /// settings, which are named; [`Error::Config`] as [`Trainer::new`].
    pub fn resume(path: &Path, config: &TrainConfig, model: &ModelConfig) -> Result<Self> {
        config.validate()?;
        model.validate()?;
        let layout = Layout::new(model.interlacer());
        let (step, vectors) = checkpoint::read(path, &layout, config, model)?;
        let mut optimizer = AdamW::new(config.adamw, 0);
        optimizer.step = step;
        let Vectors { weights, mean, square, average } = vectors;
        (optimizer.mean, optimizer.square) = (mean, square);
        let trainer = Self::with_state(config.clone(), *model, layout, weights, optimizer);
        Ok(Self { average, ..trainer })
    }

    /// Writes a checkpoint: a model file with the optimiser's state.
    ///
    /// # Errors
    /// As [`Model::save`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let vectors = Vectors {
            weights: &self.weights[..],
            mean: &self.optimizer.mean,
            square: &self.optimizer.square,
            average: &self.average,
        };
        checkpoint::write(
            path,
            &self.layout,
            (&self.config, &self.model),
            self.optimizer.step,
            vectors,
        )
    }

    /// The model as it stands: the average of the weights.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn model(&self) -> Result<Model> {
        Model::new(self.model, self.average.clone())
    }

    /// Settings of the run.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Steps taken.
    pub fn step_index(&self) -> u64 {
        self.optimizer.step
    }

    /// Takes one step on windows drawn from `data` by seed and step.
    ///
    /// # Errors
    /// [`Error::NonFinite`] if the gradient is not finite; what roll-out and model return.
    pub fn step(&mut self, data: &Dataset) -> Result<StepReport> {
        let step = self.optimizer.step;
        let (config, weights) = (&self.config, &self.weights);
        let n_lanes = self.lanes.len() as u64;
        let pixels = self.pixels.as_ref().zip(config.pixels.as_ref());
        let outcomes: Vec<Result<(f64, PixelLoss)>> = self
            .lanes
            .par_iter_mut()
            .enumerate()
            .map(|(index, lane)| {
                let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
                rng.set_stream(1 + step * n_lanes + index as u64);
                let horizon = config.horizon(step);
                if !data.draw(&mut rng, horizon, &mut lane.window) {
                    return Err(Error::NoWindow { horizon });
                }
                let loss = lane.accumulate(config, weights, horizon)?;
                let of_pixels = lane.accumulate_pixels(config, pixels, horizon, &mut rng)?;
                lane.backward(weights)?;
                Ok((loss, of_pixels))
            })
            .collect();
        let (mut loss, mut of_pixels) = (0.0, PixelLoss::default());
        for outcome in outcomes {
            let (of_lane, of_its_pixels) = outcome?;
            loss += of_lane / n_lanes as f64;
            of_pixels.loss += of_its_pixels.loss;
            of_pixels.n_steps += of_its_pixels.n_steps;
        }
        self.gradient.fill(0.0);
        self.lanes.iter().for_each(|lane| lane.gradients.add_to(&mut self.gradient));
        let learning_rate = self.config.learning_rate(step);
        let norm = self.optimizer.update(&mut self.weights, &mut self.gradient, learning_rate);
        if !norm.is_finite() {
            return Err(Error::NonFinite { what: "gradient of a training step" });
        }
        self.update_average();
        let pixel_loss = (of_pixels.n_steps > 0).then(|| of_pixels.loss / of_pixels.n_steps as f64);
        Ok(StepReport { loss_mm: 1e3 * loss, pixel_loss, gradient_norm: norm, learning_rate })
    }

    /// Short memory at first, or the random start would stay in the average for long.
    fn update_average(&mut self) {
        let step = self.optimizer.step as f32;
        let decay = self.config.average_decay.min((1.0 + step) / (10.0 + step));
        for (average, weight) in self.average.iter_mut().zip(&self.weights) {
            *average += (1.0 - decay) * (weight - *average);
        }
    }

    /// Mean errors over `n_windows` windows spread over `data`, rolled out `horizon` steps. Windows
    /// that do not reach so far are left out.
    ///
    /// # Errors
    /// What roll-out and model return.
    pub fn validate(&self, data: &Dataset, n_windows: usize, horizon: usize) -> Result<Validation> {
        let mut rollout = Rollout::new(self.model.rollout(), Mode::Inference);
        let mut sums = Sums::default();
        let mut window = Window::default();
        let stride = data.n_windows().div_ceil(n_windows.max(1)).max(1);
        for index in (0..data.n_windows()).step_by(stride) {
            let mut rng = ChaCha8Rng::seed_from_u64(self.config.seed);
            rng.set_stream(u64::MAX - index as u64);
            if data.get(index, &mut rng, horizon, &mut window) {
                rollout.run(&self.average, &window.scene, horizon)?;
                sums.add(&window, &rollout, horizon);
            }
        }
        Ok(sums.means(horizon))
    }
}

impl Lane {
    /// Rolls out the window, sets the gradients of its labels' loss, returns that in metres.
    fn accumulate(&mut self, config: &TrainConfig, weights: &[f32], horizon: usize) -> Result<f64> {
        let window = &self.window;
        self.rollout.run(weights, &window.scene, horizon)?;
        let n_steps = (horizon * config.batch) as f32;
        self.d_positions.resize_with(horizon, Vec::new);
        let mut positions = window.scene.start.positions.clone();
        let mut point_weights = vec![0.0; positions.len()];
        let mut loss = 0.0;
        for t in 0..horizon {
            advance(&mut positions, self.rollout.displacements(t));
            let [moving, resting, robot, fixed] = config.loss_weights;
            for (i, weight) in point_weights.iter_mut().enumerate() {
                let of_kind = match (window.kinds[i], window.moving[t][i]) {
                    (BodyKind::Object, true) => moving,
                    (BodyKind::Object, false) => resting,
                    (BodyKind::Robot, _) => robot,
                    (BodyKind::Static, _) => fixed,
                };
                let is_labelled = f32::from(window.is_labelled);
                *weight = is_labelled * of_kind * window.weights[t][i];
            }
            let of_step = config.step_weight(t, horizon) / n_steps;
            let d = &mut self.d_positions[t];
            d.clear();
            d.resize(positions.len(), [0.0; 3]);
            let scale = LOSS_SCALE * of_step;
            loss += charbonnier(&positions, &window.targets[t], &point_weights, scale, d)
                / horizon as f64;
            if let Some(sigmas) = self.rollout.sigmas(t) {
                self.d_log_sigmas.resize_with(horizon, Vec::new);
                let (d, scale) = (&mut self.d_log_sigmas[t], SIGMA_SCALE * of_step);
                likelihood(&positions, &window.targets[t], sigmas, &point_weights, scale, d);
            }
        }
        Ok(loss)
    }

    /// Adds the gradients of the pixels' loss of what was rolled out.
    fn accumulate_pixels(
        &mut self,
        config: &TrainConfig,
        pixels: Option<(&Pixels, &PixelConfig)>,
        horizon: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<PixelLoss> {
        let Some((pixels, settings)) = pixels else { return Ok(PixelLoss::default()) };
        let mut positions = vec![self.window.scene.start.positions.clone()];
        for t in 0..horizon {
            let mut there = positions[t].clone();
            advance(&mut there, self.rollout.displacements(t));
            positions.push(there);
        }
        let n_steps = (horizon * config.batch) as f32;
        let scales: Vec<f32> =
            (0..horizon).map(|t| config.step_weight(t, horizon) / n_steps).collect();
        let how = (settings, &scales[..]);
        pixels.add(&self.window, &positions, how, rng, &mut self.d_positions)
    }

    /// Goes back through the roll-out.
    fn backward(&mut self, weights: &[f32]) -> Result<()> {
        self.gradients.clear();
        let (d_positions, d_log_sigmas) = (&self.d_positions, &self.d_log_sigmas);
        self.rollout.backward(weights, d_positions, d_log_sigmas, &mut self.gradients)
    }
}
