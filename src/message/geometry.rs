//! `tf2_msgs/msg/TFMessage` and `geometry_msgs/msg/PoseArray`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

/// Bytes of a translation and a quaternion.
const POSE_BYTES: usize = 7 * 8;

/// Transforms between coordinate frames.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TfMessage {
    /// The transforms, in any order.
    pub transforms: Vec<TransformStamped>,
}

/// Where one coordinate frame is in another.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformStamped {
    /// Time, and the parent frame.
    pub header: Header,
    /// The child frame.
    pub child_frame_id: String,
    /// Maps points of the child frame into the parent frame; metres.
    pub parent_from_child: Isometry3<f64>,
}

/// Poses of several bodies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoseArray {
    /// Time, and the frame of the poses.
    pub header: Header,
    /// Maps points of each body into the header's frame; metres.
    pub poses: Vec<Isometry3<f64>>,
}

impl TfMessage {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, a number is not finite, or a quaternion is
    /// zero.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "tf2_msgs/msg/TFMessage")?;
        let count = reader.count(Header::MIN_BYTES + 4 + POSE_BYTES, "transforms")?;
        let mut transforms = Vec::with_capacity(count);
        for _ in 0..count {
            transforms.push(TransformStamped {
                header: Header::read(&mut reader)?,
                child_frame_id: reader.string("transforms[].child_frame_id")?,
                parent_from_child: read_isometry(&mut reader, "transforms[].transform")?,
            });
        }
        reader.finish()?;
        Ok(Self { transforms })
    }
}

impl PoseArray {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] as for [`TfMessage::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "geometry_msgs/msg/PoseArray")?;
        let header = Header::read(&mut reader)?;
        let count = reader.count(POSE_BYTES, "poses")?;
        let mut poses = Vec::with_capacity(count);
        for _ in 0..count {
            poses.push(read_isometry(&mut reader, "poses[]")?);
        }
        reader.finish()?;
        Ok(Self { header, poses })
    }
}

/// What no place on Earth is beyond, in any frame (m): REP 105's `earth` has its origin in the middle.
const MAX_M: f64 = 1e8;

/// Translation x y z, then quaternion x y z w, which is normalised.
fn read_isometry(reader: &mut CdrReader, field: &'static str) -> Result<Isometry3<f64>> {
    let [x, y, z, qx, qy, qz, qw] = reader.f64_array(field)?;
    let quaternion = Quaternion::new(qw, qx, qy, qz);
    let norm = quaternion.norm();
    if ![x, y, z, norm].iter().all(|value| value.is_finite()) {
        return Err(reader.error(field, "holds numbers that are not finite"));
    }
    if [x, y, z].iter().any(|value| value.abs() > MAX_M) {
        return Err(reader.error(field, "holds a position beyond 100,000 km: metres are expected"));
    }
    if norm < 1e-6 {
        let problem = "the quaternion is zero: publish w = 1 for no rotation";
        return Err(reader.error(field, problem));
    }
    let rotation = UnitQuaternion::from_quaternion(quaternion);
    Ok(Isometry3::from_parts(Translation3::new(x, y, z), rotation))
}
