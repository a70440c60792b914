//! How long an SQLite file is, and how long it should be.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

const HEADER_BYTES: u64 = 100;

/// Lengths in bytes.
pub(in crate::bag) struct Extent {
    n_bytes: u64,
    page_bytes: u64,
    /// All pages that the header counts; 0 if its count is not to be trusted.
    expected: u64,
}

impl Extent {
    pub(in crate::bag) fn of(file: &mut File) -> std::io::Result<Self> {
        let mut header = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(HEADER_BYTES).read_to_end(&mut header)?;
        let word = |at: usize| {
            let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u64::from(bytes.map_or(0, u32::from_be_bytes))
        };
        let page_bytes = match word(16) >> 16 {
            1 => 1 << 16,
            n if n >= 512 && n.is_power_of_two() => n,
            _ => 1, // SQLite will refuse it
        };
        // The count holds if it was written with the last change.
        let expected = if word(24) == word(92) { word(28) * page_bytes } else { 0 };
        Ok(Self { n_bytes: file.metadata()?.len(), page_bytes, expected })
    }

    /// Without a page that is there in part: SQLite would take the rest of it for zeros.
    pub(in crate::bag) fn whole_pages(&self) -> u64 {
        self.n_bytes - self.n_bytes % self.page_bytes
    }

    pub(in crate::bag) fn has_part_of_page(&self) -> bool {
        self.whole_pages() < self.n_bytes
    }

    /// What is missing, if anything is.
    pub(super) fn cut(&self) -> Option<String> {
        let Self { n_bytes, page_bytes, expected } = self;
        if n_bytes < expected {
            Some(format!("cut off: {n_bytes} of {expected} bytes"))
        } else if self.has_part_of_page() {
            Some(format!("cut off: {n_bytes} bytes are not a multiple of {page_bytes}"))
        } else {
            None
        }
    }
}
