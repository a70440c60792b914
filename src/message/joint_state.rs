//! `sensor_msgs/msg/JointState`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;

/// Measured state of the joints. Only names and positions are needed: the velocities and efforts of a
/// message are left out where there are not as many as names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointState {
    /// Time of the measurement.
    pub header: Header,
    /// Names of the joints.
    pub names: Vec<String>,
    /// Radians or metres, one per name, or none at all; NaN where the driver doesn't know.
    pub positions: Vec<f64>,
    /// Radians or metres a second; NaN where the driver doesn't know.
    pub velocities: Vec<f64>,
    /// Newton metres or newtons; NaN where the driver doesn't know.
    pub efforts: Vec<f64>,
}

impl JointState {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, or has positions of another number than names.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "sensor_msgs/msg/JointState")?;
        let header = Header::read(&mut reader)?;
        let (names, positions) = (reader.strings("name")?, reader.f64s("position")?);
        let (expected, got) = (names.len(), positions.len());
        if got != 0 && got != expected {
            return Err(reader.error("position", format!("{got} values of {expected} joints")));
        }
        // Drivers fill these as they like.
        let or_none = |values: Vec<f64>| if values.len() == expected { values } else { Vec::new() };
        let velocities = or_none(reader.f64s("velocity")?);
        let efforts = or_none(reader.f64s("effort")?);
        reader.finish()?;
        Ok(Self { header, names, positions, velocities, efforts })
    }
}
