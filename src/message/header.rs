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
        let sec = reader.i32("header.stamp.sec")?;
        let nanosec = reader.u32("header.stamp.nanosec")?;
        if nanosec >= 1_000_000_000 {
            return Err(reader.error("header.stamp.nanosec", format!("{nanosec} is over 1 s")));
        }
        let frame_id = reader.string("header.frame_id")?;
        Ok(Self { stamp: Stamp::from_parts(sec, nanosec), frame_id })
    }
}
