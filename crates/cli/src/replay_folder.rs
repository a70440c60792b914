//! The folder of `forecloud replay --out`: the page and the files beside it, by fixed names. What an
//! earlier replay left stays until all of this one is there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forecloud::base::whole_file::Passing;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::cloud::Workspace;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_eval::film::Sheet;
use forecloud_eval::page::MAX_SCENE_BYTES;
use forecloud_eval::{MostActive, Page, Recorder, Replayed, Report, Scenes, Setting, csv};

use super::say::say;

const PAGE: &str = "report.html";
const JSON: &str = "report.json";
const ERRORS: &str = "errors.csv";
const HINDSIGHT: &str = "hindsight.csv";
const PICTURE: &str = "picture.png";
const PREDICTIONS: &str = "predictions";
const VIDEO: &str = "video";
const FILM: &str = "film";
const MAX_FILMS: usize = 4;

/// Where files wait in the folder until all are there.
const STAGE: &str = ".forecloud-replay.part";

/// Collects what goes into the folder while recordings are played.
pub struct Folder {
    path: PathBuf,
    stage: Passing,
    outputs: Outputs,
    model: Model,
    world_frame: String,
    scenes: Scenes,
    n_bags: usize,
    n_ended: usize,
    recorder: Option<Recorder>,
    /// Files written so far: name, and what it is.
    files: Vec<(String, String)>,
    /// What each film shows, and its bytes.
    films: Vec<(String, Vec<u8>)>,
    failure: Option<anyhow::Error>,
    /// Whether a picture could not be saved.
    lacks_picture: bool,
}

/// Checks that results may be written to the folder `path`; it is not made yet.
pub fn check(path: &Path, outputs: &Outputs) -> Result<()> {
    outputs.check_folder(path)?;
    for (name, kind) in ours(path)? {
        outputs.check(&path.join(name), kind).context(
            "another's file is in the way of the results: choose another folder for --out",
        )?;
    }
    Ok(())
}

impl Folder {
    /// Takes the folder, which nobody else writes now; what a replay that was killed left there goes.
    pub fn create(
        path: &Path,
        outputs: &Outputs,
        (model, config): (&Model, &PredictorConfig),
        world_frame: &str,
        n_bags: usize,
    ) -> Result<Self> {
        check(path, outputs)?;
        let stage = path.join(STAGE);
        let cannot = || format!("{}: cannot be used", stage.display());
        if std::fs::symlink_metadata(&stage).is_ok() {
            std::fs::remove_dir_all(&stage).with_context(cannot)?;
        }
        let passing = Passing::new(stage.clone());
        std::fs::create_dir(&stage).with_context(cannot)?;
        let setting = Setting {
            step_secs: model.config.step_secs,
            horizon: config.horizon,
            tolerance_secs: config.history_tolerance_secs,
            workspace: config.workspace_of(&model.config),
            budget_bytes: MAX_SCENE_BYTES,
        };
        Ok(Self {
            path: path.to_owned(),
            stage: passing,
            outputs: outputs.clone(),
            model: model.clone(),
            world_frame: world_frame.to_owned(),
            scenes: Scenes::new(setting),
            n_bags,
            n_ended: 0,
            recorder: None,
            files: Vec::new(),
            films: Vec::new(),
            failure: None,
            lacks_picture: false,
        })
    }

    /// The box of the recordings from now on.
    pub fn set_workspace(&mut self, workspace: Workspace) {
        self.scenes.set_workspace(workspace);
    }

    /// Takes one more frame of the recording at hand; a failure is told by [`Folder::end_bag`].
    pub fn watch(&mut self, frame: &Replayed) {
        if self.failure.is_none() {
            self.failure = self.take(frame).err();
        }
    }

    fn take(&mut self, frame: &Replayed) -> Result<()> {
        self.scenes.watch(frame)?;
        let Some(prediction) = frame.prediction else { return Ok(()) };
        if self.recorder.is_none() {
            let file = self.stage.path().join(self.predictions());
            let (outputs, world_frame) = (&self.outputs, &self.world_frame);
            self.recorder = Some(Recorder::create(&file, outputs, &self.model, world_frame)?);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.add(prediction)?;
        }
        Ok(())
    }

    /// Whether something of a recording is in it already.
    pub fn is_begun(&self) -> bool {
        self.recorder.is_some() || self.failure.is_some()
    }

    /// Name of the predictions of the recording at hand.
    fn predictions(&self) -> String {
        self.numbered(PREDICTIONS, "mcap")
    }

    /// Name of a file of the recording at hand.
    fn numbered(&self, name: &str, extension: &str) -> String {
        match self.n_bags {
            1 => format!("{name}.{extension}"),
            _ => format!("{name}_{}.{extension}", self.n_ended + 1),
        }
    }

    /// Ends the recording at hand; `sheet` are pictures of it.
    pub fn end_bag(&mut self, bag: &Path, sheet: Option<&Sheet>) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure.context("cannot write what was predicted"));
        }
        self.scenes.end_recording()?;
        let bag = bag.file_name().unwrap_or(bag.as_os_str()).to_string_lossy();
        if let Some(sheet) = sheet {
            let name = self.numbered(VIDEO, "png");
            let saved = sheet.save(&self.stage.path().join(&name), &self.outputs);
            let what =
                format!("what a camera saw of {bag}, and what was predicted that it would see");
            self.add_picture(saved, name, what);
            let (name, film) = (self.numbered(FILM, "png"), sheet.film(2));
            let saved = self.outputs.write(&self.stage.path().join(&name), Kind::Picture, &film);
            let what = format!("{bag}: seen, predicted, and if nothing moved, at half speed");
            self.add_picture(saved, name, format!("a film of {what}"));
            // More than these the page does not show.
            if self.films.len() < MAX_FILMS {
                self.films.push((what, sheet.film(1)));
            }
        }
        if let Some(recorder) = self.recorder.take() {
            recorder.finish()?;
            let what = format!("predictions of {bag}, as the node publishes them");
            self.files.push((self.predictions(), what));
        }
        self.n_ended += 1;
        Ok(())
    }

    /// A picture that can't be saved is told, and costs nothing else.
    fn add_picture(&mut self, saved: forecloud::Result<()>, name: String, what: String) {
        match saved {
            Ok(()) => self.files.push((name, what)),
            Err(error) => {
                say(format_args!("no {name}: {error}"));
                self.lacks_picture = true;
            }
        }
    }

    /// Writes all that is left, puts it in the place of what was there, the page last, and says what was
    /// written; whether all pictures are there.
    pub fn finish(mut self, report: &Report, most_active: &MostActive) -> Result<bool> {
        let mut files = vec![(JSON.to_owned(), "all figures, as --json prints them".to_owned())];
        let json = serde_json::to_string_pretty(report)? + "\n";
        self.write(JSON, Kind::Json, &json)?;
        if !report.errors.is_empty() {
            let what = "errors, one row per method, class, task and step";
            files.push((ERRORS.into(), what.into()));
            self.write(ERRORS, Kind::Table(csv::ERRORS), &csv::errors(report))?;
        }
        if let Some(text) = csv::hindsight(report) {
            let what = "errors against what was seen later, one row per method, region and \
                        step";
            files.push((HINDSIGHT.into(), what.into()));
            self.write(HINDSIGHT, Kind::Table(csv::HINDSIGHT), &text)?;
        }
        if let Some(shot) = most_active.get() {
            let saved = shot.save(&self.stage.path().join(PICTURE), &self.outputs);
            self.add_picture(saved, PICTURE.into(), shot.caption());
        }
        files.append(&mut self.files);
        let (scenes, films) = (&self.scenes, &self.films[..]);
        let page = Page { report, scenes, films, files: &files };
        self.write(PAGE, Kind::Page, &page.html())?;
        self.publish()?;
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let folder = self.path.display();
        let beside = match names.len() {
            0..=8 => names.join(", "),
            n => format!("{} and {} more", names[..6].join(", "), n - 6),
        };
        say(format_args!("{folder}: {PAGE}, to open in a browser; beside it {beside}"));
        Ok(!self.lacks_picture)
    }

    /// Moves all files to their places; those of earlier replays that have no successor go.
    fn publish(&self) -> Result<()> {
        check(&self.path, &self.outputs)?;
        let (mut new, old) = (ours(self.stage.path())?, ours(&self.path)?);
        new.sort_by_key(|(name, _)| name == PAGE);
        for (name, kind) in old.iter().filter(|old| !new.contains(old)) {
            self.outputs.remove(&self.path.join(name), *kind)?;
        }
        for (name, _) in &new {
            let place = self.path.join(name);
            let moved = std::fs::rename(self.stage.path().join(name), &place);
            moved.with_context(|| place.display().to_string())?;
        }
        Ok(())
    }

    fn write(&self, name: &str, kind: Kind, text: &str) -> Result<()> {
        Ok(self.outputs.write(&self.stage.path().join(name), kind, text.as_bytes())?)
    }
}

/// Files in the folder that have the names of ours, in order, and what they must be; none if there
/// is no folder.
fn ours(folder: &Path) -> Result<Vec<(String, Kind)>> {
    let context = || format!("cannot read the folder {}", folder.display());
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let name = entry.with_context(context)?.file_name().to_string_lossy().into_owned();
        if let Some(kind) = kind(&name) {
            names.push((name, kind));
        }
    }
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(names)
}

/// What a file of this name is; none if no result has it.
fn kind(name: &str) -> Option<Kind> {
    let number = |of: &str, extension: &str| {
        name.strip_prefix(of).and_then(|rest| rest.strip_suffix(extension))
    };
    let is_number = |text: &str| {
        let digits = text.strip_prefix('_').unwrap_or("x");
        text.is_empty() || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    match name {
        PAGE => Some(Kind::Page),
        JSON => Some(Kind::Json),
        ERRORS => Some(Kind::Table(csv::ERRORS)),
        HINDSIGHT => Some(Kind::Table(csv::HINDSIGHT)),
        PICTURE => Some(Kind::Picture),
        _ if [VIDEO, FILM].iter().any(|of| number(of, ".png").is_some_and(is_number)) => {
            Some(Kind::Picture)
        }
        _ => number(PREDICTIONS, ".mcap").is_some_and(is_number).then_some(Kind::Predictions),
    }
}
