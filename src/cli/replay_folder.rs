//! The folder of `forecloud replay --out`: the page and the files beside it, by fixed names.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use forecloud::config::PredictorConfig;
use forecloud::eval::page::{MARK, MAX_SCENE_BYTES};
use forecloud::eval::{MostActive, Page, Recorder, Replayed, Report, Scenes, Setting, csv};
use forecloud::model::Model;

const PAGE: &str = "report.html";
const JSON: &str = "report.json";
const ERRORS: &str = "errors.csv";
const HINDSIGHT: &str = "hindsight.csv";
const PICTURE: &str = "picture.png";
const PREDICTIONS: &str = "predictions";

/// Collects what goes into the folder while recordings are played.
pub struct Folder {
    path: PathBuf,
    model: Model,
    world_frame: String,
    scenes: Scenes,
    n_bags: usize,
    n_ended: usize,
    recorder: Option<Recorder>,
    /// Files written so far: name, and what it is.
    files: Vec<(String, String)>,
    failure: Option<anyhow::Error>,
}

impl Folder {
    /// Makes the folder, or takes one that an earlier replay made: its files are removed.
    pub fn create(
        path: &Path,
        (model, config): (&Model, &PredictorConfig),
        world_frame: &str,
        n_bags: usize,
    ) -> Result<Self> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let ours = ours(path)?;
        if !ours.is_empty() && !is_page(&path.join(PAGE)) {
            bail!(
                "{} has {}, which no replay wrote: choose another folder for --out",
                path.display(),
                ours.join(", ")
            );
        }
        for name in ours {
            let file = path.join(&name);
            std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
        }
        // Also tells that the folder is ours if this ends early.
        let waiting = format!(
            "<!doctype html>{MARK}<title>Unfinished</title>This replay is under \
                               way, or was ended before it was done.\n"
        );
        write(&path.join(PAGE), waiting.as_bytes())?;
        let setting = Setting {
            step_secs: model.config.step_secs,
            horizon: config.horizon,
            tolerance_secs: config.history_tolerance_secs,
            workspace: config.workspace_of(&model.config),
            budget_bytes: MAX_SCENE_BYTES,
        };
        Ok(Self {
            path: path.to_owned(),
            model: model.clone(),
            world_frame: world_frame.to_owned(),
            scenes: Scenes::new(setting),
            n_bags,
            n_ended: 0,
            recorder: None,
            files: Vec::new(),
            failure: None,
        })
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
            let file = self.path.join(self.predictions());
            self.recorder = Some(Recorder::create(&file, &self.model, &self.world_frame)?);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.add(prediction)?;
        }
        Ok(())
    }

    /// Name of the predictions of the recording at hand.
    fn predictions(&self) -> String {
        match self.n_bags {
            1 => format!("{PREDICTIONS}.mcap"),
            _ => format!("{PREDICTIONS}_{}.mcap", self.n_ended + 1),
        }
    }

    /// Ends the recording at hand.
    pub fn end_bag(&mut self, bag: &Path) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure.context("cannot write what was predicted"));
        }
        self.scenes.end_recording()?;
        if let Some(recorder) = self.recorder.take() {
            recorder.finish()?;
            let bag = bag.file_name().unwrap_or(bag.as_os_str()).to_string_lossy();
            let what = format!("predictions of {bag}, as the node publishes them");
            self.files.push((self.predictions(), what));
        }
        self.n_ended += 1;
        Ok(())
    }

    /// Writes all that is left, the page last, and says what was written.
    pub fn finish(mut self, report: &Report, most_active: &MostActive) -> Result<()> {
        let mut files = vec![(JSON.to_owned(), "all figures, as --json prints them".to_owned())];
        write(&self.path.join(JSON), (serde_json::to_string_pretty(report)? + "\n").as_bytes())?;
        if !report.errors.is_empty() {
            let what = "the errors, a row each method, class, task and step";
            files.push((ERRORS.into(), what.into()));
            write(&self.path.join(ERRORS), csv::errors(report).as_bytes())?;
        }
        if let Some(text) = csv::hindsight(report) {
            let what = "what was held against what was seen later, a row each method, region and \
                        step";
            files.push((HINDSIGHT.into(), what.into()));
            write(&self.path.join(HINDSIGHT), text.as_bytes())?;
        }
        if let Some(shot) = most_active.get() {
            shot.save(&self.path.join(PICTURE)).context("cannot save the picture")?;
            files.push((PICTURE.into(), shot.caption()));
        }
        files.append(&mut self.files);
        let page = Page { report, scenes: &self.scenes, files: &files };
        write(&self.path.join(PAGE), page.html().as_bytes())?;
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let folder = self.path.display();
        let beside = match names.len() {
            0..=8 => names.join(", "),
            n => format!("{} and {} more", names[..6].join(", "), n - 6),
        };
        eprintln!("{folder}: {PAGE}, to open in a browser; beside it {beside}");
        Ok(())
    }
}

/// Files in the folder that have the names of ours, in order.
fn ours(folder: &Path) -> Result<Vec<String>> {
    let context = || format!("cannot read the folder {}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let name = entry.with_context(context)?.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(PREDICTIONS).and_then(|rest| rest.strip_suffix(".mcap"));
        let is_number = |text: &str| {
            let digits = text.strip_prefix('_').unwrap_or("x");
            text.is_empty() || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        };
        let is_fixed = [PAGE, JSON, ERRORS, HINDSIGHT, PICTURE].contains(&name.as_str());
        if is_fixed || number.is_some_and(is_number) {
            ensure!(
                folder.join(&name).is_file(),
                "{} is in the way: it is no file",
                folder.join(&name).display()
            );
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a replay wrote this page.
fn is_page(path: &Path) -> bool {
    use std::io::Read;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(1024).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(MARK)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
