//! `forecloud train`: trains a model on a folder of recordings.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::cloud::SensorNoise;
use forecloud::model::{Model, ModelConfig};
use forecloud::train::dataset::{Dataset, DatasetConfig};
use forecloud::train::preset::Preset;
use forecloud::train::reading::{Intake, read_recordings, recordings_in};
use forecloud::train::trainer::{RunFiles, TrainConfig, Trainer, Validation};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::intake::{skipped_lines, spread, tell};
use super::layers::{self, LayerArgs, SizeArgs, or};
use super::steps::StepArgs;
use super::topics::TopicArgs;

/// Train a model on simulated recordings.
///
/// Recordings say themselves (in /truth/bodies) whether they are for training or for validation;
/// test recordings are never touched. The run's folder holds the checkpoint, the model and a log;
/// the same command goes on where it was stopped, to the same result. SIGINT (Ctrl-C) and SIGTERM
/// write a checkpoint first.
///
/// Example: forecloud train recordings --out runs/first --steps 20000
///
/// Other layers, compared on the same data and seed:
/// forecloud train recordings --out runs/messages --steps 20000 --local message_passing
#[derive(clap::Args)]
pub struct Args {
    /// Folder of recordings (rosbag2 folders with truth).
    recordings: PathBuf,
    /// Folder of the run.
    #[arg(long)]
    out: PathBuf,
    #[arg(long, help = or("Steps of the optimiser", TrainConfig::default().steps))]
    steps: Option<u64>,
    /// Stop behind this step although the schedule goes on (the same command without it resumes).
    #[arg(long, value_name = "STEP")]
    stop_at: Option<u64>,
    /// Start from this model's weights and sizes instead of random weights (fine-tuning); with
    /// --width, a multiple of its own, from a wider model that predicts the same.
    #[arg(long, value_name = "MODEL", conflicts_with_all = FIXED_BY_START.iter(), conflicts_with_all = layers::IDS)]
    from: Option<PathBuf>,
    /// Model and training as named settings have them; sizes, steps, batch, rate and curriculum
    /// can still be given. `paper`: the GRF Interlacer of GRF masking (ICLR 2025, appendix C.3), of
    /// 32,768 particles a time step.
    #[arg(long, default_value = "default", value_parser = PossibleValuesParser::new(Preset::ALL.map(|(name, _)| name)), conflicts_with_all = layers::IDS, conflicts_with = "from")]
    preset: String,
    #[arg(long, help = or("Largest learning rate", TrainConfig::default().learning_rate))]
    learning_rate: Option<f32>,
    #[command(flatten)]
    steps_of: StepArgs,
    /// Seed of weights, windows and noise.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps between two validations.
    #[arg(long, default_value_t = 500)]
    validate_every: u64,
    /// Validation windows.
    #[arg(long, default_value_t = 200)]
    validation_windows: usize,
    /// Seconds between two checkpoints: what is lost at most where the power fails.
    #[arg(long, default_value_t = 60.0, value_name = "SECS")]
    checkpoint_secs: f64,
    /// Use at most this many training recordings, spread over the folder.
    #[arg(long)]
    max_recordings: Option<usize>,
    /// Compute activations again in the backward pass instead of keeping them: a fraction of the
    /// memory, 1.1 to 1.3 times the time, the same model to the bit. A run may go on with or without.
    #[arg(long)]
    recompute: bool,
    /// Threads; all cores by default.
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    sizes: SizeArgs,
    #[command(flatten)]
    layers: LayerArgs,
    #[command(flatten)]
    topics: TopicArgs,
}

/// Names of the sizes that a start model has and keeps: all but the width.
const FIXED_BY_START: &[&str] = layers::SIZE_IDS.split_at(1).1;
const _: () = assert!(matches!(layers::SIZE_IDS[0].as_bytes(), b"width"));

/// Steps of the roll-outs that are validated.
pub const VALIDATION_STEPS: usize = 5;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let start = args.from.as_deref().map(Model::load).transpose()?;
    let start = match (start, args.sizes.width) {
        (Some(start), Some(width)) => Some(start.widened(width, args.seed)?),
        (start, _) => start,
    };
    let model = match &start {
        Some(start) => start.config,
        None => new_model(args)?,
    };
    let config = train_config(args)?;
    model.validate()?;
    let (train, validation) = load(args, &config, model)?;
    std::fs::create_dir_all(&args.out).with_context(|| name(&args.out))?;
    let files = RunFiles::new(&args.out);
    let mut trainer = if files.checkpoint.exists() {
        Trainer::resume(&files.checkpoint, &config, &model)
            .context("can't go on with this run; take another --out or the same settings")?
    } else if let Some(start) = start {
        Trainer::fine_tune(config, start)
    } else {
        Trainer::new(config, model)?
    };
    if args.recompute {
        trainer = trainer.recompute();
    }
    let mut log = open_log(&files.log, trainer.step_index()).with_context(|| name(&files.log))?;
    let stopped = Stop::register().context("signal handlers")?;
    train_loop(args, &mut trainer, &train, &validation, &files, &mut log, &stopped)?;
    if let Some(signal) = stopped.signal() {
        let (step, checkpoint) = (trainer.step_index(), files.checkpoint.display());
        let told = "the same command goes on";
        // Ends also where nobody reads it.
        let _ = writeln!(std::io::stderr(), "stopped at step {step}: {checkpoint}; {told}");
        // Ends as the signal ends programs, so that shells and scripts see what happened.
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    let hash = trainer.model()?.hash;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "model: {} ({hash})", files.model.display()).context("standard output")
}

/// The configuration that the options ask for.
fn preset(args: &Args) -> anyhow::Result<Preset> {
    let found = Preset::ALL.into_iter().find(|(name, _)| *name == args.preset);
    Ok(found.context("unknown --preset")?.1)
}

fn new_model(args: &Args) -> anyhow::Result<ModelConfig> {
    let preset = preset(args)?;
    let mut model = preset.model();
    args.sizes.apply(&mut model);
    if preset == Preset::Default {
        args.layers.apply(&mut model)?;
    }
    Ok(model)
}

fn train_config(args: &Args) -> anyhow::Result<TrainConfig> {
    let mut config = preset(args)?.train();
    args.steps_of.apply(&mut config);
    config.steps = args.steps.unwrap_or(config.steps);
    config.learning_rate = args.learning_rate.unwrap_or(config.learning_rate);
    config.seed = args.seed;
    Ok(config)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The log, without lines of steps behind `step`: those are taken again.
fn open_log(path: &Path, step: u64) -> std::io::Result<File> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        text => text?,
    };
    let is_before = |line: &&[u8]| {
        let line = serde_json::from_slice::<serde_json::Value>(line);
        line.is_ok_and(|line| line["step"].as_u64().is_some_and(|at| at <= step))
    };
    let kept: usize =
        text.split_inclusive(|&b| b == b'\n').take_while(is_before).map(<[u8]>::len).sum();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    if kept < text.len() {
        log.set_len(kept as u64)?;
    }
    Ok(log)
}

/// The signal that asked for an end.
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on.
    pub fn register() -> std::io::Result<Self> {
        let (stop, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process at once, should the checkpoint hang.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)?;
        }
        Ok(Self(stop))
    }

    /// The signal that came.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed) as i32).filter(|&signal| signal != 0)
    }
}

fn load(
    args: &Args,
    config: &TrainConfig,
    model: ModelConfig,
) -> anyhow::Result<(Dataset, Dataset)> {
    let mut paths = recordings_in(&args.recordings)?;
    if args.max_recordings.is_some() {
        paths = spread(paths);
    }
    ensure!(
        !paths.is_empty(),
        "{}: no recordings; make some with `python -m sim.generate`",
        args.recordings.display()
    );
    let longest = config.curriculum.iter().map(|&(_, length)| length).max().unwrap_or(1);
    let noise = SensorNoise { strength: config.sensor_noise, ..SensorNoise::default() };
    noise.validate()?;
    let max_horizon = longest.max(VALIDATION_STEPS);
    // Validation is the same for all seeds.
    let fixed =
        DatasetConfig { max_horizon, noise, varies_noise: false, ..DatasetConfig::default() };
    let noise = SensorNoise { seed: args.seed, ..noise };
    let varied = DatasetConfig { noise, varies_noise: true, ..fixed };
    let frames = args.topics.config()?;
    let mut train = Dataset::new(varied, model, frames.clone());
    let mut validation = Dataset::new(fixed, model, frames);
    let bar = bar(paths.len() as u64, "reading {wide_bar} {pos}/{len} {msg}");
    let mut intakes = [
        Intake { split: "train", max_recordings: args.max_recordings, data: &mut train },
        Intake { split: "val", max_recordings: None, data: &mut validation },
    ];
    let left_out = read_recordings(&paths, &mut intakes, || bar.inc(1));
    bar.finish_and_clear();
    tell(&left_out);
    for (name, data) in [("training", &train), ("validation", &validation)] {
        let (n, windows, active) = (data.n_recordings(), data.n_windows(), data.n_active());
        eprintln!("{name}: {n} recordings, {windows} windows, objects move in {active}");
        for line in skipped_lines(data.skipped()) {
            eprintln!("{name}: {line}");
        }
        ensure!(windows > 0, "no {name} recordings: their split is in /truth/bodies");
    }
    Ok((train, validation))
}

fn train_loop(
    args: &Args,
    trainer: &mut Trainer,
    train: &Dataset,
    validation: &Dataset,
    files: &RunFiles,
    log: &mut impl Write,
    stop: &Stop,
) -> anyhow::Result<()> {
    let steps = trainer.config().steps;
    let bar = bar(steps, "{wide_bar} {pos}/{len} {eta} {msg}");
    bar.set_position(trainer.step_index());
    let (mut loss, mut checked, mut saved) = (f64::NAN, Validation::default(), Instant::now());
    let start = Instant::now();
    let end = args.stop_at.unwrap_or(steps).min(steps);
    while trainer.step_index() < end {
        let report = trainer.step(train)?;
        loss = if loss.is_nan() { report.loss_mm } else { 0.99 * loss + 0.01 * report.loss_mm };
        let step = trainer.step_index();
        if step.is_multiple_of(args.validate_every) || step == end {
            checked = trainer.validate(validation, args.validation_windows, VALIDATION_STEPS)?;
            let line = serde_json::json!({
                "step": step, "secs": start.elapsed().as_secs_f64(), "loss_mm": loss,
                "report": report, "validation": checked,
            });
            // In one piece, so that no line is cut in half.
            log.write_all(format!("{line}\n").as_bytes()).with_context(|| name(&files.log))?;
            if !bar.is_hidden() || step == end {
                bar.println(line.to_string());
            }
        }
        let stops = step == end || stop.signal().is_some();
        if stops || saved.elapsed().as_secs_f64() > args.checkpoint_secs {
            // The checkpoint last: what it says is done is not done again.
            trainer.model()?.save(&files.model)?;
            trainer.save(&files.checkpoint)?;
            saved = Instant::now();
        }
        let Validation { moving_1_mm, moving_last_mm, static_1_mm, .. } = checked;
        bar.set_message(format!(
            "loss {loss:.2} mm, validation: moving {moving_1_mm:.1} / {moving_last_mm:.1} mm, \
             static {static_1_mm:.2} mm"
        ));
        bar.set_position(step);
        if stops {
            break;
        }
    }
    bar.finish();
    Ok(())
}

fn bar(len: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}
