//! A share of `forecloud train`: the same run, of which this process computes some windows of each step.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use forecloud::base::instruction_set::InstructionSet;
use forecloud::engine::model::ModelConfig;
use forecloud_train::pixels::Pixels;
use forecloud_train::trainer::{StepReport, Trainer, WindowLoss};

use super::threads;
use super::train::{Args, Start, origin, train_config, video};
use super::train_data::{Data, data};
use super::train_loop::log_line;

/// One of the processes of a run: each has all recordings, and takes every step.
pub struct TrainWorker {
    args: Args,
    model: ModelConfig,
    trainer: Trainer,
    pixels: Option<Pixels>,
    data: Data,
    threads: rayon::ThreadPool,
    begun: Instant,
    loss_mm: Option<f64>,
}

#[derive(Parser)]
#[command(name = "train", no_binary_name = true)]
struct Only {
    #[command(flatten)]
    args: Args,
}

impl TrainWorker {
    /// Reads the recordings as `forecloud train` with these arguments does, and stands before the first
    /// step. Nothing is written but labels.
    ///
    /// # Errors
    /// What the command would say.
    pub fn open(arguments: &[String]) -> Result<Self> {
        InstructionSet::from_environment()?;
        let Only { args } = Only::try_parse_from(arguments)?;
        let n_threads = threads::bounded(args.threads);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build()?;
        let (trainer, model, pixels, data) = pool.install(|| -> Result<_> {
            let start = Start::of(&args)?;
            let mut origin = origin(&args, &start);
            let Start { before, model, .. } = start;
            let mut config = train_config(&args, &model)?;
            let video = video(&args, &mut config)?;
            let mut trainer = match before {
                Some(before) => Trainer::fine_tune(config, before)?,
                None => Trainer::new(config, model)?,
            };
            let pixels = video.map(|video| Pixels::new(video, &args.out)).transpose()?;
            if args.recompute {
                trainer = trainer.recompute();
            }
            if let Some(pixels) = &pixels {
                trainer = trainer.with_pixels(pixels.clone());
            }
            let data = data(&args, trainer.config(), model, pixels.clone())?;
            origin.recordings = data.names();
            Ok((trainer.with_origin(origin), model, pixels, data))
        })?;
        let (threads, begun) = (pool, Instant::now());
        Ok(Self { args, model, trainer, pixels, data, threads, begun, loss_mm: None })
    }

    /// What the run is, as JSON: of all its workers the same but for `threads`.
    ///
    /// `step` (steps taken), `end` (the step after which it ends), `batch` (windows per step), `n_weights`,
    /// `validate_every`, `checkpoint_secs`, `out`, `instruction_set`, `version`, `recordings`, `windows`,
    /// `fingerprint` (of the state).
    pub fn describe(&self) -> String {
        let (config, train) = (self.trainer.config(), &self.data.train);
        let end = self.args.stop_at.unwrap_or(u64::MAX).min(config.steps);
        let told = serde_json::json!({
            "step": self.trainer.step_index(), "end": end, "batch": config.batch,
            "n_weights": self.trainer.n_weights(), "validate_every": self.args.validate_every,
            "checkpoint_secs": self.args.checkpoint_secs(), "out": self.args.out,
            "instruction_set": InstructionSet::in_use().name(), "version": env!("CARGO_PKG_VERSION"),
            "recordings": train.n_recordings(), "windows": [train.n_windows(), train.n_active()],
            "fingerprint": self.trainer.fingerprint(),
            "threads": self.threads.current_num_threads(),
        });
        told.to_string()
    }

    /// Computes some windows of the next step; what each gave, as JSON.
    ///
    /// # Errors
    /// As [`Trainer::compute`].
    pub fn compute(&mut self, windows: Range<usize>) -> Result<String> {
        let (trainer, train) = (&mut self.trainer, &self.data.train);
        let losses = self.threads.install(|| trainer.compute(train, windows))?;
        Ok(serde_json::to_string(&losses)?)
    }

    /// The sum with this worker's gradients: of `sum`, in which those of all windows before its own
    /// are, or of none before the first. Floats of 4 bytes, little-endian, one for each weight.
    ///
    /// # Errors
    /// As [`Trainer::add_gradients`].
    pub fn add(&self, sum: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut sum = match sum {
            Some(bytes) => floats(bytes),
            None => vec![0.0; self.trainer.n_weights()],
        };
        self.threads.install(|| self.trainer.add_gradients(&mut sum))?;
        Ok(sum.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Ends the step with the sum of all windows, and what each of them gave, as JSON; returns what the
    /// step came to, as JSON.
    ///
    /// # Errors
    /// As [`Trainer::apply`].
    pub fn apply(&mut self, sum: &[u8], losses: &str) -> Result<String> {
        let losses: Vec<WindowLoss> = serde_json::from_str(losses).context("losses")?;
        let (trainer, mut sum) = (&mut self.trainer, floats(sum));
        let report: StepReport = self.threads.install(|| trainer.apply(&mut sum, &losses))?;
        // As `forecloud train` tells it.
        let mean = self.loss_mm.map(|mean| 0.99 * mean + 0.01 * report.loss_mm);
        self.loss_mm = Some(mean.unwrap_or(report.loss_mm));
        Ok(serde_json::to_string(&report)?)
    }

    /// A hash of the state: the same in all workers.
    pub fn fingerprint(&self) -> String {
        self.trainer.fingerprint()
    }

    /// Steps taken.
    pub fn step(&self) -> u64 {
        self.trainer.step_index()
    }

    /// A line of the log: the errors on the validation's recordings, after the step whose report, as JSON,
    /// this is.
    ///
    /// # Errors
    /// As [`Trainer::validate`].
    pub fn validate(&self, report: &str) -> Result<String> {
        let report: StepReport = serde_json::from_str(report).context("report of a step")?;
        let (n_windows, n_steps) = (self.args.validation_windows(), self.data.n_steps);
        let validation = &self.data.validation;
        let checked =
            self.threads.install(|| self.trainer.validate(validation, n_windows, n_steps))?;
        let (step, secs) = (self.trainer.step_index(), self.begun.elapsed().as_secs_f64());
        Ok(log_line(step, secs, self.loss_mm.unwrap_or(report.loss_mm), &report, &checked))
    }

    /// Writes model and checkpoint, as `forecloud train` does.
    ///
    /// # Errors
    /// As [`Trainer::save`].
    pub fn save(&self, model: &Path, checkpoint: &Path) -> Result<()> {
        // The checkpoint last: what it says is done is not done again.
        self.trainer.model()?.save(model)?;
        Ok(self.trainer.save(checkpoint)?)
    }

    /// Goes on from a checkpoint of this run.
    ///
    /// # Errors
    /// As [`Trainer::resume`].
    pub fn resume(&mut self, checkpoint: &Path) -> Result<()> {
        let mut trainer = Trainer::resume(checkpoint, self.trainer.config(), &self.model)?;
        if let Some(origin) = self.trainer.origin().cloned() {
            if let Some(begun) = trainer.origin() {
                begun.must_have_settings(checkpoint, &origin)?;
                begun.must_have_recordings(checkpoint, &origin)?;
            }
            trainer = trainer.with_origin(origin);
        }
        if self.args.recompute {
            trainer = trainer.recompute();
        }
        if let Some(pixels) = &self.pixels {
            trainer = trainer.with_pixels(pixels.clone());
        }
        self.trainer = trainer;
        Ok(())
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
