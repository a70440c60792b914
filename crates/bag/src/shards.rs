//! Work on many recordings, shared out: which of them a shard has, the files that it leaves, and what
//! must be there before shards are one whole again.
//!
//! A recording is the unit of work. What comes of it is one file, which appears whole or not at all, so
//! that work that was cut short, or done twice, does no harm, and a second run does what is missing.

mod fingerprint;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::outputs::{Kind, Outputs};
use forecloud::base::whole_file::read_at_most;
use forecloud::{Error, Result};

pub use fingerprint::fingerprint;

/// What the files of shards begin with.
const GENERATOR: &str = "forecloud shard";
/// Most shards, and most bytes of a file that is read back.
const MAX_SHARDS: usize = 1_000_000;
const MAX_BYTES: u64 = 1 << 30;

/// One of `n` shares of the work; `index` counts from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    index: usize,
    n: usize,
}

/// What a shard does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    generator: String,
    /// The command: `replay` or `label`.
    pub command: String,
    /// Which share.
    pub shard: Shard,
    /// The model's file, for those who look for it.
    pub model_path: Option<PathBuf>,
    /// All recordings, those of other shards among them, in the order in which they were named.
    pub recordings: Vec<PathBuf>,
    /// All that the result of a recording depends on, beside the recording.
    pub terms: Value,
}

/// What came of one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    generator: String,
    recording: PathBuf,
    /// Of the recording's content.
    fingerprint: String,
    terms: Value,
    outcome: Outcome,
}

/// What came of one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command's result.
    Result(Value),
    /// Why there is none, and the remedy.
    Skipped(String),
}

/// The folder of a shard; several may share one.
#[derive(Debug)]
pub struct ShardFolder {
    path: PathBuf,
    outputs: Outputs,
    manifest: Manifest,
}

/// All shards of one work.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The first shard's.
    pub manifest: Manifest,
    /// What came of each recording, in the order in which the first shard was told them.
    pub outcomes: Vec<(PathBuf, Outcome)>,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, n)| {
            Some(Self { index: index.trim().parse().ok()?, n: n.trim().parse().ok()? })
        });
        parsed
            .filter(|shard| (1..=shard.n).contains(&shard.index) && shard.n <= MAX_SHARDS)
            .ok_or_else(|| "expected I/N: share I, from 1, of N, such as 1/4".into())
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.n)
    }
}

impl Shard {
    /// The whole work as one share.
    pub const WHOLE: Self = Self { index: 1, n: 1 };

    /// Its recordings of all that there are, by their names alone: the same in whatever order they are
    /// named.
    ///
    /// # Errors
    /// [`Error::Shards`] names a recording that is named twice.
    pub fn of(self, recordings: &[PathBuf]) -> Result<Vec<&Path>> {
        let mut sorted: Vec<&Path> = recordings.iter().map(PathBuf::as_path).collect();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        if let Some(pair) = twice {
            let problem = format!("{} is named twice: name it once", pair[0].display());
            return Err(Error::Shards { problems: vec![problem] });
        }
        Ok(sorted.into_iter().skip(self.index - 1).step_by(self.n).collect())
    }

    fn file_name(self) -> String {
        format!("shard_{}_of_{}.json", self.index, self.n)
    }
}

impl Manifest {
    /// Of `command`, with these recordings and terms.
    ///
    /// # Errors
    /// [`Error::Shards`] if paths are no text (UTF-8), or terms can't be written.
    pub fn new(
        command: &str,
        shard: Shard,
        model_path: Option<&Path>,
        recordings: &[PathBuf],
        terms: &impl Serialize,
    ) -> Result<Self> {
        if let Some(path) = recordings.iter().find(|path| path.to_str().is_none()) {
            let problem = format!("{}: a name that is no UTF-8: rename it", path.display());
            return Err(Error::Shards { problems: vec![problem] });
        }
        Ok(Self {
            generator: GENERATOR.into(),
            command: command.into(),
            shard,
            model_path: model_path.map(Path::to_owned),
            recordings: recordings.to_vec(),
            terms: value(terms)?,
        })
    }
}

impl ShardFolder {
    /// Makes the folder if need be, and writes what is done there.
    ///
    /// # Errors
    /// As [`Outputs::write`], [`Shard::of`].
    pub fn open(path: &Path, outputs: &Outputs, manifest: Manifest) -> Result<Self> {
        manifest.shard.of(&manifest.recordings)?;
        outputs.folder(path)?;
        let folder = Self { path: path.to_owned(), outputs: outputs.clone(), manifest };
        folder.write(&folder.manifest.shard.file_name(), &folder.manifest)?;
        Ok(folder)
    }

    /// The recordings of this shard, by name.
    pub fn recordings(&self) -> Vec<PathBuf> {
        let own = self.manifest.shard.of(&self.manifest.recordings).unwrap_or_default();
        own.into_iter().map(Path::to_owned).collect()
    }

    /// The result that an earlier run has left of a recording, if it is of these terms and of a recording
    /// of this fingerprint. One that was skipped is tried again.
    pub fn done(&self, recording: &Path, fingerprint: &str) -> Option<Value> {
        let saved: Saved = read(&self.path.join(saved_name(recording))).ok()?;
        let is_it = saved.recording == recording
            && saved.fingerprint == fingerprint
            && saved.terms == self.manifest.terms;
        match saved.outcome {
            Outcome::Result(result) if is_it => Some(result),
            _ => None,
        }
    }

    /// Keeps what came of a recording.
    ///
    /// # Errors
    /// As [`Outputs::write`].
    pub fn keep(&self, recording: &Path, fingerprint: &str, outcome: Outcome) -> Result<()> {
        let saved = Saved {
            generator: GENERATOR.into(),
            recording: recording.to_owned(),
            fingerprint: fingerprint.into(),
            terms: self.manifest.terms.clone(),
            outcome,
        };
        self.write(&saved_name(recording), &saved)
    }

    fn write(&self, name: &str, file: &impl Serialize) -> Result<()> {
        let wrong = |error: serde_json::Error| Error::Shards { problems: vec![error.to_string()] };
        let bytes = serde_json::to_vec(file).map_err(wrong)?;
        self.outputs.write(&self.path.join(name), Kind::Json, &bytes)
    }
}

impl Joined {
    /// Joins the shards in these folders.
    ///
    /// # Errors
    /// [`Error::Shards`] names every shard that is missing, there twice or of another work, and every
    /// recording that is not done; [`Error::Output`] names a folder that can't be read.
    pub fn read(folders: &[PathBuf]) -> Result<Self> {
        let mut problems = Vec::new();
        let mut shards: BTreeMap<Shard, (&Path, Manifest)> = BTreeMap::new();
        for folder in folders {
            let manifests = manifests(folder)?;
            if manifests.is_empty() {
                problems.push(format!(
                    "{}: no shard: --shard I/N --out DIR leaves some",
                    folder.display()
                ));
            }
            for manifest in manifests {
                let shard = manifest.shard;
                if let Some((first, _)) = shards.get(&shard) {
                    let (first, folder) = (first.display(), folder.display());
                    problems.push(format!("shard {shard} is there twice: {first} and {folder}"));
                    continue;
                }
                shards.insert(shard, (folder, manifest));
            }
        }
        let Some((_, first)) = shards.values().next().cloned() else {
            return Err(Error::Shards { problems });
        };
        let n = first.shard.n;
        let names = |manifest: &Manifest| -> BTreeSet<PathBuf> {
            manifest.recordings.iter().cloned().collect()
        };
        let all = names(&first);
        for (shard, (folder, manifest)) in &shards {
            let differs = match () {
                () if shard.n != n => Some(format!("of {n} shards as {} is", first.shard)),
                () if manifest.command != first.command => {
                    Some(format!("of `forecloud {}` as {} is", first.command, first.shard))
                }
                () if names(manifest) != all => {
                    let own = names(manifest);
                    let other = all.symmetric_difference(&own).next();
                    let other = other.map(|path| path.display().to_string()).unwrap_or_default();
                    Some(format!("of the recordings of {}: {other}", first.shard))
                }
                () => difference("", &first.terms, &manifest.terms)
                    .map(|what| format!("of the settings of {}: {what}", first.shard)),
            };
            if let Some(differs) = differs {
                problems.push(format!("shard {shard} ({}) is not {differs}", folder.display()));
            }
        }
        if !problems.is_empty() {
            return Err(Error::Shards { problems });
        }
        for index in 1..=n {
            if !shards.contains_key(&Shard { index, n }) {
                problems.push(format!("shard {index}/{n} is missing"));
            }
        }
        let mut outcomes = BTreeMap::new();
        for (shard, (folder, manifest)) in &shards {
            for recording in shard.of(&manifest.recordings)? {
                match outcome_of(folder, recording, &manifest.terms) {
                    Ok(outcome) => drop(outcomes.insert(recording.to_owned(), outcome)),
                    Err(problem) => problems.push(format!(
                        "shard {shard} ({}): {}: {problem}",
                        folder.display(),
                        recording.display()
                    )),
                }
            }
        }
        if !problems.is_empty() {
            return Err(Error::Shards { problems });
        }
        let listed = first.recordings.iter();
        let outcomes = listed.filter_map(|path| outcomes.remove_entry(path)).collect();
        Ok(Self { manifest: first, outcomes })
    }
}

/// What a shard has left of one of its recordings, or why that can't be taken.
fn outcome_of(
    folder: &Path,
    recording: &Path,
    terms: &Value,
) -> std::result::Result<Outcome, String> {
    let path = folder.join(saved_name(recording));
    if !path.exists() {
        return Err("not done: run the shard again".into());
    }
    let saved: Saved = read(&path)?;
    if saved.recording != recording {
        return Err(format!("{} is of another recording: run the shard again", path.display()));
    }
    match difference("", terms, &saved.terms) {
        Some(what) => Err(format!("done with other settings ({what}): run the shard again")),
        None => Ok(saved.outcome),
    }
}

/// The shards in a folder, in the order of their names.
fn manifests(folder: &Path) -> Result<Vec<Manifest>> {
    let wrong = |problem: String| Error::Output { path: folder.to_owned(), problem };
    let entries = std::fs::read_dir(folder).map_err(|error| wrong(error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("shard_") && name.ends_with(".json")
    });
    paths.sort();
    let manifest = |path: &PathBuf| {
        read(path).map_err(|problem| Error::Output { path: path.clone(), problem })
    };
    paths.iter().map(manifest).collect()
}

/// Reads a file of a shard; else why that can't be.
fn read<T: for<'d> Deserialize<'d>>(path: &Path) -> std::result::Result<T, String> {
    let told = |error: &dyn Display| format!("{}: {error}: run the shard again", path.display());
    let bytes = read_at_most(path, MAX_BYTES).map_err(|error| told(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| told(&error))
}

fn value(of: &impl Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|error| Error::Shards { problems: vec![error.to_string()] })
}

/// The first place where two values differ, and both.
fn difference(place: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b.values()).find_map(|((key, a), b)| {
                let dot = if place.is_empty() { "" } else { "." };
                difference(&format!("{place}{dot}{key}"), a, b)
            })
        }
        _ => (a != b).then(|| format!("{place} {a} and {b}")),
    }
}

/// Name of the file of what came of a recording.
fn saved_name(recording: &Path) -> String {
    let hash = Sha256::digest(recording.as_os_str().as_encoded_bytes());
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let stem = recording.file_name().unwrap_or_default().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let stem: String = stem.chars().filter(|&c| is_plain(c)).take(40).collect();
    format!("recording_{stem}_{hash}.json")
}
