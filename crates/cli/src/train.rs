//! `forecloud train`: trains a model on a folder of recordings.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::engine::model::{Model, ModelConfig};
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_train::config::{Teacher, TrainConfig};
use forecloud_train::files::RunFiles;
use forecloud_train::origin::Origin;
use forecloud_train::pixels::{PixelConfig, Pixels};
use forecloud_train::preset::Preset;
use forecloud_train::trainer::Trainer;
use forecloud_video::VideoModel;

use super::intake::HoldOutArgs;
use super::layers::{self, LayerArgs, SizeArgs, or};
use super::memory;
use super::numbers::{by_option, within};
use super::out_folder::{OutFolder, refused, set_aside};
use super::say::say;
use super::steps::StepArgs;
use super::stop::Stop;
use super::threads;
use super::topics::TopicArgs;
use super::train_data::{Data, data};
use super::train_end::{self, End};
use super::train_loop::{Loop, open_log};

/// Train a model on recordings, simulated or your own.
#[derive(clap::Args)]
#[command(after_help = "\
Recordings are taken from the folder and all folders below it (but hidden ones), as `forecloud replay`
takes them one by one. They say themselves (in /truth/bodies) what they are for: 'train', 'val', or
other splits, which are left out. Those that say nothing are trained on; without any for validation, a
share is held out. Whatever is left out is named, with the reason.

Recordings without truth are taught by hindsight: where their points go is told by the later frames,
forward and backward, body by body, and by the robot's joints; what that is not sure of counts less.
With --video, pixels teach, too: what is drawn of a prediction is held against what was seen.

The run's folder gets model.safetensors, checkpoint.safetensors, train.jsonl (a line for each
validation) and curve.svg. The same command goes on where it was stopped, to the same result; one with
another start model or other recordings is refused. SIGINT (Ctrl-C) and SIGTERM write a checkpoint
first. A run --from a model ends with the errors before and after, and leaves the model before where the
new one is not surely better (--keep).

Examples:
  forecloud train recordings --out runs/first --steps 20000
  forecloud train recordings --out runs/tuned --from models/small.safetensors --steps 2000
  forecloud train my_bags --out runs/mine --from models/small.safetensors --steps 2000 --teacher hindsight
  forecloud train recordings --out runs/messages --steps 20000 --local message_passing")]
pub struct Args {
    /// Folder of recordings, with or without truth (rosbag2 folders, .mcap and .db3 files), or one of them
    pub(super) recordings: PathBuf,
    /// Folder of the run; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(TrainConfig::STEPS),
        help = or("Steps of the optimiser", TrainConfig::default().steps)
    )]
    steps: Option<u64>,
    /// Stop after this step, although the schedule goes on (the same command without it resumes)
    #[arg(long, value_name = "STEP", value_parser = within(TrainConfig::STEPS))]
    pub(super) stop_at: Option<u64>,
    /// Start from this model's weights and sizes instead of random weights (fine-tuning); with
    /// --width, a multiple of its own, from a wider model that predicts the same; with --chunk, more steps
    /// than its own passes have, from one that has learned as much, and has the others to learn
    #[arg(long, value_name = "MODEL", conflicts_with_all = FIXED_BY_START.iter(), conflicts_with_all = layers::IDS)]
    pub(super) from: Option<PathBuf>,
    /// Recordings of what the start model knows and shall not forget, such as simulated ones: every
    /// other window is drawn from them, and the new model is only left if its errors on those held out of
    /// them have grown by at most 5 %
    #[arg(long, value_name = "DIR")]
    pub(super) remember: Option<PathBuf>,
    /// Which model is left at the end of a run that starts from one of the same sizes. `better`: the one
    /// before, unless the new one is surely better on the held-out recordings (then the new one is kept
    /// beside it, as tried.safetensors). `new`: the new one
    #[arg(long, default_value = "better", value_parser = PossibleValuesParser::new(["better", "new"]), requires = "from")]
    keep: String,
    /// Model and training as these named settings have them; sizes, steps, batch, rate and
    /// curriculum can still be given. `paper`: the GRF Interlacer of GRF masking (ICLR 2025, appendix
    /// C.3): one step a pass, told places, colours, times and the robot's particles alone, with 32,768
    /// particles per time step; it does not tell how sure it is
    #[arg(long, default_value = "default", value_parser = PossibleValuesParser::new(Preset::ALL.map(|(name, _)| name)), conflicts_with_all = layers::IDS, conflicts_with = "from")]
    preset: String,
    /// What tells where points go. `truth`: the truth of simulated recordings; others are left out.
    /// `hindsight`: what later frames of a recording show, of any recording; truth is not looked at.
    /// `auto`: truth where there is one, hindsight elsewhere. `video`: what the cameras saw later, as
    /// pixels (--video) and nothing else; hindsight then chooses windows and measures
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(Teacher::ALL.map(|(name, _)| name)))]
    pub(super) teacher: String,
    /// Encoder and renderer of a `forecloud train-video` run: pictures are drawn of where particles go
    /// and held against what the cameras saw then, which teaches beside what else teaches. Pictures lie
    /// on the disk of --out while it runs: 130 kB a camera and 0.1 s, 5 GB an hour
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,
    #[arg(
        long,
        value_name = "WEIGHT",
        requires = "video",
        value_parser = within(1e-6..=1e6f32),
        help = or("Weight of the pixels' loss beside that of places, in centimetres", PixelConfig::WEIGHT)
    )]
    pixel_weight: Option<f32>,
    #[arg(
        long,
        value_name = "N",
        requires = "video",
        value_parser = within(1..=65_536usize),
        help = or("Rays of each step that is drawn, of three steps of a window", PixelConfig::RAYS)
    )]
    rays: Option<usize>,
    /// Folder that keeps what hindsight told of each recording, found again by its content [default:
    /// `labels` in the run's folder]; several runs may share one, and it may be deleted
    #[arg(long, value_name = "DIR")]
    pub(super) labels: Option<PathBuf>,
    #[arg(
        long,
        value_name = "RATE",
        value_parser = within(TrainConfig::LEARNING_RATE),
        help = or("Largest learning rate", TrainConfig::default().learning_rate)
    )]
    learning_rate: Option<f32>,
    #[command(flatten)]
    steps_of: StepArgs,
    /// Seed of weights, windows and noise
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Steps from one validation to the next
    #[arg(long, value_name = "STEPS", default_value_t = 500, value_parser = within(TrainConfig::STEPS))]
    pub(super) validate_every: u64,
    /// Windows of a validation
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = within(1..=1_000_000usize))]
    pub(super) validation_windows: usize,
    #[command(flatten)]
    pub(super) hold_out: HoldOutArgs,
    /// Seconds from one checkpoint to the next: at most so much is lost if the power fails
    #[arg(long, value_name = "SECS", default_value_t = 60.0, value_parser = within(0.0..=86_400.0))]
    pub(super) checkpoint_secs: f64,
    /// Use at most this many training recordings, spread over the folder
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    pub(super) max_recordings: Option<usize>,
    /// Compute activations again in the backward pass instead of keeping them: a fraction of the
    /// memory, 1.1 to 1.3 times the time, the same model to the bit. A run may go on with or without
    #[arg(long)]
    pub(super) recompute: bool,
    /// Threads to train on [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    sizes: SizeArgs,
    #[command(flatten)]
    layers: LayerArgs,
    #[command(flatten)]
    pub(super) topics: TopicArgs,
}

/// Names of the sizes that a start model has and keeps.
const FIXED_BY_START: &[&str] = layers::SIZE_IDS.split_at(layers::N_GROWING).1;

/// Steps of the roll-outs that are validated.
pub const VALIDATION_STEPS: usize = 5;

/// What is said where a run can't go on, before the reason.
pub(super) const CANT_GO_ON: &str = "can't go on with the run in this folder";

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| train(args))
}

fn train(args: &Args) -> Result<()> {
    let start = Start::of(args)?;
    let mut origin = origin(args, &start);
    let Start { before, model, has_grown, .. } = start;
    let mut config = train_config(args, &model)?;
    let second_looks = config.second_looks;
    let video = video(args, &mut config)?;
    if config.second_looks < second_looks {
        say(
            "note: pixels teach (--video), so no window begins where the model's own first pass has led",
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
    let stop = Stop::register().context("signal handlers")?;
    let end = args.stop_at.unwrap_or(u64::MAX).min(trainer.config().steps);
    let settings = Loop {
        files: &files,
        end,
        validate_every: args.validate_every,
        validation_windows: args.validation_windows,
        validation_steps: n_steps,
        checkpoint_secs: args.checkpoint_secs,
        stop: &stop,
    };
    let log = open_log(&files.log, trainer.step_index());
    let mut log = log.with_context(|| files.log.display().to_string())?;
    settings.run(&mut trainer, [&train, &validation], &mut log)?;
    let curve = train_end::draw(&files);
    if let Some(signal) = stop.signal() {
        let (step, checkpoint) = (trainer.step_index(), files.checkpoint.display());
        say(format_args!("stopped at step {step}: {checkpoint}; the same command goes on"));
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
    end.tell(&trainer, &validation, (args.validation_windows, n_steps))
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
        // Not clap's to say: it waives the rule where sizes are given, with which --from can't be.
        ensure!(
            args.keep != "new" || args.from.is_some(),
            "--keep: only a run that starts --from a model has one before to keep or to replace"
        );
        let file = match &args.from {
            Some(path) => Some(Model::load(path).context("--from")?),
            None => None,
        };
        let of_file = file.as_ref().map(|file| (file.config, file.hash.clone()));
        let before = file.map(|file| args.sizes.grow(file, args.seed)).transpose()?;
        let model = match &before {
            Some(before) => before.config,
            None => new_model(args)?,
        };
        model.validate().map_err(by_option)?;
        let has_grown = of_file.as_ref().is_some_and(|(config, _)| *config != model);
        Ok(Self { before, hash: of_file.map(|(_, hash)| hash), model, has_grown })
    }
}

/// What the options say of what a run is begun from; the recordings are not known yet.
pub(super) fn origin(args: &Args, start: &Start) -> Origin {
    let from = start.hash.as_ref().map_or("random weights".into(), |hash| format!("model {hash}"));
    let told = [("--from", from), ("--teacher", args.teacher.clone())].into_iter();
    let told = told.chain(args.hold_out.told()).chain(args.topics.told());
    let settings = told.map(|(option, value)| (option.to_owned(), value)).collect();
    Origin { settings, ..Origin::default() }
}

/// The configuration that the options ask for.
fn preset(args: &Args) -> Result<Preset> {
    let found = Preset::ALL.into_iter().find(|(name, _)| *name == args.preset);
    Ok(found.context("unknown --preset")?.1)
}

fn new_model(args: &Args) -> Result<ModelConfig> {
    let preset = preset(args)?;
    let mut model = preset.model();
    args.sizes.apply(&mut model);
    if preset == Preset::Default {
        args.layers.apply(&mut model)?;
    }
    Ok(model)
}

pub(super) fn train_config(args: &Args, model: &ModelConfig) -> Result<TrainConfig> {
    let mut config = preset(args)?.train();
    args.steps_of.apply(&mut config, model);
    config.steps = args.steps.unwrap_or(config.steps);
    config.learning_rate = args.learning_rate.unwrap_or(config.learning_rate);
    config.seed = args.seed;
    config.validate().map_err(by_option)?;
    Ok(config)
}

/// Encoder and renderer, where pixels teach, which `config` tells from then on; it has no second looks
/// then, of which no pictures are.
pub(super) fn video(args: &Args, config: &mut TrainConfig) -> Result<Option<VideoModel>> {
    let Some(path) = &args.video else {
        let needs_video = Teacher::named(&args.teacher) == Some(Teacher::Video);
        ensure!(
            !needs_video,
            "--teacher video: give --video FILE, the video.safetensors of a `forecloud train-video` run"
        );
        return Ok(None);
    };
    let video = VideoModel::load(path).context("--video")?;
    config.pixels = Some(PixelConfig {
        weight: args.pixel_weight.unwrap_or(PixelConfig::WEIGHT),
        rays: args.rays.unwrap_or(PixelConfig::RAYS),
        steps: PixelConfig::STEPS,
        video: video.hash(),
    });
    config.second_looks = 0.0;
    config.validate().map_err(by_option)?;
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
            say(format_args!("{path}: of an earlier run without checkpoint; kept as {kept}"));
        }
    }
    Ok(())
}
