//! Recordings read into data sets: each once, several at a time, in the order of their paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::config::Teacher;
use super::dataset::Dataset;
use super::episode::Episode;
use super::rig::Rig;
use forecloud::{Error, Result};
use forecloud_bag::recording::{Glimpse, Recording};

/// Recordings that are read side by side: more than these are never held besides those kept.
const BLOCK: usize = 32;

/// A data set, and which recordings are for it.
pub struct Intake<'a> {
    /// Their split.
    pub split: &'a str,
    /// Whether recordings whose truth says no split are for it, too.
    pub takes_unsaid: bool,
    /// How many at most; the first ones are taken.
    pub max_recordings: Option<usize>,
    /// Where they go.
    pub data: &'a mut Dataset,
}

/// A recording that is in no data set.
#[derive(Debug)]
pub struct LeftOut {
    /// The recording.
    pub path: PathBuf,
    /// Why.
    pub cause: Cause,
}

/// Why a recording is in no data set.
#[derive(Debug)]
pub enum Cause {
    /// It is of this split, which nobody takes; empty if it says none.
    OtherSplit(String),
    /// It has no truth.
    NoTruth,
    /// There are as many as were asked for.
    Surplus,
    /// It can't be used.
    Unusable(Error),
}

/// What there is to tell of recordings that were read.
#[derive(Debug, Default)]
pub struct Reading {
    /// Recordings that are in no data set, in the order of the paths.
    pub left_out: Vec<LeftOut>,
    /// Damage that was read around, of recordings that are used, have no truth or can't be used: the
    /// recording and what was wrong, in the order of the paths.
    pub damage: Vec<(PathBuf, String)>,
    /// Warnings of the robots' descriptions, and how many of the recordings used have each.
    pub robot_warnings: BTreeMap<String, usize>,
    /// What was found of cameras and clocks, of each recording that hindsight teaches or that has something to tell.
    pub rigs: Vec<Rig>,
}

/// What one recording is.
enum Outcome {
    /// For the intake of this index.
    Read(usize, Box<Episode>),
    LeftOut(Cause),
}

/// Reads the recordings at `paths`, each into the intake of its split, in the order of the paths
/// on any number of threads; `progress` is called after each.
///
/// A recording whose split nobody takes costs little more than its index.
pub fn read_recordings(
    paths: &[PathBuf],
    intakes: &mut [Intake],
    progress: impl Fn() + Sync,
) -> Reading {
    let mut reading = Reading::default();
    for block in paths.chunks(BLOCK) {
        let shared: &[Intake] = intakes;
        let read = |path: &PathBuf| {
            let outcome = read_one(path, shared);
            progress();
            outcome
        };
        let outcomes: Vec<(Outcome, Vec<String>)> = block.par_iter().map(read).collect();
        for (path, (outcome, damage)) in block.iter().zip(outcomes) {
            let cause = match outcome {
                // The block may have filled it.
                Outcome::Read(index, _) if intakes[index].is_full() => Some(Cause::Surplus),
                Outcome::Read(index, episode) => {
                    reading.take(&episode);
                    intakes[index].data.push(*episode);
                    None
                }
                Outcome::LeftOut(cause) => Some(cause),
            };
            if !matches!(cause, Some(Cause::OtherSplit(_) | Cause::Surplus)) {
                reading.damage.extend(damage.into_iter().map(|what| (path.clone(), what)));
            }
            let left_out = cause.map(|cause| LeftOut { path: path.clone(), cause });
            reading.left_out.extend(left_out);
        }
    }
    reading
}

impl Reading {
    /// Takes the warnings of an episode's robot, and what was found of its rig.
    fn take(&mut self, episode: &Episode) {
        self.rigs.extend(episode.rig().cloned());
        for warning in episode.robot.iter().flat_map(|robot| &robot.warnings) {
            *self.robot_warnings.entry(warning.clone()).or_default() += 1;
        }
    }
}

/// What becomes of a recording, and the damage that was read around.
fn read_one(path: &Path, intakes: &[Intake]) -> (Outcome, Vec<String>) {
    let unusable = |error| Outcome::LeftOut(Cause::Unusable(error));
    let glimpse = match Recording::glimpse(path) {
        Ok(glimpse) => glimpse,
        Err(error) => return (unusable(error), Vec::new()),
    };
    let mut damage = glimpse.bag().warnings().to_vec();
    let truth = glimpse.truth();
    let needs_truth = |intake: &Intake| intake.data.teacher() == Teacher::Truth;
    if truth.is_none() && intakes.iter().all(needs_truth) {
        return (Outcome::LeftOut(Cause::NoTruth), damage);
    }
    let split = truth.map_or("", |truth| truth.split.as_str());
    let is_for =
        |intake: &Intake| intake.split == split || (split.is_empty() && intake.takes_unsaid);
    let outcome = match intakes.iter().position(is_for) {
        None => Outcome::LeftOut(Cause::OtherSplit(split.to_owned())),
        Some(index) if intakes[index].is_full() => Outcome::LeftOut(Cause::Surplus),
        Some(index) => match read(glimpse, intakes[index].data) {
            Ok(episode) => {
                damage.extend(episode.skipped.summary());
                Outcome::Read(index, Box::new(episode))
            }
            Err(error) => unusable(error),
        },
    };
    (outcome, damage)
}

/// Reads a recording as those of `data` are.
pub(super) fn read(glimpse: Glimpse, data: &Dataset) -> Result<Episode> {
    data.read(&glimpse.open(data.frames().clone())?)
}

impl Intake<'_> {
    fn is_full(&self) -> bool {
        self.max_recordings.is_some_and(|max| self.data.n_recordings() >= max)
    }
}
