//! The training loop: windows, roll-out, loss, back-propagation, AdamW; checkpoints that resume
//! exactly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::adamw::{AdamW, AdamWConfig};
use super::dataset::{Dataset, Window};
use crate::model::weights::{self, initial_weights, model_error};
use crate::model::{
    Gradients, Layout, Mode, Model, ModelConfig, Rollout, config_metadata, read_config,
};
use crate::ops::charbonnier::charbonnier;
use crate::recording::BodyKind;
use crate::{Error, Result};

type Vec3 = [f32; 3];

/// Metadata keys of checkpoints, beside the model's configuration.
const SETTINGS_KEY: &str = "forecloud.train";
const STEP_KEY: &str = "forecloud.step";
/// The loss is in metres; gradients in centimetres are of order 1.
const LOSS_SCALE: f32 = 100.0;

/// Settings of a training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Steps of the optimiser.
    pub steps: u64,
    /// Windows a step.
    pub batch: usize,
    /// Largest learning rate.
    pub learning_rate: f32,
    /// Steps over which the learning rate rises; behind them it goes as `schedule` says.
    pub warm_up: u64,
    /// How the learning rate falls.
    pub schedule: Schedule,
    /// Lengths of the roll-out, each from a share of the steps on: `[(share, length)]`.
    pub curriculum: Vec<(f64, usize)>,
    /// Weight in the loss of points of moving objects, resting objects, the robot, and the rest.
    pub loss_weights: [f32; 4],
    /// Decay a step of the average of the weights that is the model (Polyak and Juditsky 1992); 0
    /// takes the last ones.
    pub average_decay: f32,
    /// Strength of the cameras' noise in the data that it trains on, on average; a run goes on
    /// with the same.
    pub sensor_noise: f32,
    /// Seed of weights, windows and noise.
    pub seed: u64,
    /// The optimiser.
    pub adamw: AdamWConfig,
}

/// How the learning rate falls behind the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// As a cosine, to 1/50 at the last step.
    #[default]
    Cosine,
    /// At once, times `factor` from `step` on.
    Drop {
        /// First step of the lower rate.
        step: u64,
        /// Lower over higher rate.
        factor: f32,
    },
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 10_000,
            batch: 2,
            learning_rate: 1e-3,
            warm_up: 200,
            schedule: Schedule::default(),
            curriculum: vec![(0.0, 1), (0.4, 2), (0.75, 4)],
            loss_weights: [4.0, 0.5, 0.15, 0.05],
            average_decay: 0.999,
            sensor_noise: 0.5,
            seed: 0,
            adamw: AdamWConfig::default(),
        }
    }
}

impl TrainConfig {
    /// Roll-out length at `step`.
    pub fn horizon(&self, step: u64) -> usize {
        let share = step as f64 / self.steps.max(1) as f64;
        let reached = self.curriculum.iter().rfind(|(from, _)| share >= *from);
        reached.map_or(1, |&(_, horizon)| horizon)
    }

    /// Learning rate of `step`.
    pub fn learning_rate(&self, step: u64) -> f32 {
        if step < self.warm_up {
            return self.learning_rate * (step + 1) as f32 / self.warm_up as f32;
        }
        if let Schedule::Drop { step: from, factor } = self.schedule {
            return self.learning_rate * if step < from { 1.0 } else { factor };
        }
        let span = self.steps.saturating_sub(self.warm_up).max(1);
        let share = ((step - self.warm_up) as f64 / span as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * share).cos());
        self.learning_rate * (0.02 + 0.98 * cosine) as f32
    }
}

/// What one step of training gave.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StepReport {
    /// Loss in millimetres.
    pub loss_mm: f64,
    /// Norm of the gradient before the clip.
    pub gradient_norm: f32,
    /// Learning rate.
    pub learning_rate: f32,
}

/// Mean errors over validation windows, in millimetres.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Validation {
    /// Moving object points after 1 step; NaN if no window has any, here and below.
    pub moving_1_mm: f64,
    /// Moving object points after the last step.
    pub moving_last_mm: f64,
    /// The same points if nothing moved, after 1 step and after the last.
    pub nothing_mm: [f64; 2],
    /// Robot points after 1 step.
    pub robot_1_mm: f64,
    /// False motion of static points in the first step.
    pub static_1_mm: f64,
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
}

/// One window of a batch on its way through the model; windows of a batch run side by side.
struct Lane {
    window: Window,
    rollout: Rollout,
    gradients: Gradients,
    d_positions: Vec<Vec<Vec3>>,
}

impl Trainer {
    /// Starts afresh.
    ///
    /// # Errors
    /// [`Error::Config`] if the model's configuration makes no sense.
    pub fn new(config: TrainConfig, model: ModelConfig) -> Result<Self> {
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
        };
        Self {
            lanes: (0..config.batch.max(1)).map(|_| lane()).collect(),
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
    pub fn fine_tune(config: TrainConfig, model: Model) -> Self {
        let layout = Layout::new(model.config.interlacer());
        let optimizer = AdamW::new(config.adamw, model.weights.len());
        Self::with_state(config, model.config, layout, model.weights, optimizer)
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
    /// [`Error::Io`] or [`Error::Model`] if it can't be read or is of other settings.
    pub fn resume(path: &Path, config: &TrainConfig, model: &ModelConfig) -> Result<Self> {
        let wrong = |problem: String| model_error(path, problem);
        let file = weights::File::open(path)?;
        if read_config(path, &file.metadata)? != *model {
            return Err(wrong("a checkpoint of another model configuration".into()));
        }
        let text = |key: &str| {
            file.metadata
                .get(key)
                .ok_or_else(|| wrong(format!("metadata lacks {key}: no checkpoint")))
        };
        let stored: TrainConfig =
            serde_json::from_str(text(SETTINGS_KEY)?).map_err(|e| wrong(e.to_string()))?;
        if stored != *config {
            return Err(wrong("a checkpoint of other training settings".into()));
        }
        let layout = Layout::new(model.interlacer());
        let mut optimizer = AdamW::new(config.adamw, 0);
        optimizer.step = text(STEP_KEY)?.parse().map_err(|_| wrong(format!("bad {STEP_KEY}")))?;
        optimizer.mean = file.vector(&layout, weights::OPTIMIZER_PREFIXES[0])?;
        optimizer.square = file.vector(&layout, weights::OPTIMIZER_PREFIXES[1])?;
        let weights = file.vector(&layout, "")?;
        let average = file.vector(&layout, weights::OPTIMIZER_PREFIXES[2])?;
        let trainer = Self::with_state(config.clone(), *model, layout, weights, optimizer);
        Ok(Self { average, ..trainer })
    }

    /// Writes a checkpoint: a model file with the optimiser's state.
    ///
    /// # Errors
    /// As [`Model::save`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut metadata: HashMap<String, String> = config_metadata(&self.model);
        let settings = serde_json::to_string(&self.config).unwrap_or_default();
        metadata.insert(SETTINGS_KEY.into(), settings);
        metadata.insert(STEP_KEY.into(), self.optimizer.step.to_string());
        let [mean, square, average] = weights::OPTIMIZER_PREFIXES;
        let vectors: [(&str, &[f32]); 4] = [
            ("", &self.weights),
            (mean, &self.optimizer.mean),
            (square, &self.optimizer.square),
            (average, &self.average),
        ];
        weights::save(path, &self.layout, &vectors, metadata)
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
        let outcomes: Vec<Result<f64>> = self
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
                lane.accumulate(config, weights, horizon)
            })
            .collect();
        let mut loss = 0.0;
        for outcome in outcomes {
            loss += outcome? / n_lanes as f64;
        }
        self.gradient.fill(0.0);
        self.lanes.iter().for_each(|lane| lane.gradients.add_to(&mut self.gradient));
        let learning_rate = self.config.learning_rate(step);
        let norm = self.optimizer.update(&mut self.weights, &mut self.gradient, learning_rate);
        if !norm.is_finite() {
            return Err(Error::NonFinite { what: "gradient of a training step" });
        }
        self.update_average();
        Ok(StepReport { loss_mm: 1e3 * loss, gradient_norm: norm, learning_rate })
    }

    /// Short memory at first, or the random start would stay in the average for long.
    fn update_average(&mut self) {
        let step = self.optimizer.step as f32;
        let decay = self.config.average_decay.min((1.0 + step) / (10.0 + step));
        for (average, weight) in self.average.iter_mut().zip(&self.weights) {
            *average += (1.0 - decay) * (weight - *average);
        }
    }

    /// Mean errors over `n_windows` windows spread over `data`, rolled out `horizon` steps.
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
        Ok(sums.means())
    }
}

impl Lane {
    /// Rolls out the window, sets its gradients, returns its loss in metres.
    fn accumulate(&mut self, config: &TrainConfig, weights: &[f32], horizon: usize) -> Result<f64> {
        let window = &self.window;
        self.rollout.run(weights, &window.scene, horizon)?;
        let scale = LOSS_SCALE / (horizon * config.batch.max(1)) as f32;
        self.d_positions.resize_with(horizon, Vec::new);
        let mut positions = window.scene.start.positions.clone();
        let mut point_weights = vec![0.0; positions.len()];
        let mut loss = 0.0;
        for t in 0..horizon {
            advance(&mut positions, self.rollout.displacements(t));
            let [moving, resting, robot, fixed] = config.loss_weights;
            for (i, weight) in point_weights.iter_mut().enumerate() {
                *weight = match (window.kinds[i], window.moving[t][i]) {
                    (BodyKind::Object, true) => moving,
                    (BodyKind::Object, false) => resting,
                    (BodyKind::Robot, _) => robot,
                    (BodyKind::Static, _) => fixed,
                };
            }
            let d = &mut self.d_positions[t];
            d.clear();
            d.resize(positions.len(), [0.0; 3]);
            loss += charbonnier(&positions, &window.targets[t], &point_weights, scale, d)
                / horizon as f64;
        }
        self.gradients.clear();
        self.rollout.backward(weights, &self.d_positions, &mut self.gradients)?;
        Ok(loss)
    }
}

fn advance(positions: &mut [Vec3], displacements: &[Vec3]) {
    for (p, d) in positions.iter_mut().zip(displacements) {
        (0..3).for_each(|axis| p[axis] += d[axis]);
    }
}

fn distance_mm(a: &Vec3, b: &Vec3) -> f64 {
    let squares = (0..3).map(|axis| f64::from(a[axis] - b[axis]).powi(2));
    1e3 * squares.sum::<f64>().sqrt()
}

/// Sums of errors and their counts.
#[derive(Default)]
struct Sums([(f64, u64); 6]);

impl Sums {
    fn add(&mut self, window: &Window, rollout: &Rollout, horizon: usize) {
        let start = &window.scene.start.positions;
        let mut positions = start.clone();
        for t in 0..horizon {
            advance(&mut positions, rollout.displacements(t));
            let (first, last) = (t == 0, t + 1 == horizon);
            for i in 0..positions.len() {
                let error = distance_mm(&positions[i], &window.targets[t][i]);
                let moved = distance_mm(&start[i], &window.targets[t][i]);
                let mut put = |slot: usize, value: f64| {
                    self.0[slot].0 += value;
                    self.0[slot].1 += 1;
                };
                match window.kinds[i] {
                    BodyKind::Object if window.moving[t][i] => {
                        if first {
                            put(0, error);
                            put(2, moved);
                        }
                        if last {
                            put(1, error);
                            put(3, moved);
                        }
                    }
                    BodyKind::Robot if first => put(4, error),
                    BodyKind::Static if first => put(5, error),
                    _ => {}
                }
            }
        }
    }

    fn means(&self) -> Validation {
        let mean = |slot: usize| self.0[slot].0 / self.0[slot].1 as f64;
        Validation {
            moving_1_mm: mean(0),
            moving_last_mm: mean(1),
            nothing_mm: [mean(2), mean(3)],
            robot_1_mm: mean(4),
            static_1_mm: mean(5),
        }
    }
}

/// Places of a run's files in its folder.
pub struct RunFiles {
    /// The checkpoint to resume from.
    pub checkpoint: PathBuf,
    /// The model alone, for use.
    pub model: PathBuf,
    /// A line of JSON for each report.
    pub log: PathBuf,
}

impl RunFiles {
    /// Files of a run in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            checkpoint: folder.join("checkpoint.safetensors"),
            model: folder.join("model.safetensors"),
            log: folder.join("train.jsonl"),
        }
    }
}
