//! Frames at full speed: whether memory stays flat, and what a step allocates.
//!
//! ```text
//! cargo run --release --example endurance -- 100000
//! ```
//!
//! Feeds generated messages of two small cameras through pairing and prediction, as node and tool
//! do, with a tiny model (64 particles, 144 tokens a step), and fails if memory grows.

#[path = "../crates/cli/tests/faults/memory.rs"]
mod memory;
#[path = "../crates/cli/tests/faults/stream.rs"]
mod stream;

use anyhow::{Context, ensure};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::vision::frames::{Frames, FramesConfig};
use memory::{allocations, resident_bytes};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Growth of resident memory from a tenth of the frames to the last that counts as flat.
const MAX_GROWTH_BYTES: u64 = 4 << 20;
/// Shares of the frames at which memory is measured, in percent.
const MEASURED: [u64; 3] = [10, 50, 100];

/// Allocations and their bytes.
#[derive(Default)]
struct Sum([u64; 2]);

impl Sum {
    /// Adds those of `f`.
    fn of<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let before = allocations();
        let result = f();
        let after = allocations();
        (0..2).for_each(|i| self.0[i] += after[i] - before[i]);
        result
    }

    fn per_frame(&self, n: u64) -> String {
        let [n_allocations, bytes] = self.0.map(|sum| sum as f64 / n as f64);
        format!("{n_allocations:.1} allocations, {:.1} KiB", bytes / 1024.0)
    }
}

fn main() -> anyhow::Result<()> {
    let n: u64 = match std::env::args().nth(1) {
        Some(text) => text.parse().context("number of frames")?,
        None => 100_000,
    };
    ensure!(n >= 100, "{n} frames are too few: at least 100");
    let model = stream::model();
    let n_particles = model.config.n_particles;
    let mut predictor = Predictor::new(model, PredictorConfig::default())?;
    let mut frames = Frames::new(FramesConfig::default());
    for message in stream::start() {
        frames.push_raw(message.topic, &message.bytes);
    }
    predictor.set_robot(frames.robot_description().context("no description")?, "world")?;

    let (mut n_predicted, mut n_steady, mut resident) = (0, 0, Vec::new());
    let (mut pairing, mut predicting) = (Sum::default(), Sum::default());
    let start = Instant::now();
    for i in 0..n {
        let messages = stream::frame(i);
        let is_steady = i >= n / 10;
        let mut ignored = Sum::default();
        let pairing = if is_steady { &mut pairing } else { &mut ignored };
        let made = messages.iter().map(|m| pairing.of(|| frames.push_raw(m.topic, &m.bytes)));
        // All of a frame's messages lie before its last image.
        let frame = made.flatten().last().context("a frame")?;
        let mut ignored = Sum::default();
        let predicting = if is_steady { &mut predicting } else { &mut ignored };
        n_predicted += u64::from(predicting.of(|| predictor.step(&frame))?.is_some());
        n_steady += u64::from(is_steady);
        if let Some(percent) = MEASURED.into_iter().find(|percent| i + 1 == n * percent / 100) {
            let bytes = resident_bytes().context("no /proc/self/status on this system")?;
            println!("{percent:3} %: {:.1} MiB resident", bytes as f64 / f64::from(1 << 20));
            resident.push(bytes);
        }
    }
    let secs = start.elapsed().as_secs_f64();
    println!(
        "{n} frames, {n_predicted} predicted ({n_particles} particles, {} steps each) in {secs:.1} \
         s: {:.0} frames/s\na frame, of all threads: pairing {}; Predictor::step {}\n{:?}",
        predictor.config().horizon,
        n as f64 / secs,
        pairing.per_frame(n_steady),
        predicting.per_frame(n_steady),
        frames.counts(),
    );
    ensure!(n_predicted == n - 1, "all frames but the first have a history");
    ensure!(frames.counts().n_dropped() == 0, "nothing is dropped: {:?}", frames.take_problem());
    let growth = resident[2].saturating_sub(resident[0]);
    ensure!(growth < MAX_GROWTH_BYTES, "resident memory grew by {growth} bytes");
    Ok(())
}
