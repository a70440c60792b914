//! One MCAP file: its records from start to end, around damage where the file says how.
//!
//! A finished file names the places of its chunks at its end. Each is read where it should be, so
//! damage before it costs no more than what lies between. Without that index the records lead from
//! one to the next, and what follows a damaged one may be lost. What is lost is told, in bytes, and
//! in messages where the file counts them.

mod block;
mod input;
mod length;
mod summary;
mod tally;

use super::format::ZSTD_MAGIC;
use super::index::{Index, Place};
use super::record::{self, HEAD_BYTES, Record, op};
use block::{Damage, MAX_RECORD_BYTES, compression};
use forecloud::base::error::{Error, Result};
use input::Input;
use length::is_known;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use summary::{Span, Summary};
use tally::{Passed, Tally};

pub(super) use block::{read_block, walk};

/// Length of the body of the record that ends the data.
const DATA_END_BYTES: u64 = 4;
/// What has been read of a file.
struct Scan<'a> {
    path: &'a Path,
    index: &'a mut Index,
    /// Names of the types by schema, topics by channel.
    schemas: HashMap<u16, String>,
    channels: HashMap<u16, u32>,
    /// Messages seen in the present block.
    n_in_block: u32,
    tally: Tally,
    n_unknown_channel: u64,
    n_misplaced: u64,
    zeros: Passed,
    unknown: Passed,
    /// Whether the data's end record was seen, and whether it was told where the file is cut off.
    has_ended: bool,
    is_cut_told: bool,
}

/// Why reading can't go on.
enum Stop {
    /// Not at this place.
    Here(std::io::Error),
    /// Not in this file.
    Refused(Error),
}

impl From<std::io::Error> for Stop {
    fn from(cause: std::io::Error) -> Self {
        Self::Here(cause)
    }
}

/// Adds the messages of the file to `index`; damage becomes warnings there.
///
/// # Errors
/// [`Error::Io`]; [`Error::Bag`] if it is one of ROS 1.
pub(super) fn scan(file: &mut File, path: &Path, index: &mut Index) -> Result<()> {
    index.storages.insert("mcap");
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    let mut input = Input::new(file);
    let file_bytes = input.n_bytes().map_err(io)?;
    let summary = Summary::read(&mut input, file_bytes).unwrap_or_else(|cause| Summary {
        data_end: file_bytes,
        problem: Some(format!("its end can't be read ({cause})")),
        ..Summary::default()
    });
    let mut scan = Scan {
        path,
        index,
        schemas: HashMap::new(),
        channels: HashMap::new(),
        n_in_block: 0,
        tally: Tally::default(),
        n_unknown_channel: 0,
        n_misplaced: 0,
        zeros: Passed::default(),
        unknown: Passed::default(),
        has_ended: false,
        is_cut_told: false,
    };
    if let Some(problem) = &summary.problem {
        scan.warn(&format!("{problem}; it is read without its index of chunks"));
    }
    scan.define(&summary.records);
    scan.records(&mut input, &summary)?;
    scan.report(&summary);
    Ok(())
}

impl Scan<'_> {
    /// Says what is wrong with the file.
    fn warn(&mut self, problem: &str) {
        let path = self.path.display();
        self.index.warn(format!("{path}: {problem}"));
    }

    fn lost(&mut self, offset: u64, end: u64, why: &str) {
        let n_bytes = end - offset;
        self.warn(&format!("the {n_bytes} bytes from byte {offset} on are left out: {why}"));
    }

    /// Takes the schemas and channels of the summary: those among the data may be damaged.
    fn define(&mut self, records: &[u8]) {
        // It was parsed before, so there is no damage.
        let _ = block::walk_plain(records, &mut |record| match record {
            Record::Schema { .. } | Record::Channel { .. } => self.add(record),
            _ => {}
        });
    }

    /// Reads the records one after the other, and the chunks where the index names them.
    fn records(&mut self, input: &mut Input, summary: &Summary) -> Result<()> {
        let mut offset = mcap::MAGIC.len() as u64;
        let mut chunks = summary.chunks.iter().copied().peekable();
        loop {
            // No record reaches into a chunk that is named.
            let end = chunks.peek().map_or(summary.data_end, |chunk| chunk.offset);
            let (read, next) = if offset < end {
                let read = self.record(input, offset, end, summary);
                (read, end)
            } else if let Some(chunk) = chunks.next() {
                let next = chunk.offset + chunk.n_bytes;
                (self.named_chunk(input, chunk).map(|()| next), next)
            } else {
                return Ok(());
            };
            offset = match read {
                Ok(next) => next,
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Here(cause)) => {
                    self.lost(offset, next, &cause.to_string());
                    next
                }
            };
        }
    }

    /// Reads the record at `offset`, which should end at `end` at the latest; where the next is.
    fn record(
        &mut self,
        input: &mut Input,
        offset: u64,
        end: u64,
        summary: &Summary,
    ) -> std::result::Result<u64, Stop> {
        let left = end - offset;
        let is_cut = end == summary.data_end && !summary.is_complete;
        if left < HEAD_BYTES {
            if !is_cut {
                self.lost(offset, end, "no record is so short");
            }
            return Ok(end);
        }
        let (opcode, body_bytes) = input.head(offset)?;
        if opcode == 0 {
            let next = input.zeros_end(offset, end)?;
            self.zeros.add(offset, next - offset);
            return Ok(next);
        }
        let mut n_bytes = body_bytes.saturating_add(HEAD_BYTES);
        let mut place = Place::Record { offset, n_bytes: n_bytes.min(left) };
        if opcode == op::CHUNK
            && let Some(own) = length::own_length(input, offset, n_bytes, end)?
        {
            self.warn(&format!(
                "the chunk at byte {offset} claims {n_bytes} bytes and holds {own}: read as such"
            ));
            n_bytes = own;
            place = Place::Chunk { offset, n_bytes };
        }
        if n_bytes > left {
            self.overrun(opcode, offset, n_bytes, end, is_cut);
        }
        self.take_record(input, opcode, place, n_bytes, summary)?;
        Ok(offset + n_bytes.min(left))
    }

    /// Says that the record at `offset` claims more bytes than there are up to `end`.
    fn overrun(&mut self, opcode: u8, offset: u64, n_bytes: u64, end: u64, is_cut: bool) {
        let left = end - offset;
        if !is_known(opcode) {
            self.lost(offset, end, "no record can be read there");
        } else if self.has_ended {
            // Of the summary, which holds no messages.
        } else if is_cut {
            self.is_cut_told = true;
            self.warn(&format!(
                "is cut off: of the record at byte {offset}, {left} bytes of {n_bytes} are there"
            ));
        } else {
            self.warn(&format!(
                "the record at byte {offset} claims {n_bytes} bytes, and {left} are there: what \
                 of them can't be read is left out"
            ));
        }
    }

    /// Takes a record of `n_bytes`, of which `place` is there.
    fn take_record(
        &mut self,
        input: &mut Input,
        opcode: u8,
        place: Place,
        n_bytes: u64,
        summary: &Summary,
    ) -> std::result::Result<(), Stop> {
        let (Place::Record { offset, n_bytes: present }
        | Place::Chunk { offset, n_bytes: present }) = place
        else {
            return Ok(());
        };
        let is_whole = present == n_bytes;
        match opcode {
            op::HEADER | op::SCHEMA | op::CHANNEL | op::MESSAGE | op::CHUNK => {
                return self.block(input, place);
            }
            op::DATA_END if n_bytes == HEAD_BYTES + DATA_END_BYTES => {
                self.has_ended = true;
                if summary.is_end_known && offset + n_bytes != summary.data_end {
                    self.warn(&format!(
                        "a record at byte {offset} ends the data, and more follow: reading on"
                    ));
                }
            }
            op::MESSAGE_INDEX if is_whole => {
                let mut start = [0; 6];
                let n = start.len().min((n_bytes - HEAD_BYTES) as usize);
                input.read(offset + HEAD_BYTES, &mut start[..n])?;
                if !record::is_message_index(&start[..n], n_bytes - HEAD_BYTES) {
                    self.unknown.add(offset, present);
                }
            }
            op::ATTACHMENT | op::METADATA => {}
            // What follows the data.
            _ if self.has_ended && is_known(opcode) => {}
            _ if is_whole => self.unknown.add(offset, present),
            _ => {}
        }
        Ok(())
    }

    /// Reads a chunk that the index names.
    fn named_chunk(&mut self, input: &mut Input, chunk: Span) -> std::result::Result<(), Stop> {
        let Span { offset, n_bytes } = chunk;
        if input.head(offset)? == (op::CHUNK, n_bytes - HEAD_BYTES) {
            return self.block(input, Place::Record { offset, n_bytes });
        }
        if input.zeros_end(offset, offset + n_bytes)? == offset + n_bytes {
            self.zeros.add(offset, n_bytes);
            return Ok(());
        }
        self.warn(&format!(
            "the head of the chunk at byte {offset} is damaged: read as the index describes it"
        ));
        self.block(input, Place::Chunk { offset, n_bytes })
    }

    /// Takes the messages of a block.
    fn block(&mut self, input: &mut Input, place: Place) -> std::result::Result<(), Stop> {
        let (Place::Record { offset, n_bytes } | Place::Chunk { offset, n_bytes }) = place else {
            return Ok(());
        };
        if n_bytes > MAX_RECORD_BYTES {
            self.lost(offset, offset + n_bytes, "no record is so long");
            return Ok(());
        }
        let mut bytes = vec![0; n_bytes as usize]; // at most the file's length
        input.read(offset, &mut bytes)?;
        block::repair(&mut bytes, place);
        self.index.start_block(place);
        self.n_in_block = 0;
        let mut refusal = None;
        let outcome = walk(&bytes, &mut |record| match record {
            Record::Header { profile } if profile.starts_with("ros1") => {
                refusal = Some(format!(
                    "is a ROS 1 recording (profile '{profile}'): convert it with rosbags-convert"
                ));
            }
            record => self.add(record),
        });
        if let Some(problem) = refusal {
            return Err(Stop::Refused(Error::Bag { path: self.path.to_owned(), problem }));
        }
        let mut keep = true;
        if let Err(Damage { problem, all }) = outcome {
            let lost = if all { "all of it is" } else { "what follows in it is" };
            self.warn(&format!("record at byte {offset}: {problem}; {lost} left out"));
            if all {
                self.index.drop_block();
                keep = false;
            }
        } else if let n @ 1.. = block::n_behind(&bytes) {
            self.warn(&format!(
                "the chunk at byte {offset}: {n} bytes after its data are left out"
            ));
        }
        self.tally.end_block(keep);
        self.index.compressions.extend(compression(&bytes));
        self.index.check_size(self.path).map_err(Stop::Refused)
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Schema { id, name } => {
                self.schemas.entry(id).or_insert_with(|| name.to_owned());
            }
            Record::Channel { id, schema_id, topic, encoding } => {
                if !self.channels.contains_key(&id) {
                    let kind = self.schemas.get(&schema_id).map_or("", String::as_str);
                    self.channels.insert(id, self.index.topic(topic, kind, encoding));
                }
            }
            Record::Message { channel_id, log_time, data } => {
                let ordinal = self.n_in_block;
                self.n_in_block += 1; // a block is too small to overflow it
                self.tally.add(channel_id);
                let log_time_ns = i64::try_from(log_time).unwrap_or(i64::MAX);
                match self.channels.get(&channel_id) {
                    None => self.n_unknown_channel += 1,
                    Some(&topic) => self.index.push(topic, log_time_ns, ordinal),
                }
                if data.starts_with(&ZSTD_MAGIC) {
                    self.index.compressions.insert("zstd by message");
                }
            }
            Record::Other => self.n_misplaced += 1,
            Record::Header { .. } | Record::ChunkIndex { .. } | Record::Statistics { .. } => {}
        }
    }

    /// Says what was found all over the file, once.
    fn report(&mut self, summary: &Summary) {
        if !summary.is_complete && !self.is_cut_told {
            self.warn(match self.has_ended {
                true => "is cut off after its messages",
                false => "is cut off: it has no end records",
            });
        }
        let Passed { first, n_bytes, .. } = self.zeros;
        if n_bytes > 0 {
            self.warn(&format!(
                "{n_bytes} bytes are zeros, the first at byte {first}: what a power cut leaves of \
                 data that were not yet on the disk"
            ));
        }
        let Passed { first, n, n_bytes } = self.unknown;
        if n > 0 {
            self.warn(&format!(
                "passed over {n} records that are not known, or have no place there, of {n_bytes} \
                 bytes; the first at byte {first}"
            ));
        }
        for (n, what) in [
            (self.n_misplaced, "records that have no place in a chunk"),
            (self.n_unknown_channel, "messages of unknown channels"),
        ] {
            if n > 0 {
                self.warn(&format!("left out {n} {what}"));
            }
        }
        let topic = |channel| match self.channels.get(&channel) {
            Some(&number) => self.index.topics[number as usize].name.to_string(),
            None => format!("channel {channel}"),
        };
        let difference = summary.statistics.as_ref();
        if let Some(text) = difference.and_then(|counts| self.tally.compare(counts, topic)) {
            self.warn(&text);
        }
    }
}
