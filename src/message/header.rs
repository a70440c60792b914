//! `std_msgs/msg/Header`.

use super::cdr::CdrReader;
use super::stamp::Stamp;
use crate::base::error::Result;

/// When and in which coordinate frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Time of the measurement.
    pub stamp: Stamp,
    /// Name of the coordinate frame.
    pub frame_id: String,
}

impl Header {
    /// Fewest bytes that a header takes: the time, and the length of the name.
    pub(super) const MIN_BYTES: usize = 12;

    pub(super) fn read(reader: &mut CdrReader) -> Result<Self> {
        let stamp = read_time(reader, ["header.stamp.sec", "header.stamp.nanosec"])?;
        Ok(Self { stamp, frame_id: reader.string("header.frame_id")? })
    }
}

/// A `builtin_interfaces/msg/Time`, whose fields have these names.
pub(super) fn read_time(
    reader: &mut CdrReader,
    [sec, nanosec]: [&'static str; 2],
) -> Result<Stamp> {
    let secs = reader.i32(sec)?;
    let nanosecs = reader.u32(nanosec)?;
    if nanosecs >= 1_000_000_000 {
        return Err(reader.error(nanosec, format!("{nanosecs} is over 1 s")));
    }
    Ok(Stamp::from_parts(secs, nanosecs))
}
