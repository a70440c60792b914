//! Settings of training and of its data; `Default` is the only source of values.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::adamw::AdamWConfig;
use super::pixels::PixelConfig;
use forecloud::engine::model::ModelConfig;
use forecloud::predict::config::check;
use forecloud::vision::cloud::SensorNoise;
use forecloud::{Error, Result};

/// Settings of a training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Steps of the optimiser.
    pub steps: u64,
    /// Windows per step.
    pub batch: usize,
    /// Largest learning rate.
    pub learning_rate: f32,
    /// Steps over which the learning rate rises; after them it goes as `schedule` says.
    pub warm_up: u64,
    /// How the learning rate falls.
    pub schedule: Schedule,
    /// Lengths of the roll-out, each from a share of the steps on: `[(share, length)]`.
    pub curriculum: Vec<(f64, usize)>,
    /// How much less later steps of a roll-out count in the loss: step t (from 1) counts as t to minus
    /// this power, and all together as without it. Errors grow with the steps, so that at 0, the papers'
    /// way, the last ones decide.
    pub step_discount: f32,
    /// Share of the windows that begin where the first pass of a roll-out has led
    /// (`second_look.rs`): 0, the papers' way, teaches later passes nothing of their own. Pixels
    /// don't teach beside it.
    pub second_looks: f64,
    /// Weight in the loss of points of moving objects, resting objects, the robot, and the rest.
    pub loss_weights: [f32; 4],
    /// Decay per step of the average of the weights that is the model (Polyak and Juditsky 1992);
    /// 0 takes the last ones.
    pub average_decay: f32,
    /// Strength of the cameras' noise in the data that it trains on, on average; a run goes on
    /// with the same.
    pub sensor_noise: f32,
    /// Seed of weights, windows and noise.
    pub seed: u64,
    /// How pixels teach beside labels, or alone; none of a run in which they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<PixelConfig>,
    /// The optimiser.
    pub adamw: AdamWConfig,
}

/// How the learning rate falls after the warm-up.
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
            // A whole pass of the default model.
            curriculum: vec![(0.0, 10)],
            // Between those of the last stages of `small` (0.6, 0.5, 0.3): undiscounted, the tenth step,
            // whose errors are the largest, decides.
            step_discount: 0.5,
            // The share that was measured (docs/src/notebook/accuracy.md, "Training the second look"): most windows
            // begin where predictions do, with what was seen.
            second_looks: 0.3,
            loss_weights: [4.0, 0.5, 0.15, 0.1],
            average_decay: 0.999,
            sensor_noise: 0.5,
            seed: 0,
            pixels: None,
            adamw: AdamWConfig::default(),
        }
    }
}

impl TrainConfig {
    /// What `steps` may be.
    pub const STEPS: RangeInclusive<u64> = 1..=1_000_000_000;
    /// What `batch` may be.
    pub const BATCH: RangeInclusive<usize> = 1..=1024;
    /// What `learning_rate` may be.
    pub const LEARNING_RATE: RangeInclusive<f32> = 1e-12..=1.0;
    /// What the lengths in `curriculum` may be.
    pub const LENGTH: RangeInclusive<usize> = 1..=20;
    /// What `step_discount` may be.
    pub const STEP_DISCOUNT: RangeInclusive<f32> = 0.0..=4.0;
    /// What `second_looks` may be.
    pub const SECOND_LOOKS: RangeInclusive<f64> = 0.0..=1.0;
    /// What `sensor_noise` may be.
    pub const SENSOR_NOISE: RangeInclusive<f32> = SensorNoise::STRENGTH;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check("train.steps", self.steps, Self::STEPS, "")?;
        check("train.batch", self.batch, Self::BATCH, "")?;
        check("train.learning_rate", self.learning_rate, Self::LEARNING_RATE, "")?;
        check("train.warm_up", self.warm_up, 0..=*Self::STEPS.end(), " steps")?;
        if let Schedule::Drop { factor, .. } = self.schedule {
            check("train.schedule.drop.factor", factor, 0.0..=1.0, "")?;
        }
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("train.{key}"), problem })
        };
        check_curriculum(&self.curriculum).or_else(|problem| wrong("curriculum", problem))?;
        check("train.step_discount", self.step_discount, Self::STEP_DISCOUNT, "")?;
        check("train.second_looks", self.second_looks, Self::SECOND_LOOKS, "")?;
        if self.second_looks > 0.0 && self.pixels.is_some() {
            let problem =
                "pixels teach only from what was seen at a window's start: set it to 0 with them";
            return wrong("second_looks", problem.into());
        }
        for weight in self.loss_weights {
            check("train.loss_weights", weight, 0.0..=1e6, "")?;
        }
        if self.loss_weights == [0.0; 4] {
            return wrong("loss_weights", "all are 0: nothing would be learned".into());
        }
        if !(0.0..1.0).contains(&self.average_decay) {
            return wrong("average_decay", format!("{} is not in 0..1", self.average_decay));
        }
        check("train.sensor_noise", self.sensor_noise, Self::SENSOR_NOISE, "")?;
        self.pixels.iter().try_for_each(PixelConfig::validate)?;
        self.adamw.validate()
    }

    /// What step `t` (from 0) of a roll-out of `horizon` steps counts in the loss; 1 on average.
    pub fn step_weight(&self, t: usize, horizon: usize) -> f32 {
        let weight = |t: usize| ((t + 1) as f32).powf(-self.step_discount);
        weight(t) * horizon as f32 / (0..horizon).map(weight).sum::<f32>()
    }

    /// Lengthens the curriculum's roll-outs to whole passes of `model`, as far as they may be: of a pass
    /// that reaches beyond its roll-out, the last steps would learn nothing.
    pub fn reach_whole_passes(&mut self, model: &ModelConfig) {
        for (_, length) in &mut self.curriculum {
            *length = length.next_multiple_of(model.steps_per_pass).min(*Self::LENGTH.end());
        }
    }

    /// The longest roll-out of the curriculum, in steps.
    pub fn longest(&self) -> usize {
        self.curriculum.iter().map(|&(_, length)| length).max().unwrap_or(1)
    }

    /// Steps that the longest windows of a run of `model` reach.
    pub fn reach(&self, model: &ModelConfig) -> usize {
        self.longest() + if self.second_looks > 0.0 { model.replan_interval() } else { 0 }
    }

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

/// Checks roll-out lengths, each from a share of the steps on.
///
/// # Errors
/// What is wrong, and what is allowed.
pub fn check_curriculum(stages: &[(f64, usize)]) -> std::result::Result<(), String> {
    let lengths = TrainConfig::LENGTH;
    match stages {
        [] => Err("there is no stage: give one from share 0 on, such as 0:1".into()),
        [(first, _), ..] if *first != 0.0 => {
            Err(format!("the first share is {first}, not 0: all steps need a length"))
        }
        _ if !stages.is_sorted_by(|a, b| a.0 < b.0) => Err("the shares do not ascend".into()),
        // Also if it is NaN, alone.
        _ if stages.iter().any(|(share, _)| !(0.0..1.0).contains(share)) => {
            Err("a share is not in 0..1".into())
        }
        _ => match stages.iter().find(|(_, length)| !lengths.contains(length)) {
            Some((_, length)) => {
                let (low, high) = lengths.into_inner();
                Err(format!("a length of {length} steps is not in {low}..={high}"))
            }
            None => Ok(()),
        },
    }
}

/// Motion in a step beyond which an object point counts as moving, in metres.
pub const MOVING_M: f32 = 0.002;

/// What is done to windows on loading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetConfig {
    /// Steps ahead that windows can reach.
    pub max_horizon: usize,
    /// Noise of the cameras, drawn anew for each recording; they are read once with it.
    pub noise: SensorNoise,
    /// Whether each recording draws the noise's strength, from 0 to twice that of `noise`.
    pub varies_noise: bool,
    /// Largest rotation about the vertical, in radians; each window draws up to it, either way.
    pub rotation_rad: f32,
    /// Share of windows in which objects move.
    pub active_share: f64,
    /// What tells where points go.
    pub teacher: Teacher,
}

/// What tells where a recording's points go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The truth of simulation; recordings without it are left out.
    #[default]
    Truth,
    /// What later frames show ([`crate::flow_labels`]), of all recordings; truth is not looked at.
    Hindsight,
    /// The truth where there is one, hindsight elsewhere.
    Auto,
    /// What the cameras saw later, as pixels ([`super::pixels`]). Hindsight tells in which windows
    /// something moves, and measures, but does not teach; truth is not looked at.
    Video,
}

impl Teacher {
    /// All of them, by their names.
    pub const ALL: [(&str, Self); 4] = [
        ("auto", Self::Auto),
        ("truth", Self::Truth),
        ("hindsight", Self::Hindsight),
        ("video", Self::Video),
    ];

    /// That of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, teacher)| teacher)
    }

    /// Whether it looks at the truth of recordings that have one.
    pub fn takes_truth(self) -> bool {
        matches!(self, Self::Truth | Self::Auto)
    }
}

impl Default for DatasetConfig {
    fn default() -> Self {
        Self {
            max_horizon: 5,
            noise: SensorNoise::default(),
            varies_noise: true,
            rotation_rad: 0.6,
            active_share: 0.8,
            teacher: Teacher::default(),
        }
    }
}

impl DatasetConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check("data.max_horizon", self.max_horizon, 1..=100, " steps")?;
        check("data.rotation_rad", self.rotation_rad, 0.0..=std::f32::consts::PI, " rad")?;
        check("data.active_share", self.active_share, 0.0..=1.0, "")?;
        self.noise.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl FnOnce(&mut TrainConfig)) -> String {
        let mut config = TrainConfig::default();
        change(&mut config);
        config.validate().err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn what_a_run_cannot_be_made_of_is_named_with_what_is_allowed() {
        assert_eq!(told(|_| ()), "");
        assert_eq!(told(|c| c.batch = 0), "train.batch: 0 is not in 1..=1024");
        assert!(told(|c| c.steps = 0).contains("train.steps"));
        for rate in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(told(|c| c.learning_rate = rate).contains("train.learning_rate"), "{rate}");
        }
        for decay in [-0.1, 1.0, f32::NAN] {
            assert!(told(|c| c.average_decay = decay).contains("average_decay"), "{decay}");
        }
        assert!(told(|c| c.loss_weights = [0.0; 4]).contains("loss_weights"));
        assert!(told(|c| c.loss_weights[1] = f32::NAN).contains("loss_weights"));
        assert!(told(|c| c.sensor_noise = 11.0).contains("sensor_noise: 11 is not in 0..=10"));
        let drop = |factor| Schedule::Drop { step: 1, factor };
        assert!(told(|c| c.schedule = drop(f32::NAN)).contains("factor"));
        for adamw in [
            AdamWConfig { beta1: 1.0, ..AdamWConfig::default() },
            AdamWConfig { epsilon: 0.0, ..AdamWConfig::default() },
            AdamWConfig { weight_decay: f32::NAN, ..AdamWConfig::default() },
            AdamWConfig { max_norm: f32::INFINITY, ..AdamWConfig::default() },
        ] {
            assert!(told(|c| c.adamw = adamw).contains("adamw."), "{adamw:?}");
        }
    }

    #[test]
    fn roll_outs_reach_the_end_of_a_pass_as_far_as_they_may_be() {
        let lengths = |steps_per_pass: usize| -> Vec<usize> {
            let curriculum = vec![(0.0, 1), (0.2, 4), (0.5, 7), (0.8, 17)];
            let mut config = TrainConfig { curriculum, ..TrainConfig::default() };
            config.reach_whole_passes(&ModelConfig { steps_per_pass, ..ModelConfig::default() });
            assert!(config.validate().is_ok());
            config.curriculum.iter().map(|&(_, length)| length).collect()
        };
        assert_eq!(lengths(1), [1, 4, 7, 17]);
        assert_eq!(lengths(5), [5, 5, 10, 20]);
        assert_eq!(lengths(7), [7, 7, 7, 20]);
    }

    #[test]
    fn later_steps_count_less_and_all_together_as_much() {
        let weights = |step_discount: f32| -> Vec<f32> {
            let config = TrainConfig { step_discount, ..TrainConfig::default() };
            (0..5).map(|t| config.step_weight(t, 5)).collect()
        };
        assert_eq!(weights(0.0), [1.0; 5]);
        let half = weights(0.5);
        assert!((half[0] / half[3] - 2.0).abs() < 1e-5, "{half:?}");
        assert!((half.iter().sum::<f32>() - 5.0).abs() < 1e-5, "{half:?}");
        assert!(told(|c| c.step_discount = -1.0).contains("train.step_discount"));
    }

    #[test]
    fn windows_that_are_led_on_reach_a_stride_farther() {
        let model =
            ModelConfig { steps_per_pass: 10, replan_interval: Some(5), ..ModelConfig::default() };
        let reach = |second_looks: f64| {
            let curriculum = vec![(0.0, 10)];
            TrainConfig { second_looks, curriculum, ..TrainConfig::default() }.reach(&model)
        };
        assert_eq!([0.0, 0.3].map(reach), [10, 15]);
        assert!(told(|c| c.second_looks = 1.1).contains("train.second_looks: 1.1 is not in 0..=1"));
        assert!(told(|c| c.second_looks = f64::NAN).contains("train.second_looks"));
        let pixels =
            PixelConfig { weight: 1.0, rays: 1, steps: PixelConfig::STEPS, video: String::new() };
        let told = told(|c| (c.second_looks, c.pixels) = (0.1, Some(pixels.clone())));
        assert!(told.contains("second_looks: pixels teach"), "{told}");
    }

    #[test]
    fn a_curriculum_begins_at_0_and_ascends() {
        for (stages, word) in [
            (&[][..], "no stage"),
            (&[(0.5, 1)], "not 0"),
            (&[(f64::NAN, 1)], "not 0"),
            (&[(0.0, 1), (f64::NAN, 1)], "ascend"),
            (&[(0.0, 1), (0.0, 2)], "ascend"),
            (&[(0.0, 1), (1.0, 2)], "0..1"),
            (&[(0.0, 0)], "1..=20"),
            (&[(0.0, 21)], "1..=20"),
        ] {
            let problem = told(|c| c.curriculum = stages.to_vec());
            assert!(
                problem.starts_with("train.curriculum: ") && problem.contains(word),
                "{problem}"
            );
        }
    }

    #[test]
    fn data_that_no_window_can_be_drawn_from_is_refused() {
        let default = DatasetConfig::default();
        assert!(default.validate().is_ok());
        for (config, key) in [
            (DatasetConfig { max_horizon: 0, ..default }, "max_horizon"),
            (DatasetConfig { max_horizon: usize::MAX, ..default }, "max_horizon"),
            (DatasetConfig { rotation_rad: f32::INFINITY, ..default }, "rotation_rad"),
            (DatasetConfig { active_share: f64::NAN, ..default }, "active_share"),
        ] {
            assert!(config.validate().unwrap_err().to_string().contains(key), "{key}");
        }
    }
}
