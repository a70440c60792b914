//! `sensor_msgs/msg/PointCloud2`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::error::Result;

/// A point cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct PointCloud2 {
    /// Time and coordinate frame.
    pub header: Header,
    /// Rows.
    pub height: u32,
    /// Points of a row.
    pub width: u32,
    points: Vec<([f32; 3], [u8; 3])>,
}

impl PointCloud2 {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`]: clouds are not read yet.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let reader = CdrReader::new(bytes, "sensor_msgs/msg/PointCloud2")?;
        Err(reader.error("header", "clouds are not read yet"))
    }

    /// Whether the points have colours.
    pub fn has_color(&self) -> bool {
        true
    }

    /// Calls `f` with index, position (m, the cloud's frame) and colour of each measured point.
    pub fn for_each(&self, mut f: impl FnMut(u32, [f32; 3], [u8; 3])) {
        (0u32..).zip(&self.points).for_each(|(index, &(point, rgb))| f(index, point, rgb));
    }
}
