//! `metadata.yaml`, which need not be there, and the files of a recording.

use super::format::Format;
use crate::yaml;
use forecloud::base::error::{Error, Result};
use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "metadata.yaml";
const MAX_METADATA_BYTES: u64 = 16 << 20;

/// The part of `metadata.yaml` that is used; it is the same in all versions.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Information {
    relative_file_paths: Vec<PathBuf>,
    compression_format: String,
    compression_mode: String,
    message_count: Option<u64>,
    topics_with_message_count: Vec<TopicEntry>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct TopicEntry {
    topic_metadata: TopicMetadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct TopicMetadata {
    name: String,
    r#type: String,
}

#[derive(serde::Deserialize)]
struct Metadata {
    rosbag2_bagfile_information: Information,
}

/// The files of a recording, in the order to read them.
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
    /// Number of messages that metadata.yaml promises.
    pub(super) message_count: Option<u64>,
    /// Names and types of the topics, as metadata.yaml has them.
    pub(super) types: Vec<(String, String)>,
}

impl Files {
    /// Of which metadata.yaml says nothing.
    fn of(paths: Vec<PathBuf>, warnings: Vec<String>) -> Self {
        Self { paths, warnings, message_count: None, types: Vec::new() }
    }
}

/// Finds the files of a rosbag2 folder (or of its `metadata.yaml`), or of a single file.
///
/// # Errors
/// [`Error::Io`] if nothing is there; [`Error::Bag`] if a folder holds no recording, or its
/// messages are compressed by other means than zstd.
pub(super) fn files(path: &Path) -> Result<Files> {
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    if !std::fs::metadata(path).map_err(io)?.is_dir() {
        return match path.parent() {
            Some(folder) if path.ends_with(NAME) => files(&Path::new(".").join(folder)),
            _ => Ok(Files::of(vec![path.into()], vec![])),
        };
    }
    let mut present = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        present.push(entry.map_err(io)?.path());
    }
    present.sort();
    present.retain(|file| file.is_file() && looks_like_recording(file));
    match read_metadata(path) {
        Ok(Some(mut information)) => {
            let topics = std::mem::take(&mut information.topics_with_message_count).into_iter();
            let types =
                topics.map(|entry| (entry.topic_metadata.name, entry.topic_metadata.r#type));
            let types = types.collect();
            listed(path, present, information).map(|files| Files { types, ..files })
        }
        Ok(None) => unlisted(path, present, vec![]),
        Err(problem) => {
            unlisted(path, present, vec![format!("{NAME} {problem}: reading all files")])
        }
    }
}

/// By its name, whatever it is; else by its first bytes.
pub(super) fn looks_like_recording(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("mcap" | "db3" | "zstd" | "bag"))
        || (path.is_file() && Format::of_file(path).is_some())
}

fn read_metadata(folder: &Path) -> std::result::Result<Option<Information>, String> {
    let path = folder.join(NAME);
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("can't be read ({error})")),
        Ok(metadata) if !metadata.is_file() => return Err("is no file".into()),
        Ok(_) => {}
    }
    let text = yaml::read_text(&path, MAX_METADATA_BYTES);
    let text = text.map_err(|e| format!("can't be read ({e})"))?;
    let metadata: Metadata = yaml::parse(&text).map_err(|e| format!("is not rosbag2's ({e})"))?;
    Ok(Some(metadata.rosbag2_bagfile_information))
}

/// The listed files that are there; names only, so that no path leads out of the folder.
fn listed(folder: &Path, present: Vec<PathBuf>, information: Information) -> Result<Files> {
    let Information {
        relative_file_paths,
        compression_format,
        compression_mode,
        message_count,
        ..
    } = information;
    if compression_mode.eq_ignore_ascii_case("message") && compression_format != "zstd" {
        let problem = format!(
            "its messages are compressed as '{compression_format}', only zstd is read: convert it \
             with `ros2 bag convert`"
        );
        return Err(Error::Bag { path: folder.to_owned(), problem });
    }
    let mut warnings = Vec::new();
    let mut paths = Vec::new();
    for name in relative_file_paths.iter().filter_map(|path| path.file_name()) {
        let listed = folder.join(name);
        let there = [listed.clone(), add_zstd(&listed), listed.with_extension("")];
        match there.into_iter().find(|path| present.contains(path)) {
            Some(path) if paths.contains(&path) => {}
            Some(path) => paths.push(path),
            None => warnings.push(format!("{} is listed in {NAME} and missing", listed.display())),
        }
    }
    if paths.is_empty() {
        let mut files = unlisted(folder, present, warnings)?;
        files.message_count = message_count;
        return Ok(files);
    }
    for path in present.iter().filter(|path| !paths.contains(path)) {
        warnings.push(format!("{} is not listed in {NAME}: skipped", path.display()));
    }
    Ok(Files { message_count, ..Files::of(paths, warnings) })
}

/// All files of the folder, by name.
fn unlisted(folder: &Path, present: Vec<PathBuf>, mut warnings: Vec<String>) -> Result<Files> {
    if present.is_empty() {
        let problem = "holds no recording: name the folder that `ros2 bag record` wrote".into();
        return Err(Error::Bag { path: folder.to_owned(), problem });
    }
    // `ros2 bag play` leaves the unpacked file beside the packed one.
    let is_copy = |path: &PathBuf| present.iter().any(|other| add_zstd(other) == *path);
    let (copies, paths): (Vec<_>, Vec<_>) = present.iter().cloned().partition(is_copy);
    for path in copies {
        warnings.push(format!("{} is also there unpacked: skipped", path.display()));
    }
    Ok(Files::of(paths, warnings))
}

/// The name of the file once `ros2 bag record` has compressed it.
pub(super) fn add_zstd(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".zstd");
    name.into()
}
