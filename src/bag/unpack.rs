//! zstd, by which rosbag2 compresses whole files or single messages.

use super::source::Source;
use super::temporary;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// What each zstd frame starts with; CDR starts with a zero.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Bytes of an unpacked message beyond which it is taken for damaged.
pub(super) const MAX_MESSAGE_BYTES: u64 = 512 << 20;
/// zstd's largest block, unpacked, and the fewest bytes that one takes.
const BLOCK_BYTES: u64 = 128 << 10;
const MIN_PACKED_BLOCK_BYTES: u64 = 4;

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

/// Unpacks a file, of which `head` was read, into a temporary one.
///
/// Damage ends it with a warning.
///
/// # Errors
/// As [`temporary::store`].
pub(super) fn file(path: &Path, mut packed: File, head: &[u8]) -> Result<Source> {
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    let claimed = zstd::zstd_safe::get_frame_content_size(head).ok().flatten();
    temporary::check_size(path, claimed.unwrap_or(0))?;
    packed.seek(SeekFrom::Start(0)).map_err(io)?;
    let decoder = zstd::Decoder::new(packed).map_err(io)?;
    let mut decoder = UntilDamage { decoder, damage: None };
    let storage = temporary::store(path, &mut decoder).map_err(|error| match error {
        Error::Bag { path, mut problem } => {
            if let Some(cause) = &decoder.damage {
                problem += &format!("; its zstd data are damaged ({cause})");
            }
            Error::Bag { path, problem }
        }
        error => error,
    })?;
    let warnings = decoder.damage.map(|cause| {
        format!("{}: zstd data are damaged ({cause}); what follows is left out", path.display())
    });
    Ok(Source { storage, is_packed: true, warnings: warnings.into_iter().collect() })
}

/// A decoder whose data end where they are damaged; it is not asked again, as zstd leaves its
/// state undefined.
struct UntilDamage<R> {
    decoder: R,
    damage: Option<std::io::Error>,
}

impl<R: Read> Read for UntilDamage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.damage.is_some() {
            return Ok(0);
        }
        match self.decoder.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.damage = Some(error);
                Ok(0)
            }
            read => read,
        }
    }
}
