//! How well hindsight tells where points go: labels held against the truth of simulated recordings, by
//! split and task. `motion_error` measures what a predictor knows at the time: the motion before.
//!
//!   cargo run --release --example label_error -- recordings

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use forecloud::base::geometry::distance;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::bag::recordings_below;
use forecloud_bag::recording::{BodyKind, Recording};
use forecloud_train::config::{DatasetConfig, Teacher};
use forecloud_train::dataset::{Dataset, Window};
use forecloud_train::labels::SURE;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Steps after which labels are measured.
const STEPS: [usize; 3] = [1, 5, 10];

/// Prints a row for each split and task.
#[derive(Parser)]
struct Args {
    /// Folder of recordings with truth
    folder: PathBuf,
    /// Windows of each recording at most
    #[arg(long, default_value_t = 20)]
    windows: usize,
    /// Strength of a depth camera's noise on the recordings' clean depth (1: that of a D435)
    #[arg(long, default_value_t = 0.0)]
    sensor_noise: f32,
}

/// Sums over points: error and true motion (mm), and how many; all of them, and those that are sure.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    all: [f64; 3],
    sure: [f64; 3],
    /// Error on points that don't move, sure ones.
    still: [f64; 2],
    /// Points of the robot that are told to be of objects that move, surely, and all points told so.
    mistaken: [f64; 2],
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        let add = |own: &mut [f64], other: &[f64]| {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        };
        add(&mut self.all, &other.all);
        add(&mut self.sure, &other.sure);
        add(&mut self.still, &other.still);
        add(&mut self.mistaken, &other.mistaken);
    }

    fn row(&self) -> String {
        let mean = |[error, moved, n]: [f64; 3]| {
            let n = n.max(1.0);
            format!("{:.1} of {:.0} ({:.2})", error / n, moved / n, error / moved.max(1e-9))
        };
        let share = 100.0 * self.sure[2] / self.all[2].max(1.0);
        let still = self.still[0] / self.still[1].max(1.0);
        let mistaken = 100.0 * self.mistaken[0] / self.mistaken[1].max(1.0);
        let [all, sure] = [self.all, self.sure].map(mean);
        format!("{all} | {share:.0} % | {sure} | {still:.2} | {mistaken:.0} %")
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let noise = SensorNoise { strength: args.sensor_noise, ..SensorNoise::default() };
    let config = DatasetConfig {
        max_horizon: 10,
        teacher: Teacher::Hindsight,
        noise,
        varies_noise: false,
        ..DatasetConfig::default()
    };
    let mut found: BTreeMap<(String, String), [Sums; 3]> = BTreeMap::new();
    let (mut secs, mut n_frames) = (0.0, 0);
    for path in recordings_below(&args.folder)?.recordings {
        let glimpse = Recording::glimpse(&path)?;
        let Some(truth) = glimpse.truth() else { continue };
        let key = (truth.split.clone(), truth.task.clone());
        let mut data = Dataset::new(config, ModelConfig::default(), FramesConfig::default());
        let start = Instant::now();
        data.add(&path, &key.0)?;
        secs += start.elapsed().as_secs_f64();
        n_frames += data.n_windows();
        let sums = found.entry(key).or_default();
        let (mut told, mut truth) = (Window::default(), Window::default());
        let stride = data.n_windows().div_ceil(args.windows).max(1);
        for index in (0..data.n_windows()).step_by(stride) {
            let rng = || ChaCha8Rng::seed_from_u64(index as u64);
            if data.get(index, &mut rng(), 10, &mut told)
                && data.get_true(index, &mut rng(), 10, &mut truth)
            {
                measure(&told, &truth, sums);
            }
        }
    }
    ensure!(!found.is_empty(), "no recording with truth in {}", args.folder.display());
    println!(
        "| split | task | steps | error of the motion, mm (share) | sure | error of these | still, mm | \
         robot, of what is told to move |"
    );
    println!("|{}", " --- |".repeat(8));
    let mut total = [Sums::default(); 3];
    for ((split, task), sums) in &found {
        for (steps, (total, sums)) in STEPS.iter().zip(total.iter_mut().zip(sums)) {
            println!("| {split} | {task} | {steps} | {} |", sums.row());
            total.merge(sums);
        }
    }
    for (steps, sums) in STEPS.iter().zip(&total) {
        println!("| all | all | {steps} | {} |", sums.row());
    }
    println!("{:.1} frames/s, decoding and sampling included", n_frames as f64 / secs);
    Ok(())
}

fn measure(told: &Window, truth: &Window, sums: &mut [Sums; 3]) {
    let start = &told.scene.start.positions;
    for (steps, sums) in STEPS.iter().zip(sums) {
        let h = steps - 1;
        for (i, from) in start.iter().enumerate() {
            let (to, is_sure) = (&truth.targets[h][i], told.weights[h][i] >= SURE);
            let error = 1e3 * f64::from(distance(&told.targets[h][i], to));
            let moved = 1e3 * f64::from(distance(from, to));
            if is_sure && told.moving[h][i] {
                sums.mistaken[0] += f64::from(truth.kinds[i] == BodyKind::Robot);
                sums.mistaken[1] += 1.0;
            }
            match truth.kinds[i] {
                BodyKind::Object if truth.moving[h][i] => {
                    let add = |sums: &mut [f64; 3]| {
                        [error, moved, 1.0].iter().zip(sums).for_each(|(x, sum)| *sum += x);
                    };
                    add(&mut sums.all);
                    if is_sure {
                        add(&mut sums.sure);
                    }
                }
                BodyKind::Static if is_sure => {
                    sums.still[0] += error;
                    sums.still[1] += 1.0;
                }
                _ => {}
            }
        }
    }
}
