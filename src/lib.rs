//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.

pub mod bag;
pub mod camera;
pub mod cloud;
pub mod error;
pub mod frames;
pub mod graph;
pub mod kinematics;
pub mod message;
pub mod particles;
pub mod plan;
pub mod tf;

pub use error::{Error, Result};
