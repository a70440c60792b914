//! `forecloud train-video`: trains what draws predictions as pictures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forecloud::base::end_signal::EndSignal;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_train::origin::Origin;
use forecloud_train::video::{VideoDataset, VideoScore, VideoTrainConfig, VideoTrainer};
use forecloud_video::{Spool, VideoConfig};

use super::encoder::EncoderArgs;
use super::intake::{Recordings, left_out, recordings as count};
use super::numbers::{by_option, with_default, within, wrong};
use super::out_folder::{OutFolder, refused, set_aside};
use super::say::say;
use super::threads;
use super::topics::ReadArgs;
use super::train::CANT_GO_ON;
use super::train_loop::{bar, tell_stop};

/// Train the encoder (U-Net or vision transformer) and renderer (like Point-NeRF) that draw predictions as
/// pictures.
#[derive(clap::Args)]
#[command(after_help = "\
Recordings with colour and depth images are looked for in the folder and in all folders below it. Those of \
split 'train', or of none, are trained on; those of 'val' are validated with. With truth, pictures are also \
drawn of where particles are up to a second later.

The folder gets video.safetensors, for `forecloud replay --render --video` and `forecloud train --video`, \
and checkpoint.safetensors: the same command resumes a stopped run. Ctrl-C (SIGINT), SIGTERM and SIGHUP save a \
checkpoint first. Pictures need disk space in the folder while it runs: 130 kB per camera and 0.2 s.

Exit codes:
  0  trained
  1  an error
  2  wrong arguments

Examples:
  forecloud train-video recordings --out runs/video
  forecloud train-video recordings --out runs/vit --encoder vit --patch-mask toeplitz
  forecloud replay --render --video runs/video/video.safetensors --out results recordings/push_7")]
pub struct Args {
    /// Folder of recordings (rosbag2 folders, .mcap and .db3 files), or one recording
    recordings: PathBuf,
    /// Folder of the run; created if needed
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=100_000_000u64),
        help = with_default("Steps of the optimiser, from 1 to 100,000,000", VideoTrainConfig::default().steps)
    )]
    steps: Option<u64>,
    /// Pause at this step; keep the schedule (the same command without it resumes)
    #[arg(long, value_name = "STEP", value_parser = within(1..=100_000_000u64))]
    stop_at: Option<u64>,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=65_536usize),
        help = with_default("Rays per step, from 1 to 65,536", VideoTrainConfig::default().rays)
    )]
    rays: Option<usize>,
    #[arg(
        long,
        value_name = "RATE",
        value_parser = within(1e-7..=1.0f32),
        help = with_default("Largest learning rate, up to 1", VideoTrainConfig::default().learning_rate)
    )]
    learning_rate: Option<f32>,
    /// Seed of weights, windows and rays
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps between validations
    #[arg(long, value_name = "STEPS", default_value_t = 500, value_parser = within(1..=100_000_000u64))]
    validate_every: u64,
    /// Use at most this many training recordings, spread over the folder
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    max_recordings: Option<usize>,
    /// Ignore all truth except the split: each frame is drawn as its own cameras saw it
    #[arg(long)]
    no_truth: bool,
    /// Threads to train on [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    threads: Option<usize>,
    #[command(flatten)]
    encoder: EncoderArgs,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// Name of the file in the folder.
pub const VIDEO: &str = "video.safetensors";
/// Name of the training's state beside it.
const CHECKPOINT: &str = "checkpoint.safetensors";
/// Recordings that are validated with, at most.
const N_VALIDATED: usize = 8;
/// Seconds from one save to the next: at most so much is lost if the power fails.
const SAVE_SECS: u64 = 60;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| train(args))
}

fn train(args: &Args) -> Result<()> {
    args.topics.check()?;
    args.topics.tell_unused("mesh_paths", "pictures are drawn of what the cameras see alone");
    let default = VideoTrainConfig::default();
    let config = VideoTrainConfig {
        steps: args.steps.unwrap_or(default.steps),
        rays: args.rays.unwrap_or(default.rays),
        learning_rate: args.learning_rate.unwrap_or(default.learning_rate),
        seed: args.seed,
        ignores_truth: args.no_truth,
        ..default
    };
    config.validate().map_err(|error| wrong(by_option(error)))?;
    tell_stop(args.stop_at, config.steps);
    let video = VideoConfig { encoder: args.encoder.kind()?, ..VideoConfig::default() };
    // Before any recording is read.
    video.validate().map_err(|error| wrong(by_option(error)))?;
    let folder = OutFolder::open(&args.out)?;
    let (path, checkpoint) = (args.out.join(VIDEO), args.out.join(CHECKPOINT));
    for path in [&path, &checkpoint] {
        Outputs::default().check(path, Kind::Video).with_context(|| refused(&args.out))?;
    }
    let trainer = match checkpoint.exists() {
        true => VideoTrainer::resume(&checkpoint, config, video).context(CANT_GO_ON)?,
        false => VideoTrainer::new(config, video)?,
    };
    let mut origin = origin(args);
    if let Some(begun) = trainer.origin() {
        begun.must_have_settings(&checkpoint, &origin).context(CANT_GO_ON)?;
    }
    let [training, validation] = load(args, video, &mut origin)?;
    if let Some(begun) = trainer.origin() {
        begun.must_have_recordings(&checkpoint, &origin).context(CANT_GO_ON)?;
    }
    let mut trainer = trainer.with_origin(origin);
    if path.exists() && !checkpoint.exists() {
        let kept = set_aside(&path)?;
        let (path, kept) = (path.display(), kept.display());
        say(format_args!("{path}: from a run without checkpoint; kept as {kept}"));
    }
    let stop = EndSignal::register().context("signal handlers")?;
    let (mut saved, mut secs, mut losses) = (Instant::now(), 0.0, Vec::new());
    let end = args.stop_at.unwrap_or(u64::MAX).min(config.steps);
    let progress = bar(config.steps, "{wide_bar} step {pos} of {len}, {eta} left");
    progress.set_position(trainer.step_index());
    progress.reset_eta();
    while trainer.step_index() < end && stop.signal().is_none() {
        let begun = Instant::now();
        losses.push(trainer.step(&training)?);
        secs += begun.elapsed().as_secs_f64();
        let step = trainer.step_index();
        progress.set_position(step);
        if step % args.validate_every == 0 || step == end {
            let loss = losses.iter().sum::<f32>() / losses.len() as f32;
            let per_step = secs / losses.len() as f64;
            let validated = validated(&trainer, &validation)?;
            progress.suspend(|| {
                say(format_args!(
                    "step {step} of {}: loss {loss:.5}, {per_step:.2} s per step; {validated}",
                    config.steps
                ));
            });
            losses.clear();
            secs = 0.0;
        }
        if saved.elapsed() > Duration::from_secs(SAVE_SECS) {
            trainer.save(&checkpoint)?;
            saved = Instant::now();
        }
    }
    progress.finish_and_clear();
    // The checkpoint last: what it says is done is not done again.
    trainer.model().save(&path)?;
    trainer.save(&checkpoint)?;
    if let Some(signal) = stop.signal() {
        let step = trainer.step_index();
        let checkpoint = checkpoint.display();
        say(format_args!("stopped at step {step}: {checkpoint}; the same command resumes"));
        drop(folder);
        // Ends as the signal ends programs, so that shells and scripts see what happened.
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    let path = path.display();
    say(format_args!(
        "{path}: for `forecloud replay --render --video` and `forecloud train --video`"
    ));
    Ok(())
}

/// How good pictures of the validation's recordings are, in words: of the same time, and one second
/// later.
fn validated(trainer: &VideoTrainer, data: &VideoDataset) -> Result<String> {
    let told = |score: Option<VideoScore>| match score {
        Some(VideoScore { ssim, psnr, depth_mm, n }) => {
            format!("SSIM {ssim:.3}, PSNR {psnr:.1} dB, depth {depth_mm:.0} mm ({n} pictures)")
        }
        None => "nothing to validate with".into(),
    };
    let later = (1.0 / VideoDataset::APART_SECS).round() as usize;
    let [now, then] = [0, later].map(|n_later| data.spread(N_VALIDATED, n_later));
    let (now, then) = (trainer.validate(now)?, trainer.validate(then)?);
    Ok(format!("seen now: {}; 1 s later, by the truth: {}", told(now), told(then)))
}

/// What the options say of what a run is begun from; the recordings are not known yet.
fn origin(args: &Args) -> Origin {
    let told = args.topics.settings().into_iter();
    let settings = told.map(|(option, value)| (option.to_owned(), value)).collect();
    Origin { settings, ..Origin::default() }
}

/// Recordings to train on and to validate with, whose names go into `origin`.
fn load(args: &Args, video: VideoConfig, origin: &mut Origin) -> Result<[VideoDataset; 2]> {
    let recordings = Recordings::find(&args.recordings, true)?;
    recordings.must_not_hold(&args.out)?;
    let frames = args.topics.config()?;
    let empty = || -> Result<VideoDataset> {
        let spool = Spool::new(&args.out).context("pictures are kept in --out while it runs")?;
        let data = VideoDataset::new(video, frames.clone(), spool);
        Ok(data.ignore_truth(args.no_truth))
    };
    let (mut training, mut validation) = (empty()?, empty()?);
    let bar = bar(recordings.len() as u64, "reading {wide_bar} {pos} of {len} recordings");
    let mut proposed = None;
    for path in recordings.paths() {
        bar.inc(1);
        match add(args, path, &mut training, &mut validation) {
            Ok(Some(purpose)) => {
                let name = path.file_name().unwrap_or_default().display().to_string();
                origin.recordings.entry(purpose.into()).or_default().push(name);
            }
            Ok(None) => {}
            Err(error) => {
                bar.suspend(|| say(left_out(path, &error)));
                proposed = args.topics.proposal(&error, "train-video").or(proposed);
            }
        }
    }
    proposed.into_iter().for_each(say);
    bar.finish_and_clear();
    for (data, what) in [(&training, "training"), (&validation, "validation")] {
        data.must_have_kept()?;
        let (n, n_frames) = (data.n_recordings(), data.n_frames());
        say(format_args!("{what}: {}, {n_frames} frames", count(n)));
    }
    ensure!(
        training.n_frames() > 0,
        "no recording to train on: see above what was left out, and why"
    );
    Ok([training, validation])
}

/// Adds a recording to the data that it is for; tells which, if any.
fn add(
    args: &Args,
    path: &Path,
    training: &mut VideoDataset,
    validation: &mut VideoDataset,
) -> forecloud::Result<Option<&'static str>> {
    let is_full = args.max_recordings.is_some_and(|most| training.n_recordings() >= most);
    if !is_full && training.add(path, "train", true)? {
        return Ok(Some("training"));
    }
    let is_validated =
        validation.n_recordings() < N_VALIDATED && validation.add(path, "val", false)?;
    Ok(is_validated.then_some("validation"))
}
