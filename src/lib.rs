//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.

#![warn(missing_docs)]

pub mod bag;
pub mod error;
pub mod frames;
pub mod graph;
pub mod message;
pub mod tf;

pub use error::{Error, Result};
