//! `forecloud replay`: how good predictions of recordings are.

use anyhow::{Context, Result, bail, ensure};
use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::cloud::Workspace;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_bag::recording::Recording;
use forecloud_bag::shards::{Manifest, Outcome as Came, Shard, ShardFolder, fingerprint};
use forecloud_eval::published::Agreement;
use forecloud_eval::rig_check::MANY_WITHOUT;
use forecloud_eval::{Film, MostActive, Replay, Report};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};

use super::intake::recordings as count;
use super::numbers::{by_option, wrong};
use super::out_folder::OutFolder;
use super::outcome::Outcome;
use super::replay_args::corner;
use super::replay_folder::{self, Folder};
use super::say::{self, name_first, printable, say};
use super::{model_file, threads};

pub use super::replay_args::Args;

/// Prints the report to stdout, progress and warnings to stderr.
pub fn run(args: &Args) -> Result<Outcome> {
    let n_threads = threads::bounded(args.threads.map(usize::from));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
    let pool = pool.build().context("cannot start threads")?;
    if let Some(shard) = args.shard {
        return pool.install(|| replay_shard(args, shard));
    }
    let (report, has_pictures) = pool.install(|| replay(args))?;
    print(&report, args.json)?;
    let outcome = outcome(&report)?;
    Ok(if has_pictures { outcome } else { Outcome::Partial })
}

/// Prints the report to stdout.
pub fn print(report: &Report, json: bool) -> Result<()> {
    let text = match json {
        true => serde_json::to_string_pretty(report)? + "\n",
        false => report.to_string(),
    };
    say::print(&text)
}

/// What a script is told.
pub fn outcome(report: &Report) -> Result<Outcome> {
    let published = report.published.as_ref();
    let agreement = published.map(|published| published.agreement());
    if let (Some(published), Some(Agreement::Different)) = (published, agreement) {
        bail!("the published predictions are not those of replay: {}", published.verdict());
    }
    ensure!(report.n_predicted > 0, "no frame was predicted: {}", report.why_nothing());
    for bag in &report.bags {
        let (without, n) = (bag.n_without_robot, bag.frames.frames);
        if without as f64 > MANY_WITHOUT * n as f64 {
            let why = bag.problems.first().map(|problem| problem.text());
            let why = why.unwrap_or("`forecloud check` tells why".into());
            let told = format!("{without} of {n} frames go without the robot: {why}");
            say(format_args!("warning: {}", name_first(&bag.path, &told)));
        }
    }
    let n_skipped = report.skipped.len();
    let n_empty = report.bags.iter().filter(|bag| bag.n_predicted == 0).count();
    let lacks = usize::from(agreement == Some(Agreement::Partial));
    for (n, what) in [
        (n_skipped, format!("{} skipped", count(n_skipped))),
        (n_empty, format!("{} without a predicted frame", count(n_empty))),
        (lacks, "--predictions lack frames".into()),
    ] {
        if n > 0 {
            say(format_args!("partial result: {what}; see the report"));
        }
    }
    let is_whole = n_skipped + n_empty == 0 && agreement != Some(Agreement::Partial);
    Ok(if is_whole { Outcome::Done } else { Outcome::Partial })
}

/// What recordings are played with, and where results go.
struct Session<'a> {
    args: &'a Args,
    outputs: Outputs,
    model: Model,
    config: PredictorConfig,
    replay: Replay,
    most_active: MostActive,
    film: Option<Film>,
    folder: Option<Folder>,
    /// That of `folder`, from the start; after it, so that it goes last.
    _out: Option<OutFolder>,
}

/// The report, and whether all pictures could be saved.
fn replay(args: &Args) -> Result<(Report, bool)> {
    let (mut session, model_path) = Session::open(args)?;
    for (index, path) in args.bags.iter().enumerate() {
        if let Err(error) = session.play(index, path) {
            let is_begun = session.folder.as_ref().is_some_and(Folder::is_begun);
            // What the folder has of a recording can't be taken back.
            if args.bags.len() == 1 || is_begun {
                return Err(error.context(format!("cannot replay {}", path.display())));
            }
            say(format_args!("skipped: {}: {error:#}", path.display()));
            session.replay.skip(path, format!("{error:#}"));
        }
    }
    session.finish(model_path)
}

/// Replays a share of the recordings, and leaves what comes of each in the folder.
fn replay_shard(args: &Args, shard: Shard) -> Result<Outcome> {
    let (mut session, model_path) = Session::open(args)?;
    let terms = session.replay.terms();
    let manifest = Manifest::new("replay", shard, Some(&model_path), &args.bags, &terms)?;
    let out = args.out.as_deref().context("--shard needs --out")?;
    let folder = ShardFolder::open(out, &session.outputs, manifest)?;
    let recordings = folder.recordings();
    let (mut n_before, mut n_skipped) = (0, 0);
    for (index, path) in recordings.iter().enumerate() {
        let print = fingerprint(path);
        if print.as_ref().is_ok_and(|print| folder.done(path, print).is_some()) {
            n_before += 1;
            continue;
        }
        let played = session.play(index, path);
        let parts = session.replay.take_parts();
        let came = match (played, parts.into_iter().next()) {
            (Ok(()), Some(part)) => Came::Result(serde_json::to_value(part)?),
            (played, _) => {
                let error = played.err().context("nothing was found")?;
                say(format_args!("skipped: {}: {error:#}", path.display()));
                n_skipped += 1;
                Came::Skipped(format!("{error:#}"))
            }
        };
        folder.keep(path, &print.unwrap_or_default(), came)?;
    }
    let (n, out) = (recordings.len(), out.display());
    let n_now = n - n_before - n_skipped;
    say(format_args!(
        "shard {shard}: {} replayed, {n_before} already done, {n_skipped} skipped: \
         {out}, for `forecloud merge` with the other shards",
        count(n_now)
    ));
    Ok(if n_skipped == 0 { Outcome::Done } else { Outcome::Partial })
}

impl<'a> Session<'a> {
    /// Reads and checks all that can be before the work.
    fn open(args: &'a Args) -> Result<(Self, PathBuf)> {
        args.check()?;
        let (model, model_path) = model_file::load(args.model.as_deref())?;
        let (frames, meshes) = (args.topics.config()?, args.topics.meshes());
        let published = args.published(&model)?;
        let mut config = args.config(published.as_ref());
        let by_corners = || args.topics.workspace(model.config.workspace);
        config.workspace = config.workspace.or_else(by_corners);
        // What is wrong after this is wrong with a recording.
        config.validate_for(&model.config).map_err(|error| wrong(by_option(error)))?;
        let own: Vec<&Path> = match args.shard {
            Some(shard) => shard.of(&args.bags)?,
            None => args.bags.iter().map(PathBuf::as_path).collect(),
        };
        for path in own {
            std::fs::metadata(path).with_context(|| format!("cannot replay {}", path.display()))?;
        }
        let video = args.video(&model_path)?;
        let inputs = args.bags.iter().chain(&args.predictions).chain([&model_path]);
        let inputs = inputs.chain(video.as_ref().map(|(_, path)| path));
        let outputs = Outputs::default().protect(inputs);
        if let Some(path) = &args.picture {
            outputs.check(path, Kind::Picture).context("cannot save the picture")?;
        }
        if let Some(path) = args.page() {
            replay_folder::check(path, &outputs)?;
        }
        let out = args.page().map(OutFolder::open).transpose()?;
        let step_secs = model.config.step_secs;
        let most_active = MostActive::new(step_secs, config.horizon, config.history_tolerance_secs);
        let (horizon, tolerance_secs) = (config.horizon, config.history_tolerance_secs);
        let film = video
            .map(|(video, _)| Film::new(video, step_secs, horizon, tolerance_secs, config.seed));
        let replay = Replay::new(model.clone(), config, frames, published);
        let replay =
            replay.ignore_truth(args.no_truth).with_noise(args.noise()?).with_meshes(meshes);
        let folder = None;
        let session =
            Self { args, outputs, model, config, replay, most_active, film, folder, _out: out };
        Ok((session, model_path))
    }

    /// Plays one recording.
    fn play(&mut self, index: usize, path: &Path) -> Result<()> {
        let (args, n_bags) = (self.args, self.args.bags.len());
        let recording = open(path, &self.replay, args)?;
        if let Some(Workspace { min, max }) = self.replay.follow_cameras(&recording)? {
            say(format_args!(
                "{}: workspace {} to {} (m, in '{}'), as the cameras see little in the model's; \
                 --workspace sets another",
                path.display(),
                corner(min),
                corner(max),
                self.replay.frames_config().world_frame
            ));
        }
        self.config = *self.replay.config();
        if let Some(folder) = &mut self.folder {
            folder.set_workspace(self.config.workspace_of(&self.model.config));
        }
        if let Some(out) = args.page().filter(|_| self.folder.is_none()) {
            let world_frame = &self.replay.frames_config().world_frame;
            let made_by = (&self.model, &self.config);
            self.folder = Some(Folder::create(out, &self.outputs, made_by, world_frame, n_bags)?);
        }
        let bar = progress(&recording, index + 1, n_bags);
        let wants_picture = args.picture.is_some() || args.page().is_some();
        let (most_active, folder) = (&mut self.most_active, &mut self.folder);
        let film = &mut self.film;
        let mut watched = Ok(());
        let played = self.replay.add(&recording, |frame| {
            bar.inc(1);
            if wants_picture && watched.is_ok() {
                watched = most_active.watch(frame);
            }
            if let (Some(film), Ok(())) = (film.as_mut(), &watched) {
                watched = film.watch(frame);
            }
            if let Some(folder) = folder {
                folder.watch(frame);
            }
        });
        bar.finish_and_clear();
        played?;
        watched.and_then(|()| most_active.end_recording())?;
        let sheet = self.film.as_mut().and_then(Film::end_recording);
        // Those of its reader were told when it was opened.
        let told = recording.bag().warnings().len();
        let warnings = self.replay.parts().last().map_or(&[][..], |part| &part.bag.warnings);
        warn(path, warnings.get(told..).unwrap_or_default());
        self.folder.as_mut().map_or(Ok(()), |folder| folder.end_bag(path, sheet.as_ref()))
    }

    fn finish(self, model_path: PathBuf) -> Result<(Report, bool)> {
        let (args, report) = (self.args, self.replay.report());
        let n = args.bags.len();
        ensure!(!report.bags.is_empty(), "no recording of {n} can be replayed");
        let mut has_pictures = true;
        if let Some(path) = &args.picture {
            match self.most_active.get() {
                Some(shot) => match shot.save(path, &self.outputs) {
                    Ok(()) => say(format_args!("{}: {}", path.display(), shot.caption())),
                    Err(error) => {
                        say(format_args!("cannot save the picture: {error}"));
                        has_pictures = false;
                    }
                },
                None => say(
                    "no picture: no frame has objects whose points are known over the whole horizon; \
                     take a longer recording or a shorter --horizon",
                ),
            }
        }
        if self.replay.device() != Device::Cpu.to_string() {
            say(format_args!("device: {}", self.replay.device()));
        }
        let video = self.film.as_ref().and_then(Film::report);
        if self.film.is_some() && video.is_none() {
            say("nothing was drawn: no predicted frame has a camera with colour and depth images");
        }
        let report = Report { model_path: Some(model_path), video, ..report };
        if let Some(folder) = self.folder {
            has_pictures &= folder.finish(&report, &self.most_active)?;
        }
        Ok((report, has_pictures))
    }
}

/// Opens the recording at `path`; its warnings are told.
fn open(path: &Path, replay: &Replay, args: &Args) -> Result<Recording> {
    let recording = Recording::open(path, replay.frames_config().clone())
        .map_err(|error| args.topics.with_command(error, "replay"))?;
    warn(path, recording.bag().warnings());
    Ok(recording)
}

fn warn(path: &Path, warnings: &[String]) {
    for warning in warnings {
        say(format_args!("warning: {}", name_first(path, warning)));
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
    bar.set_message(format!("{number}/{n_bags} {}", printable(&name)));
    bar
}
