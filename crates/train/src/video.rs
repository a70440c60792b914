//! Training of the encoder and the renderer of pictures ([`forecloud_video`]): by themselves, without
//! dynamics. Particles of a frame are drawn as later frames' cameras saw them, from where the truth
//! moved them; without truth, as the frame's own did.

mod dataset;
pub(super) mod targets;
mod trainer;

use serde::{Deserialize, Serialize};

use crate::adamw::AdamWConfig;
use forecloud::{Error, Result};

pub use dataset::{VideoDataset, Window};
pub use trainer::{VideoScore, VideoTrainer};

/// How encoder and renderer are trained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoTrainConfig {
    /// Steps of the optimiser; the learning rate falls towards the last.
    pub steps: u64,
    /// Largest learning rate.
    pub learning_rate: f32,
    /// Rays of a step.
    pub rays: usize,
    /// Share of the steps whose pictures are the encoded frame's own; those of the others are later.
    pub still_share: f64,
    /// Frames that the later ones follow by, at most ([`VideoDataset::APART_SECS`] apart).
    pub most_later: usize,
    /// Weight of the squared error of depth (1/m²), beside that of colours from 0 to 1.
    pub depth_weight: f32,
    /// Whether truth is not looked at ([`VideoDataset::ignore_truth`]).
    #[serde(default)]
    pub ignores_truth: bool,
    /// Seed of weights, windows and rays.
    pub seed: u64,
    /// The optimiser.
    pub adamw: AdamWConfig,
}

impl Default for VideoTrainConfig {
    fn default() -> Self {
        Self {
            steps: 5_000,
            learning_rate: 2e-3,
            rays: 512,
            still_share: 0.5,
            most_later: 5,
            depth_weight: 0.3,
            ignores_truth: false,
            seed: 0,
            adamw: AdamWConfig::default(),
        }
    }
}

impl VideoTrainConfig {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let problems = [
            ("steps", !(1..=100_000_000).contains(&self.steps), "1 to 100000000"),
            ("learning_rate", !(1e-7..=1.0).contains(&self.learning_rate), "1e-7 to 1"),
            ("rays", !(1..=1 << 16).contains(&self.rays), "1 to 65536"),
            ("still_share", !(0.0..=1.0).contains(&self.still_share), "0 to 1"),
            ("most_later", !(1..=1000).contains(&self.most_later), "1 to 1000"),
            ("depth_weight", !(0.0..=1e3).contains(&self.depth_weight), "0 to 1000"),
        ];
        if let Some((key, _, allowed)) = problems.iter().find(|(_, is_wrong, _)| *is_wrong) {
            let problem = format!("it is not {allowed}");
            return Err(Error::Config { key: format!("video.{key}"), problem });
        }
        self.adamw.validate()
    }
}
