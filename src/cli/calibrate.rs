//! `forecloud calibrate`: makes a model's word for how sure it is hold.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use forecloud::confidence::Scores;
use forecloud::config::PredictorConfig;
use forecloud::eval::{Replay, Replayed};
use forecloud::model::Model;
use forecloud::novelty::Finding;
use forecloud::outputs::{Kind, Outputs};
use forecloud::recording::Recording;
use forecloud::situation::Situation;

use super::intake::Recordings;
use super::numbers::within;
use super::say::say;
use super::topics::TopicArgs;
use super::train_loop::bar;
use super::{model_file, threads};

/// Calibrate how sure a model says it is, on recordings that it was not trained with.
#[derive(clap::Args)]
#[command(after_help = "\
Plays the recordings, holds each prediction against the truth, and finds factors under which half of all
errors, and nine of ten, are no larger than the model says: apart for each step and for particles that
lie on the robot, rest, move or fly. They go into the model file, and from there into predictions (sigma
and sigma_90). So does what the bodies that move in them are like: predictions of bodies that are unlike
all of it lean on their estimated motion (the node's lean_when_unlike). Take recordings that no weight was
trained with, of the kind that the model will see: at least 8, better 50. Each recording counts as much as
any other.

Example:
  forecloud calibrate recordings --split val --model runs/first/model.safetensors --out calibrated.safetensors")]
pub struct Args {
    /// Folder of recordings with truth, or one of them
    recordings: PathBuf,
    /// Model file, trained with --sigma
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The calibrated model's file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Take recordings of this split alone
    #[arg(long, default_value = "val")]
    split: String,
    /// Steps to calibrate; later ones are taken for the last
    #[arg(long, value_name = "STEPS", default_value_t = 10, value_parser = within(1..=100usize))]
    horizon: usize,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    threads: Option<usize>,
    #[command(flatten)]
    topics: TopicArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| calibrate(args))
}

fn calibrate(args: &Args) -> Result<()> {
    let (model, path) = model_file::load(Some(&args.model))?;
    ensure!(
        model.config.tells_sigma,
        "{}: it tells no sigma to calibrate; train one with --sigma",
        path.display()
    );
    let outputs = Outputs::default().protect([&path, &args.recordings]);
    outputs.check(&args.out, Kind::Weights).context("cannot save the model")?;
    // Its own word, not what an earlier calibration made of it.
    let plain = Model::new(model.config, model.weights)?;
    let recordings = Recordings::find(&args.recordings, false)?;
    let (mut scores, mut finding) = (Scores::default(), Finding::default());
    let mut n_recordings = 0;
    let progress = bar(recordings.len() as u64, "{wide_bar} {pos} of {len} recordings");
    for path in recordings.paths() {
        let glimpse = Recording::glimpse(path)?;
        progress.inc(1);
        if glimpse.truth().is_none_or(|truth| truth.split != args.split) {
            continue;
        }
        let recording = glimpse.open(args.topics.config()?)?;
        scores.next_recording();
        finding.next_recording();
        n_recordings += 1;
        let config = PredictorConfig {
            horizon: args.horizon,
            robot: args.topics.robot,
            ..PredictorConfig::default()
        };
        let mut replay = Replay::new(plain.clone(), config, args.topics.config()?, None)
            .with_meshes(args.topics.meshes()?);
        replay.follow_cameras(&recording)?;
        replay.add(&recording, |replayed| {
            take(replayed, &mut scores);
            if let Some((prediction, truth)) = replayed.prediction.zip(replayed.truth) {
                finding.add(&prediction.seen, &prediction.situations, &truth.positions);
            }
        })?;
    }
    progress.finish_and_clear();
    let of_split = || format!("{n_recordings} recordings of split '{}'", args.split);
    let mut calibration = scores.calibrate(args.horizon).with_context(of_split)?;
    match finding.familiar(args.horizon) {
        Ok(familiar) => calibration.familiar = Some(familiar),
        Err(error) => say(format_args!(
            "warning: {}: {error}; the model does not tell what is unlike all that it knows",
            of_split()
        )),
    }
    for situation in Situation::ALL {
        let [half, most] = [0, 1].map(|level| calibration.factor(situation, level, 0));
        let last = args.horizon - 1;
        let [half_last, most_last] = [0, 1].map(|level| calibration.factor(situation, level, last));
        say(format_args!(
            "{:8} half within {half:.2} x sigma after 1 step, {half_last:.2} x after {}; 90 % within \
             {most:.2} x, {most_last:.2} x",
            situation.name(),
            args.horizon
        ));
    }
    let calibrated = plain.calibrated(calibration)?;
    calibrated.save(&args.out)?;
    say(format_args!(
        "{}: model {}, calibrated on {n_recordings} recordings",
        args.out.display(),
        calibrated.hash
    ));
    Ok(())
}

/// Takes the errors of one prediction over what the model said.
fn take(replayed: &Replayed, scores: &mut Scores) {
    let Some((prediction, truth)) = replayed.prediction.zip(replayed.truth) else { return };
    let mut positions = prediction.particles.positions.clone();
    let steps = prediction.displacements.iter().zip(truth.positions.iter().skip(1));
    for (step, ((moves, there), sigmas)) in steps.zip(&prediction.sigmas[0]).enumerate() {
        for (i, position) in positions.iter_mut().enumerate() {
            let squares = (0..3).map(|axis| {
                position[axis] += moves[i][axis];
                (position[axis] - there[i][axis]).powi(2)
            });
            let error = squares.sum::<f32>().sqrt();
            scores.add(prediction.situations[i], step, error / sigmas[i]);
        }
    }
}
