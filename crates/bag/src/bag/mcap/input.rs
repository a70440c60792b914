//! The bytes of an MCAP file, in the order in which its records are looked for.

use crate::bag::format::leading_zeros;
use crate::bag::record::HEAD_BYTES;
use std::fs::File;
use std::io::{BufReader, Read, Result, Seek, SeekFrom};

/// Bytes that are read at a time where records are short.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes that are read at a time in a run of zeros: few at first, as the run may be short.
const ZEROS_BYTES: std::ops::RangeInclusive<usize> = 64..=1 << 20;

/// A file, or what a test puts in its place.
pub(super) trait Bytes: Read + Seek {
    /// Where the hole ends that `offset` lies in, as far as that is known; may move the file's
    /// position. Holes read as zeros, and take no time if they are not read.
    fn hole_end(&mut self, _offset: u64) -> Option<u64> {
        None
    }
}

impl Bytes for File {
    #[cfg(target_os = "linux")]
    fn hole_end(&mut self, offset: u64) -> Option<u64> {
        use rustix::fs::{SeekFrom, seek};
        match seek(&*self, SeekFrom::Data(offset)) {
            Ok(data) => Some(data),
            // No data from there on.
            Err(rustix::io::Errno::NXIO) => Some(u64::MAX),
            Err(_) => None,
        }
    }
}

/// A file that is read forward in the main; each look says where.
pub(super) struct Input<'a> {
    reader: BufReader<&'a mut dyn Bytes>,
    /// Where the reader is; unknown after an error.
    at: Option<u64>,
}

impl<'a> Input<'a> {
    pub(super) fn new(file: &'a mut dyn Bytes) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, file), at: None }
    }

    /// The length of the file.
    pub(super) fn n_bytes(&mut self) -> Result<u64> {
        self.at = None;
        self.reader.seek(SeekFrom::End(0))
    }

    /// Fills `bytes` from `offset` on.
    pub(super) fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let forward = self.at.take().and_then(|at| i64::try_from(offset.checked_sub(at)?).ok());
        match forward {
            // Keeps what is buffered.
            Some(forward) => self.reader.seek_relative(forward)?,
            None => drop(self.reader.seek(SeekFrom::Start(offset))?),
        }
        self.reader.read_exact(bytes)?;
        self.at = Some(offset + bytes.len() as u64);
        Ok(())
    }

    /// Opcode and length of the record at `offset`.
    pub(super) fn head(&mut self, offset: u64) -> Result<(u8, u64)> {
        let mut head = [0; HEAD_BYTES as usize];
        self.read(offset, &mut head)?;
        let [opcode, length @ ..] = head;
        Ok((opcode, u64::from_le_bytes(length)))
    }

    /// Where the zeros end that start at `offset`; at `end` at most.
    pub(super) fn zeros_end(&mut self, mut offset: u64, end: u64) -> Result<u64> {
        let mut bytes = Vec::new();
        let mut n = *ZEROS_BYTES.start();
        while offset < end {
            bytes.resize(n, 0);
            let left = (end - offset).min(n as u64) as usize;
            self.read(offset, &mut bytes[..left])?;
            let n_zeros = leading_zeros(&bytes[..left]);
            offset += n_zeros as u64;
            if n_zeros < left {
                break;
            }
            if n == *ZEROS_BYTES.end() {
                self.at = None;
                let hole_end = self.reader.get_mut().hole_end(offset);
                offset = hole_end.unwrap_or(offset).clamp(offset, end);
            }
            n = (4 * n).min(*ZEROS_BYTES.end());
        }
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of zeros and a last byte, which counts how often it is read.
    struct Zeros {
        n_bytes: u64,
        at: u64,
        n_reads: usize,
    }

    impl Read for Zeros {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            self.n_reads += 1;
            let n = buffer.len().min((self.n_bytes - self.at) as usize);
            buffer[..n].fill(0);
            self.at += n as u64;
            if n > 0 && self.at == self.n_bytes {
                buffer[n - 1] = 7;
            }
            Ok(n)
        }
    }

    impl Seek for Zeros {
        fn seek(&mut self, to: SeekFrom) -> Result<u64> {
            self.at = match to {
                SeekFrom::Start(at) => at,
                SeekFrom::End(by) => self.n_bytes.strict_add_signed(by),
                SeekFrom::Current(by) => self.at.strict_add_signed(by),
            };
            Ok(self.at)
        }
    }

    impl Bytes for Zeros {}

    #[test]
    fn long_runs_of_zeros_take_few_reads() {
        let n_bytes = 100 << 20;
        let mut file = Zeros { n_bytes, at: 0, n_reads: 0 };
        let mut input = Input::new(&mut file);
        assert_eq!(input.n_bytes().unwrap(), n_bytes);
        assert_eq!(input.zeros_end(20, n_bytes).unwrap(), n_bytes - 1);
        assert_eq!(input.zeros_end(20, 3_000).unwrap(), 3_000);
        assert!(file.n_reads < 150, "{} reads", file.n_reads);
    }
}
