//! The paper's claim: steps of training with the GRF attention, and with other layers in its place.

use std::io::Write;

use anyhow::ensure;
use forecloud::engine::model::{LayersConfig, Layout, LocalLayer, ModelConfig};
use forecloud_lab::layers::MESSAGE_PASSING;

use super::support::{Demo, Training, time_ms};

/// Whole steps of training (graph included) of each layer in turn; a line of JSON each: `local`,
/// `n_params`, `first_loss`, `last_loss` (m) and the `milliseconds` of each run.
pub fn run(
    n_tokens: usize,
    width: usize,
    runs: usize,
    mut output: impl Write,
) -> anyhow::Result<()> {
    let demo = Demo::open()?;
    let mut rows = Vec::new();
    for local in [LocalLayer::Grf, MESSAGE_PASSING, LocalLayer::Linear, LocalLayer::None] {
        let name = local.name();
        let layers = LayersConfig { local, ..LayersConfig::default() };
        let config = ModelConfig { width, layers, ..ModelConfig::default() };
        config.validate()?;
        let mut training = Training::new(&demo, n_tokens, &config)?;
        let first_loss = training.step()?;
        ensure!(training.gradient.iter().any(|&g| g != 0.0), "{name}: the gradient is zero");
        let n_params = Layout::new(config.interlacer()).n_params();
        rows.push((name, n_params, training, first_loss, Vec::new()));
    }
    let n_layers = rows.len();
    for run in 0..runs {
        for turn in 0..n_layers {
            let (_, _, training, _, times) = &mut rows[(run + turn) % n_layers];
            times.push(time_ms(|| training.step().map(|_| ()))?);
        }
    }
    for (local, n_params, mut training, first_loss, milliseconds) in rows {
        let last_loss = training.step()?;
        ensure!(last_loss < first_loss, "{local}: the loss rises: {first_loss} to {last_loss} m");
        let line = serde_json::json!({
            "local": local,
            "n_params": n_params,
            "first_loss": first_loss,
            "last_loss": last_loss,
            "milliseconds": milliseconds,
        });
        writeln!(output, "{line}")?;
    }
    Ok(())
}
