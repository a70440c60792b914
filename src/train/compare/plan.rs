//! What a comparison is: its settings, and the steps that each variant may take, fixed once.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::parameters::n_parameters;
use super::pilot::Speed;
use super::run::{Outcome, Run};
use super::suites::Variant;
use super::{Data, STEPS};
use crate::eval::report::Device;
use crate::train::dataset::{Dataset, DatasetConfig};
use crate::train::trainer::TrainConfig;
use crate::{Error, Result};

/// What is asked of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of the suite.
    pub suite: String,
    /// What is compared; the others are held against the first.
    pub variants: Vec<Variant>,
    /// CPU seconds of one thread that a run trains.
    pub budget_secs: f64,
    /// A run of each variant for each seed.
    pub seeds: Vec<u64>,
    /// Learning rates that each variant tries; one alone is not tried but taken.
    pub learning_rates: Vec<f32>,
    /// Share of the budget that each try takes.
    pub tuning_share: f64,
    /// How all are trained; steps, learning rate and seed are each run's, and the warm-up takes a
    /// tenth of its steps at most.
    pub train: TrainConfig,
    /// What is done to windows on loading.
    pub data: DatasetConfig,
    /// Split of the test recordings.
    pub test_split: String,
    /// Validations in a run.
    pub validations: u64,
    /// Steps of the roll-outs that are validated.
    pub validation_steps: usize,
    /// Windows of a validation, spread over the recordings.
    pub validation_windows: usize,
    /// Windows of the test, likewise.
    pub test_windows: usize,
    /// Rounds of the pilot that measures speeds.
    pub pilot_rounds: usize,
}

impl Settings {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value or the variant.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem: &str| {
            Err(Error::Config { key: key.to_owned(), problem: problem.to_owned() })
        };
        if self.variants.is_empty() {
            return wrong("variants", "there are none to compare");
        }
        for (i, variant) in self.variants.iter().enumerate() {
            variant.model.validate().map_err(|error| variant.error(&error))?;
            if self.variants[..i].iter().any(|other| other.name == variant.name) {
                return wrong("variants", &format!("{} is there twice", variant.name));
            }
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if variant.name.is_empty() || !variant.name.chars().all(is_plain) {
                let problem = format!("'{}' is not of a-z, 0-9 and _", variant.name);
                return wrong("variants", &problem);
            }
        }
        let is_time = |secs: f64| secs.is_finite() && secs > 0.0;
        if !is_time(self.budget_secs) {
            return wrong("budget_secs", "not a time above 0");
        }
        if !(is_time(self.tuning_share) && self.tuning_share <= 1.0) {
            return wrong("tuning_share", "not in 0..=1, or 0");
        }
        if self.learning_rates.is_empty()
            || !self.learning_rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
        {
            return wrong("learning_rates", "not a list of rates above 0");
        }
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        seeds.dedup();
        if seeds.is_empty() || seeds.len() < self.seeds.len() {
            return wrong("seeds", "there are none, or one is there twice");
        }
        let counts =
            [self.validation_steps, self.validation_windows, self.test_windows, self.pilot_rounds];
        if counts.contains(&0) || self.validations == 0 || self.train.curriculum.is_empty() {
            return wrong("windows, rounds, validations, curriculum", "each takes at least 1");
        }
        Ok(())
    }

    /// Steps ahead that windows of training, validation and test data must reach.
    pub fn horizons(&self) -> [usize; 3] {
        let longest = self.train.curriculum.iter().map(|stage| stage.1).max().unwrap_or(1);
        [longest, self.validation_steps, STEPS[STEPS.len() - 1]]
    }

    /// Seed of the tries: none of the runs'.
    fn tuning_seed(&self) -> u64 {
        self.seeds.iter().max().map_or(0, |seed| seed.wrapping_add(1))
    }
}

impl Variant {
    /// `error`, with the variant's name.
    pub(super) fn error(&self, error: &Error) -> Error {
        Error::Config { key: format!("variant {}", self.name), problem: error.to_string() }
    }
}

/// Recordings and windows of each split, by which other data is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSummary {
    /// `[recordings, windows, windows in which objects move]` to train on.
    pub train: [usize; 3],
    /// To choose learning rates by.
    pub validation: [usize; 3],
    /// For the table.
    pub test: [usize; 3],
}

impl DataSummary {
    /// Of `data`.
    pub fn of(data: &Data) -> Self {
        let counts = |data: &Dataset| [data.n_recordings(), data.n_windows(), data.n_active()];
        Self {
            train: counts(&data.train),
            validation: counts(&data.validation),
            test: counts(&data.test),
        }
    }
}

/// A variant's place in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedVariant {
    /// Its name.
    pub name: String,
    /// Weights.
    pub parameters: usize,
    /// What was measured.
    pub speed: Speed,
    /// Steps of a run.
    pub steps: u64,
    /// Steps of a try of a learning rate.
    pub tuning_steps: u64,
}

/// The plan: all that the runs depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of Forecloud.
    pub version: String,
    /// CPU that speeds were measured on.
    pub cpu: String,
    /// What was asked for.
    pub settings: Settings,
    /// The recordings.
    pub data: DataSummary,
    /// The variants, in the order of the settings.
    pub variants: Vec<PlannedVariant>,
}

impl Plan {
    /// The plan of variants of these `speeds`.
    pub(super) fn new(settings: Settings, data: DataSummary, speeds: Vec<Speed>) -> Self {
        let planned = |(variant, speed): (&Variant, Speed)| {
            let secs = speed.step_secs(&settings.train.curriculum);
            let steps = |budget_secs: f64| (budget_secs / secs).max(1.0) as u64;
            PlannedVariant {
                name: variant.name.clone(),
                parameters: n_parameters(&variant.model),
                steps: steps(settings.budget_secs),
                tuning_steps: steps(settings.tuning_share * settings.budget_secs),
                speed,
            }
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: Device::this().cpu,
            variants: settings.variants.iter().zip(speeds).map(planned).collect(),
            settings,
            data,
        }
    }

    /// Refuses settings or recordings that are not this plan's, kept in the file `path`.
    pub(super) fn must_be_of(
        &self,
        path: &Path,
        settings: &Settings,
        data: &DataSummary,
    ) -> Result<()> {
        let key = path.display().to_string();
        let remedy = "take another folder, or the settings and recordings that it was begun with";
        let other = |what: &str| {
            Err(Error::Config { key: key.clone(), problem: format!("a plan {what}: {remedy}") })
        };
        if self.settings != *settings {
            return other("of other settings");
        }
        if self.data != *data {
            return other(&format!("for other recordings ({:?}, here {data:?})", self.data));
        }
        let names = self.variants.iter().map(|variant| &variant.name);
        if !names.eq(settings.variants.iter().map(|variant| &variant.name)) {
            return other("whose variants are not its settings'");
        }
        Ok(())
    }

    /// CPU seconds of all runs.
    pub fn total_secs(&self) -> f64 {
        let settings = &self.settings;
        let tries = match settings.learning_rates.len() {
            1 => 0.0,
            n => n as f64 * settings.tuning_share,
        };
        let runs = self.variants.len() as f64 * (tries + settings.seeds.len() as f64);
        runs * settings.budget_secs
    }

    /// Runs that try a variant's learning rates; none if there is nothing to choose.
    pub(super) fn tuning_runs(&self, variant: usize) -> Vec<Run> {
        let settings = &self.settings;
        let rates = &settings.learning_rates;
        if rates.len() < 2 {
            return Vec::new();
        }
        let (planned, seed) = (&self.variants[variant], settings.tuning_seed());
        let run = |&rate: &f32| Run {
            variant,
            name: format!("{}, learning rate {rate}", planned.name),
            folder: format!("{}/rate_{rate}", planned.name),
            config: self.config(planned.tuning_steps, rate, seed),
            budget_secs: settings.tuning_share * settings.budget_secs,
            is_tested: false,
        };
        rates.iter().map(run).collect()
    }

    /// The variant's runs with each seed.
    pub(super) fn runs(&self, variant: usize, rate: f32) -> Vec<Run> {
        let settings = &self.settings;
        let planned = &self.variants[variant];
        let run = |&seed: &u64| Run {
            variant,
            name: format!("{}, seed {seed}", planned.name),
            folder: format!("{}/seed_{seed}", planned.name),
            config: self.config(planned.steps, rate, seed),
            budget_secs: settings.budget_secs,
            is_tested: true,
        };
        settings.seeds.iter().map(run).collect()
    }

    fn config(&self, steps: u64, learning_rate: f32, seed: u64) -> TrainConfig {
        let train = self.settings.train.clone();
        TrainConfig { steps, learning_rate, seed, warm_up: train.warm_up.min(steps / 10), ..train }
    }

    /// The best learning rate of each variant, by validation error; why there is none.
    pub(super) fn choose(
        &self,
        runs: &[Run],
        outcomes: &[Result<Outcome>],
    ) -> Vec<std::result::Result<f32, String>> {
        let of_variant = |variant: usize| {
            if let [rate] = self.settings.learning_rates[..] {
                return Ok(rate);
            }
            let tried = runs.iter().zip(outcomes).filter(|(run, _)| run.variant == variant);
            let scores = tried.clone().filter_map(|(run, outcome)| {
                Some((run.config.learning_rate, outcome.as_ref().ok()?.score()?))
            });
            let best = scores.min_by(|a, b| a.1.total_cmp(&b.1));
            best.map(|(rate, _)| rate).ok_or_else(|| {
                let problem = tried.clone().find_map(|(_, outcome)| outcome.as_ref().err());
                let nothing = || "no object moves in the validation windows".to_owned();
                let problem = problem.map_or_else(nothing, ToString::to_string);
                format!("{}, all learning rates: {problem}", self.variants[variant].name)
            })
        };
        (0..self.variants.len()).map(of_variant).collect()
    }
}
