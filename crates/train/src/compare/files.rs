//! Files of JSON, and others, that are all there or not at all.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use forecloud::base::whole_file::replace;
use forecloud::{Error, Result};

/// The value in a file; none if there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|cause| Error::Io { path: path.to_owned(), cause })?,
    };
    let value = serde_json::from_slice(&text).map_err(|error| Error::Config {
        key: path.display().to_string(),
        problem: format!(
            "{error}: damaged, or not written by this version of `forecloud compare`: choose another \
             --out, or move it away to do its part again"
        ),
    })?;
    Ok(Some(value))
}

/// Writes a value as JSON; as [`write`].
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_vec_pretty(value).map_err(|error| Error::Config {
        key: path.display().to_string(),
        problem: format!("can't be written as JSON: {error}"),
    })?;
    write(path, &json)
}

/// Writes a file that is all there or not at all, and its folder.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| Error::Io { path, cause }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io(folder))?;
    }
    replace(path, bytes).map_err(io(path))
}
