//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.

pub mod error;
pub mod graph;
pub mod message;
pub mod ops;
#[cfg(feature = "ros")]
pub mod ros;

pub use error::{Error, Result};
