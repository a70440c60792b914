//! Particles from images: on the GPU as on the CPU, and how long they take there and here.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use forecloud::engine::backend::{Backend, Device};
use forecloud::engine::model::Model;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{Frame, FramesConfig};
use forecloud::vision::particles::{CpuSampler, ParticleSampler, Particles, Sampling};
use forecloud_bag::recording::Recording;

use crate::{Table, percentiles, row};

/// Particles, and points that motion is estimated from.
const SIZES: [[usize; 2]; 2] = [[1024, 8192], [32_768, 32_768]];

/// Draws from all frames of the demo, with copies, on both.
pub fn compare(n_frames: usize, table: &mut Table) -> anyhow::Result<()> {
    let recording = Recording::open(Path::new("data/demo_tumble"), FramesConfig::default())?;
    let mut frames = Vec::new();
    recording.play(|frame, _| -> forecloud::Result<()> {
        frames.push(frame);
        Ok(())
    })?;
    frames.truncate(n_frames);
    let model = Model::load(Path::new("models/small.safetensors"))?;
    let mut gpu = Backend::new(&model, Device::Cuda(0))?;
    let mut cpu = CpuSampler::default();
    for n in SIZES {
        let (mut on_gpu, mut on_cpu) = (Vec::new(), Vec::new());
        // Memory and graphs are made at the first draw.
        for frame in frames.iter().take(1) {
            draw(&mut cpu, frame, n)?;
            draw(&mut gpu, frame, n)?;
        }
        for frame in &frames {
            let (expected, ms) = draw(&mut cpu, frame, n)?;
            on_cpu.push(ms);
            let (found, ms) = draw(&mut gpu, frame, n)?;
            on_gpu.push(ms);
            let is_alike = expected.iter().zip(&found).all(|(expected, found)| {
                expected.positions == found.positions
                    && expected.colors == found.colors
                    && expected.sources == found.sources
                    && expected.support_m == found.support_m
            });
            ensure!(is_alike, "{n:?} particles of {}: not the CPU's", frame.stamp);
        }
        let what = format!("{} and {} particles of two images, with copies", n[0], n[1]);
        row(table, format!("{what}: on the GPU, p50 / p99"), percentiles(&mut on_gpu));
        row(table, format!("{what}: on the CPU, p50 / p99"), percentiles(&mut on_cpu));
    }
    Ok(())
}

fn draw(
    sampler: &mut dyn ParticleSampler,
    frame: &Frame,
    n: [usize; 2],
) -> anyhow::Result<([Particles; 2], f64)> {
    let [mut first, mut second] = [Particles::default(), Particles::default()];
    let sampling = Sampling {
        seed: 1,
        stamp_ns: frame.stamp.nanos(),
        workspace: Workspace::default(),
        support_stride: 8,
    };
    let start = Instant::now();
    sampler.sample(&frame.cameras, &sampling, [(&mut first, n[0]), (&mut second, n[1])])?;
    Ok(([first, second], start.elapsed().as_secs_f64() * 1e3))
}
