//! The plan of a comparison: the steps that each variant may take, fixed once.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::data::DataSummary;
use super::parameters::n_parameters;
use super::pilot::Speed;
use super::run::{Outcome, Run};
use super::settings::Settings;
use super::suites::Variant;
use crate::config::TrainConfig;
use crate::differences::differences;
use forecloud::{Error, Result};
use forecloud_eval::report::Device;

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
            let secs = speed.step_secs(&settings.train_of(variant).curriculum);
            let steps = match settings.steps {
                Some(steps) => steps as f64,
                None => settings.budget_secs / secs,
            };
            let at_least_one = |steps: f64| steps.max(1.0) as u64;
            PlannedVariant {
                name: variant.name.clone(),
                parameters: n_parameters(&variant.model),
                steps: at_least_one(steps),
                tuning_steps: at_least_one(settings.tuning_share * steps),
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
        let remedy = "choose another --out, or the settings and recordings that it was begun with";
        let other = |what: &str| {
            Err(Error::Config { key: key.clone(), problem: format!("a plan {what}: {remedy}") })
        };
        let mut differing = differences(&self.settings.topics, &settings.topics);
        let [stored, asked] = [&self.settings, settings]
            .map(|of| Settings { topics: BTreeMap::default(), ..of.clone() });
        differing.extend(differences(&stored, &asked));
        if !differing.is_empty() {
            return other(&format!("of other settings ({})", differing.join("; ")));
        }
        if self.data != *data {
            return other(&format!("for other recordings ({:?}, here {data:?})", self.data));
        }
        let names = self.variants.iter().map(|variant| &variant.name);
        if !names.eq(settings.variants.iter().map(|variant| &variant.name)) {
            return other("whose variants don't match its settings");
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
        let runs = tries + settings.seeds.len() as f64;
        (0..self.variants.len()).map(|variant| runs * self.run_secs(variant)).sum()
    }

    /// CPU seconds that a run of the variant should take.
    pub fn run_secs(&self, variant: usize) -> f64 {
        let (settings, planned) = (&self.settings, &self.variants[variant]);
        match settings.steps {
            None => settings.budget_secs,
            Some(steps) => {
                let train = settings.train_of(&settings.variants[variant]);
                steps as f64 * planned.speed.step_secs(&train.curriculum)
            }
        }
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
            config: self.config(variant, planned.tuning_steps, rate, seed),
            budget_secs: settings.tuning_share * self.run_secs(variant),
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
            config: self.config(variant, planned.steps, rate, seed),
            budget_secs: self.run_secs(variant),
            is_tested: true,
        };
        settings.seeds.iter().map(run).collect()
    }

    fn config(&self, variant: usize, steps: u64, learning_rate: f32, seed: u64) -> TrainConfig {
        let train = self.settings.train_of(&self.settings.variants[variant]);
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
