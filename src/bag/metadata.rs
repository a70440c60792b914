//! `metadata.yaml`, which need not be there, and the files of a recording.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

const CONVERT: &str = "convert it to MCAP with `ros2 bag convert -i FOLDER -o out.yaml`, where \
                       out.yaml holds `output_bags: [{uri: NEW_FOLDER, storage_id: mcap, all: true}]`";
const MAX_METADATA_BYTES: u64 = 16 << 20;

/// The part of `metadata.yaml` that is used.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Information {
    relative_file_paths: Vec<PathBuf>,
    storage_identifier: String,
    compression_mode: String,
    message_count: Option<u64>,
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
}

/// Finds the files of a rosbag2 folder, or of a single file.
///
/// # Errors
/// [`Error::Io`] if nothing is there; [`Error::Bag`] if it holds no MCAP file that can be read.
pub(super) fn files(path: &Path) -> Result<Files> {
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    if !std::fs::metadata(path).map_err(io)?.is_dir() {
        return match storage_of(path) {
            Storage::Mcap => {
                Ok(Files { paths: vec![path.into()], warnings: vec![], message_count: None })
            }
            storage => Err(refusal(path, storage)),
        };
    }
    let mut present = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        present.push(entry.map_err(io)?.path());
    }
    present.sort();
    match read_metadata(path) {
        Ok(Some(information)) => listed(path, &present, information),
        Ok(None) => unlisted(path, &present, vec![]),
        Err(problem) => {
            let warning = format!("metadata.yaml {problem}: reading all .mcap files");
            unlisted(path, &present, vec![warning])
        }
    }
}

fn read_metadata(folder: &Path) -> std::result::Result<Option<Information>, String> {
    let path = folder.join("metadata.yaml");
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("can't be read ({error})")),
        Ok(metadata) if metadata.len() > MAX_METADATA_BYTES => return Err("is too large".into()),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("can't be read ({e})"))?;
    let metadata: Metadata =
        serde_norway::from_str(&text).map_err(|e| format!("is not rosbag2's ({e})"))?;
    Ok(Some(metadata.rosbag2_bagfile_information))
}

/// The listed files that are there; names only, so that no path leads out of the folder.
fn listed(folder: &Path, present: &[PathBuf], information: Information) -> Result<Files> {
    if information.compression_mode.eq_ignore_ascii_case("message") {
        let problem = format!("messages are compressed one by one: {CONVERT}");
        return Err(Error::Bag { path: folder.to_owned(), problem });
    }
    if information.storage_identifier == "sqlite3" {
        return Err(refusal(folder, Storage::Sqlite));
    }
    let mut warnings = Vec::new();
    let mut paths = Vec::new();
    for name in information.relative_file_paths.iter().filter_map(|path| path.file_name()) {
        let path = folder.join(name);
        match storage_of(&path) {
            _ if !present.contains(&path) => {
                warnings.push(format!("{} is listed in metadata.yaml and missing", path.display()));
            }
            _ if paths.contains(&path) => {}
            Storage::Mcap => paths.push(path),
            storage => return Err(refusal(&path, storage)),
        }
    }
    if paths.is_empty() {
        return unlisted(folder, present, warnings);
    }
    for path in present.iter().filter(|path| matches!(storage_of(path), Storage::Mcap)) {
        if !paths.contains(path) {
            warnings.push(format!("{} is not listed in metadata.yaml: skipped", path.display()));
        }
    }
    Ok(Files { paths, warnings, message_count: information.message_count })
}

/// All MCAP files of the folder, by name.
fn unlisted(folder: &Path, present: &[PathBuf], mut warnings: Vec<String>) -> Result<Files> {
    let paths: Vec<PathBuf> =
        present.iter().filter(|path| matches!(storage_of(path), Storage::Mcap)).cloned().collect();
    let others =
        present.iter().find(|path| !matches!(storage_of(path), Storage::Mcap | Storage::Unknown));
    match others {
        Some(other) if paths.is_empty() => return Err(refusal(other, storage_of(other))),
        Some(other) => warnings.push(format!("{} is not MCAP: skipped", other.display())),
        None if paths.is_empty() => {
            let problem =
                "holds no .mcap file: name the folder that `ros2 bag record` wrote".into();
            return Err(Error::Bag { path: folder.to_owned(), problem });
        }
        None => {}
    }
    Ok(Files { paths, warnings, message_count: None })
}

enum Storage {
    Mcap,
    Sqlite,
    Compressed,
    Ros1,
    Unknown,
}

fn storage_of(path: &Path) -> Storage {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("mcap") => Storage::Mcap,
        Some("db3") => Storage::Sqlite,
        Some("zstd") => Storage::Compressed,
        Some("bag") => Storage::Ros1,
        _ => Storage::Unknown,
    }
}

fn refusal(path: &Path, storage: Storage) -> Error {
    let problem = match storage {
        Storage::Sqlite => format!("SQLite recordings are not supported yet: {CONVERT}"),
        Storage::Compressed => format!("files compressed as a whole are not supported: {CONVERT}"),
        Storage::Ros1 => "is a ROS 1 recording: convert it with rosbags-convert".into(),
        Storage::Mcap | Storage::Unknown => "is neither a rosbag2 folder nor a .mcap file".into(),
    };
    Error::Bag { path: path.to_owned(), problem }
}
