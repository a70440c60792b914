//! Stand-in for `config.rs` and `predictor.rs` until they have landed: nothing ever moves.

use crate::error::Result;
use crate::frames::{Frame, FramesConfig};
use crate::message::Stamp;

#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub model: String,
    pub frames: FramesConfig,
    pub horizon: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Prediction {
    pub stamp: Stamp,
    pub step_secs: f32,
    pub seed: u64,
    pub model_hash: String,
    pub positions: Vec<[f32; 3]>,
    pub colors: Vec<[f32; 3]>,
    pub sources: Vec<u32>,
    pub displacements: Vec<Vec<[f32; 3]>>,
    pub particles_ms: f32,
    pub predict_ms: f32,
}

pub struct Predictor {
    n_frames: usize,
    prediction: Prediction,
}

impl Predictor {
    pub fn new(_config: &Config) -> anyhow::Result<Self> {
        Ok(Self { n_frames: 0, prediction: Prediction::default() })
    }

    pub fn set_robot(&mut self, _urdf: &str) -> Result<()> {
        Ok(())
    }

    pub fn step(&mut self, frame: &Frame) -> Result<Option<&Prediction>> {
        self.n_frames += 1;
        if self.n_frames < 4 {
            return Ok(None);
        }
        let n = 500;
        self.prediction = Prediction {
            stamp: frame.stamp,
            step_secs: 0.1,
            positions: (0..n).map(|i| [i as f32 * 0.01, 0.0, 1.0]).collect(),
            colors: vec![[1.0, 0.5, 0.0]; n],
            sources: (0..n as u32).collect(),
            displacements: vec![vec![[0.0, 0.0, 0.01]; n]; 3],
            ..Prediction::default()
        };
        Ok(Some(&self.prediction))
    }
}
