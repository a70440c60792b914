//! One run: trained to its last step, through any number of interruptions, and tested.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::clock::ThreadClock;
use super::data::Data;
use super::evaluate::{TestErrors, test};
use super::files::{read_json, write_json};
use super::settings::Settings;
use super::watch::Watch;
use forecloud::{Error, Result};
use forecloud_train::config::TrainConfig;
use forecloud_train::dataset::Dataset;
use forecloud_train::files::RunFiles;
use forecloud_train::trainer::Trainer;

/// Seconds between two checkpoints.
const CHECKPOINT_SECS: f64 = 60.0;
/// Beside the checkpoint: the validations until it.
const CURVE: &str = "curve.json";

/// A run of the plan.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Place of its variant.
    pub(super) variant: usize,
    /// For messages.
    pub(super) name: String,
    /// Below the comparison's folder.
    pub(super) folder: String,
    pub(super) config: TrainConfig,
    /// CPU seconds that its steps should take.
    pub(super) budget_secs: f64,
    /// Whether it is evaluated on the test recordings.
    pub(super) is_tested: bool,
}

/// A validation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Steps done.
    pub step: u64,
    /// CPU seconds of training until here, validations apart.
    pub cpu_secs: f64,
    /// Mean error of moving object points after 1 step (mm); none if there are none, or at a
    /// checkpoint without validation.
    pub moving_1_mm: Option<f64>,
    /// After the last of the validated steps.
    pub moving_last_mm: Option<f64>,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Steps done.
    pub steps: u64,
    /// Seed.
    pub seed: u64,
    /// Learning rate.
    pub learning_rate: f32,
    /// CPU seconds of training.
    pub cpu_secs: f64,
    /// Hash of the model.
    pub model_hash: String,
    /// Validations on the way; the last is at the last step.
    pub curve: Vec<Point>,
    /// Errors on the test recordings; none of runs that try learning rates.
    pub test: Option<TestErrors>,
}

impl Outcome {
    /// What learning rates are chosen by: the geometric mean of the last validation's errors after
    /// 1 and after the last step (mm), so that neither outweighs the other.
    pub fn score(&self) -> Option<f64> {
        let last = self.curve.last()?;
        let score = (last.moving_1_mm? * last.moving_last_mm?).sqrt();
        score.is_finite().then_some(score)
    }
}

impl Run {
    /// Does what is left to do in `folder`; none if `watch` stopped it.
    pub(super) fn finish(
        &self,
        settings: &Settings,
        folder: &Path,
        data: &Data,
        watch: &dyn Watch,
    ) -> Result<Option<Outcome>> {
        let path = folder.join("result.json");
        if let Some(outcome) = read_json(&path)? {
            watch.advance(self.budget_secs);
            return Ok(Some(outcome));
        }
        let io = |cause| Error::Io { path: folder.to_owned(), cause };
        fs::create_dir_all(folder).map_err(io)?;
        let files = RunFiles::new(folder);
        let variant = &settings.variants[self.variant];
        let train = data.train.for_model(variant.model)?;
        let validation = data.validation.for_model(variant.model)?;
        let mut progress = Progress::open(self, settings, &files)?;
        if !progress.train(&train, &validation, watch)? {
            return Ok(None);
        }
        let model = progress.trainer.model()?;
        let test = match self.is_tested {
            true => {
                watch.stage(&format!("testing {}", self.name));
                let data = data.test.for_model(variant.model)?;
                let Some(errors) = test(&model, &data, settings.test_windows, watch)? else {
                    return Ok(None);
                };
                Some(errors)
            }
            false => None,
        };
        let outcome = Outcome {
            steps: self.config.steps,
            seed: self.config.seed,
            learning_rate: self.config.learning_rate,
            cpu_secs: progress.cpu_secs(),
            model_hash: model.hash,
            curve: progress.curve.into_iter().filter(|at| at.moving_1_mm.is_some()).collect(),
            test,
        };
        write_json(&path, &outcome)?;
        // What is done is not gone on with.
        fs::remove_file(&files.checkpoint).map_err(io)?;
        Ok(Some(outcome))
    }
}

/// A run on its way.
struct Progress<'a> {
    run: &'a Run,
    settings: &'a Settings,
    files: &'a RunFiles,
    trainer: Trainer,
    curve: Vec<Point>,
    /// CPU seconds of the steps done by earlier processes, and by this one.
    earlier_secs: f64,
    own_secs: f64,
}

impl<'a> Progress<'a> {
    /// Starts, or goes on where a checkpoint is.
    fn open(run: &'a Run, settings: &'a Settings, files: &'a RunFiles) -> Result<Self> {
        let model = settings.variants[run.variant].model;
        let (trainer, mut curve): (_, Vec<Point>) = match files.checkpoint.exists() {
            true => {
                let trainer = Trainer::resume(&files.checkpoint, &run.config, &model)?;
                (trainer, read_json(&files.checkpoint.with_file_name(CURVE))?.unwrap_or_default())
            }
            false => (Trainer::new(run.config.clone(), model)?, Vec::new()),
        };
        // It is written first: it may be ahead of the checkpoint.
        curve.retain(|at| at.step <= trainer.step_index());
        let earlier_secs = curve.last().map_or(0.0, |at| at.cpu_secs);
        Ok(Self { run, settings, files, trainer, curve, earlier_secs, own_secs: 0.0 })
    }

    fn cpu_secs(&self) -> f64 {
        self.earlier_secs + self.own_secs
    }

    /// Takes the steps that are left; false if stopped. Leaves a checkpoint in any case.
    fn train(&mut self, train: &Dataset, validation: &Dataset, watch: &dyn Watch) -> Result<bool> {
        let steps = self.run.config.steps;
        let step_secs = self.run.budget_secs / steps as f64;
        watch.advance(step_secs * self.trainer.step_index() as f64);
        // A try of a learning rate is judged by its end alone.
        let validations = if self.run.is_tested { self.settings.validations } else { 1 };
        let every = (steps / validations).max(1);
        let mut saved = Instant::now();
        while self.trainer.step_index() < steps && !watch.stops() {
            let clock = ThreadClock::start();
            self.trainer.step(train)?;
            self.own_secs += clock.secs();
            let step = self.trainer.step_index();
            if step.is_multiple_of(every) || step == steps {
                self.validate(validation)?;
            }
            if saved.elapsed().as_secs_f64() > CHECKPOINT_SECS {
                self.save()?;
                saved = Instant::now();
            }
            watch.advance(step_secs);
        }
        self.save()?;
        Ok(self.trainer.step_index() == steps)
    }

    fn point(&self) -> Point {
        let (step, cpu_secs) = (self.trainer.step_index(), self.cpu_secs());
        Point { step, cpu_secs, moving_1_mm: None, moving_last_mm: None }
    }

    fn validate(&mut self, data: &Dataset) -> Result<()> {
        let n_windows = self.settings.validation_windows;
        let errors = self.trainer.validate(data, n_windows, self.settings.validation_steps)?;
        self.curve.push(Point {
            moving_1_mm: errors.moving_1_mm,
            moving_last_mm: errors.moving_last_mm,
            ..self.point()
        });
        Ok(())
    }

    /// The checkpoint last: what it says is done is not done again.
    fn save(&mut self) -> Result<()> {
        if self.curve.last().is_none_or(|at| at.step < self.trainer.step_index()) {
            self.curve.push(self.point());
        }
        write_json(&self.files.checkpoint.with_file_name(CURVE), &self.curve)?;
        self.trainer.model()?.save(&self.files.model)?;
        self.trainer.save(&self.files.checkpoint)
    }
}
