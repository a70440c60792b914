//! How long the steps of each variant take, measured in turns.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::clock::{ThreadClock, one_thread};
use super::data::Data;
use super::settings::Settings;
use super::suites::Variant;
use super::watch::Watch;
use forecloud::engine::model::{Mode, ModelConfig, Rollout};
use forecloud::{Error, Result};
use forecloud_train::config::TrainConfig;
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::trainer::Trainer;

/// CPU time on one thread; medians of the pilot's rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// A step of training with roll-outs of each length of the curriculum: `[(length, secs)]`.
    pub train_secs: Vec<(usize, f64)>,
    /// A step of a prediction: graph and model.
    pub predict_secs: f64,
}

impl Speed {
    /// Mean time of a training step over the whole `curriculum` (s).
    pub fn step_secs(&self, curriculum: &[(f64, usize)]) -> f64 {
        let ends = curriculum.iter().skip(1).map(|stage| stage.0).chain([1.0]);
        let secs = |length| {
            self.train_secs.iter().find(|(l, _)| *l == length).map_or(0.0, |(_, secs)| *secs)
        };
        curriculum.iter().zip(ends).map(|((from, length), to)| (to - from) * secs(*length)).sum()
    }
}

/// Speeds of all variants; none if stopped.
pub(super) fn measure(
    settings: &Settings,
    data: &Data,
    watch: &dyn Watch,
) -> Result<Option<Vec<Speed>>> {
    one_thread()?.install(|| {
        let variants = &settings.variants;
        let mut samples: Vec<Vec<Vec<f64>>> = vec![Vec::new(); variants.len()];
        for round in 0..settings.pilot_rounds {
            // There and back, so that none is always measured first.
            let order = 0..variants.len();
            let order: Vec<usize> =
                if round % 2 == 0 { order.collect() } else { order.rev().collect() };
            for variant in order {
                if watch.stops() {
                    return Ok(None);
                }
                let one = sample(settings, &variants[variant], data, round);
                samples[variant].push(one.map_err(|error| variants[variant].error(&error))?);
            }
        }
        let measured = variants.iter().zip(&samples);
        Ok(Some(measured.map(|(variant, rounds)| speed(settings, variant, rounds)).collect()))
    })
}

/// Roll-out lengths of the curriculum, each once.
fn lengths(curriculum: &[(f64, usize)]) -> Vec<usize> {
    let mut lengths: Vec<usize> = curriculum.iter().map(|stage| stage.1).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// CPU seconds of a training step of each length, and of a prediction's step.
fn sample(settings: &Settings, variant: &Variant, data: &Data, round: usize) -> Result<Vec<f64>> {
    let train = settings.train_of(variant);
    let lengths = lengths(&train.curriculum);
    // The longest first, unmeasured: all memory is touched then.
    let order: Vec<usize> = lengths.last().into_iter().chain(&lengths).copied().collect();
    let share = |i: usize| i as f64 / order.len() as f64;
    let config = TrainConfig {
        steps: order.len() as u64,
        curriculum: order.iter().enumerate().map(|(i, &length)| (share(i), length)).collect(),
        seed: round as u64,
        ..train
    };
    let train = data.train.for_model(variant.model)?;
    let mut trainer = Trainer::new(config, variant.model)?;
    trainer.step(&train)?;
    let mut secs = Vec::new();
    for _ in &lengths {
        let clock = ThreadClock::start();
        trainer.step(&train)?;
        secs.push(clock.secs());
    }
    let weights = trainer.model()?.weights;
    let validation = data.validation.for_model(variant.model)?;
    secs.push(predict_secs(settings, variant.model, &weights, &validation, round)?);
    Ok(secs)
}

fn predict_secs(
    settings: &Settings,
    model: ModelConfig,
    weights: &[f32],
    data: &Dataset,
    round: usize,
) -> Result<f64> {
    let (n_steps, n_rounds) = (settings.validation_steps, settings.pilot_rounds);
    let (mut window, n) = (Window::default(), data.n_windows());
    let mut rng = ChaCha8Rng::seed_from_u64(round as u64);
    let first = round * n / n_rounds.max(1);
    let mut candidates = (0..n).map(|i| (first + i) % n);
    if !candidates.any(|index| data.get(index, &mut rng, n_steps, &mut window)) {
        let problem = format!(
            "no validation recording has {n_steps} steps without a gap: record longer ones"
        );
        return Err(Error::Config { key: "validation".into(), problem });
    }
    let mut rollout = Rollout::new(model.rollout(), Mode::Inference);
    rollout.run(weights, &window.scene, n_steps)?;
    let clock = ThreadClock::start();
    rollout.run(weights, &window.scene, n_steps)?;
    Ok(clock.secs() / n_steps as f64)
}

fn speed(settings: &Settings, variant: &Variant, rounds: &[Vec<f64>]) -> Speed {
    let median = |place: usize| {
        let mut values: Vec<f64> =
            rounds.iter().filter_map(|round| round.get(place)).copied().collect();
        values.sort_unstable_by(f64::total_cmp);
        // A clock of coarse ticks may see nothing of a tiny model.
        values.get(values.len() / 2).map_or(1e-6, |secs| secs.max(1e-6))
    };
    let lengths = lengths(&settings.train_of(variant).curriculum);
    Speed {
        predict_secs: median(lengths.len()),
        train_secs: lengths.into_iter().enumerate().map(|(i, l)| (l, median(i))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_the_mean_over_the_curriculum() {
        let speed = Speed { train_secs: vec![(1, 1.0), (2, 2.0), (4, 4.0)], predict_secs: 0.1 };
        let mean = speed.step_secs(&[(0.0, 1), (0.4, 2), (0.75, 4)]);
        assert!((mean - (0.4 + 0.7 + 1.0)).abs() < 1e-12);
        // A length that comes twice is measured once.
        assert_eq!(lengths(&[(0.0, 2), (0.2, 1), (0.5, 2)]), [1, 2]);
        assert!((speed.step_secs(&[(0.0, 2), (0.2, 1), (0.5, 2)]) - 1.7).abs() < 1e-12);
    }
}
