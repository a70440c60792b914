//! One MCAP file: its records from start to end, as far as they can be read.

use super::index::{Index, Place};
use super::record::{self, HEAD_BYTES, Record, op};
use super::unpack;
use crate::error::{Error, Result};
use mcap::sans_io::{LinearReadEvent, LinearReader, LinearReaderOptions};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a record or of an unpacked chunk beyond which a file is taken for damaged.
const MAX_RECORD_BYTES: u64 = 512 << 20;

/// Why a block could not be read to its end.
pub(super) struct Damage {
    /// Shown to the user.
    pub(super) problem: String,
    /// Whether the records before the damage are not to be trusted either.
    pub(super) all: bool,
}

impl Damage {
    fn from_here(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), all: false }
    }
}

/// What has been read of a file.
struct Scan<'a> {
    path: &'a Path,
    index: &'a mut Index,
    /// Names of the types by schema, topics by channel.
    schemas: HashMap<u16, String>,
    channels: HashMap<u16, u32>,
    /// Messages seen in the present block.
    n_in_block: u32,
    n_unknown_channel: u64,
}

/// Adds the messages of the file to `index`; damage becomes warnings there.
///
/// # Errors
/// [`Error::Io`]; [`Error::Bag`] if it is one of ROS 1.
pub(super) fn scan(file: &mut File, path: &Path, index: &mut Index) -> Result<()> {
    index.storages.insert("mcap");
    let (schemas, channels) = (HashMap::new(), HashMap::new());
    let mut scan = Scan { path, index, schemas, channels, n_in_block: 0, n_unknown_channel: 0 };
    scan.file(file)?;
    if scan.n_unknown_channel > 0 {
        let (path, n) = (path.display(), scan.n_unknown_channel);
        scan.index.warn(format!("{path}: left out {n} messages of unknown channels"));
    }
    Ok(())
}

impl Scan<'_> {
    fn file(&mut self, file: &mut File) -> Result<()> {
        let file_bytes = match file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(cause) => return Err(Error::Io { path: self.path.to_owned(), cause }),
        };
        let mut offset = mcap::MAGIC.len() as u64;
        while offset.saturating_add(HEAD_BYTES) <= file_bytes {
            let left = file_bytes - offset;
            let (opcode, body_bytes) = match read_head(file, offset) {
                Ok(head) => head,
                Err(cause) => {
                    self.stop(offset, &cause);
                    return Ok(());
                }
            };
            let block_bytes = body_bytes.saturating_add(HEAD_BYTES);
            let n_bytes = block_bytes.min(left);
            match opcode {
                op::DATA_END | op::FOOTER => {
                    if !ends_with_magic(file).unwrap_or(false) {
                        let path = self.path.display();
                        self.index.warn(format!("{path} is cut off behind its messages"));
                    }
                    return Ok(());
                }
                op::HEADER | op::SCHEMA | op::CHANNEL | op::MESSAGE | op::CHUNK => {
                    match self.read_block(file, offset, n_bytes) {
                        Ok(Some(bytes)) => self.block(&bytes, offset, n_bytes)?,
                        Ok(None) => {}
                        Err(cause) => {
                            self.stop(offset, &cause);
                            return Ok(());
                        }
                    }
                }
                _ => {}
            }
            offset = offset.saturating_add(block_bytes);
        }
        let path = self.path.display();
        self.index.warn(format!("{path} is cut off: it has no end records"));
        Ok(())
    }

    /// The file can't be read from `offset` on.
    fn stop(&mut self, offset: u64, cause: &std::io::Error) {
        let path = self.path.display();
        self.index.warn(format!("{path}: byte {offset}: {cause}; what follows is left out"));
    }

    /// The bytes of a record, if it is not too long.
    fn read_block(
        &mut self,
        file: &mut File,
        offset: u64,
        n_bytes: u64,
    ) -> std::io::Result<Option<Vec<u8>>> {
        if n_bytes <= MAX_RECORD_BYTES {
            return read_block(file, offset, n_bytes).map(Some);
        }
        let path = self.path.display();
        self.index.warn(format!("{path}: skipped {n_bytes} bytes at byte {offset}"));
        Ok(None)
    }

    fn block(&mut self, bytes: &[u8], offset: u64, n_bytes: u64) -> Result<()> {
        let path = self.path.display();
        self.index.start_block(Place::Bytes { offset, n_bytes });
        self.n_in_block = 0;
        let mut refusal = None;
        let outcome = walk(bytes, &mut |record| match record {
            Record::Header { profile } if profile.starts_with("ros1") => {
                refusal = Some(format!(
                    "is a ROS 1 recording (profile '{profile}'): convert it with rosbags-convert"
                ));
            }
            record => self.add(record),
        });
        if let Some(problem) = refusal {
            return Err(Error::Bag { path: self.path.to_owned(), problem });
        }
        if let Err(Damage { problem, all }) = outcome {
            let lost = if all { "all of it is" } else { "what follows in it is" };
            self.index.warn(format!("{path}: record at byte {offset}: {problem}; {lost} left out"));
            if all {
                self.index.drop_block();
            }
        }
        self.index.compressions.extend(compression(bytes));
        self.index.check_size(self.path)
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
                let log_time_ns = i64::try_from(log_time).unwrap_or(i64::MAX);
                match self.channels.get(&channel_id) {
                    None => self.n_unknown_channel += 1,
                    Some(&topic) => self.index.push(topic, log_time_ns, ordinal),
                }
                if data.starts_with(&unpack::MAGIC) {
                    self.index.compressions.insert("zstd by message");
                }
            }
            Record::Header { .. } | Record::Other => {}
        }
    }
}

/// How the chunk is compressed, if `block` is one and it is.
fn compression(block: &[u8]) -> Option<&'static str> {
    let (head, body) = block.split_at_checked(HEAD_BYTES as usize)?;
    let chunk = if head[0] == op::CHUNK { record::parse_chunk(body) } else { None };
    match chunk?.compression {
        "zstd" => Some("zstd by chunk"),
        "lz4" => Some("lz4 by chunk"),
        _ => None,
    }
}

/// The bytes of a block, its head included.
pub(super) fn read_block(file: &mut File, offset: u64, n_bytes: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = vec![0; n_bytes as usize]; // at most the file's length
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Shows `visit` the record of `bytes` or, of a chunk, the records inside, until damage.
pub(super) fn walk(bytes: &[u8], visit: &mut dyn FnMut(Record)) -> std::result::Result<(), Damage> {
    let (head, body) = bytes
        .split_at_checked(HEAD_BYTES as usize)
        .ok_or_else(|| Damage::from_here("is cut off"))?;
    if head[0] != op::CHUNK {
        return walk_plain(bytes, visit);
    }
    let chunk = record::parse_chunk(body)
        .ok_or_else(|| Damage::from_here("the chunk's header is malformed"))?;
    if chunk.uncompressed_size > MAX_RECORD_BYTES {
        let n_bytes = chunk.uncompressed_size;
        return Err(Damage::from_here(format!("a chunk of {n_bytes} bytes unpacked")));
    }
    if !chunk.compression.is_empty() {
        return walk_compressed(bytes, visit);
    }
    // The channels that it defines are of use even if its messages are not to be trusted.
    let walked = walk_plain(chunk.records, visit);
    let whole = chunk.records.len() as u64 == chunk.compressed_size;
    if whole && chunk.crc != 0 && chunk.crc != crc32fast::hash(chunk.records) {
        return Err(Damage { problem: "the chunk's checksum is wrong".into(), all: true });
    }
    walked
}

fn walk_plain(mut bytes: &[u8], visit: &mut dyn FnMut(Record)) -> std::result::Result<(), Damage> {
    while !bytes.is_empty() {
        let (opcode, body, rest) =
            record::split(bytes).ok_or_else(|| Damage::from_here("a record is cut off"))?;
        visit_one(opcode, body, visit)?;
        bytes = rest;
    }
    Ok(())
}

fn visit_one(
    opcode: u8,
    body: &[u8],
    visit: &mut dyn FnMut(Record),
) -> std::result::Result<(), Damage> {
    let record = record::parse(opcode, body).ok_or_else(|| {
        Damage::from_here(format!("a record of opcode 0x{opcode:02x} is malformed"))
    })?;
    visit(record);
    Ok(())
}

/// `bytes`: one chunk record, possibly cut off.
fn walk_compressed(bytes: &[u8], visit: &mut dyn FnMut(Record)) -> std::result::Result<(), Damage> {
    let options = LinearReaderOptions::default()
        .with_skip_start_magic(true)
        .with_skip_end_magic(true)
        .with_validate_chunk_crcs(true)
        .with_record_length_limit(MAX_RECORD_BYTES as usize);
    let mut reader = LinearReader::new_with_options(options);
    let mut rest = bytes;
    while let Some(event) = reader.next_event() {
        match event {
            Ok(LinearReadEvent::ReadRequest(n)) => {
                let (given, left) = rest.split_at(n.min(rest.len()));
                reader.insert(given.len())[..given.len()].copy_from_slice(given);
                reader.notify_read(given.len());
                rest = left;
            }
            Ok(LinearReadEvent::Record { data, opcode }) => visit_one(opcode, data, visit)?,
            Err(error) => {
                let all = matches!(error, mcap::McapError::BadChunkCrc { .. });
                return Err(Damage { problem: error.to_string(), all });
            }
        }
    }
    Ok(())
}

fn read_head(file: &mut File, offset: u64) -> std::io::Result<(u8, u64)> {
    file.seek(SeekFrom::Start(offset))?;
    let mut head = [0; HEAD_BYTES as usize];
    file.read_exact(&mut head)?;
    let [opcode, length @ ..] = head;
    Ok((opcode, u64::from_le_bytes(length)))
}

/// All messages were read; the end of the file tells whether its writer was stopped.
fn ends_with_magic(file: &mut File) -> std::io::Result<bool> {
    let mut magic = [0; 8];
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut magic)?;
    Ok(magic == mcap::MAGIC)
}
