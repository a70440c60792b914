//! The files of a comparison: its plan, and a folder for each run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::plan::Plan;
use super::run::Run;
use crate::{Error, Result};

/// The folder of a comparison.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn plan_path(&self) -> PathBuf {
        self.0.join("plan.json")
    }

    /// The plan; none if there is none yet.
    pub(super) fn plan(&self) -> Result<Option<Plan>> {
        read_json(&self.plan_path())
    }

    pub(super) fn save_plan(&self, plan: &Plan) -> Result<()> {
        write_json(&self.plan_path(), plan)
    }

    /// The folder of `run`.
    pub(super) fn run(&self, run: &Run) -> PathBuf {
        self.0.join(&run.folder)
    }

    pub(super) fn save_text(&self, name: &str, text: &str) -> Result<()> {
        self.save_bytes(name, text.as_bytes())
    }

    pub(super) fn save_bytes(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.0.join(name), bytes)
    }
}

/// The value in a file; none if there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|cause| Error::Io { path: path.to_owned(), cause })?,
    };
    let value = serde_json::from_slice(&text).map_err(|error| Error::Config {
        key: path.display().to_string(),
        problem: format!("{error}; damaged, or of another version: delete it to do it again"),
    })?;
    Ok(Some(value))
}

/// Writes a file that is all there or not at all, and its folder.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_vec_pretty(value).map_err(|error| Error::Config {
        key: path.display().to_string(),
        problem: format!("can't be written as JSON: {error}"),
    })?;
    write(path, &json)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| Error::Io { path, cause }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io(folder))?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    fs::write(&unfinished, bytes).map_err(io(&unfinished))?;
    fs::rename(&unfinished, path).map_err(io(path))
}
