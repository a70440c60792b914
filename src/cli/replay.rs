//! `forecloud replay`: how good predictions of recordings are.

use anyhow::{Context, Result, ensure};
use forecloud::backend::Device;
use forecloud::cloud::SensorNoise;
use forecloud::config::PredictorConfig;
use forecloud::eval::{MostActive, Published, Replay, Report};
use forecloud::model::Model;
use forecloud::recording::Recording;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::model_file;
use super::replay_folder::Folder;
use super::topics::{self, TopicArgs};

/// Predict recordings and measure how good that is: by their truth, or by what was seen later.
#[derive(clap::Args)]
#[command(after_help = "\
Errors are mean distances in mm between predicted and true positions after each step, over all
points of all frames; of static points it is the motion predicted for them. Without truth (topics
under /truth) predictions are held against what the cameras saw later: the share of points that they
saw through (wrong), and the Chamfer distance; docs/evaluation.md tells how to read them.

Examples:
  forecloud replay data/demo_tumble
  forecloud replay --out results data/demo_tumble
  forecloud replay --json --horizon 10 push_* > errors.json
  forecloud replay --no-truth data/demo_tumble
  forecloud replay --predictions node.mcap data/demo_tumble
  forecloud replay --cameras front --input points --remap /front/points:=/lidar/points my_bag")]
pub struct Args {
    /// rosbag2 folders or .mcap files
    #[arg(required = true, value_name = "BAG")]
    bags: Vec<PathBuf>,
    /// Model file [default: the shipped models/small.safetensors]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Steps to predict [default: 5, or as published]
    #[arg(long, value_name = "STEPS")]
    horizon: Option<usize>,
    /// Scene particles [default: as the model was trained, or as published]
    #[arg(long, value_name = "N")]
    particles: Option<usize>,
    /// Seed of the particles' draw [default: 0, or as published]
    #[arg(long)]
    seed: Option<u64>,
    /// What to predict on: auto (a GPU where one answers), cpu, cuda or cuda:INDEX
    #[arg(long, default_value_t = Device::default())]
    device: Device,
    /// Threads to predict on [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Compare with the predictions that a node published (one BAG); fails if they differ
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Ignore the truth: measure as where there is none
    #[arg(long)]
    no_truth: bool,
    /// Add noise to the depth images: 1 is a typical camera's (RealSense D435) [default: 0, none]
    #[arg(long, value_name = "STRENGTH", conflicts_with = "predictions")]
    sensor_noise: Option<f32>,
    /// Save a PNG of truth beside prediction, of the frame in which objects move most
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Write a page of the results, to be opened in a browser, and files beside it: tables (CSV),
    /// predictions (MCAP), a picture; the folder is made, or its earlier results are replaced
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    topics: TopicArgs,
}

/// Prints the report to stdout, progress and warnings to stderr.
pub fn run(args: &Args) -> Result<()> {
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(n) = args.threads {
        pool = pool.num_threads(n.into());
    }
    let report = pool.build().context("cannot start threads")?.install(|| replay(args))?;
    let mut stdout = std::io::stdout().lock();
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    };
    // Flushed by hand: what is left to the end of the program fails in silence.
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("standard output")?;
    let equal = report.published.as_ref().is_none_or(|published| published.is_equal());
    ensure!(equal, "the published predictions are not those of replay");
    ensure!(
        report.n_predicted > 0,
        "no frame was predicted: {}",
        report.failures.first().map_or("see above", |failure| &failure.first)
    );
    Ok(())
}

fn replay(args: &Args) -> Result<Report> {
    let (model, model_path) = model_file::load(args.model.as_deref())?;
    let frames = args.topics.config()?;
    let published = published(args, &model)?;
    let config = config(args, published.as_ref());
    // What is wrong behind this is wrong with a recording.
    config.validate_for(&model.config)?;
    for path in &args.bags {
        std::fs::metadata(path).with_context(|| format!("cannot replay {}", path.display()))?;
    }
    let step_secs = model.config.step_secs;
    let mut most_active = MostActive::default();
    let mut folder = None;
    let replay = Replay::new(model.clone(), config, frames, published);
    let mut replay = replay.ignore_truth(args.no_truth).with_noise(noise(args)?);
    for (index, path) in args.bags.iter().enumerate() {
        let n_bags = args.bags.len();
        let told = || format!("cannot replay {}", path.display());
        let skip = |error: anyhow::Error, replay: &mut Replay| {
            if n_bags == 1 {
                return Err(error.context(told()));
            }
            eprintln!("skipped: {}: {error:#}", path.display());
            replay.skip(path, format!("{error:#}"));
            Ok(())
        };
        let recording = match open(path, &replay) {
            Ok(recording) => recording,
            Err(error) => {
                skip(error, &mut replay)?;
                continue;
            }
        };
        if let Some(out) = args.out.as_deref().filter(|_| folder.is_none()) {
            let world_frame = &replay.frames_config().world_frame;
            folder = Some(Folder::create(out, (&model, &config), world_frame, n_bags)?);
        }
        let bar = progress(&recording, index + 1, n_bags);
        let played = replay.add(&recording, |frame| {
            bar.inc(1);
            if args.picture.is_some() || args.out.is_some() {
                most_active.watch(frame, step_secs);
            }
            if let Some(folder) = &mut folder {
                folder.watch(frame);
            }
        });
        bar.finish_and_clear();
        match (played, &mut folder) {
            (Ok(()), Some(folder)) => folder.end_bag(path)?,
            (Ok(()), None) => {}
            // What the folder has of it can't be taken back.
            (Err(error), Some(_)) => return Err(error).with_context(told),
            (Err(error), None) => skip(error.into(), &mut replay)?,
        }
    }
    let report = replay.report();
    ensure!(!report.bags.is_empty(), "none of the {} recordings can be replayed", args.bags.len());
    if let Some(path) = &args.picture {
        match most_active.get() {
            Some(shot) => {
                shot.save(path).context("cannot save the picture")?;
                eprintln!("{}: {}", path.display(), shot.caption());
            }
            None => eprintln!(
                "no picture: in no frame does the truth know objects that move over the whole \
                 horizon; a longer recording or a shorter --horizon has some"
            ),
        }
    }
    if replay.device() != Device::Cpu.to_string() {
        eprintln!("device: {}", replay.device());
    }
    let report = Report { model_path: Some(model_path), ..report };
    if let Some(folder) = folder {
        folder.finish(&report, &most_active)?;
    }
    Ok(report)
}

/// Opens the recording at `path`; its warnings are told.
fn open(path: &Path, replay: &Replay) -> Result<Recording> {
    let recording = Recording::open(path, replay.frames_config().clone())
        .map_err(|error| topics::with_command(error, "forecloud replay"))?;
    for warning in recording.bag().warnings() {
        eprintln!("warning: {}: {warning}", path.display());
    }
    Ok(recording)
}

/// None for a strength of 0.
fn noise(args: &Args) -> Result<Option<SensorNoise>> {
    let Some(strength) = args.sensor_noise else { return Ok(None) };
    let noise = SensorNoise { strength, ..SensorNoise::default() };
    noise.validate().context("--sensor-noise")?;
    Ok((strength > 0.0).then_some(noise))
}

fn published(args: &Args, model: &Model) -> Result<Option<Published>> {
    let Some(path) = &args.predictions else { return Ok(None) };
    ensure!(args.bags.len() == 1, "--predictions belongs to one recording, not to several");
    let published = Published::read(path).context("cannot read the published predictions")?;
    let theirs = published.first().map_or("", |first| &first.model_hash);
    ensure!(
        theirs == model.hash,
        "the node ran model {theirs}, replay would run {}: name the node's with --model",
        model.hash
    );
    Ok(Some(published))
}

/// What the arguments leave open is as published, else the default.
fn config(args: &Args, published: Option<&Published>) -> PredictorConfig {
    let first = published.and_then(Published::first);
    let default = PredictorConfig::default();
    let horizon = published.map(Published::n_steps);
    let n_particles = published.map(Published::n_particles);
    PredictorConfig {
        horizon: args.horizon.or(horizon).unwrap_or(default.horizon),
        n_particles: args.particles.or(n_particles).unwrap_or(default.n_particles),
        seed: args.seed.or(first.map(|first| first.seed)).unwrap_or(default.seed),
        device: args.device,
        ..default
    }
}

/// A bar over the frames; hidden where stderr is no terminal.
fn progress(recording: &Recording, number: usize, n_bags: usize) -> ProgressBar {
    let timing = recording.frames_config().topics.cameras.first().map(|camera| camera.timing());
    let topics = recording.bag().topics().iter();
    let n_frames = topics.filter(|topic| timing == Some(&*topic.name));
    let bar = ProgressBar::new(n_frames.map(|topic| topic.n_messages).sum());
    let template = "{msg} {wide_bar} {pos}/{len} frames, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let name = recording.bag().path().file_name().unwrap_or_default().to_string_lossy();
    bar.set_message(format!("{number}/{n_bags} {name}"));
    bar
}
