//! What is asked of a comparison.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::evaluate::STEPS;
use super::suites::Variant;
use crate::config::{DatasetConfig, TrainConfig};
use forecloud::predict::config::check;
use forecloud::{Error, Result};

/// What is asked of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of the suite.
    pub suite: String,
    /// What is compared; the others are held against the first.
    pub variants: Vec<Variant>,
    /// CPU seconds of one thread that a run trains, where not as many steps are asked for.
    pub budget_secs: f64,
    /// Steps of each run: as many for all variants, whatever time they take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// A run of each variant for each seed.
    pub seeds: Vec<u64>,
    /// Learning rates that each variant tries; one alone is not tried but taken.
    pub learning_rates: Vec<f32>,
    /// Share of the budget, or of the steps, that each try takes.
    pub tuning_share: f64,
    /// How all are trained; steps, learning rate and seed are each run's, the warm-up takes a tenth of
    /// its steps at most, and the curriculum's roll-outs are whole passes of its model.
    pub train: TrainConfig,
    /// What is done to windows on loading.
    pub data: DatasetConfig,
    /// Options that say what is read of the recordings, and their values in words.
    pub topics: BTreeMap<String, String>,
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
    /// What `budget_secs` may be.
    pub const BUDGET_SECS: RangeInclusive<f64> = 0.001..=1e7;
    /// What `tuning_share` may be.
    pub const TUNING_SHARE: RangeInclusive<f64> = 0.001..=1.0;
    /// What counts of windows, steps and rounds may be.
    pub const COUNT: RangeInclusive<usize> = 1..=1_000_000;
    /// What `validations` may be.
    pub const VALIDATIONS: RangeInclusive<u64> = 1..=1_000_000;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value or the variant.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem: &str| {
            let key = format!("compare.{key}");
            Err(Error::Config { key, problem: problem.to_owned() })
        };
        if self.variants.is_empty() {
            return wrong("variants", "there are none to compare");
        }
        for (i, variant) in self.variants.iter().enumerate() {
            variant.model.validate().map_err(|error| variant.error(&error))?;
            if self.variants[..i].iter().any(|other| other.name == variant.name) {
                return wrong("variants", &format!("{} is listed twice", variant.name));
            }
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if variant.name.is_empty() || !variant.name.chars().all(is_plain) {
                let problem = format!("'{}' is not of a-z, 0-9 and _", variant.name);
                return wrong("variants", &problem);
            }
        }
        check("compare.budget_secs", self.budget_secs, Self::BUDGET_SECS, " s")?;
        if let Some(steps) = self.steps {
            check("compare.steps", steps, TrainConfig::STEPS, "")?;
        }
        check("compare.tuning_share", self.tuning_share, Self::TUNING_SHARE, "")?;
        if self.learning_rates.is_empty() {
            return wrong("learning_rates", "there are none");
        }
        for rate in &self.learning_rates {
            check("compare.learning_rates", *rate, TrainConfig::LEARNING_RATE, "")?;
        }
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        seeds.dedup();
        if seeds.is_empty() || seeds.len() < self.seeds.len() {
            return wrong("seeds", "there are none, or one is listed twice");
        }
        for (key, count) in [
            ("compare.validation_steps", self.validation_steps),
            ("compare.validation_windows", self.validation_windows),
            ("compare.test_windows", self.test_windows),
            ("compare.pilot_rounds", self.pilot_rounds),
        ] {
            check(key, count, Self::COUNT, "")?;
        }
        check("compare.validations", self.validations, Self::VALIDATIONS, "")?;
        self.train.validate()?;
        self.data.validate()?;
        Ok(())
    }

    /// Steps ahead that windows of training, validation and test data must reach.
    pub fn horizons(&self) -> [usize; 3] {
        let reach = |variant: &Variant| self.train_of(variant).reach(&variant.model);
        let longest = self.variants.iter().map(reach).max();
        let longest = longest.unwrap_or_else(|| self.train.longest());
        [longest, self.validation_steps, STEPS[STEPS.len() - 1]]
    }

    /// How a variant is trained.
    pub fn train_of(&self, variant: &Variant) -> TrainConfig {
        let mut train = self.train.clone();
        train.reach_whole_passes(&variant.model);
        train
    }

    /// Seed of the tries: none of the runs'.
    pub(super) fn tuning_seed(&self) -> u64 {
        self.seeds.iter().max().map_or(0, |seed| seed.wrapping_add(1))
    }
}

impl Variant {
    /// `error`, with the variant's name.
    pub(super) fn error(&self, error: &Error) -> Error {
        Error::Config { key: format!("variant {}", self.name), problem: error.to_string() }
    }
}
