//! The training loop: windows, roll-out, loss, back-propagation, AdamW; checkpoints that resume
//! exactly.

use std::ops::Range;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::adamw::AdamW;
use super::checkpoint::{self, Vectors};
use super::config::TrainConfig;
use super::dataset::{Dataset, Window};
use super::origin::Origin;
use super::pixels::{PixelConfig, PixelLoss, Pixels};
use super::second_look::SecondLook;
use super::validation::{Sums, Validation, advance};
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::weights::initial_weights;
use forecloud::engine::model::{Gradients, Layout, Mode, Model, ModelConfig, Rollout};
use forecloud::engine::ops::charbonnier::charbonnier;
use forecloud::engine::ops::likelihood::likelihood;
use forecloud::{Error, Result};
use forecloud_bag::recording::BodyKind;

/// The loss is in metres; gradients in centimetres are of order 1.
const LOSS_SCALE: f32 = 100.0;
/// How much the likelihood of the errors counts in the loss: it is to teach what sigma is, and to
/// change the motions little.
const SIGMA_SCALE: f32 = 0.3;

/// What one step of training gave.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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

/// What one window of a step gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowLoss {
    /// Loss of its labels (m).
    pub loss: f64,
    /// Sum of the mean squared errors of the rays of each of its steps that was drawn.
    pub of_pixels: f64,
    /// How many these are.
    pub n_pictured: usize,
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
    mode: Mode,
    /// One for each window that was computed at once so far.
    lanes: Vec<Lane>,
    /// Windows of this step whose gradients the first lanes hold.
    computed: Range<usize>,
    pixels: Option<Pixels>,
    origin: Option<Origin>,
}

/// One window of a batch on its way through the model; windows of a batch run side by side.
struct Lane {
    window: Window,
    second_look: SecondLook,
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
        Self {
            mode: Mode::Training,
            lanes: Vec::new(),
            computed: 0..0,
            pixels: None,
            origin: None,
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

    /// Keeps in checkpoints what the run was begun from.
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// What the run was begun from, as far as that was told.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Has backward passes compute activations again instead of keeping them
    /// ([`Mode::TrainingRecompute`]): less memory, more time, the same result to the bit.
    pub fn recompute(mut self) -> Self {
        self.mode = Mode::TrainingRecompute;
        self.lanes.clear();
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
        let (step, origin, vectors) = checkpoint::read(path, &layout, config, model)?;
        let mut optimizer = AdamW::new(config.adamw, 0);
        optimizer.step = step;
        let Vectors { weights, mean, square, average } = vectors;
        (optimizer.mean, optimizer.square) = (mean, square);
        let trainer = Self::with_state(config.clone(), *model, layout, weights, optimizer);
        Ok(Self { average, origin, ..trainer })
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
            (&self.config, &self.model, self.origin.as_ref()),
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
        let losses = self.compute(data, 0..self.config.batch)?;
        let mut sum = std::mem::take(&mut self.gradient);
        sum.clear();
        sum.resize(self.weights.len(), 0.0);
        let report = self.add_gradients(&mut sum).and_then(|()| self.apply(&mut sum, &losses));
        self.gradient = sum;
        report
    }

    /// Weights, each of which has a gradient.
    pub fn n_weights(&self) -> usize {
        self.weights.len()
    }

    /// Computes the gradients of some windows of the next step, of all [`TrainConfig::batch`]; they are
    /// kept for [`Trainer::add_gradients`]. Returns what each window gave, in their order.
    ///
    /// A step on several machines: each computes some windows, [`Trainer::add_gradients`] of all of them
    /// go one after the other, in the order of the windows, and each of them takes
    /// [`Trainer::apply`] of the same sum. That is [`Trainer::step`] to the bit, however many
    /// there are.
    ///
    /// # Errors
    /// [`Error::Shape`] for windows that the step does not have; as [`Trainer::step`].
    pub fn compute(&mut self, data: &Dataset, windows: Range<usize>) -> Result<Vec<WindowLoss>> {
        let (step, config, weights) = (self.optimizer.step, &self.config, &self.weights);
        if windows.end > config.batch || windows.start > windows.end {
            let (expected, got) = (config.batch, windows.end.max(windows.start));
            return Err(Error::Shape { what: "windows of a training step", expected, got });
        }
        self.computed = 0..0;
        let (model, layout, mode) = (&self.model, &self.layout, self.mode);
        self.lanes.resize_with(self.lanes.len().max(windows.len()), || Lane {
            window: Window::default(),
            second_look: SecondLook::new(model.rollout()),
            rollout: Rollout::new(model.rollout(), mode),
            gradients: Gradients::new(layout),
            d_positions: Vec::new(),
            d_log_sigmas: Vec::new(),
        });
        let n_lanes = config.batch as u64;
        let pixels = self.pixels.as_ref().zip(config.pixels.as_ref());
        let outcomes: Vec<Result<WindowLoss>> = self.lanes[..windows.len()]
            .par_iter_mut()
            .zip(windows.clone())
            .map(|(lane, index)| {
                let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
                rng.set_stream(1 + step * n_lanes + index as u64);
                let horizon = config.horizon(step);
                lane.draw(config, weights, data, horizon, &mut rng)?;
                let loss = lane.accumulate(config, weights, horizon)?;
                let of_pixels = lane.accumulate_pixels(config, pixels, horizon, &mut rng)?;
                lane.backward(weights)?;
                let (of_pixels, n_pictured) = (of_pixels.loss, of_pixels.n_steps);
                Ok(WindowLoss { loss, of_pixels, n_pictured })
            })
            .collect();
        let losses: Result<Vec<WindowLoss>> = outcomes.into_iter().collect();
        self.computed = windows;
        losses
    }

    /// Adds the gradients of the windows that were computed last to `sum`, `[n_weights]`, in which
    /// those of all windows before them are: 0 before the first.
    ///
    /// # Errors
    /// [`Error::Shape`] for a sum of another length.
    pub fn add_gradients(&self, sum: &mut [f32]) -> Result<()> {
        self.must_be_of_weights(sum)?;
        let lanes = &self.lanes[..self.computed.len()];
        lanes.iter().for_each(|lane| lane.gradients.add_to(sum));
        Ok(())
    }

    /// Ends the step with the gradients of all its windows, `[n_weights]`, which are clipped in place,
    /// and what each window gave, in their order.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of gradients or windows; [`Error::NonFinite`] if the
    /// gradient is not finite.
    pub fn apply(&mut self, sum: &mut [f32], losses: &[WindowLoss]) -> Result<StepReport> {
        self.must_be_of_weights(sum)?;
        let (step, expected, got) = (self.optimizer.step, self.config.batch, losses.len());
        if got != expected {
            return Err(Error::Shape { what: "windows of a training step", expected, got });
        }
        let (mut loss, mut of_pixels, mut n_pictured) = (0.0, 0.0, 0);
        for window in losses {
            loss += window.loss / expected as f64;
            of_pixels += window.of_pixels;
            n_pictured += window.n_pictured;
        }
        let learning_rate = self.config.learning_rate(step);
        let norm = self.optimizer.update(&mut self.weights, sum, learning_rate);
        if !norm.is_finite() {
            return Err(Error::NonFinite { what: "gradient of a training step" });
        }
        self.computed = 0..0;
        self.update_average();
        let pixel_loss = (n_pictured > 0).then(|| of_pixels / n_pictured as f64);
        Ok(StepReport { loss_mm: 1e3 * loss, pixel_loss, gradient_norm: norm, learning_rate })
    }

    fn must_be_of_weights(&self, sum: &[f32]) -> Result<()> {
        let (expected, got) = (self.weights.len(), sum.len());
        match got == expected {
            true => Ok(()),
            false => Err(Error::Shape { what: "gradients of a model", expected, got }),
        }
    }

    /// A hash of all that the next steps depend on: of two machines on one run the same after each step,
    /// or one of them computes otherwise.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new().chain_update(self.optimizer.step.to_le_bytes());
        for values in [&self.weights, &self.average, &self.optimizer.mean, &self.optimizer.square] {
            for chunk in values.chunks(4096) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|x| x.to_le_bytes()).collect();
                hash.update(&bytes);
            }
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
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
    /// Draws a window; some of them are led on where recordings reach so far.
    fn draw(
        &mut self,
        config: &TrainConfig,
        weights: &[f32],
        data: &Dataset,
        horizon: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<()> {
        let is_led_on = config.second_looks > 0.0 && rng.random_bool(config.second_looks);
        let reach = horizon + self.second_look.replan_interval();
        if is_led_on && data.draw(rng, reach, &mut self.window) {
            return self.second_look.lead_on(weights, &mut self.window);
        }
        match data.draw(rng, horizon, &mut self.window) {
            true => Ok(()),
            false => Err(Error::NoWindow { horizon }),
        }
    }

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
