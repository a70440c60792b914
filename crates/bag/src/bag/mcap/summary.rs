//! What the end of an MCAP file says of it: where its data end, where chunks are, how many messages
//! there are.

use super::input::Input;
use crate::bag::record::{self, HEAD_BYTES, Record, op};
use std::collections::BTreeMap;
use std::io::Result;

/// Bytes of the footer's fields, the last of which is the summary's checksum.
const FOOTER_BYTES: u64 = 8 + 8 + 4;
const MAGIC_BYTES: u64 = mcap::MAGIC.len() as u64;
/// Bytes beyond which a summary is not read: that of a million chunks.
const MAX_SUMMARY_BYTES: u64 = 256 << 20;

/// What the end of a file says.
#[derive(Default)]
pub(super) struct Summary {
    /// Whether the file ends as a finished one does.
    pub(super) is_complete: bool,
    /// Where the data and their end record end, if that is known; else no record lies behind.
    pub(super) data_end: u64,
    pub(super) is_end_known: bool,
    /// The chunks, in the order of their places; they do not overlap, and lie within the data.
    pub(super) chunks: Vec<Span>,
    pub(super) statistics: Option<Statistics>,
    /// Schemas and channels among other records.
    pub(super) records: Vec<u8>,
    /// Why it is not used, or not all of it.
    pub(super) problem: Option<String>,
}

/// A part of the file (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) n_bytes: u64,
}

/// How many messages there are, in all and by channel.
pub(super) struct Statistics {
    pub(super) n_messages: u64,
    pub(super) by_channel: BTreeMap<u16, u64>,
}

impl Summary {
    /// # Errors
    /// What the operating system says.
    pub(super) fn read(input: &mut Input, file_bytes: u64) -> Result<Self> {
        let mut summary = Self { data_end: file_bytes, ..Self::default() };
        let Some(magic_at) = file_bytes.checked_sub(MAGIC_BYTES) else { return Ok(summary) };
        let mut magic = [0; MAGIC_BYTES as usize];
        input.read(magic_at, &mut magic)?;
        // A file of nothing but the magic bytes starts with them.
        if magic != mcap::MAGIC || magic_at < MAGIC_BYTES {
            return Ok(summary);
        }
        summary.is_complete = true;
        summary.data_end = magic_at;
        if let Err(problem) = summary.read_before(input, magic_at)? {
            summary.problem = Some(problem);
        }
        Ok(summary)
    }

    /// Reads what stands before the magic bytes at `magic_at`.
    fn read_before(
        &mut self,
        input: &mut Input,
        magic_at: u64,
    ) -> Result<std::result::Result<(), String>> {
        let damaged = || Ok(Err("its footer is damaged".to_owned()));
        let footer_at = magic_at.checked_sub(HEAD_BYTES + FOOTER_BYTES);
        let Some(footer_at) = footer_at.filter(|at| *at >= MAGIC_BYTES) else { return damaged() };
        if input.head(footer_at)? != (op::FOOTER, FOOTER_BYTES) {
            return damaged();
        }
        let mut start = [0; 8];
        input.read(footer_at + HEAD_BYTES, &mut start)?;
        let start = u64::from_le_bytes(start);
        if start == 0 {
            (self.data_end, self.is_end_known) = (footer_at, true);
            return Ok(Ok(()));
        }
        if start < MAGIC_BYTES || start > footer_at {
            return damaged();
        }
        // The checksum counts from there to itself.
        let n_bytes = magic_at - start;
        if n_bytes > MAX_SUMMARY_BYTES {
            return Ok(Err(format!("its summary of {n_bytes} bytes is too long")));
        }
        let mut bytes = vec![0; n_bytes as usize];
        input.read(start, &mut bytes)?;
        let (summed, crc) = bytes.split_at(bytes.len() - 4);
        let crc = u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]);
        if crc != 0 && crc != crc32fast::hash(summed) {
            return Ok(Err("the checksum of its summary is wrong".into()));
        }
        bytes.truncate((footer_at - start) as usize);
        Ok(self.parse(bytes, start))
    }

    /// `records`: those of the summary, which starts at `start`.
    fn parse(&mut self, records: Vec<u8>, start: u64) -> std::result::Result<(), String> {
        let (mut chunks, mut statistics) = (Vec::new(), None);
        let mut rest = &records[..];
        while !rest.is_empty() {
            let record = record::split(rest)
                .filter(|(opcode, ..)| belongs_to_summary(*opcode))
                .and_then(|(opcode, body, rest)| Some((record::parse(opcode, body)?, rest)));
            let Some((record, next)) = record else {
                let at = start + (records.len() - rest.len()) as u64;
                return Err(format!("its summary is damaged at byte {at}"));
            };
            match record {
                Record::ChunkIndex { offset, n_bytes } => chunks.push(Span { offset, n_bytes }),
                Record::Statistics { n_messages, by_channel } => {
                    statistics = Some(Statistics { n_messages, by_channel });
                }
                _ => {}
            }
            rest = next;
        }
        (self.data_end, self.is_end_known) = (start, true);
        (self.records, self.statistics) = (records, statistics);
        chunks.sort_unstable();
        self.chunks = checked(chunks, start)?;
        Ok(())
    }
}

/// Whether such a record may stand in a summary.
fn belongs_to_summary(opcode: u8) -> bool {
    match opcode {
        op::SCHEMA | op::CHANNEL | op::CHUNK_INDEX | op::STATISTICS => true,
        op::ATTACHMENT_INDEX | op::METADATA_INDEX | op::SUMMARY_OFFSET => true,
        _ => opcode >= op::PRIVATE,
    }
}

/// The chunks if none overlaps another and all lie before `data_end`: else a small file could name
/// the same bytes again and again.
fn checked(chunks: Vec<Span>, data_end: u64) -> std::result::Result<Vec<Span>, String> {
    let mut free = MAGIC_BYTES;
    for Span { offset, n_bytes } in &chunks {
        let end = offset.checked_add(*n_bytes).filter(|end| *end <= data_end);
        match end {
            Some(end) if *offset >= free && *n_bytes > HEAD_BYTES => free = end,
            _ => {
                return Err(format!(
                    "its index names a chunk of {n_bytes} bytes at byte {offset}, where none can be"
                ));
            }
        }
    }
    Ok(chunks)
}
