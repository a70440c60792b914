//! The shipped model on the demo, from images to displacements: tensor cores against f32 on the CPU, and how
//! long both take.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::recording::Recording;

use super::{Table, percentiles, row};

/// Steps of a prediction, two passes.
const N_STEPS: usize = 10;
/// Bounds of the difference behind a roll-out (mm): median and p99.
const BOUNDS_MM: [f32; 2] = [0.05, 1.0];

/// Differences of the positions behind all steps, over `n_frames` frames at most.
pub fn compare(n_frames: usize, table: &mut Table) -> anyhow::Result<()> {
    let [(cpu, mut cpu_ms), (gpu, mut gpu_ms)] =
        [predictions(Device::Cpu, n_frames)?, predictions(Device::Cuda(0), n_frames)?];
    for (name, ms) in [("GPU", &mut gpu_ms), ("CPU", &mut cpu_ms)] {
        let what = format!(
            "the demo's two images to {N_STEPS} steps (with the estimate of motion, on the CPU's threads), \
             {name}, p50 / p99"
        );
        row(table, what, if ms.is_empty() { "none".into() } else { percentiles(ms) });
    }
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
        format!("{N_STEPS} steps of the demo, tensor cores against f32 on the CPU, p50 / p99");
    row(table, what, format!("{:.5} / {:.5} mm", shares[0], shares[1]));
    let is_good = shares.iter().zip(BOUNDS_MM).all(|(&off, bound)| off <= bound);
    ensure!(is_good, "the demo's roll-outs are off by {shares:?} mm, {BOUNDS_MM:?} are allowed");
    Ok(())
}

/// Predictions, and the milliseconds that each took.
fn predictions(device: Device, n_frames: usize) -> anyhow::Result<(Vec<Prediction>, Vec<f64>)> {
    let model = Model::load(Path::new("models/small.safetensors"))?;
    let config = PredictorConfig { horizon: N_STEPS, device, ..PredictorConfig::default() };
    let mut predictor = Predictor::new(model, config)?;
    let recording = Recording::open(Path::new("data/demo_tumble"), FramesConfig::default())?;
    predictor.set_robot(&recording.robot_description()?.unwrap_or_default(), "world")?;
    let (mut predictions, mut times) = (Vec::new(), Vec::new());
    recording.play(|frame, _| -> forecloud::Result<()> {
        if predictions.len() < n_frames {
            let start = Instant::now();
            let prediction = predictor.step(&frame)?;
            let ms = start.elapsed().as_secs_f64() * 1e3;
            if let Some(prediction) = prediction {
                times.push(ms);
                predictions.push(prediction.clone());
            }
        }
        Ok(())
    })?;
    Ok((predictions, times))
}
