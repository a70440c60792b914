//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.

pub mod error;
pub mod graph;
#[cfg(feature = "ros")]
pub mod ros;
pub mod ops;

pub use error::{Error, Result};
