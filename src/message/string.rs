//! `std_msgs/msg/String`.

use super::cdr::CdrReader;
use crate::base::error::Result;

/// A text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringMessage {
    /// The text.
    pub data: String,
}

impl StringMessage {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated or not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "std_msgs/msg/String")?;
        let data = reader.string("data")?;
        reader.finish()?;
        Ok(Self { data })
    }
}
