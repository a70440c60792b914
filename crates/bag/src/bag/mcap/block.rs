//! What is read of an MCAP file in one go: a record, with the records inside if it is a chunk.

use crate::bag::index::Place;
use crate::bag::record::{self, HEAD_BYTES, Record, op};
use crate::bag::unpack::most_bytes;
use mcap::sans_io::{LinearReadEvent, LinearReader, LinearReaderOptions};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Bytes of a record or of an unpacked chunk beyond which a file is taken for damaged.
pub(in crate::bag) const MAX_RECORD_BYTES: u64 = 512 << 20;

/// Why a block could not be read to its end.
pub(in crate::bag) struct Damage {
    /// Shown to the user.
    pub(in crate::bag) problem: String,
    /// Whether the records before the damage are not to be trusted either.
    pub(in crate::bag) all: bool,
}

impl Damage {
    fn from_here(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), all: false }
    }
}

/// The bytes of a block, its head included; those of a chunk have the head that they should have.
///
/// None if it is no block of MCAP.
pub(in crate::bag) fn read_block(file: &mut File, place: Place) -> std::io::Result<Vec<u8>> {
    let (offset, n_bytes) = match place {
        Place::Record { offset, n_bytes } | Place::Chunk { offset, n_bytes } => (offset, n_bytes),
        Place::Rows { .. } => return Ok(vec![]),
    };
    file.seek(SeekFrom::Start(offset))?;
    // At most the file's length when it was opened, and at most `MAX_RECORD_BYTES`.
    let mut bytes = vec![0; n_bytes as usize];
    file.read_exact(&mut bytes)?;
    repair(&mut bytes, place);
    Ok(bytes)
}

/// Gives the bytes of a chunk the head that they should have.
pub(super) fn repair(bytes: &mut [u8], place: Place) {
    if let (Place::Chunk { n_bytes, .. }, [opcode, rest @ ..]) = (place, bytes) {
        *opcode = op::CHUNK;
        if let Some(length) = rest.first_chunk_mut() {
            *length = n_bytes.saturating_sub(HEAD_BYTES).to_le_bytes();
        }
    }
}

/// How the chunk is compressed, if `block` is one and it is.
pub(super) fn compression(block: &[u8]) -> Option<&'static str> {
    let (head, body) = block.split_at_checked(HEAD_BYTES as usize)?;
    let chunk = if head[0] == op::CHUNK { record::parse_chunk(body) } else { None };
    match chunk?.compression {
        "zstd" => Some("zstd by chunk"),
        "lz4" => Some("lz4 by chunk"),
        _ => None,
    }
}

/// Bytes that stand behind the data of a chunk, within its length.
pub(super) fn n_behind(block: &[u8]) -> u64 {
    match block.split_at_checked(HEAD_BYTES as usize) {
        Some(([op::CHUNK, ..], body)) => record::parse_chunk(body).map_or(0, |chunk| {
            let n_bytes = chunk.fields_bytes.saturating_add(chunk.compressed_size);
            (body.len() as u64).saturating_sub(n_bytes)
        }),
        _ => 0,
    }
}

/// Shows `visit` the record of `bytes` or, of a chunk, the records inside, until damage.
pub(in crate::bag) fn walk(
    bytes: &[u8],
    visit: &mut dyn FnMut(Record),
) -> std::result::Result<(), Damage> {
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

/// Shows `visit` the records of `bytes`, one after the other, until damage.
pub(super) fn walk_plain(
    mut bytes: &[u8],
    visit: &mut dyn FnMut(Record),
) -> std::result::Result<(), Damage> {
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
    if opcode == 0 {
        return Err(Damage::from_here("zeros stand where a record should"));
    }
    let record = record::parse(opcode, body).ok_or_else(|| {
        Damage::from_here(format!("a record of opcode 0x{opcode:02x} is malformed"))
    })?;
    visit(record);
    Ok(())
}

/// `bytes`: one chunk record, possibly cut off.
fn walk_compressed(bytes: &[u8], visit: &mut dyn FnMut(Record)) -> std::result::Result<(), Damage> {
    // The reader makes room for what a record says of its length, before there is anything in it.
    let most = most_bytes(bytes.len()).clamp(bytes.len() as u64, MAX_RECORD_BYTES);
    let options = LinearReaderOptions::default()
        .with_skip_start_magic(true)
        .with_skip_end_magic(true)
        .with_validate_chunk_crcs(true)
        .with_record_length_limit(most as usize);
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
