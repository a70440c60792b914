//! The records of an MCAP file, to damage and to forge.

/// Opcodes.
pub mod op {
    pub const FOOTER: u8 = 0x02;
    pub const CHUNK: u8 = 0x06;
    pub const CHUNK_INDEX: u8 = 0x08;
    pub const STATISTICS: u8 = 0x0B;
    pub const DATA_END: u8 = 0x0F;
}

const MAGIC_BYTES: usize = 8;
const HEAD_BYTES: usize = 9;

/// A record's place.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    pub opcode: u8,
    pub offset: usize,
    /// With its head.
    pub n_bytes: usize,
}

/// The records of a whole file, or of one that ends behind a record.
pub fn records(bytes: &[u8]) -> Vec<Record> {
    let end = bytes.strip_suffix(mcap::MAGIC).unwrap_or(bytes).len();
    let mut records = Vec::new();
    let mut offset = MAGIC_BYTES;
    while offset < end {
        let length = bytes[offset + 1..offset + HEAD_BYTES].try_into().unwrap();
        let n_bytes = HEAD_BYTES + u64::from_le_bytes(length) as usize;
        records.push(Record { opcode: bytes[offset], offset, n_bytes });
        offset += n_bytes;
    }
    assert_eq!(offset, end);
    records
}

/// The file as a power cut leaves it: without the records behind its data.
pub fn without_end(bytes: &[u8]) -> Vec<u8> {
    let end = records(bytes).into_iter().find(|record| record.opcode == op::DATA_END).unwrap();
    bytes[..end.offset].to_vec()
}

/// The data as a finished file without a summary.
pub fn finished(data: &[u8]) -> Vec<u8> {
    [data, &data_end(), &record(op::FOOTER, &[0; 20]), mcap::MAGIC].concat()
}

pub fn data_end() -> Vec<u8> {
    record(op::DATA_END, &[0; 4])
}

pub fn record(opcode: u8, body: &[u8]) -> Vec<u8> {
    [&[opcode], &(body.len() as u64).to_le_bytes()[..], body].concat()
}

/// Sets the number at `at` of the `nth` record of this opcode; the summary has no checksum then.
pub fn forge(bytes: &mut [u8], opcode: u8, nth: usize, at: usize, value: u64) {
    let of_opcode = records(bytes).into_iter().filter(|record| record.opcode == opcode);
    let offset = of_opcode.map(|record| record.offset).nth(nth).unwrap() + HEAD_BYTES + at;
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    let crc = bytes.len() - MAGIC_BYTES - 4;
    bytes[crc..crc + 4].fill(0);
}
