//! `forecloud calibrate`: makes a model's word for how sure it is hold.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::Model;
use forecloud::engine::motion_class::MotionClass;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::prediction::Prediction;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::cloud::SensorNoise;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_bag::recording::{Glimpse, Recording};
use forecloud_eval::Replay;
use forecloud_train::calibration::{LEAST_RECORDINGS, Scores};
use forecloud_train::config::{DatasetConfig, Teacher};
use forecloud_train::dataset::Dataset;
use forecloud_train::flow_labels::SURE;
use forecloud_train::hindsight::widen;
use forecloud_train::rig::Rig;

use super::intake::{Recordings, left_out, recordings as told_recordings};
use super::numbers::{by_option, with_default, within, wrong};
use super::rig_lines::rig_lines;
use super::say::{name_first, say};
use super::topics::ReadArgs;
use super::train_loop::bar;
use super::{model_file, threads};

/// Of what hindsight tells, every so many predictions are looked at: those in between err as they do.
const EVERY: usize = 5;

/// Calibrate how sure a model says it is, on recordings that it was not trained on.
#[derive(clap::Args)]
#[command(after_help = "\
Plays the recordings, compares each prediction with the truth, and finds factors such that half of all \
errors are within sigma and 90 % within sigma_90: separately for each step, and for particles on the robot \
(in steps covered by its plan, and in others), resting, moving and flying. Without truth, predictions are \
compared with where later frames show the points (hindsight), as far as that is sure; the factors are \
widened by what that misses. The factors are stored in the model file and used in all predictions. Take \
recordings that the model was not trained on, of the kind that it will see: at least 8, better 50. All \
recordings count the same; one that can't be used is reported and left out.

Exit codes:
  0  calibrated
  1  an error, or too few recordings
  2  wrong arguments

Examples:
  forecloud calibrate other_bags --model runs/first/model.safetensors --out first.safetensors
  forecloud calibrate my_bags --model runs/mine/model.safetensors --out mine.safetensors")]
pub struct Args {
    /// Folder of recordings, or one recording
    recordings: PathBuf,
    /// Model file of `forecloud train` (models of --preset paper have no sigma to calibrate)
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// File for the calibrated model
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[arg(long, help = with_default("Of recordings with truth, use only this split", SPLIT))]
    split: Option<String>,
    /// Source of the true positions. `truth`: recordings without it are left out. `hindsight`: later
    /// frames; truth is ignored. `auto`: truth if there is one, else hindsight
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "truth", "hindsight"]))]
    teacher: String,
    /// Steps to calibrate, from 1 to 100; later ones count as the last
    #[arg(long, value_name = "STEPS", default_value_t = 10, value_parser = within(1..=100usize))]
    horizon: usize,
    /// Replan after this many steps: a divisor of the model's steps per pass (--steps-per-pass of `train`). It is
    /// stored in the model file; half a pass was best for `small` (docs/src/notebook/accuracy.md)
    /// [default: the model's own]
    #[arg(long, value_name = "STEPS")]
    replan_interval: Option<usize>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    threads: Option<usize>,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// The split that is for choosing, not for learning.
const SPLIT: &str = "val";

impl Args {
    /// The split of the recordings with truth.
    fn split(&self) -> &str {
        self.split.as_deref().unwrap_or(SPLIT)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| calibrate(args))
}

fn calibrate(args: &Args) -> Result<()> {
    args.topics.check()?;
    let (model, path) = model_file::load(Some(&args.model))?;
    ensure!(
        model.config.tells_sigma,
        "{}: the model has no sigma, as with --preset paper: train one without that preset",
        path.display()
    );
    let outputs = Outputs::default().protect([&path, &args.recordings]);
    outputs.check(&args.out, Kind::Weights).context("cannot save the model")?;
    // Its own word, not what an earlier calibration made of it.
    let mut config = model.config;
    if let Some(replan_interval) = args.replan_interval {
        config.replan_interval = Some(replan_interval)
            .filter(|&replan_interval| replan_interval != config.steps_per_pass);
    }
    let plain = Model::new(config, model.weights).map_err(|error| wrong(by_option(error)))?;
    let recordings = Recordings::find(&args.recordings, false)?;
    let teacher = Teacher::from_name(&args.teacher).context("unknown --teacher")?;
    must_be_enough(&recordings, args, teacher)?;
    let mut found = Found {
        args,
        plain: &plain,
        frames: args.topics.config()?,
        meshes: args.topics.meshes(),
        scores: Scores::default(),
        rigs: Vec::new(),
        n_with_truth: 0,
    };
    let (mut n_recordings, mut n_in_hindsight, mut n_others, mut n_unusable) = (0, 0, 0, 0);
    let progress = bar(recordings.len() as u64, "{wide_bar} {pos} of {len} recordings");
    let tell = |line: String| progress.suspend(|| say(line));
    let mut proposed = None;
    for (path, error) in recordings.not_looked_into() {
        n_unusable += 1;
        tell(left_out(path, error));
    }
    for path in recordings.paths() {
        progress.inc(1);
        match found.add(path, teacher) {
            Ok(Some(by)) => {
                n_recordings += 1;
                n_in_hindsight += usize::from(by == Teacher::Hindsight);
            }
            Ok(None) => n_others += 1,
            // What is wrong with one is no reason to lose the others.
            Err(error) => {
                n_unusable += 1;
                match error.downcast_ref() {
                    Some(error) => {
                        tell(left_out(path, error));
                        proposed = args.topics.proposal(error, "calibrate").or(proposed);
                    }
                    None => {
                        tell(format!("left out: {}", name_first(path, &format!("{error:#}"))));
                    }
                }
            }
        }
    }
    progress.finish_and_clear();
    let Found { scores, rigs, n_with_truth, .. } = found;
    proposed.into_iter().chain(rig_lines(&rigs)).for_each(say);
    if args.split.is_some() && n_with_truth == 0 {
        say("note: --split has no effect: no recording has truth, which says splits");
    }
    if n_unusable > 0 {
        say(format_args!("{} left out: can't be used", told_recordings(n_unusable)));
    }
    if n_others > 0 {
        say(format_args!(
            "{} of other kinds left out (--split {}, --teacher {})",
            told_recordings(n_others),
            args.split(),
            args.teacher
        ));
    }
    let of_split = || match n_in_hindsight {
        0 => format!("{} of split '{}'", told_recordings(n_recordings), args.split()),
        n => format!("{}, {n} of them by hindsight", told_recordings(n_recordings)),
    };
    let mut calibration = scores.calibrate(args.horizon).with_context(of_split)?;
    widen(&mut calibration, n_in_hindsight as f32 / n_recordings.max(1) as f32);
    for situation in MotionClass::ALL {
        let [half, most] = [0, 1].map(|level| calibration.factor(situation, level, 0));
        let last = args.horizon - 1;
        let [half_last, most_last] = [0, 1].map(|level| calibration.factor(situation, level, last));
        say(format_args!(
            "{:9} half within {half:.2} x sigma after 1 step, {half_last:.2} x after {}; 90 % within \
             {most:.2} x, {most_last:.2} x",
            situation.name(),
            args.horizon
        ));
    }
    let calibrated = plain.calibrated(calibration)?;
    calibrated.save(&args.out)?;
    say(format_args!(
        "{}: model {}, calibrated on {}",
        args.out.display(),
        calibrated.hash,
        of_split()
    ));
    Ok(())
}

/// Whether a recording is of those to calibrate on.
fn is_asked_for(glimpse: &Glimpse, args: &Args, teacher: Teacher) -> bool {
    match glimpse.truth() {
        Some(truth) => truth.split == args.split(),
        None => teacher != Teacher::Truth,
    }
}

/// Refuses too few recordings before any is played; how many can be used is seen only then.
fn must_be_enough(recordings: &Recordings, args: &Args, teacher: Teacher) -> Result<()> {
    // What can't be opened is told where it is played.
    let counts = |path: &&PathBuf| {
        Recording::glimpse(path).map_or(true, |glimpse| is_asked_for(&glimpse, args, teacher))
    };
    let n = recordings.paths().iter().filter(counts).take(LEAST_RECORDINGS).count();
    if n == 0 && args.split.is_some() {
        recordings.must_have_split("--split", args.split())?;
    }
    ensure!(
        n >= LEAST_RECORDINGS,
        "{} of split '{}' (--split), or without truth where --teacher takes them: at least \
         {LEAST_RECORDINGS} are needed",
        told_recordings(n),
        args.split()
    );
    Ok(())
}

/// What was found of the recordings so far.
struct Found<'a> {
    args: &'a Args,
    /// The model without an earlier calibration.
    plain: &'a Model,
    frames: FramesConfig,
    meshes: MeshSearch,
    scores: Scores,
    /// Of recordings that hindsight judges.
    rigs: Vec<Rig>,
    n_with_truth: usize,
}

impl Found<'_> {
    /// Takes the recording, and tells by what it was judged; none if it is not asked for. Nothing is
    /// left of one that fails.
    fn add(&mut self, path: &Path, teacher: Teacher) -> Result<Option<Teacher>> {
        let glimpse = Recording::glimpse(path)?;
        self.n_with_truth += usize::from(glimpse.truth().is_some());
        if !is_asked_for(&glimpse, self.args, teacher) {
            return Ok(None);
        }
        let has_truth = glimpse.truth().is_some() && teacher.takes_truth();
        let by = if has_truth { Teacher::Truth } else { Teacher::Hindsight };
        let recording = glimpse.open(self.frames.clone())?;
        self.scores.next_recording();
        let added = match by {
            Teacher::Truth => self.add_by_truth(&recording),
            _ => self.add_by_hindsight(&recording),
        };
        if added.is_err() {
            self.scores.drop_recording();
        }
        added.map(|()| Some(by))
    }

    /// What plays a recording.
    fn replay(&self, recording: &Recording) -> Result<Replay> {
        let config = PredictorConfig {
            horizon: self.args.horizon,
            robot: self.args.topics.robot(),
            ..PredictorConfig::default()
        };
        let mut replay = Replay::new(self.plain.clone(), config, self.frames.clone(), None)
            .with_meshes(self.meshes.clone());
        replay.follow_cameras(recording)?;
        Ok(replay)
    }

    fn add_by_truth(&mut self, recording: &Recording) -> Result<()> {
        self.replay(recording)?.add(recording, |replayed| {
            if let Some((prediction, truth)) = replayed.prediction.zip(replayed.truth) {
                self.take(prediction, &truth.positions, |_, _| true);
            }
        })?;
        Ok(())
    }

    /// What hindsight tells of a recording: nothing of one whose camera moves.
    fn hindsight(&self, recording: &Recording) -> Result<Dataset> {
        let config = DatasetConfig {
            teacher: Teacher::Hindsight,
            max_horizon: self.args.horizon,
            noise: SensorNoise { strength: 0.0, ..SensorNoise::default() },
            ..DatasetConfig::default()
        };
        let data = Dataset::new(config, self.plain.config, self.frames.clone());
        let mut data = data.with_meshes(self.meshes.clone());
        data.add_recording(recording)?;
        Ok(data)
    }

    fn add_by_hindsight(&mut self, recording: &Recording) -> Result<()> {
        let data = self.hindsight(recording)?;
        self.rigs.extend(data.rigs().cloned());
        let (horizon, mut failure, mut n_seen) = (self.args.horizon, None, 0);
        self.replay(recording)?.ignore_truth(true).add(recording, |replayed| {
            let Some(prediction) = replayed.prediction else { return };
            n_seen += 1;
            // The first one, too: a recording may have few.
            if n_seen % EVERY != 1 {
                return;
            }
            match data.judge(replayed.stamp, &prediction.particles.positions, horizon) {
                Ok(Some(told)) => {
                    let is_sure = |step: usize, i: usize| told.confidences[step][i] >= SURE;
                    self.take(prediction, &told.positions, is_sure);
                }
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        })?;
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Takes the errors of one prediction over what the model said, where `positions` now and after each
    /// step are known: `is_known` tells of a step (from 0) and a particle.
    fn take(
        &mut self,
        prediction: &Prediction,
        positions: &[Vec<Vec3>],
        is_known: impl Fn(usize, usize) -> bool,
    ) {
        let mut at = prediction.particles.positions.clone();
        let steps = prediction.displacements.iter().zip(positions.iter().skip(1));
        for (step, ((moves, there), sigmas)) in steps.zip(&prediction.sigmas[0]).enumerate() {
            for (i, position) in at.iter_mut().enumerate() {
                let squares = (0..3).map(|axis| {
                    position[axis] += moves[i][axis];
                    (position[axis] - there[i][axis]).powi(2)
                });
                let error = squares.sum::<f32>().sqrt();
                if is_known(step, i) {
                    let situation = prediction.situations[i].in_step(step, prediction.n_planned);
                    self.scores.add(situation, step, error / sigmas[i]);
                }
            }
        }
    }
}
