//! `sensor_msgs/msg/CompressedImage`.

use super::cdr::CdrReader;
use super::image::Image;
use crate::error::Result;

/// A compressed image.
pub struct CompressedImage;

impl CompressedImage {
    /// Decodes a serialized message, and the image in it.
    ///
    /// # Errors
    /// [`crate::Error::Message`]: compressed images are not read yet.
    pub fn decode(bytes: &[u8]) -> Result<Image> {
        let reader = CdrReader::new(bytes, "sensor_msgs/msg/CompressedImage")?;
        Err(reader.error("format", "compressed images are not read yet"))
    }
}
