//! zstd, by which rosbag2 compresses whole files or single messages.

use super::source::{Format, Source, Storage, read_up_to};
use super::sqlite::Database;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What each zstd frame starts with; CDR starts with a zero.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Bytes of an unpacked message beyond which it is taken for damaged.
pub(super) const MAX_MESSAGE_BYTES: u64 = 512 << 20;
/// Bytes of an unpacked file beyond which it is refused: it fills the disk that TMPDIR is on.
const MAX_FILE_BYTES: u64 = 64 << 30;
/// zstd's largest block, unpacked, and the fewest bytes that one takes.
const BLOCK_BYTES: u64 = 128 << 10;
const MIN_PACKED_BLOCK_BYTES: u64 = 4;
const BUFFER_BYTES: usize = 256 << 10;
/// Where an SQLite file says whether it has a write-ahead log (2 and 2) or not (1 and 1).
const SQLITE_MODES: std::ops::Range<usize> = 18..20;

/// The message as it was published, unpacked if it is one zstd frame.
///
/// # Errors
/// What is wrong with the frame.
pub(super) fn message(data: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    if !data.starts_with(&MAGIC) {
        return Ok(data);
    }
    let n_bytes = match zstd::zstd_safe::get_frame_content_size(&data) {
        Ok(Some(n_bytes)) => n_bytes,
        Ok(None) => return Err("its zstd frame does not say its size".into()),
        Err(_) => return Err("its zstd frame's header is damaged".into()),
    };
    let possible = (data.len() as u64 / MIN_PACKED_BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
    if n_bytes > possible.min(MAX_MESSAGE_BYTES) {
        return Err(format!("its zstd frame of {} bytes claims to hold {n_bytes}", data.len()));
    }
    let unpacked = zstd::bulk::decompress(&data, n_bytes as usize)
        .map_err(|cause| format!("its zstd frame is damaged ({cause})"))?;
    match unpacked.len() as u64 == n_bytes {
        true => Ok(unpacked),
        false => Err(format!("its zstd frame holds {} bytes of {n_bytes}", unpacked.len())),
    }
}

/// Unpacks a file, of which `head` was read, into a temporary one that has no name.
///
/// Damage ends it with a warning.
///
/// # Errors
/// [`Error::Bag`] if it is no recording, is too large, or the temporary file can't be written.
pub(super) fn file(path: &Path, mut packed: File, head: &[u8]) -> Result<Source> {
    let refuse = |problem: String| Error::Bag { path: path.to_owned(), problem };
    let claimed = zstd::zstd_safe::get_frame_content_size(head).ok().flatten();
    if claimed.is_some_and(|claimed| claimed > MAX_FILE_BYTES) {
        return Err(refuse(too_large()));
    }
    packed.seek(SeekFrom::Start(0)).map_err(|e| refuse(e.to_string()))?;
    let decoder = zstd::Decoder::new(packed).map_err(|e| refuse(e.to_string()))?;
    let mut decoder = UntilDamage { decoder, damage: None };
    let mut head = [0; SQLITE_MODES.end];
    let n = read_up_to(&mut decoder, &mut head)
        .map_err(|cause| refuse(format!("its zstd data is damaged from the start ({cause})")))?;
    let format = Format::of(&head[..n]);
    let no_room = |cause: std::io::Error| {
        let folder = std::env::temp_dir();
        refuse(format!(
            "can't be unpacked into {} ({cause}): set TMPDIR to a folder with room, or unpack it \
             with `zstd -d`",
            folder.display()
        ))
    };
    let (temporary, mut unpacked) = match format {
        Some(Format::Mcap | Format::Sqlite) => create().map_err(no_room)?,
        _ => return Err(refuse("unpacks to neither MCAP nor SQLite".into())),
    };
    // SQLite opens by name only, and at once: the name goes before there is anything in the file.
    let database =
        (format == Some(Format::Sqlite)).then(|| Database::open_unpacked(&temporary, path));
    std::fs::remove_file(&temporary).map_err(no_room)?;
    if database.is_some() && n == head.len() {
        // Its write-ahead log was merged: SQLite need not look for it.
        head[SQLITE_MODES].fill(1);
    }
    unpacked.write_all(&head[..n]).map_err(no_room)?;
    let damage = copy(&mut decoder, &mut unpacked, n as u64, &refuse, &no_room)?;
    let storage = match database {
        Some(database) => {
            let mut database = database?;
            database.look_for_cut(&mut unpacked).map_err(no_room)?;
            Storage::Sqlite(database)
        }
        None => Storage::Mcap(unpacked),
    };
    let warnings = damage.map(|cause| {
        format!("{}: zstd data are damaged ({cause}); what follows is left out", path.display())
    });
    Ok(Source { storage, is_packed: true, warnings: warnings.into_iter().collect() })
}

/// A decoder that is not asked again once it has failed: zstd leaves its state undefined.
struct UntilDamage<R> {
    decoder: R,
    damage: Option<String>,
}

impl<R: Read> Read for UntilDamage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(damage) = &self.damage {
            return Err(std::io::Error::other(damage.clone()));
        }
        let outcome = self.decoder.read(buffer);
        if let Err(error) = &outcome {
            self.damage = Some(error.to_string());
        }
        outcome
    }
}

/// Copies until the end or until damage, which it returns.
fn copy(
    from: &mut impl Read,
    to: &mut File,
    mut n_bytes: u64,
    refuse: &dyn Fn(String) -> Error,
    no_room: &dyn Fn(std::io::Error) -> Error,
) -> Result<Option<std::io::Error>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let n = match read_up_to(from, &mut buffer) {
            Ok(0) => return Ok(None),
            Ok(n) => n,
            Err(cause) => return Ok(Some(cause)),
        };
        n_bytes += n as u64;
        if n_bytes > MAX_FILE_BYTES {
            return Err(refuse(too_large()));
        }
        to.write_all(&buffer[..n]).map_err(no_room)?;
    }
}

fn too_large() -> String {
    format!("unpacks to more than {} GiB: unpack it with `zstd -d`", MAX_FILE_BYTES >> 30)
}

/// A new file in the folder for temporary ones, readable by nobody else.
fn create() -> std::io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let random = RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("forecloud-{random:016x}"));
        match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            outcome => return outcome.map(|file| (path, file)),
        }
    }
}
