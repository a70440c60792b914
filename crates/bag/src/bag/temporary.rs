//! Temporary files, for recordings that can't be read as they are.
//!
//! They lie in TMPDIR and have no names, so that they are gone with the process, however it ends.

use super::format::{Format, leading_zeros, read_up_to};
use super::sqlite::{Database, Extent};
use super::storage::Storage;
use forecloud::base::error::{Error, Result};
use std::fs::File;
use std::io::{Error as IoError, Read, Seek, SeekFrom, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Bytes beyond which a file is refused: it fills the disk that TMPDIR is on.
const MAX_BYTES: u64 = 64 << 30;
const BUFFER_BYTES: usize = 256 << 10;
/// Where an SQLite file says whether it has a write-ahead log (2 and 2) or not (1 and 1).
const SQLITE_MODES: std::ops::Range<usize> = 18..20;

/// The whole pages of an SQLite file that is cut off within one.
///
/// # Errors
/// As [`store`].
pub(super) fn whole_pages(path: &Path, mut file: File, extent: &Extent) -> Result<Storage> {
    check_size(path, extent.whole_pages())?;
    file.seek(SeekFrom::Start(0)).map_err(|cause| Error::Io { path: path.into(), cause })?;
    let mut storage = store(path, &mut file)?;
    if let Storage::Sqlite(database) = &mut storage {
        database.filled(extent);
    }
    Ok(storage)
}

/// Stores what `from` reads; messages call it `path`. Of SQLite only whole pages are kept.
///
/// # Errors
/// [`Error::Bag`] if it is no recording, is too large, or there is no room for it.
pub(super) fn store(path: &Path, from: &mut impl Read) -> Result<Storage> {
    let mut head = [0; SQLITE_MODES.end];
    let n = read_up_to(from, &mut head).map_err(|error| no_room(path, &error))?;
    let format = Format::of(&head[..n]);
    if !matches!(format, Some(Format::Mcap | Format::Sqlite)) {
        let problem = "unpacks to neither MCAP nor SQLite".into();
        return Err(Error::Bag { path: path.to_owned(), problem });
    }
    let file = NamedTempFile::with_prefix("forecloud-").map_err(|error| no_room(path, &error))?;
    // SQLite opens by name only, but at once: the name goes before anything is in the file.
    let database =
        (format == Some(Format::Sqlite)).then(|| Database::open_empty(file.path(), path));
    let (mut file, name) = file.into_parts();
    name.close().map_err(|error| no_room(path, &error))?;
    if database.is_some() && n == head.len() {
        // SQLite need not look for a write-ahead log: none was compressed along.
        head[SQLITE_MODES].fill(1);
    }
    file.write_all(&head[..n]).map_err(|error| no_room(path, &error))?;
    copy(path, n as u64, from, &mut file)?;
    let Some(database) = database else { return Ok(Storage::Mcap(file)) };
    let mut database = database?;
    let extent = Extent::of(&mut file).map_err(|error| no_room(path, &error))?;
    file.set_len(extent.whole_pages()).map_err(|error| no_room(path, &error))?;
    database.filled(&extent);
    Ok(Storage::Sqlite(database))
}

/// Zeros are left out as holes: a few bytes can unpack to more of them than the disk has room for.
fn copy(path: &Path, mut n_bytes: u64, from: &mut impl Read, to: &mut File) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let n = read_up_to(from, &mut buffer).map_err(|error| no_room(path, &error))?;
        if n == 0 {
            return to.set_len(n_bytes).map_err(|error| no_room(path, &error));
        }
        n_bytes += n as u64;
        check_size(path, n_bytes)?;
        let written = match leading_zeros(&buffer[..n]) {
            n_zeros if n_zeros == n => to.seek(SeekFrom::Start(n_bytes)).map(drop),
            _ => to.write_all(&buffer[..n]),
        };
        written.map_err(|error| no_room(path, &error))?;
    }
}

/// # Errors
/// [`Error::Bag`] if `n_bytes` are too many to store.
pub fn check_size(path: &Path, n_bytes: u64) -> Result<()> {
    if n_bytes <= MAX_BYTES {
        return Ok(());
    }
    let gib = MAX_BYTES >> 30;
    let problem = format!("takes more than {gib} GiB unpacked: unpack it with `zstd -d`");
    Err(Error::Bag { path: path.to_owned(), problem })
}

fn no_room(path: &Path, error: &IoError) -> Error {
    let problem = format!(
        "can't be unpacked into {} ({error}): set TMPDIR to a folder with room",
        std::env::temp_dir().display()
    );
    Error::Bag { path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn zeros_take_no_room_on_the_disk() {
        use std::os::unix::fs::MetadataExt;
        let n_zeros = 300 << 20;
        let mut from = mcap::MAGIC.chain(std::io::repeat(0).take(n_zeros)).chain(&b"end"[..]);
        let Ok(Storage::Mcap(mut file)) = store("zeros".as_ref(), &mut from) else {
            panic!("a file that starts as MCAP does")
        };
        let metadata = file.metadata().unwrap();
        let n_bytes = mcap::MAGIC.len() as u64 + n_zeros + 3;
        assert_eq!(metadata.len(), n_bytes);
        assert!(metadata.blocks() * 512 < 2 << 20, "{} blocks", metadata.blocks());
        let mut end = [1; 5];
        file.seek(SeekFrom::End(-5)).unwrap();
        file.read_exact(&mut end).unwrap();
        assert_eq!(&end, b"\0\0end");
    }
}
