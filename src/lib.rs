//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.

#![warn(missing_docs)]

pub mod bag;
pub mod camera;
pub mod cloud;
pub mod config;
pub mod error;
pub mod eval;
pub mod frames;
pub mod graph;
pub mod kinematics;
pub mod message;
pub mod model;
pub mod motion;
pub mod ops;
pub mod particles;
pub mod plan;
pub mod predictor;
pub mod recording;
#[cfg(feature = "ros")]
pub mod ros;
pub mod tf;
pub mod train;

pub use error::{Error, Result};
