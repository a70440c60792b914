//! `sensor_msgs/msg/JointState`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;

/// Measured state of the joints; the three vectors are empty or as long as `names`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointState {
    /// Time of the measurement.
    pub header: Header,
    /// Names of the joints.
    pub names: Vec<String>,
    /// Radians or metres; finite.
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
    /// [`crate::Error::Message`] if it is truncated, lengths differ, or a position is not finite.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "sensor_msgs/msg/JointState")?;
        let state = Self {
            header: Header::read(&mut reader)?,
            names: reader.strings("name")?,
            positions: reader.f64s("position")?,
            velocities: reader.f64s("velocity")?,
            efforts: reader.f64s("effort")?,
        };
        let expected = state.names.len();
        let lengths = [
            ("position", state.positions.len()),
            ("velocity", state.velocities.len()),
            ("effort", state.efforts.len()),
        ];
        if let Some((field, got)) = lengths.into_iter().find(|&(_, n)| n != 0 && n != expected) {
            return Err(reader.error(field, format!("{got} values of {expected} joints")));
        }
        if let Some(i) = state.positions.iter().position(|p| !p.is_finite()) {
            let problem = format!("{} of joint '{}'", state.positions[i], state.names[i]);
            return Err(reader.error("position", problem));
        }
        reader.finish()?;
        Ok(state)
    }
}
