//! What a replay found, as JSON and as tables.

mod hindsight;
mod hindsight_table;
mod notes;
mod table;
mod verdict;
mod video;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::coverage::ConfidenceRow;
use crate::film::VideoReport;
use crate::method::Method;
use crate::metrics::Class;
use crate::part::{Part, Pool, Terms};
use crate::published::Comparison;
use crate::replay::{BagResult, Replay, SkippedBag};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Timings;
use forecloud::vision::cloud::{SensorNoise, Workspace};
use forecloud::vision::frames::FrameCounts;

pub use hindsight::{HindsightReport, HindsightRow};
pub(super) use hindsight_table::{HOW_TO_READ, percent};
pub(super) use table::{MAX_PROBLEMS, millimetres};
pub use verdict::{BaselineValue, Verdict};

/// All that a replay found; serialises to the JSON of `forecloud replay --json`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What wrote it, for those who find it.
    pub generator: &'static str,
    /// Version of Forecloud.
    pub version: &'static str,
    /// What became of each recording.
    pub bags: Vec<BagResult>,
    /// Recordings that could not be played, and why.
    pub skipped: Vec<SkippedBag>,
    /// What became of the messages, over all recordings.
    pub messages: FrameCounts,
    /// Frames over all recordings.
    pub n_frames: u64,
    /// Frames that were predicted.
    pub n_predicted: u64,
    /// Of those: frames that were held against the truth.
    pub n_evaluated: u64,
    /// Of the predicted ones: frames held against what was seen later, for want of truth.
    pub n_in_hindsight: u64,
    /// Of the predicted ones: frames that the truth says nothing of, or not of one step before.
    pub n_without_truth: u64,
    /// Frames without a history frame one step back.
    pub n_without_history: u64,
    /// Of those: frames that have one by other cameras.
    pub n_other_cameras: u64,
    /// Frames that could not be predicted, by cause.
    pub failures: Vec<FailureRow>,
    /// Length of a step (s).
    pub step_secs: f64,
    /// Steps of a prediction.
    pub horizon: usize,
    /// Errors, a row for each method, class and task.
    pub errors: Vec<ErrorRow>,
    /// How sure predictions were, and whether they were right to be; nothing of models that don't tell,
    /// or were not calibrated.
    pub confidence: Vec<ConfidenceRow>,
    /// Predictions held against what was seen later; none if all recordings have truth.
    pub hindsight: Option<HindsightReport>,
    /// Pictures that were drawn of the predictions, held against what was seen; none unless asked for.
    pub video: Option<VideoReport>,
    /// Whether the model is better than the baselines; of nothing if nothing could be judged.
    pub verdicts: Vec<Verdict>,
    /// Noise that was added to the depth images; none: they are as recorded.
    pub sensor_noise: Option<SensorNoise>,
    /// Box that was predicted in (world frame, m).
    pub workspace: Workspace,
    /// What is missing in this report, and the remedy.
    pub notes: Vec<String>,
    /// The published predictions against these; none if there are none.
    pub published: Option<Comparison>,
    /// Fewest and most scene particles of a frame.
    pub n_particles: Option<[usize; 2]>,
    /// History particles of the model.
    pub n_history: usize,
    /// Robot particles of the model at one time.
    pub n_kinematic: usize,
    /// What predictions took; none if there were none.
    pub time: Option<Time>,
    /// Seed of the particles' draw.
    pub seed: u64,
    /// Hash of the model.
    pub model_hash: String,
    /// The model's file, where it came from one.
    pub model_path: Option<PathBuf>,
    /// What it ran on.
    pub device: Device,
    /// All settings of the predictor.
    pub config: PredictorConfig,
}

/// Frames that could not be predicted for one cause.
#[derive(Debug, Clone, Serialize)]
pub struct FailureRow {
    /// Message of the first one.
    pub first: String,
    /// How many there were.
    pub count: u64,
}

/// Mean errors of one method on one class of points.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorRow {
    /// Whose prediction it is.
    pub method: Method,
    /// Class of the points: `object_moving`, `object_sudden` (of those), `object_resting`, `robot` or `static`.
    pub class: &'static str,
    /// The task; none: all tasks, points pooled.
    pub task: Option<String>,
    /// Mean after each step (mm); of `static`: mean false motion in each step (mm).
    pub mean_mm: Vec<Option<f64>>,
    /// Points behind each mean.
    pub n_points: Vec<u64>,
}

/// What predictions took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Time {
    /// Graph and model: median over the frames (ms a step).
    pub step_ms_median: f64,
    /// Graph and model: 90 % of the frames took no longer (ms a step).
    pub step_ms_p90: f64,
    /// Clouds, sampling and the robot's particles: median (ms a frame).
    pub particles_ms_median: f64,
}

/// What predictions ran on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Device {
    /// Model name of the CPU.
    pub cpu: String,
    /// Threads that predictions ran on.
    pub n_threads: usize,
}

impl Replay {
    /// The report of all recordings so far.
    pub fn report(&self) -> Report {
        let published = self.published.as_ref().map(|published| published.comparison());
        Pool::new(&self.terms(), &self.parts, &self.skipped, published).report()
    }
}

impl Report {
    /// The report of recordings that were replayed apart, in the order in which they would have been
    /// replayed together: the same to the last digit, but for what measures time.
    pub fn of_parts(terms: &Terms, parts: &[Part], skipped: &[SkippedBag]) -> Self {
        Pool::new(terms, parts, skipped, None).report()
    }
}

impl Pool<'_> {
    fn report(&self) -> Report {
        let sum = |count: fn(&BagResult) -> u64| self.bags().map(count).sum();
        let mut messages = FrameCounts::default();
        self.bags().for_each(|bag| messages += bag.frames);
        let failures = self.failures.iter();
        let Terms { config, .. } = self.terms;
        let mut report = Report {
            generator: "forecloud replay",
            version: env!("CARGO_PKG_VERSION"),
            bags: self.bags().cloned().collect(),
            skipped: self.skipped.to_vec(),
            messages,
            n_frames: sum(|bag| bag.frames.frames),
            n_predicted: sum(|bag| bag.n_predicted),
            n_evaluated: sum(|bag| bag.n_evaluated),
            n_in_hindsight: sum(|bag| bag.n_in_hindsight),
            n_without_truth: sum(|bag| bag.n_without_truth),
            n_without_history: sum(|bag| bag.n_without_history),
            n_other_cameras: sum(|bag| bag.n_other_cameras),
            failures: failures
                .map(|failure| FailureRow { first: failure.first.clone(), count: failure.count })
                .collect(),
            step_secs: self.terms.step_secs,
            horizon: config.horizon,
            errors: self.error_rows(),
            confidence: self.coverage.rows(),
            hindsight: self.findings.as_ref().map(HindsightReport::new),
            video: None,
            verdicts: Vec::new(),
            sensor_noise: self.terms.noise,
            workspace: self.workspace(),
            notes: self.notes(),
            published: self.published.cloned(),
            n_particles: self.n_particles,
            n_history: self.terms.n_history,
            n_kinematic: self.terms.n_kinematic,
            time: Time::of(&self.timings, config.horizon),
            seed: config.seed,
            model_hash: self.terms.model_hash.clone(),
            model_path: None,
            device: self.device(),
            config: *config,
        };
        report.verdicts = Verdict::all(&report);
        report
    }

    /// Rows with at least one point: object points by task, all classes pooled.
    fn error_rows(&self) -> Vec<ErrorRow> {
        let tasks = self.scores[Method::Model as usize].tasks().map(Some);
        let tasks: Vec<Option<&str>> = tasks.chain([None]).collect();
        let mut rows = Vec::new();
        for class in Class::ALL {
            for &task in tasks.iter().filter(|task| task.is_none() || class.is_object()) {
                let row = |method| self.error_row(method, class, task);
                rows.extend(Method::ALL.into_iter().map(row));
            }
        }
        rows.retain(|row| row.n_points.iter().any(|&n| n > 0));
        rows
    }

    fn error_row(&self, method: Method, class: Class, task: Option<&str>) -> ErrorRow {
        let steps = 0..self.terms.config.horizon;
        let means = steps.map(|step| self.scores[method as usize].mean(class, step, task));
        let (mean_mm, n_points) = means.map(|mean| (mean.get(), mean.n)).unzip();
        ErrorRow { method, class: class.name(), task: task.map(str::to_owned), mean_mm, n_points }
    }
}

impl Report {
    /// Why no frame was predicted, in words.
    pub fn why_nothing(&self) -> String {
        let failures = self.failures.iter().map(|failure| failure.first.clone());
        let reasons: Vec<String> =
            failures.take(1).chain(self.notes.iter().take(1).cloned()).collect();
        match (reasons.is_empty(), self.n_frames) {
            (false, _) => reasons.join("; "),
            (true, 0) => "no frame was complete: see what was dropped".into(),
            (true, _) => "no frame has another one step before it".into(),
        }
    }
}

impl Class {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moving => "object_moving",
            Self::Sudden => "object_sudden",
            Self::Resting => "object_resting",
            Self::Robot => "robot",
            Self::Static => "static",
        }
    }

    /// Whether it is of points on objects, which tasks are told apart for.
    pub(crate) fn is_object(self) -> bool {
        matches!(self, Self::Moving | Self::Sudden | Self::Resting)
    }
}

impl Time {
    fn of(timings: &[Timings], horizon: usize) -> Option<Self> {
        let sorted = |value: fn(&Timings) -> f64| {
            let mut values: Vec<f64> = timings.iter().map(value).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let (predict, particles) = (sorted(|t| t.predict_ms), sorted(|t| t.particles_ms));
        let steps = horizon.max(1) as f64;
        Some(Self {
            step_ms_median: quantile(&predict, 0.5)? / steps,
            step_ms_p90: quantile(&predict, 0.9)? / steps,
            particles_ms_median: quantile(&particles, 0.5)?,
        })
    }
}

/// The value that a share `q` of the `sorted` values does not exceed.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let index = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied()
}

impl Device {
    /// This machine's CPU and the current thread pool.
    pub fn this() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name"));
        let name = name.map(|rest| rest.trim_start_matches([' ', '\t', ':']));
        let cpu = name.unwrap_or(std::env::consts::ARCH).to_owned();
        Self { cpu, n_threads: rayon::current_num_threads() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(5.0));
        assert_eq!(quantile(&values, 0.9), Some(9.0));
        assert_eq!(quantile(&values[..1], 0.9), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
