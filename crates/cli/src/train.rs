//! `forecloud train`: trains a model on a folder of recordings.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use forecloud::Error;
use forecloud::base::end_signal::EndSignal;
use forecloud::engine::model::{Model, ModelConfig};
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_train::config::{Teacher, TrainConfig};
use forecloud_train::dataset::Dataset;
use forecloud_train::files::RunFiles;
use forecloud_train::hold_out::HoldOut;
use forecloud_train::origin::Origin;
use forecloud_train::pixels::{PixelConfig, Pixels};
use forecloud_train::preset::Preset;
use forecloud_train::trainer::Trainer;
use forecloud_video::VideoModel;

use super::intake::{self, HoldOutArgs};
use super::memory;
use super::model_config::ModelConfigArgs;
use super::numbers::{by_option, must, with_default, within, wrong};
use super::out_folder::{OutFolder, refused, set_aside};
use super::say::say;
use super::threads;
use super::topics::ReadArgs;
use super::train_data::{Data, data};
use super::train_end::{self, End};
use super::train_loop::{Loop, open_log, tell_stop};

/// Train a model on recordings, simulated or your own.
#[derive(clap::Args)]
#[command(after_help = "\
Recordings are looked for in the folder and in all folders below it, except hidden ones. Each says (in \
/truth/bodies) what it is for: 'train', 'val', or another split, which is left out. Recordings that say \
nothing are trained on; if none is for validation, a share is held out. Everything left out is listed with \
the reason.

Recordings without truth are taught by hindsight: later frames and the robot's joints show where each point \
went, and points that this is unsure of count less. With --video, pixels teach too: pictures drawn of a \
prediction are compared with what the cameras saw.

The run's folder gets model.safetensors, checkpoint.safetensors, train.jsonl (a line for each validation) \
and curve.svg. The same command resumes a stopped run, with the same result; with another start model or \
other recordings it is refused. Ctrl-C (SIGINT), SIGTERM and SIGHUP write a checkpoint first. A run --from a model \
ends with the errors before and after, and keeps the earlier model unless the new one is surely better \
(--keep).

Exit codes:
  0  trained
  1  an error
  2  wrong arguments

Examples:
  forecloud train recordings --out runs/first --steps 20000
  forecloud train recordings --out runs/tuned --from models/small.safetensors --steps 2000
  forecloud train my_bags --out runs/mine --from models/small.safetensors --teacher hindsight")]
pub struct Args {
    /// Folder of recordings, with or without truth (rosbag2 folders, .mcap and .db3 files), or one
    /// recording
    pub(super) recordings: PathBuf,
    /// Folder of the run; created if needed
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(TrainConfig::STEPS),
        help = with_default("Steps of the optimiser, from 1 to 1,000,000,000", TrainConfig::default().steps)
    )]
    steps: Option<u64>,
    /// Pause at this step; keep the schedule (the same command without it resumes)
    #[arg(long, value_name = "STEP", value_parser = within(TrainConfig::STEPS))]
    pub(super) stop_at: Option<u64>,
    /// Start from this model instead of random weights (fine-tuning). Its sizes stay; --width may widen
    /// it without changing its output, and --steps-per-pass lengthens its passes: the new steps are still to be
    /// learned
    #[arg(long, value_name = "MODEL")]
    pub(super) from: Option<PathBuf>,
    /// Recordings of what the start model must not forget, such as simulated ones. Every other window is
    /// drawn from them, and the new model is kept only if its errors on a held-out part of them grow by
    /// at most 5 %
    #[arg(long, value_name = "DIR")]
    pub(super) remember: Option<PathBuf>,
    /// Which model to keep at the end of a run that starts --from another. `better`: the earlier one,
    /// unless the new one is surely better on the held-out recordings (the new one is then saved as
    /// tried.safetensors). `new`: always the new one
    #[arg(long, default_value = "better", value_parser = PossibleValuesParser::new(["better", "new"]), requires = "from")]
    keep: String,
    /// Settings to begin with. `default`: those of the shipped model. `paper`: the GRF Interlacer of
    /// GRF masking (ICLR 2025, appendix C.3), with one step per pass, 32,768 particles per time step,
    /// and no sigma. Other options and --model-config change single settings
    #[arg(long, default_value = "default", value_parser = PossibleValuesParser::new(Preset::ALL.map(|(name, _)| name)), conflicts_with = "from")]
    preset: String,
    /// Source of the training targets. `truth`: that of simulated recordings; recordings without it are
    /// left out. `hindsight`: later frames of each recording; truth is ignored. `auto`: truth if there
    /// is one, else hindsight. `video`: pixels that the cameras saw later (--video), nothing else;
    /// hindsight then only chooses windows and measures
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(Teacher::ALL.map(|(name, _)| name)))]
    pub(super) teacher: String,
    /// Encoder and renderer from `forecloud train-video`: pixels teach as well. Pictures need disk space
    /// in --out while it runs: 130 kB per camera and 0.1 s, 5 GB per hour
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,
    /// Folder that keeps the labels found by hindsight [default: `labels` in the run's folder]. Several
    /// runs may share it, and it may be deleted
    #[arg(long, value_name = "DIR")]
    pub(super) labels: Option<PathBuf>,
    #[arg(
        long,
        value_name = "RATE",
        value_parser = within(TrainConfig::LEARNING_RATE),
        help = with_default("Largest learning rate, up to 1", TrainConfig::default().learning_rate)
    )]
    learning_rate: Option<f32>,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(TrainConfig::BATCH),
        help = with_default("Windows per step, from 1 to 1024", TrainConfig::default().batch)
    )]
    batch: Option<usize>,
    /// Seed of weights, windows and noise
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    hold_out: HoldOutArgs,
    /// Steps between validations
    #[arg(long, value_name = "STEPS", default_value_t = 500, value_parser = within(TrainConfig::STEPS))]
    pub(super) validate_every: u64,
    /// Use at most this many training recordings, spread over the folder
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    pub(super) max_recordings: Option<usize>,
    /// Recompute activations in the backward pass instead of storing them: a fraction of the memory, 1.1
    /// to 1.3 times the time, the same model to the bit. A run may resume with or without it
    #[arg(long)]
    pub(super) recompute: bool,
    /// Threads to train on [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    file: ModelConfigArgs,
    #[arg(long, help = with_default("Width of the model, a multiple of its heads, up to 4096", ModelConfig::default().width))]
    width: Option<usize>,
    #[arg(
        long,
        value_name = "STEPS",
        help = with_default(
            "Steps predicted per pass, from 1 to 20; longer predictions replan after half of a pass, or \
             after all of an odd number of steps",
            ModelConfig::default().steps_per_pass
        )
    )]
    steps_per_pass: Option<usize>,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// Windows of a validation, unless a file says otherwise: errors of 200 windows of one set of
/// recordings repeat to a few per cent.
const VALIDATION_WINDOWS: usize = 200;
/// Seconds from one checkpoint to the next: at most this much is lost if the power fails.
const CHECKPOINT_SECS: f64 = 60.0;

impl Args {
    /// Windows of a validation.
    pub(super) fn validation_windows(&self) -> usize {
        self.file.train().validation_windows.unwrap_or(VALIDATION_WINDOWS)
    }

    /// Seconds from one checkpoint to the next.
    pub(super) fn checkpoint_secs(&self) -> f64 {
        self.file.train().checkpoint_secs.unwrap_or(CHECKPOINT_SECS)
    }

    /// Which recordings are held out, where none is of split 'val'.
    fn held_out(&self) -> HoldOut {
        self.hold_out.rule(self.file.train().hold_out_seed)
    }

    /// Holds recordings out for validation where there are none; returns what there is to tell.
    pub(super) fn hold_out(
        &self,
        train: &mut Dataset,
        validation: &mut Dataset,
    ) -> Result<Option<String>> {
        self.hold_out.apply(self.file.train().hold_out_seed, train, validation)
    }

    /// Whether a file sets the noise of recordings with truth.
    pub(super) fn sets_noise(&self) -> bool {
        self.file.train().sensor_noise.is_some()
    }

    /// Checks all that can be without a file, before any work; tells on stderr what has no effect.
    fn check(&self) -> Result<()> {
        self.topics.check()?;
        if self.labels.is_some() && Teacher::from_name(&self.teacher) == Some(Teacher::Truth) {
            say("note: --labels has no effect: --teacher truth takes none");
        }
        Ok(())
    }
}

/// Steps of the roll-outs that are validated.
pub const VALIDATION_STEPS: usize = 5;

/// What is said where a run can't go on, before the reason.
pub(super) const CANT_GO_ON: &str = "can't resume the run in this folder";

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| train(args))
}

fn train(args: &Args) -> Result<()> {
    args.check()?;
    let start = Start::of(args)?;
    let mut origin = origin(args, &start);
    let Start { before, model, has_grown, .. } = start;
    let mut config = train_config(args, &model)?;
    tell_stop(args.stop_at, config.steps);
    let second_looks = config.second_looks;
    let video = video(args, &mut config)?;
    if config.second_looks < second_looks {
        say(
            "note: pixels teach (--video), so no window begins where the model's own first pass ended",
        );
    }
    memory::must_suffice(&config, &model, args.recompute, 1)?;
    let folder = OutFolder::open(&args.out)?;
    let files = RunFiles::new(&args.out);
    check_files(&args.out, &files, [&args.from, &args.video])?;
    // Before the recordings are read: what does not fit is told at once.
    let mut trainer = trainer(&files, config, model, before.clone())?;
    if let Some(begun) = trainer.origin() {
        begun.must_have_settings(&files.checkpoint, &origin).context(CANT_GO_ON)?;
    }
    if args.recompute {
        trainer = trainer.recompute();
    }
    let pixels = video.map(|video| Pixels::new(video, &args.out)).transpose()?;
    if let Some(pixels) = &pixels {
        trainer = trainer.with_pixels(pixels.clone());
    }
    let data = data(args, trainer.config(), model, pixels)?;
    origin.recordings = data.names();
    if let Some(begun) = trainer.origin() {
        begun.must_have_recordings(&files.checkpoint, &origin).context(CANT_GO_ON)?;
    }
    let mut trainer = trainer.with_origin(origin);
    let Data { train, validation, known, n_steps } = data;
    if !files.checkpoint.exists() {
        keep_earlier(&files)?;
    }
    let stop = EndSignal::register().context("signal handlers")?;
    let end = args.stop_at.unwrap_or(u64::MAX).min(trainer.config().steps);
    let settings = Loop {
        files: &files,
        end,
        validate_every: args.validate_every,
        validation_windows: args.validation_windows(),
        validation_steps: n_steps,
        checkpoint_secs: args.checkpoint_secs(),
        stop: &stop,
    };
    let log = open_log(&files.log, trainer.step_index());
    let mut log = log.with_context(|| files.log.display().to_string())?;
    settings.run(&mut trainer, [&train, &validation], &mut log)?;
    let curve = train_end::draw(&files);
    if let Some(signal) = stop.signal() {
        let (step, checkpoint) = (trainer.step_index(), files.checkpoint.display());
        say(format_args!("stopped at step {step}: {checkpoint}; the same command resumes"));
        // What is kept is not lost for a picture.
        curve.err().into_iter().for_each(|error| say(format_args!("warning: no curve: {error:#}")));
        drop(folder);
        // Ends as the signal ends programs, so that shells and scripts see what happened.
        signal_hook::low_level::emulate_default_handler(signal)?;
        return Ok(());
    }
    let has_curve = curve?;
    let before = before.as_ref();
    // What has grown is no model yet that anybody had.
    let keeps_new = args.keep == "new" || has_grown;
    let known = known.as_ref();
    let end = End { before, known, keeps_new, files: &files, has_curve };
    end.report(&trainer, &validation, (args.validation_windows(), n_steps))
}

/// What a run starts from.
pub(super) struct Start {
    /// The start model, if there is one, grown as the options ask.
    pub(super) before: Option<Model>,
    /// The hash of its file.
    hash: Option<String>,
    /// What is trained.
    pub(super) model: ModelConfig,
    /// Whether it has grown from the model's file.
    has_grown: bool,
}

impl Start {
    pub(super) fn of(args: &Args) -> Result<Self> {
        // Not clap's to say: --preset, which conflicts with --from, would waive the rule.
        let has_start = args.from.is_some();
        must(args.keep != "new" || has_start, || {
            "--keep: only a run that starts --from a model has an earlier one to keep".into()
        })?;
        must(args.remember.is_none() || has_start, || {
            "--remember: only a run that starts --from a model has anything to remember".into()
        })?;
        let told = "\"model\": a run --from a model keeps its settings; leave this out";
        if has_start && args.file.sets_model() {
            return Err(args.file.refused(&told));
        }
        let file = match &args.from {
            Some(path) => Some(Model::load(path).context("--from")?),
            None => None,
        };
        let of_file = file.as_ref().map(|file| (file.config, file.hash.clone()));
        let before = file.map(|file| grow(args, file)).transpose()?;
        let model = match &before {
            Some(before) => before.config,
            None => new_model(args)?,
        };
        let has_grown = of_file.as_ref().is_some_and(|(config, _)| *config != model);
        Ok(Self { before, hash: of_file.map(|(_, hash)| hash), model, has_grown })
    }
}

/// What the options say of what a run is begun from; the recordings are not known yet.
pub(super) fn origin(args: &Args, start: &Start) -> Origin {
    let from = start.hash.as_ref().map_or("random weights".into(), |hash| format!("model {hash}"));
    let told = [("--from", from), ("--teacher", args.teacher.clone())].into_iter();
    let told = told.chain(intake::hold_out_settings(args.held_out())).chain(args.topics.settings());
    let settings = told.map(|(option, value)| (option.to_owned(), value)).collect();
    Origin { settings, ..Origin::default() }
}

/// The configuration that the options ask for.
fn preset(args: &Args) -> Result<Preset> {
    let found = Preset::ALL.into_iter().find(|(name, _)| *name == args.preset);
    Ok(found.context("unknown --preset")?.1)
}

fn new_model(args: &Args) -> Result<ModelConfig> {
    args.file.model(preset(args)?.model(), [args.width, args.steps_per_pass])
}

/// The start model, as large as the options say.
fn grow(args: &Args, start: Model) -> Result<Model> {
    let named = |option: &'static str| {
        move |error: Error| match error {
            Error::Config { problem, .. } => wrong(format!("{option}: {problem}")),
            error => error.into(),
        }
    };
    let wider = match args.width {
        Some(width) => start.widened(width, args.seed).map_err(named("--width"))?,
        None => start,
    };
    match args.steps_per_pass {
        Some(steps_per_pass) => wider.extended(steps_per_pass).map_err(named("--steps-per-pass")),
        None => Ok(wider),
    }
}

pub(super) fn train_config(args: &Args, model: &ModelConfig) -> Result<TrainConfig> {
    let mut config = preset(args)?.train();
    args.file.train().apply(&mut config, model);
    config.batch = args.batch.unwrap_or(config.batch);
    config.steps = args.steps.unwrap_or(config.steps);
    config.learning_rate = args.learning_rate.unwrap_or(config.learning_rate);
    config.seed = args.seed;
    config.validate().map_err(|error| wrong(by_option(error)))?;
    Ok(config)
}

/// Encoder and renderer, where pixels teach, which `config` tells from then on; it has no second looks
/// then, of which no pictures are.
pub(super) fn video(args: &Args, config: &mut TrainConfig) -> Result<Option<VideoModel>> {
    let keys = args.file.train();
    let Some(path) = &args.video else {
        let needs_video = Teacher::from_name(&args.teacher) == Some(Teacher::Video);
        must(!needs_video, || {
            "--teacher video: also give --video FILE, the video.safetensors of a `forecloud train-video` \
             run"
                .into()
        })?;
        if keys.pixel_weight.is_some() || keys.rays.is_some() {
            return Err(args.file.refused(&"train.pixel_weight and train.rays need --video"));
        }
        return Ok(None);
    };
    let video = VideoModel::load(path).context("--video")?;
    config.pixels = Some(PixelConfig {
        weight: keys.pixel_weight.unwrap_or(PixelConfig::WEIGHT),
        rays: keys.rays.unwrap_or(PixelConfig::RAYS),
        steps: PixelConfig::STEPS,
        video: video.hash(),
    });
    config.second_looks = 0.0;
    config.validate().map_err(|error| wrong(by_option(error)))?;
    Ok(Some(video))
}

/// Refuses to replace what Forecloud did not write, and what it starts from.
fn check_files(out: &Path, files: &RunFiles, inputs: [&Option<PathBuf>; 2]) -> Result<()> {
    let outputs = Outputs::default().protect(inputs.into_iter().flatten());
    for (path, kind) in [
        (&files.model, Kind::Weights),
        (&files.tried, Kind::Weights),
        (&files.checkpoint, Kind::Weights),
        (&files.log, Kind::TrainingLog),
        (&files.curve, Kind::Plot),
    ] {
        outputs.check(path, kind).with_context(|| refused(out))?;
    }
    Ok(())
}

/// Goes on from the checkpoint, or starts.
fn trainer(
    files: &RunFiles,
    config: TrainConfig,
    model: ModelConfig,
    start: Option<Model>,
) -> Result<Trainer> {
    Ok(match (files.checkpoint.exists(), start) {
        (true, _) => Trainer::resume(&files.checkpoint, &config, &model).context(CANT_GO_ON)?,
        (false, Some(start)) => Trainer::fine_tune(config, start)?,
        (false, None) => Trainer::new(config, model)?,
    })
}

/// A run without its checkpoint starts anew: what an earlier one left is kept under other names.
fn keep_earlier(files: &RunFiles) -> Result<()> {
    for path in [&files.model, &files.tried, &files.log] {
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
            let kept = set_aside(path)?;
            let (path, kept) = (path.display(), kept.display());
            say(format_args!("{path}: from an earlier run without checkpoint; kept as {kept}"));
        }
    }
    Ok(())
}
