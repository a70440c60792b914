//! CDR writer of the tests: an independent, plain way back from the decoder.

/// Serialized bytes in either byte order.
pub(crate) struct CdrWriter {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl CdrWriter {
    pub(crate) fn new(big_endian: bool) -> Self {
        Self { bytes: vec![0, u8::from(!big_endian), 0, 0], big_endian }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn primitive<const N: usize>(mut self, little_endian: [u8; N]) -> Self {
        while !(self.bytes.len() - 4).is_multiple_of(N) {
            self.bytes.push(0xAA); // padding has no defined value
        }
        let mut value = little_endian;
        if self.big_endian {
            value.reverse();
        }
        self.bytes.extend(value);
        self
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.primitive([value])
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.primitive(value.to_le_bytes())
    }

    pub(crate) fn i32(self, value: i32) -> Self {
        self.primitive(value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.primitive(value.to_le_bytes())
    }

    pub(crate) fn f32(self, value: f32) -> Self {
        self.primitive(value.to_le_bytes())
    }

    pub(crate) fn string(self, value: &str) -> Self {
        let mut writer = self.u32(value.len() as u32 + 1);
        writer.bytes.extend(value.as_bytes());
        writer.u8(0)
    }

    pub(crate) fn strings(self, values: &[&str]) -> Self {
        values.iter().fold(self.u32(values.len() as u32), |writer, value| writer.string(value))
    }

    pub(crate) fn u8s(self, values: &[u8]) -> Self {
        values.iter().fold(self.u32(values.len() as u32), |writer, &value| writer.u8(value))
    }

    pub(crate) fn u32s(self, values: &[u32]) -> Self {
        values.iter().fold(self.u32(values.len() as u32), |writer, &value| writer.u32(value))
    }

    pub(crate) fn u16s(self, values: &[u16]) -> Self {
        let writer = self.u32(values.len() as u32);
        values.iter().fold(writer, |writer, value| writer.primitive(value.to_le_bytes()))
    }

    pub(crate) fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self.u32(values.len() as u32), |writer, &value| writer.u64(value))
    }

    pub(crate) fn f32s(self, values: &[f32]) -> Self {
        values.iter().fold(self.u32(values.len() as u32), |writer, &value| writer.f32(value))
    }

    pub(crate) fn f64s(self, values: &[f64]) -> Self {
        let writer = self.u32(values.len() as u32);
        writer.f64_array(values)
    }

    pub(crate) fn f64_array(self, values: &[f64]) -> Self {
        values.iter().fold(self, |writer, value| writer.primitive(value.to_le_bytes()))
    }

    pub(crate) fn header(self, sec: i32, nanosec: u32, frame_id: &str) -> Self {
        self.i32(sec).u32(nanosec).string(frame_id)
    }
}
