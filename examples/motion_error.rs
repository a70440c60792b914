//! How well the motion of particles over the last step is estimated: error against the truth of
//! recordings, by task and split, on object points that move, on those at rest, and on the rest of
//! the scene.
//!
//!   cargo run --release --example motion_error -- --split test recordings

use anyhow::{Context, Result, ensure};
use clap::Parser;
use forecloud::Error;
use forecloud::config::PredictorConfig;
use forecloud::frames::FramesConfig;
use forecloud::graph::random::{draw, normal_pair, uniform};
use forecloud::model::{ModelConfig, Scene};
use forecloud::motion::MotionEstimator;
use forecloud::observation::{Observation, Observer};
use forecloud::particles::{CpuSampler, Particles};
use forecloud::recording::{BodyKind, Recording, Truth, carry};
use forecloud::train::dataset::MOVING_M;
use forecloud::train::reading::recordings_in;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Side of the square blocks of pixels that holes are made of.
const HOLE_PIXELS: u32 = 8;

/// Prints a row for each split and task.
#[derive(Parser)]
struct Args {
    /// Folder of recordings with truth
    folder: PathBuf,
    /// Only recordings of this split
    #[arg(long)]
    split: Option<String>,
    /// Only recordings of this task
    #[arg(long)]
    task: Option<String>,
    /// Recordings of each task and split at most
    #[arg(long, default_value_t = usize::MAX)]
    episodes: usize,
    /// Standard deviation of noise on each coordinate of each point (mm)
    #[arg(long, default_value_t = 0.0)]
    jitter_mm: f32,
    /// Share of blocks of 8 by 8 pixels without depth, other ones in each frame
    #[arg(long, default_value_t = 0.0)]
    holes: f32,
    /// Points of each cloud
    #[arg(long, default_value_t = ModelConfig::default().n_motion)]
    n_motion: usize,
}

/// What was found of one task of one split; lengths in metres.
#[derive(Default)]
struct Findings {
    n_recordings: usize,
    /// Object points that moved: error, true motion, confidence.
    moving: Vec<[f32; 3]>,
    /// Motion of object points at rest, and of static points.
    false_object: Mean,
    false_static: Mean,
    /// Error on points of the robot that moved.
    robot: Mean,
    unknown: Mean,
    frame_ms: Mean,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, x: f32) {
        self.sum += f64::from(x);
        self.count += 1.0;
    }

    fn get(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!((0.0..=1.0).contains(&args.holes), "--holes is a share: 0 to 1");
    let mut found: BTreeMap<(String, String), Findings> = BTreeMap::new();
    for path in recordings_in(&args.folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if args.task.as_ref().is_some_and(|task| !name.starts_with(task.as_str())) {
            continue;
        }
        let recording = Recording::open(&path, FramesConfig::default())?;
        let Some(truth) = recording.truth() else { continue };
        let findings = found.entry((truth.split.clone(), truth.task.clone())).or_default();
        let wanted = args.split.as_ref().is_none_or(|split| *split == truth.split);
        if wanted && findings.n_recordings < args.episodes {
            findings.n_recordings += 1;
            measure(&args, &recording, truth, findings)
                .with_context(|| path.display().to_string())?;
        }
    }
    found.retain(|_, findings| findings.n_recordings > 0);
    ensure!(!found.is_empty(), "no recording with truth in {}", args.folder.display());
    println!(
        "| split | task | recordings | moving points | nothing moves (mm) | error, mean (mm) | \
         median | ratio | unknown | corr. of confidence and error | false motion at rest (mm) | \
         static (mm) | robot (mm) | ms a frame |"
    );
    println!("|{}", " --- |".repeat(14));
    let mut ratios = Vec::new();
    for ((split, task), findings) in &mut found {
        ratios.push(findings.print(split, task));
    }
    println!("mean ratio {:.3}", ratios.iter().sum::<f64>() / ratios.len() as f64);
    Ok(())
}

impl Findings {
    fn print(&mut self, split: &str, task: &str) -> f64 {
        let n = self.moving.len().max(1) as f64;
        let mean = |i: usize| self.moving.iter().map(|m| f64::from(m[i])).sum::<f64>() / n;
        let product = |i: usize, j: usize| {
            let products = self.moving.iter().map(|m| f64::from(m[i]) * f64::from(m[j]));
            products.sum::<f64>() / n - mean(i) * mean(j)
        };
        let correlation = product(0, 2) / (product(0, 0) * product(2, 2)).sqrt().max(1e-12);
        let (error, motion) = (mean(0), mean(1));
        self.moving.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let median = self.moving.get(self.moving.len() / 2).map_or(0.0, |m| m[0]);
        println!(
            "| {split} | {task} | {} | {} | {:.1} | {:.2} | {:.2} | {:.3} | {:.3} | {correlation:.2} | \
             {:.2} | {:.3} | {:.1} | {:.2} |",
            self.n_recordings,
            self.moving.len(),
            1e3 * motion,
            1e3 * error,
            1e3 * median,
            error / motion.max(1e-9),
            self.unknown.get(),
            1e3 * self.false_object.get(),
            1e3 * self.false_static.get(),
            1e3 * self.robot.get(),
            self.frame_ms.get(),
        );
        error / motion.max(1e-9)
    }
}

fn measure(
    args: &Args,
    recording: &Recording,
    truth: &Truth,
    findings: &mut Findings,
) -> Result<()> {
    let model = ModelConfig { n_motion: args.n_motion, ..ModelConfig::default() };
    let mut observer = Observer::new(model, PredictorConfig::default());
    observer.set_robot(&recording.robot_description()?.unwrap_or_default(), "world")?;
    let (mut estimator, mut scene) = (MotionEstimator::default(), Scene::default());
    let (mut last, mut sampler): (Option<Observation>, _) = (None, CpuSampler::default());
    recording.play(|frame, ids| {
        let mut now = Observation::default();
        observer.observe(&frame, model.n_particles, &mut sampler, &mut now)?;
        let clean = now.particles.clone();
        spoil(args, now.stamp.nanos(), &mut now.cloud);
        spoil(args, now.stamp.nanos(), &mut now.particles);
        let before = last.replace(now.clone());
        let (Some(before), Some(ids)) = (before, ids) else { return Ok(()) };
        scene.set_particles(&now.particles, &before.particles, model.n_history);
        scene.kinematic.clear();
        scene.kinematic.extend([before.kinematic.clone(), now.kinematic.clone()]);
        let start = Instant::now();
        let clouds = [&before.cloud, &now.cloud];
        scene.set_motion(&mut estimator, &now.particles, clouds);
        findings.frame_ms.add(start.elapsed().as_secs_f32() * 1e3);
        let poses = [now.stamp, before.stamp].map(|stamp| truth.poses(stamp));
        if let [Some(poses_now), Some(poses_before)] = poses {
            let clean = clean.positions.iter().zip(&clean.sources);
            let clean = clean.filter(|&(_, &source)| !is_hole(args, now.stamp.nanos(), source));
            let motion = |(p, &source): (&[f32; 3], &u32)| {
                let id = ids.id(source);
                let there = carry(*p, id, poses_now, poses_before);
                (truth.kind(id), std::array::from_fn(|axis| p[axis] - there[axis]))
            };
            judge(&scene, clean.map(motion), findings);
        }
        Ok::<(), Error>(())
    })?;
    Ok(())
}

/// Holds estimated motions against the true ones, in the order of the particles.
fn judge(
    scene: &Scene,
    truths: impl Iterator<Item = (BodyKind, [f32; 3])>,
    findings: &mut Findings,
) {
    let estimates = scene.start.velocities.iter().zip(&scene.start.velocity_known);
    for ((estimate, &confidence), (kind, truth)) in estimates.zip(truths) {
        let error = length(&std::array::from_fn(|axis| estimate[axis] - truth[axis]));
        let moves = length(&truth) > MOVING_M;
        match kind {
            BodyKind::Object if moves => {
                findings.moving.push([error, length(&truth), confidence]);
                findings.unknown.add(f32::from(confidence == 0.0));
            }
            BodyKind::Object => findings.false_object.add(error),
            BodyKind::Robot if moves => findings.robot.add(error),
            BodyKind::Robot => {}
            BodyKind::Static => findings.false_static.add(error),
        }
    }
}

/// Adds noise and makes holes, the same for a point in each sample of a frame.
fn spoil(args: &Args, stamp_ns: i64, particles: &mut Particles) {
    let sigma_m = args.jitter_mm * 1e-3;
    let mut kept = Particles::default();
    kept.eyes.clone_from(&particles.eyes);
    kept.support_m = particles.support_m;
    for (i, &source) in particles.sources.iter().enumerate() {
        if is_hole(args, stamp_ns, source) {
            continue;
        }
        let noise = |stream| normal_pair(draw(1, stamp_ns, source.into(), stream));
        let ([x, y], [z, _]) = (noise(0), noise(1));
        let p = particles.positions[i];
        kept.positions.push([p[0] + sigma_m * x, p[1] + sigma_m * y, p[2] + sigma_m * z]);
        kept.colors.push(particles.colors[i]);
        kept.sources.push(source);
    }
    *particles = kept;
}

fn is_hole(args: &Args, stamp_ns: i64, source: u32) -> bool {
    let (camera, pixel) = (source >> 24, source & 0x00ff_ffff);
    // Recordings from simulation are 320 pixels wide; others get other blocks.
    let block = (camera << 24) | (pixel / 320 / HOLE_PIXELS) << 12 | (pixel % 320 / HOLE_PIXELS);
    args.holes > 0.0 && uniform(draw(2, stamp_ns, block.into(), 0)) < args.holes
}

fn length(a: &[f32; 3]) -> f32 {
    a.iter().map(|x| x * x).sum::<f32>().sqrt()
}
