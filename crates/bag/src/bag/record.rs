//! The MCAP records that a reader of messages needs (mcap.dev/spec), each field checked.

use std::collections::BTreeMap;

/// Opcode and length.
pub(super) const HEAD_BYTES: u64 = 9;

/// Opcodes.
pub(super) mod op {
    pub(in super::super) const HEADER: u8 = 0x01;
    pub(in super::super) const FOOTER: u8 = 0x02;
    pub(in super::super) const SCHEMA: u8 = 0x03;
    pub(in super::super) const CHANNEL: u8 = 0x04;
    pub(in super::super) const MESSAGE: u8 = 0x05;
    pub(in super::super) const CHUNK: u8 = 0x06;
    pub(in super::super) const MESSAGE_INDEX: u8 = 0x07;
    pub(in super::super) const CHUNK_INDEX: u8 = 0x08;
    pub(in super::super) const ATTACHMENT: u8 = 0x09;
    pub(in super::super) const ATTACHMENT_INDEX: u8 = 0x0A;
    pub(in super::super) const STATISTICS: u8 = 0x0B;
    pub(in super::super) const METADATA: u8 = 0x0C;
    pub(in super::super) const METADATA_INDEX: u8 = 0x0D;
    pub(in super::super) const SUMMARY_OFFSET: u8 = 0x0E;
    pub(in super::super) const DATA_END: u8 = 0x0F;
    /// From here on for others to use.
    pub(in super::super) const PRIVATE: u8 = 0x80;
}

/// A record that is of use; its text and bytes are borrowed from the file's.
pub(super) enum Record<'a> {
    Header {
        profile: &'a str,
    },
    Schema {
        id: u16,
        name: &'a str,
    },
    Channel {
        id: u16,
        schema_id: u16,
        topic: &'a str,
        encoding: &'a str,
    },
    Message {
        channel_id: u16,
        log_time: u64,
        data: &'a [u8],
    },
    /// Where a chunk starts, and its length with its head.
    ChunkIndex {
        offset: u64,
        n_bytes: u64,
    },
    Statistics {
        n_messages: u64,
        by_channel: BTreeMap<u16, u64>,
    },
    Other,
}

/// What a chunk says of itself; `records` may be cut short by the end of the file.
pub(super) struct Chunk<'a> {
    pub(super) uncompressed_size: u64,
    pub(super) crc: u32,
    pub(super) compression: &'a str,
    pub(super) compressed_size: u64,
    pub(super) records: &'a [u8],
    /// Length of the fields before the records.
    pub(super) fields_bytes: u64,
}

/// Parses the body of a record that is not a chunk; `None` if it is malformed.
pub(super) fn parse(opcode: u8, body: &[u8]) -> Option<Record<'_>> {
    let mut fields = Fields(body);
    Some(match opcode {
        op::HEADER => Record::Header { profile: fields.text()? },
        op::SCHEMA => Record::Schema { id: fields.u16()?, name: fields.text()? },
        op::CHANNEL => Record::Channel {
            id: fields.u16()?,
            schema_id: fields.u16()?,
            topic: fields.text()?,
            encoding: fields.text()?,
        },
        op::MESSAGE => {
            let channel_id = fields.u16()?;
            let _sequence = fields.u32()?;
            let log_time = fields.u64()?;
            let _publish_time = fields.u64()?;
            Record::Message { channel_id, log_time, data: fields.0 }
        }
        op::CHUNK_INDEX => {
            let _times = fields.take(16)?;
            Record::ChunkIndex { offset: fields.u64()?, n_bytes: fields.u64()? }
        }
        op::STATISTICS => {
            let n_messages = fields.u64()?;
            // Numbers of schemas, channels, attachments, metadata and chunks; times.
            fields.take(2 + 4 * 4 + 16)?;
            let n_bytes = fields.u32()? as usize;
            let mut counts = Fields(fields.take(n_bytes)?);
            let count = || Some((counts.u16()?, counts.u64()?));
            // One by one: collected, all of a hostile record's would be held first.
            let mut by_channel = BTreeMap::new();
            by_channel.extend(std::iter::from_fn(count));
            Record::Statistics { n_messages, by_channel }
        }
        _ => Record::Other,
    })
}

/// Parses the body of a chunk record; `None` if its header is malformed.
pub(super) fn parse_chunk(body: &[u8]) -> Option<Chunk<'_>> {
    let mut fields = Fields(body);
    let _times = fields.take(16)?;
    let uncompressed_size = fields.u64()?;
    let crc = fields.u32()?;
    let compression = fields.text()?;
    let compressed_size = fields.u64()?;
    let fields_bytes = (body.len() - fields.0.len()) as u64;
    let present = fields.0.len().min(usize::try_from(compressed_size).unwrap_or(usize::MAX));
    let records = fields.take(present)?;
    Some(Chunk { uncompressed_size, crc, compression, compressed_size, records, fields_bytes })
}

/// The next record of `bytes`, as opcode and body, and what follows it; `None` if it is cut.
pub(super) fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let mut fields = Fields(bytes);
    let opcode = fields.take(1)?[0];
    let length = usize::try_from(fields.u64()?).ok()?;
    let body = fields.take(length)?;
    Some((opcode, body, fields.0))
}

/// Whether the body of a record of message indices, which starts with `start`, is `n_bytes` long.
pub(super) fn is_message_index(start: &[u8], n_bytes: u64) -> bool {
    let mut fields = Fields(start);
    let length = fields.u16().and_then(|_channel_id| fields.u32());
    length.is_some_and(|length| u64::from(length) + 6 == n_bytes)
}

/// Little-endian fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).ok()
    }
}
