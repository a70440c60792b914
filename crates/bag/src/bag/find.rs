//! Recordings below a folder, each of which [`super::Bag::open`] takes.

use super::metadata;
use forecloud::base::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What [`recordings_below`] found.
#[derive(Debug, Default)]
pub struct Found {
    /// The recordings, sorted.
    pub recordings: Vec<PathBuf>,
    /// Folders that can't be listed, and files that are there twice, be it by a link, with the reason.
    pub left_out: Vec<(PathBuf, Error)>,
}

/// Finds all recordings at or below `path`: rosbag2 folders, with their metadata.yaml or without,
/// and single files of recordings, whatever state they are in.
///
/// In a folder without metadata.yaml, the files FOLDER_0, FOLDER_1, … (as `ros2 bag record` names
/// them) are parts of one recording, and every other file is a recording of its own. Entries whose
/// names begin with a dot are skipped; links are followed, each folder is looked at once, and each file
/// is taken once.
///
/// # Errors
/// [`Error::Io`] if nothing is at `path`, or it is a folder that can't be listed.
pub fn recordings_below(path: &Path) -> Result<Found> {
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    let mut search = Search::default();
    match std::fs::metadata(path).map_err(io)?.is_dir() {
        true => search.look_into(path, true)?,
        false => search.found.recordings.push(path.to_owned()),
    }
    let mut found = search.take_all();
    found.recordings.sort();
    found.left_out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

#[derive(Default)]
struct Search {
    found: Found,
    /// Folders by their real paths: by links, one can lie below itself.
    seen: HashSet<PathBuf>,
    folders: Vec<Folder>,
}

/// A folder, and the files in it that look like recordings.
struct Folder {
    path: PathBuf,
    files: Vec<PathBuf>,
    has_metadata: bool,
    is_root: bool,
}

impl Search {
    fn look_into(&mut self, folder: &Path, is_root: bool) -> Result<()> {
        let io = |cause| Error::Io { path: folder.to_owned(), cause };
        if !self.seen.insert(std::fs::canonicalize(folder).map_err(io)?) {
            return Ok(());
        }
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(io)? {
            entries.push(entry.map_err(io)?.path());
        }
        entries.retain(|path| !is_hidden(path));
        entries.sort();
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
            entries.into_iter().partition(|path| path.is_dir());
        let has_metadata = files.iter().any(|file| file.ends_with(metadata::NAME));
        let files = files.into_iter().filter(|file| metadata::looks_like_recording(file)).collect();
        self.folders.push(Folder { path: folder.to_owned(), files, has_metadata, is_root });
        for below in folders {
            if let Err(error) = self.look_into(&below, false) {
                self.found.left_out.push((below, error));
            }
        }
        Ok(())
    }

    /// Takes the recordings of all folders.
    fn take_all(mut self) -> Found {
        let all = || self.folders.iter().flat_map(|folder| &folder.files);
        let (links, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
            all().partition(|file| file.is_symlink());
        // By their real paths; nothing is asked of the disk where there are no links.
        let files = files.into_iter().filter(|_| !links.is_empty());
        let mut taken: HashSet<PathBuf> =
            files.filter_map(|file| std::fs::canonicalize(file).ok()).collect();
        let mut again = HashMap::new();
        for link in links {
            let Ok(place) = std::fs::canonicalize(link) else { continue };
            if !taken.insert(place.clone()) {
                again.insert(link.clone(), place);
            }
        }
        for mut folder in std::mem::take(&mut self.folders) {
            let is_again = |file: &PathBuf| again.contains_key(file);
            // A recording in parts is what its metadata say: whole, or not at all.
            let is_whole = folder.has_metadata && !folder.files.iter().all(is_again);
            let (left_out, files) =
                folder.files.into_iter().partition(|f| !is_whole && is_again(f));
            folder.files = files;
            let is_left_out = !Vec::is_empty(&left_out) && folder.files.is_empty();
            for file in left_out {
                let problem =
                    format!("is a link to {}, which is there, too", again[&file].display());
                let error = Error::Bag { path: file.clone(), problem };
                self.found.left_out.push((file, error));
            }
            if !is_left_out {
                self.take(folder);
            }
        }
        self.found
    }

    /// Takes the recordings that the files of a folder are.
    fn take(&mut self, Folder { path: folder, files, has_metadata, is_root }: Folder) {
        // One file alone is named by its folder, which is more likely to be a name of its own.
        let is_one = has_metadata
            || (files.len() == 1 && !is_root)
            || (!files.is_empty() && files.iter().all(|file| is_part_of(&folder, file)));
        if is_one {
            self.found.recordings.push(folder);
            return;
        }
        for file in &files {
            match files.iter().any(|other| metadata::add_zstd(other) == *file) {
                true => {
                    let problem = "is there unpacked, too".into();
                    let error = Error::Bag { path: file.clone(), problem };
                    self.found.left_out.push((file.clone(), error));
                }
                false => self.found.recordings.push(file.clone()),
            }
        }
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether the file is named FOLDER_N, with some extension.
fn is_part_of(folder: &Path, file: &Path) -> bool {
    // The folder may be given as `.`.
    let Ok(folder) = std::fs::canonicalize(folder) else { return false };
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let number = name(&folder).zip(name(file)).and_then(|(folder, file)| {
        let rest = file.strip_prefix(&folder)?.strip_prefix('_')?;
        Some(rest.split('.').next()?.to_owned())
    });
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}
