//! Reader of plain CDR (XCDR version 1), little or big endian, as ROS 2 serializes.

use crate::base::error::{Error, Result};

/// Bytes of the encapsulation header; alignment counts from behind it.
const ENCAPSULATION_BYTES: usize = 4;
/// Writers may pad the end up to the largest alignment.
const MAX_PADDING_BYTES: usize = 7;

/// Position in a serialized message of type `message_type`; never reads or allocates beyond it.
pub(super) struct CdrReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    big_endian: bool,
    message_type: &'static str,
}

impl<'a> CdrReader<'a> {
    /// Reads the encapsulation header.
    ///
    /// # Errors
    /// [`Error::Message`] unless it says plain CDR in either byte order.
    pub(super) fn new(bytes: &'a [u8], message_type: &'static str) -> Result<Self> {
        let mut reader = Self { bytes, offset: 0, big_endian: false, message_type };
        let kind = reader.take(ENCAPSULATION_BYTES, "encapsulation")?;
        reader.big_endian = match (kind[0], kind[1]) {
            (0, 0) => true,
            (0, 1) => false,
            (high, low) => {
                let problem = format!(
                    "representation 0x{high:02x}{low:02x} is not plain CDR (0x0000 or 0x0001): \
                     publish or record it as XCDR version 1"
                );
                reader.offset = 0;
                return Err(reader.error("encapsulation", problem));
            }
        };
        Ok(reader)
    }

    /// An error at the present position.
    pub(super) fn error(&self, field: &'static str, problem: impl Into<String>) -> Error {
        Error::Message {
            message_type: self.message_type,
            field,
            offset: self.offset,
            problem: problem.into(),
        }
    }

    /// Checks that nothing but padding follows.
    pub(super) fn finish(self) -> Result<()> {
        match self.remaining() {
            n if n <= MAX_PADDING_BYTES => Ok(()),
            n => Err(self.error(
                "end",
                format!("{n} bytes are left over: is the topic of another message type?"),
            )),
        }
    }

    /// Bytes that were read.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.offset)
    }

    fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8]> {
        let end = self.offset.checked_add(n);
        match end.and_then(|end| self.bytes.get(self.offset..end)) {
            Some(taken) => {
                self.offset += n;
                Ok(taken)
            }
            None => {
                let left = self.remaining();
                Err(self.error(field, format!("needs {n} bytes, {left} are left: truncated")))
            }
        }
    }

    /// `N` bytes at the next multiple of `N`, in little-endian order.
    fn primitive<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        self.align(N);
        let mut value = [0; N];
        value.copy_from_slice(self.take(N, field)?);
        if self.big_endian {
            value.reverse();
        }
        Ok(value)
    }

    fn align(&mut self, n: usize) {
        let from_body = self.offset - ENCAPSULATION_BYTES;
        self.offset += from_body.next_multiple_of(n) - from_body;
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8> {
        Ok(u8::from_le_bytes(self.primitive(field)?))
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.primitive(field)?))
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32> {
        Ok(i32::from_le_bytes(self.primitive(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.primitive(field)?))
    }

    pub(super) fn f32(&mut self, field: &'static str) -> Result<f32> {
        Ok(f32::from_le_bytes(self.primitive(field)?))
    }

    /// A fixed array of `N` numbers.
    pub(super) fn f64_array<const N: usize>(&mut self, field: &'static str) -> Result<[f64; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = f64::from_le_bytes(self.primitive(field)?);
        }
        Ok(values)
    }

    /// A count of elements of at least `element_bytes` each: no more than the bytes left can hold.
    pub(super) fn count(&mut self, element_bytes: usize, field: &'static str) -> Result<usize> {
        let count = self.u32(field)? as usize;
        let left = self.remaining();
        match count.checked_mul(element_bytes) {
            Some(needed) if needed <= left => Ok(count),
            _ => Err(self.error(
                field,
                format!(
                    "{count} elements of at least {element_bytes} bytes, {left} bytes are left"
                ),
            )),
        }
    }

    /// UTF-8 text with its terminating zero; a length of 0 is read as the empty string.
    pub(super) fn string(&mut self, field: &'static str) -> Result<String> {
        Ok(self.str(field)?.to_owned())
    }

    /// [`CdrReader::string`] where it lies.
    pub(super) fn str(&mut self, field: &'static str) -> Result<&'a str> {
        let length = self.count(1, field)?;
        let bytes = self.take(length, field)?;
        let text = match bytes.split_last() {
            None => &[],
            Some((0, text)) => text,
            Some((last, _)) => {
                return Err(self.error(field, format!("string ends in 0x{last:02x}, not in 0")));
            }
        };
        std::str::from_utf8(text).map_err(|e| self.error(field, e.to_string()))
    }

    pub(super) fn strings(&mut self, field: &'static str) -> Result<Vec<String>> {
        let count = self.count(4, field)?;
        (0..count).map(|_| self.string(field)).collect()
    }

    pub(super) fn u8s(&mut self, field: &'static str) -> Result<Vec<u8>> {
        Ok(self.bytes(field)?.to_vec())
    }

    /// [`CdrReader::u8s`] where they lie.
    pub(super) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8]> {
        let count = self.count(1, field)?;
        self.take(count, field)
    }

    pub(super) fn u32s(&mut self, field: &'static str) -> Result<Vec<u32>> {
        self.sequence(field, u32::from_le_bytes)
    }

    pub(super) fn u16s(&mut self, field: &'static str) -> Result<Vec<u16>> {
        self.sequence(field, u16::from_le_bytes)
    }

    pub(super) fn u64s(&mut self, field: &'static str) -> Result<Vec<u64>> {
        self.sequence(field, u64::from_le_bytes)
    }

    pub(super) fn f32s(&mut self, field: &'static str) -> Result<Vec<f32>> {
        self.sequence(field, f32::from_le_bytes)
    }

    pub(super) fn f64s(&mut self, field: &'static str) -> Result<Vec<f64>> {
        self.sequence(field, f64::from_le_bytes)
    }

    fn sequence<const N: usize, T>(
        &mut self,
        field: &'static str,
        from_le: fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let count = self.count(N, field)?;
        if count == 0 {
            return Ok(Vec::new()); // no element, hence no alignment
        }
        self.align(N);
        let bytes = self.take(count * N, field)?;
        let element = |chunk: &[u8]| {
            let mut value = [0; N];
            value.copy_from_slice(chunk);
            if self.big_endian {
                value.reverse();
            }
            from_le(value)
        };
        Ok(bytes.chunks_exact(N).map(element).collect())
    }
}
