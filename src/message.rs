//! ROS messages from their serialized bytes: one CDR decoder for DDS and for bags.
//!
//! This is the only door for untrusted bytes. Each count is checked against the bytes that are
//! there before anything is allocated, and each type checks what its users rely on, so a decoded
//! value can be indexed without further checks.

mod camera_info;
mod cdr;
mod compressed_image;
#[cfg(test)]
pub(crate) mod encode;
mod geometry;
mod header;
mod image;
mod joint_state;
mod joint_trajectory;
mod point_cloud2;
mod prediction;
#[cfg(test)]
mod samples;
mod stamp;
mod string;
#[cfg(test)]
mod tests;

pub use camera_info::{CameraInfo, Reduction};
pub use compressed_image::CompressedImage;
pub use geometry::{PoseArray, TfMessage, TransformStamped};
pub use header::Header;
pub use image::{Image, MAX_PIXELS};
pub use joint_state::JointState;
pub use joint_trajectory::{JointTrajectory, TrajectoryPoint};
pub use point_cloud2::PointCloud2;
pub use prediction::Prediction;
pub use stamp::Stamp;
pub use string::StringMessage;
