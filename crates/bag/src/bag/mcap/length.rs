//! How long a chunk is whose head may be damaged: its own fields say it, too.

use super::input::Input;
use crate::bag::record::{self, HEAD_BYTES, op};
use std::io::Result;

/// Bytes that hold a chunk's fields before its records, with the name of its compression.
const FIELDS_BYTES: usize = 64;

/// The length that the chunk at `offset` has by its own fields, if only that one leads to another
/// record before `end`, and not `n_bytes`, the length in its head.
///
/// # Errors
/// What the operating system says.
pub(super) fn own_length(
    input: &mut Input,
    offset: u64,
    n_bytes: u64,
    end: u64,
) -> Result<Option<u64>> {
    let mut fields = [0; FIELDS_BYTES];
    let fields_at = offset + HEAD_BYTES;
    let fields = &mut fields[..(end - fields_at).min(FIELDS_BYTES as u64) as usize];
    input.read(fields_at, fields)?;
    let Some(chunk) = record::parse_chunk(fields) else { return Ok(None) };
    let own = chunk.compressed_size.saturating_add(HEAD_BYTES + chunk.fields_bytes);
    let mut leads_on = |n_bytes: u64| -> Result<bool> {
        let Some(left) = (end - offset).checked_sub(n_bytes) else { return Ok(false) };
        if left < HEAD_BYTES {
            return Ok(left == 0);
        }
        let (opcode, body_bytes) = input.head(offset + n_bytes)?;
        Ok(is_known(opcode) && body_bytes <= left - HEAD_BYTES)
    };
    let is_better = own != n_bytes && !leads_on(n_bytes)? && leads_on(own)?;
    Ok(is_better.then_some(own))
}

/// Whether MCAP knows such records.
pub(super) fn is_known(opcode: u8) -> bool {
    (op::HEADER..=op::DATA_END).contains(&opcode)
}
