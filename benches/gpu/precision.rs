//! The shipped model on the demo: tensor cores against f32 on the CPU.

use std::path::Path;

use anyhow::ensure;
use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

use super::{Table, row};

/// Bounds of the difference behind a roll-out (mm): median and p99.
const BOUNDS_MM: [f32; 2] = [0.05, 1.0];

/// Differences of the positions behind `n_steps` steps, over `n_frames` frames at most.
pub fn compare(n_steps: usize, n_frames: usize, table: &mut Table) -> anyhow::Result<()> {
    let (cpu, gpu) = (
        predictions(Device::Cpu, n_steps, n_frames)?,
        predictions(Device::Cuda(0), n_steps, n_frames)?,
    );
    ensure!(
        cpu.len() == gpu.len() && !cpu.is_empty(),
        "{} and {} predictions",
        cpu.len(),
        gpu.len()
    );
    let mut off_mm: Vec<f32> = Vec::new();
    for (cpu, gpu) in cpu.iter().zip(&gpu) {
        for i in 0..cpu.particles.len() {
            let squares = (0..3).map(|axis| {
                let end = |prediction: &Prediction| -> f32 {
                    prediction.displacements.iter().map(|step| step[i][axis]).sum()
                };
                (end(cpu) - end(gpu)).powi(2)
            });
            off_mm.push(1e3 * squares.sum::<f32>().sqrt());
        }
    }
    off_mm.sort_by(f32::total_cmp);
    let shares = [0.5, 0.99].map(|share| off_mm[(share * (off_mm.len() - 1) as f64) as usize]);
    let what =
        format!("{n_steps} steps of the demo, tensor cores against f32 on the CPU, p50 / p99");
    row(table, what, format!("{:.5} / {:.5} mm", shares[0], shares[1]));
    let is_good = shares.iter().zip(BOUNDS_MM).all(|(&off, bound)| off <= bound);
    ensure!(is_good, "the demo's roll-outs are off by {shares:?} mm, {BOUNDS_MM:?} are allowed");
    Ok(())
}

fn predictions(device: Device, horizon: usize, n_frames: usize) -> anyhow::Result<Vec<Prediction>> {
    let model = Model::load(Path::new("models/small.safetensors"))?;
    let config = PredictorConfig { horizon, device, ..PredictorConfig::default() };
    let mut predictor = Predictor::new(model, config)?;
    let recording = Recording::open(Path::new("data/demo_tumble"), FramesConfig::default())?;
    predictor.set_robot(&recording.robot_description()?.unwrap_or_default(), "world")?;
    let mut predictions = Vec::new();
    recording.play(|frame, _| -> forecloud::Result<()> {
        if predictions.len() < n_frames {
            predictions.extend(predictor.step(&frame)?.cloned());
        }
        Ok(())
    })?;
    Ok(predictions)
}
