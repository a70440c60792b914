//! What a file is, by its first bytes.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes that tell what a file is; enough for zstd to say its size.
pub(super) const HEAD_BYTES: usize = 18;

/// What an SQLite file starts with.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// What each zstd frame starts with; CDR starts with a zero.
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const ROS1_MAGIC: &[u8] = b"#ROSBAG V";

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Mcap,
    Sqlite,
    Zstd,
    Ros1,
}

impl Format {
    /// By the first bytes.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        [
            (mcap::MAGIC, Self::Mcap),
            (SQLITE_MAGIC, Self::Sqlite),
            (&ZSTD_MAGIC, Self::Zstd),
            (ROS1_MAGIC, Self::Ros1),
        ]
        .into_iter()
        .find_map(|(magic, format)| head.starts_with(magic).then_some(format))
    }

    /// Of the file at `path`; `None` also if it can't be read.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        let mut head = [0; HEAD_BYTES];
        let n = read_up_to(&mut File::open(path).ok()?, &mut head).ok()?;
        Self::of(&head[..n])
    }
}

/// Reads until `buffer` is full or the end; the number of bytes.
pub(super) fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match from.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // What came before the damage counts; it shows again on the next call.
            Err(_) if n > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

/// Number of zeros that `bytes` start with.
pub(super) fn leading_zeros(bytes: &[u8]) -> usize {
    // By memory comparison, which is many times faster than byte by byte.
    static ZEROS: [u8; 4096] = [0; 4096];
    let is_zero = |block: &&[u8]| **block == ZEROS[..block.len()];
    let n = bytes.chunks(ZEROS.len()).take_while(is_zero).map(<[u8]>::len).sum::<usize>();
    n + bytes[n..].iter().take_while(|byte| **byte == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_counted_up_to_the_first_other_byte() {
        for n in [0, 1, 4_095, 4_096, 4_097, 10_000] {
            let mut bytes = vec![0; n];
            assert_eq!(leading_zeros(&bytes), n);
            bytes.extend([7, 0]);
            assert_eq!(leading_zeros(&bytes), n);
        }
    }
}
