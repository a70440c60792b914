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
//!
//! | Feature | Modules, programs | Brings |
//! |---|---|---|
//! | none | the predictor and all that it needs | neither SQLite, MCAP nor a command line |
//! | `bag` | `bag`, `recording`, `video`, `eval`, `train`: recordings, and what works on them | SQLite, MCAP, zstd |
//! | `cli` (default) | `cli`, the tool `forecloud`; `bag` with it | clap, progress bars |
//! | `cuda` (default) | the whole step on an NVIDIA GPU; its driver is looked for at run time | cudarc |
//! | `ros` | `ros`, the node `forecloud_node` and `forecloud_plan_relay`; needs a sourced ROS 2 | r2r |
//!
//! The predictor alone: `forecloud = { ..., default-features = false }`.

#![warn(missing_docs)]

// The tool names the library as examples do, which take some of its files.
#[cfg(feature = "cli")]
extern crate self as forecloud;

#[cfg(any(feature = "bag", feature = "ros"))]
mod awake;
pub mod backend;
#[cfg(feature = "bag")]
pub mod bag;
pub mod camera;
pub mod candidates;
pub mod carried;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cloud;
pub mod confidence;
pub mod config;
mod conformal;
pub mod costs;
pub mod deadline;
pub mod error;
#[cfg(feature = "bag")]
pub mod eval;
pub mod frames;
pub mod geometry;
pub mod graph;
pub mod instruction_set;
pub mod kinematics;
pub mod known;
#[cfg(feature = "bag")]
pub mod labels;
pub mod masks;
pub mod message;
pub mod model;
pub mod motion;
pub mod observation;
pub mod ops;
#[cfg(feature = "bag")]
pub mod outputs;
pub mod particles;
pub mod plan;
pub mod planner;
pub mod prediction;
pub mod predictor;
pub mod random;
#[cfg(feature = "bag")]
pub mod recording;
pub mod relay;
mod rest;
#[cfg(feature = "ros")]
pub mod ros;
pub mod scene;
mod scratch;
#[cfg(feature = "bag")]
pub mod shards;
pub mod simd;
pub mod situation;
pub mod tf;
#[cfg(feature = "bag")]
pub mod train;
#[cfg(feature = "bag")]
pub mod video;
mod whole_file;

pub use error::{Error, Result};
