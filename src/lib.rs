//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.
//!
//! ```
//! use forecloud::{config::PredictorConfig, frames::FramesConfig, model::Model};
//! use forecloud::{predictor::Predictor, recording::Recording};
//!
//! let model = Model::load("models/small.safetensors".as_ref())?;
//! let mut predictor = Predictor::new(model, PredictorConfig::default())?;
//! let recording = Recording::open("tests/data/tiny_push".as_ref(), FramesConfig::default())?;
//! predictor.set_robot(&recording.robot_description()?.unwrap_or_default(), "world")?;
//! let mut n_predicted = 0;
//! recording.play(|frame, _truth| {
//!     n_predicted += usize::from(predictor.step(&frame)?.is_some());
//!     Ok::<(), forecloud::Error>(())
//! })?;
//! assert_eq!(n_predicted, 5, "all frames but the first have a history");
//! # Ok::<(), forecloud::Error>(())
//! ```

#![warn(missing_docs)]

pub mod backend;
pub mod bag;
pub mod camera;
pub mod candidates;
pub mod cloud;
pub mod config;
pub mod deadline;
pub mod error;
pub mod eval;
pub mod frames;
pub mod graph;
pub mod kinematics;
pub mod message;
pub mod model;
pub mod motion;
pub mod observation;
pub mod ops;
pub mod particles;
pub mod plan;
pub mod prediction;
pub mod predictor;
pub mod recording;
mod rigid;
#[cfg(feature = "ros")]
pub mod ros;
pub mod tf;
pub mod train;

pub use error::{Error, Result};
