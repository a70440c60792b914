//! Recordings read into data sets: each once, several at a time, in the order of their paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::dataset::Dataset;
use super::episode::Episode;
use super::skipped::Skipped;
use crate::recording::Recording;
use crate::{Error, Result};

/// Recordings that are read side by side: more than these are never held besides those kept.
const BLOCK: usize = 32;

/// A data set, and which recordings are for it.
pub struct Intake<'a> {
    /// Their split.
    pub split: &'a str,
    /// How many at most; the first ones are taken.
    pub max_recordings: Option<usize>,
    /// Where they go.
    pub data: &'a mut Dataset,
}

/// Recordings that are in no data set, and why.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Of other splits: how many of each.
    pub other_splits: BTreeMap<String, usize>,
    /// Recordings without truth.
    pub n_without_truth: usize,
    /// More than were asked for.
    pub n_surplus: usize,
    /// Those that can't be used, and why.
    pub failed: Vec<(PathBuf, Error)>,
}

/// What one recording is.
enum Outcome {
    /// For the intake of this index.
    Read(usize, Box<(Episode, Skipped)>),
    OtherSplit(String),
    WithoutTruth,
    Surplus,
}

/// Folders below `folder` that hold a recording, sorted; `folder` itself if it is one.
///
/// # Errors
/// [`Error::Io`] if the folder can't be read.
pub fn recordings_in(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.join("metadata.yaml").is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let io = |cause| Error::Io { path: folder.to_owned(), cause };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.join("metadata.yaml").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the recordings at `paths`, each into the intake of its split, in the order of the paths
/// on any number of threads; `progress` is called after each.
///
/// A recording whose split nobody takes costs little more than its index.
pub fn read_recordings(
    paths: &[PathBuf],
    intakes: &mut [Intake],
    progress: impl Fn() + Sync,
) -> LeftOut {
    let mut left_out = LeftOut::default();
    for block in paths.chunks(BLOCK) {
        let shared: &[Intake] = intakes;
        let read = |path: &PathBuf| {
            let outcome = read_one(path, shared);
            progress();
            outcome
        };
        let outcomes: Vec<Result<Outcome>> = block.par_iter().map(read).collect();
        for (path, outcome) in block.iter().zip(outcomes) {
            match outcome {
                // The block may have filled it.
                Ok(Outcome::Read(index, _)) if intakes[index].is_full() => left_out.n_surplus += 1,
                Ok(Outcome::Read(index, read)) => intakes[index].data.push(*read),
                Ok(Outcome::OtherSplit(split)) => {
                    *left_out.other_splits.entry(split).or_default() += 1;
                }
                Ok(Outcome::WithoutTruth) => left_out.n_without_truth += 1,
                Ok(Outcome::Surplus) => left_out.n_surplus += 1,
                Err(error) => left_out.failed.push((path.clone(), error)),
            }
        }
    }
    left_out
}

fn read_one(path: &Path, intakes: &[Intake]) -> Result<Outcome> {
    // Intakes differ in what becomes of frames, not in how these are made.
    let Some(first) = intakes.first() else { return Ok(Outcome::Surplus) };
    let (mut found, mut split) = (None, None);
    let recording = Recording::open_if(path, first.data.frames().clone(), |truth| {
        split = truth.map(|truth| truth.split.clone());
        found = intakes.iter().position(|intake| split.as_deref() == Some(intake.split));
        found.is_some_and(|index| !intakes[index].is_full())
    })?;
    Ok(match (recording, found, split) {
        (Some(recording), Some(index), _) => {
            Outcome::Read(index, Box::new(intakes[index].data.read(&recording)?))
        }
        (_, _, None) => Outcome::WithoutTruth,
        (_, None, Some(split)) => Outcome::OtherSplit(split),
        (None, Some(_), _) => Outcome::Surplus,
    })
}

impl Intake<'_> {
    fn is_full(&self) -> bool {
        self.max_recordings.is_some_and(|max| self.data.n_recordings() >= max)
    }
}
