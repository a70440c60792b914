//! Options of `forecloud train` and `forecloud compare` that say what a step of the optimiser is.

use forecloud::engine::model::ModelConfig;
use forecloud_train::config::{TrainConfig, check_curriculum};

use super::layers::or;
use super::numbers::within;

/// Windows and roll-outs of a step. What is not given stays as it is.
#[derive(clap::Args)]
pub struct StepArgs {
    #[arg(
        long,
        value_name = "N",
        value_parser = within(TrainConfig::BATCH),
        help = or("Windows per step", TrainConfig::default().batch)
    )]
    batch: Option<usize>,
    #[arg(
        long,
        value_parser = parse_curriculum,
        value_name = "SHARE:LENGTH,…",
        help = or(
            "Lengths of the roll-out in steps, each from that share of the training onwards; whole passes of \
             the model (--chunk), or the last steps of a pass learn nothing",
            Curriculum(TrainConfig::default().curriculum)
        )
    )]
    curriculum: Option<Curriculum>,
    #[arg(
        long,
        value_name = "POWER",
        value_parser = within(TrainConfig::STEP_DISCOUNT),
        help = or(
            "How much less later steps of a roll-out count in the loss: step t as t to minus this power",
            TrainConfig::default().step_discount
        )
    )]
    step_discount: Option<f32>,
    /// Noise added to the depth images of recordings taught by truth, in units of a typical camera's
    /// (RealSense D435): each training recording draws a strength up to twice this, the others have
    /// this; 0 for none.
    #[arg(
        long,
        value_name = "STRENGTH",
        value_parser = within(TrainConfig::SENSOR_NOISE),
        default_value_t = TrainConfig::default().sensor_noise
    )]
    sensor_noise: f32,
}

impl StepArgs {
    /// Writes what is given into `config` of a run of `model`; a curriculum that is not given reaches the
    /// end of its passes.
    pub fn apply(&self, config: &mut TrainConfig, model: &ModelConfig) {
        config.batch = self.batch.unwrap_or(config.batch);
        if let Some(Curriculum(stages)) = &self.curriculum {
            config.curriculum.clone_from(stages);
        } else {
            config.reach_whole_passes(model);
        }
        config.step_discount = self.step_discount.unwrap_or(config.step_discount);
        config.sensor_noise = self.sensor_noise;
    }
}

/// Shares of the steps and roll-out lengths.
#[derive(Debug, Clone)]
struct Curriculum(Vec<(f64, usize)>);

impl std::fmt::Display for Curriculum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stages: Vec<String> =
            self.0.iter().map(|(share, length)| format!("{share}:{length}")).collect();
        f.write_str(&stages.join(","))
    }
}

/// Reads SHARE:LENGTH,….
fn parse_curriculum(text: &str) -> Result<Curriculum, String> {
    let stage = |stage: &str| -> Option<(f64, usize)> {
        let (share, length) = stage.split_once(':')?;
        Some((share.trim().parse().ok()?, length.trim().parse().ok()?))
    };
    let stages: Option<Vec<_>> = text.split(',').map(stage).collect();
    let stages = stages.ok_or("expected SHARE:LENGTH,… such as 0:1,0.5:2")?;
    check_curriculum(&stages)?;
    Ok(Curriculum(stages))
}
