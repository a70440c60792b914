//! What tells whether a recording is the one that was worked on before, wherever it lies.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use forecloud::{Error, Result};

/// Bytes of a file's beginning and end that count.
const ENDS: u64 = 1 << 16;
/// Files of a folder that count.
const MAX_FILES: usize = 10_000;

/// The fingerprint of a recording (a folder, or a file): by names, sizes, and the first and last 64 KiB of
/// its files, as hexadecimal digits. Neither where it lies nor its times count.
///
/// # Errors
/// [`Error::Io`] if it can't be read.
pub fn fingerprint(recording: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for path in files(recording)? {
        let io = |cause| Error::Io { path: path.clone(), cause };
        let mut file = File::open(&path).map_err(io)?;
        let n_bytes = file.metadata().map_err(io)?.len();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(n_bytes.to_le_bytes());
        let mut ends = Vec::new();
        file.by_ref().take(ENDS).read_to_end(&mut ends).map_err(io)?;
        if n_bytes > ENDS {
            file.seek(SeekFrom::Start((n_bytes - ENDS).max(ENDS))).map_err(io)?;
            file.take(ENDS).read_to_end(&mut ends).map_err(io)?;
        }
        hash.update(&ends);
    }
    Ok(hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file, or those of the folder, by name.
fn files(recording: &Path) -> Result<Vec<PathBuf>> {
    let io = |cause| Error::Io { path: recording.to_owned(), cause };
    if !std::fs::metadata(recording).map_err(io)?.is_dir() {
        return Ok(vec![recording.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(recording).map_err(io)?.take(MAX_FILES) {
        let path = entry.map_err(io)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
