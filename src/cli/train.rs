//! `forecloud train`: trains a model on a folder of recordings.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use forecloud::model::{Model, ModelConfig};
use forecloud::train::dataset::{Dataset, DatasetConfig, recordings_in};
use forecloud::train::trainer::{RunFiles, TrainConfig, Trainer, Validation};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::layers::{self, LayerArgs};
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
    /// Steps of the optimiser.
    #[arg(long, default_value_t = TrainConfig::default().steps)]
    steps: u64,
    /// Stop behind this step although the schedule goes on (the same command without it resumes).
    #[arg(long, value_name = "STEP")]
    stop_at: Option<u64>,
    /// Start from this model's weights and sizes instead of random weights (fine-tuning).
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["width", "blocks", "particles", "history", "plan_lag"], conflicts_with_all = layers::IDS)]
    from: Option<PathBuf>,
    /// Windows a step.
    #[arg(long, default_value_t = TrainConfig::default().batch)]
    batch: usize,
    /// Largest learning rate.
    #[arg(long, default_value_t = TrainConfig::default().learning_rate)]
    learning_rate: f32,
    /// Lengths of the roll-out, each from a share of the steps on: SHARE:LENGTH,…
    #[arg(long, default_value = "0:1,0.4:2,0.75:4", value_parser = parse_curriculum)]
    curriculum: Curriculum,
    /// Width of the model.
    #[arg(long, default_value_t = ModelConfig::default().width)]
    width: usize,
    /// Blocks of the model.
    #[arg(long, default_value_t = ModelConfig::default().n_blocks)]
    blocks: usize,
    /// Scene particles.
    #[arg(long, default_value_t = ModelConfig::default().n_particles)]
    particles: usize,
    /// History particles.
    #[arg(long, default_value_t = ModelConfig::default().n_history)]
    history: usize,
    /// Seconds by which the robot follows its command late (measure it on yours).
    #[arg(long, default_value_t = ModelConfig::default().plan_lag_secs)]
    plan_lag: f64,
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
    /// Use at most this many training recordings.
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
    layers: LayerArgs,
    #[command(flatten)]
    topics: TopicArgs,
}

/// Steps of the roll-outs that are validated.
const VALIDATION_STEPS: usize = 5;

/// Shares of the steps and roll-out lengths.
#[derive(Debug, Clone)]
struct Curriculum(Vec<(f64, usize)>);

fn parse_curriculum(text: &str) -> Result<Curriculum, String> {
    let stage = |stage: &str| -> Option<(f64, usize)> {
        let (share, length) = stage.split_once(':')?;
        Some((share.trim().parse().ok()?, length.trim().parse().ok()?))
    };
    let stages: Option<Vec<_>> = text.split(',').map(stage).collect();
    let stages = stages.ok_or("expected SHARE:LENGTH,… such as 0:1,0.5:2")?;
    if !stages.is_sorted_by(|a, b| a.0 < b.0) || stages.iter().any(|s| !(1..=20).contains(&s.1)) {
        return Err("shares must ascend, lengths lie in 1..=20".into());
    }
    Ok(Curriculum(stages))
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let start = args.from.as_deref().map(Model::load).transpose()?;
    let model = match &start {
        Some(start) => start.config,
        None => new_model(args)?,
    };
    let config = TrainConfig {
        steps: args.steps,
        batch: args.batch,
        learning_rate: args.learning_rate,
        curriculum: args.curriculum.0.clone(),
        seed: args.seed,
        ..TrainConfig::default()
    };
    model.validate()?;
    let (train, validation) = load(args, model)?;
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
fn new_model(args: &Args) -> anyhow::Result<ModelConfig> {
    let mut model = ModelConfig {
        width: args.width,
        n_blocks: args.blocks,
        n_particles: args.particles,
        n_history: args.history,
        plan_lag_secs: args.plan_lag,
        ..ModelConfig::default()
    };
    args.layers.apply(&mut model)?;
    Ok(model)
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
struct Stop(Arc<AtomicUsize>);

impl Stop {
    fn register() -> std::io::Result<Self> {
        let (stop, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process at once, should the checkpoint hang.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)?;
        }
        Ok(Self(stop))
    }

    fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed) as i32).filter(|&signal| signal != 0)
    }
}

fn load(args: &Args, model: ModelConfig) -> anyhow::Result<(Dataset, Dataset)> {
    let paths = recordings_in(&args.recordings)?;
    ensure!(
        !paths.is_empty(),
        "{}: no recordings; make some with `python -m sim.generate`",
        args.recordings.display()
    );
    let longest = args.curriculum.0.iter().map(|&(_, length)| length).max().unwrap_or(1);
    let config =
        DatasetConfig { max_horizon: longest.max(VALIDATION_STEPS), ..DatasetConfig::default() };
    let frames = args.topics.config()?;
    let mut train = Dataset::new(config, model, frames.clone());
    let mut validation = Dataset::new(config, model, frames);
    let bar = bar(paths.len() as u64, "reading {wide_bar} {pos}/{len} {msg}");
    for path in &paths {
        let full = args.max_recordings.is_some_and(|max| train.n_recordings() >= max);
        let outcome = validation
            .add(path, "val")
            .and_then(|added| if added || full { Ok(added) } else { train.add(path, "train") });
        if let Err(error) = outcome {
            bar.suspend(|| eprintln!("left out: {error}"));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (name, data) in [("training", &train), ("validation", &validation)] {
        let (n, windows, active) = (data.n_recordings(), data.n_windows(), data.n_active());
        eprintln!("{name}: {n} recordings, {windows} windows, objects move in {active}");
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
    let bar = bar(args.steps, "{wide_bar} {pos}/{len} {eta} {msg}");
    bar.set_position(trainer.step_index());
    let (mut loss, mut checked, mut saved) = (f64::NAN, Validation::default(), Instant::now());
    let start = Instant::now();
    let end = args.stop_at.unwrap_or(args.steps).min(args.steps);
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
