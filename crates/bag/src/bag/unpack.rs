//! zstd, by which rosbag2 compresses whole files or single messages.

use super::format::ZSTD_MAGIC;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

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
    if !data.starts_with(&ZSTD_MAGIC) {
        return Ok(data);
    }
    let n_bytes = match zstd::zstd_safe::get_frame_content_size(&data) {
        Ok(Some(n_bytes)) => n_bytes,
        Ok(None) => return Err("its zstd frame does not say its size".into()),
        Err(_) => return Err("its zstd frame's header is damaged".into()),
    };
    if n_bytes > most_bytes(data.len()).min(MAX_MESSAGE_BYTES) {
        return Err(format!("its zstd frame of {} bytes claims to hold {n_bytes}", data.len()));
    }
    let unpacked = zstd::bulk::decompress(&data, n_bytes as usize)
        .map_err(|cause| format!("its zstd frame is damaged ({cause})"))?;
    match unpacked.len() as u64 == n_bytes {
        true => Ok(unpacked),
        false => Err(format!("its zstd frame holds {} bytes of {n_bytes}", unpacked.len())),
    }
}

/// Bytes that `n_packed` bytes can unpack to at most, with zstd; lz4 packs less.
pub(super) fn most_bytes(n_packed: usize) -> u64 {
    (n_packed as u64 / MIN_PACKED_BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// Bytes that a file, which starts with `head`, says it unpacks to; 0 if it does not say.
pub(super) fn claimed_bytes(head: &[u8]) -> u64 {
    zstd::zstd_safe::get_frame_content_size(head).ok().flatten().unwrap_or(0)
}

/// A file that is unpacked as it is read, and ends where it is damaged.
///
/// Behind damage it is not asked again, as zstd leaves its state undefined.
pub(super) struct Unpacked {
    decoder: zstd::Decoder<'static, BufReader<File>>,
    damage: Option<std::io::Error>,
}

impl Unpacked {
    /// From the start of `file` on.
    ///
    /// # Errors
    /// What the operating system or zstd says.
    pub(super) fn new(mut file: File) -> std::io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { decoder: zstd::Decoder::new(file)?, damage: None })
    }

    /// What ended it, if it was damage.
    pub(super) fn damage(self) -> Option<std::io::Error> {
        self.damage
    }
}

impl Read for Unpacked {
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
