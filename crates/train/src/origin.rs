//! What a run was begun from: its start model, its recordings, and how they are read. Checkpoints keep
//! it, and a run that goes on is held to it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::differences::differences;
use forecloud::{Error, Result};

/// Metadata key in checkpoints.
const KEY: &str = "forecloud.origin";
/// Recordings that are named where they differ.
const N_NAMED: usize = 3;

/// What a run was begun from, beside the settings of training and model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Options that say what is trained on, and their values in words.
    pub settings: BTreeMap<String, String>,
    /// Names of the recordings, by purpose.
    pub recordings: BTreeMap<String, Vec<String>>,
}

impl Origin {
    /// Refuses options that are not those of this one, kept in the checkpoint `path`; such as either
    /// does not tell are not looked at.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] names those that differ.
    pub fn must_have_settings(&self, path: &Path, asked: &Self) -> Result<()> {
        let both = |of: &Self, other: &Self| -> BTreeMap<String, String> {
            let told = of.settings.clone().into_iter();
            told.filter(|(option, _)| other.settings.contains_key(option)).collect()
        };
        let differing = differences(&both(self, asked), &both(asked, self));
        refuse(path, "with other options", &differing)
    }

    /// Refuses recordings that are not those of this one, kept in the checkpoint `path`: one more may
    /// make others those that are validated with, which have been trained on.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] names those that differ.
    pub fn must_have_recordings(&self, path: &Path, asked: &Self) -> Result<()> {
        let purposes = self.recordings.keys().chain(asked.recordings.keys());
        let mut purposes: Vec<&String> = purposes.collect();
        purposes.sort_unstable();
        purposes.dedup();
        let mut differing = Vec::new();
        for purpose in purposes {
            let [there, here] = [self, asked].map(|origin| counts(origin, purpose));
            let more = |a: &BTreeMap<&str, usize>, b: &BTreeMap<&str, usize>| -> Vec<String> {
                let has_fewer =
                    |(name, n): &(&&str, &usize)| b.get(*name).copied().unwrap_or(0) < **n;
                a.iter().filter(has_fewer).map(|(name, _)| (*name).to_owned()).collect()
            };
            for (names, what) in [(more(&here, &there), "added"), (more(&there, &here), "missing")]
            {
                if !names.is_empty() {
                    differing.push(format!("{purpose}: {} {what}", few(&names)));
                }
            }
        }
        refuse(path, "with other recordings", &differing)
    }

    /// Puts it into a checkpoint's metadata.
    pub(super) fn put(&self, metadata: &mut HashMap<String, String>) {
        metadata.insert(KEY.into(), serde_json::to_string(self).unwrap_or_default());
    }

    /// That of a checkpoint's metadata; none in those of other programs than the tool.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(
        metadata: &HashMap<String, String>,
    ) -> std::result::Result<Option<Self>, String> {
        let parsed = metadata.get(KEY).map(|text| serde_json::from_str(text)).transpose();
        parsed.map_err(|error| format!("{KEY}: {error}"))
    }
}

/// How often each recording of a purpose is there: names may be those of several.
fn counts<'a>(origin: &'a Origin, purpose: &str) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for name in origin.recordings.get(purpose).into_iter().flatten() {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

/// Some names, and how many more there are.
fn few(names: &[String]) -> String {
    let told = names[..names.len().min(N_NAMED)].join(", ");
    match names.len().saturating_sub(N_NAMED) {
        0 => told,
        n => format!("{told} and {n} more"),
    }
}

fn refuse(path: &Path, what: &str, differing: &[String]) -> Result<()> {
    if differing.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "the run began {what} ({}): use the same ones, or choose another --out",
        differing.join("; ")
    );
    Err(Error::Checkpoint { path: path.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(settings: &[(&str, &str)], recordings: &[(&str, &str)]) -> Origin {
        let settings = settings.iter().map(|(option, value)| ((*option).into(), (*value).into()));
        let names = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let recordings = recordings.iter().map(|(purpose, text)| ((*purpose).into(), names(text)));
        Origin { settings: settings.collect(), recordings: recordings.collect() }
    }

    #[test]
    fn options_that_differ_are_named_with_both_values() {
        let path = Path::new("c.safetensors");
        let begun = origin(&[("--from", "model a"), ("-p robot", "none"), ("--old", "1")], &[]);
        let same = origin(&[("--from", "model a"), ("-p robot", "none"), ("--new", "1")], &[]);
        begun.must_have_settings(path, &same).unwrap();
        let other = origin(&[("--from", "model b"), ("-p robot", "none")], &[]);
        let told = begun.must_have_settings(path, &other).unwrap_err().to_string();
        assert!(told.contains("(--from: model a there, model b here): use the same"), "{told}");
    }

    #[test]
    fn recordings_that_differ_are_named() {
        let path = Path::new("c.safetensors");
        let begun = origin(&[], &[("training", "a b c a"), ("validation", "d")]);
        let moved = origin(&[], &[("training", "a a c b"), ("validation", "d")]);
        begun.must_have_recordings(path, &moved).unwrap();
        for (training, validation, expected) in [
            ("a b c a", "e", "(validation: e added; validation: d missing)"),
            ("a b c", "d", "(training: a missing)"),
            ("a a b c v w x y z", "d", "(training: v, w, x and 2 more added)"),
        ] {
            let other = origin(&[], &[("training", training), ("validation", validation)]);
            let told = begun.must_have_recordings(path, &other).unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
        let told = begun.must_have_recordings(path, &Origin::default()).unwrap_err().to_string();
        assert!(told.contains("training: a, b, c missing; validation: d missing"), "{told}");
    }

    #[test]
    fn it_is_read_as_it_was_written_and_files_without_it_have_none() {
        let begun = origin(&[("--from", "a \"b\"")], &[("training", "ü b")]);
        let mut metadata = HashMap::new();
        assert_eq!(Origin::of(&metadata), Ok(None));
        begun.put(&mut metadata);
        assert_eq!(Origin::of(&metadata), Ok(Some(begun)));
        metadata.insert(KEY.into(), "{".into());
        assert!(Origin::of(&metadata).unwrap_err().contains(KEY));
    }
}
