//! Forecloud predicts where every point that an RGB-D camera sees will be next, given what the
//! robot is about to do.
//!
//! ```
//! use forecloud::predict::config::PredictorConfig;
//! use forecloud::vision::frames::FramesConfig;
//! use forecloud::engine::model::Model;
//! use forecloud::predict::predictor::Predictor;
//! use forecloud_bag::recording::Recording;
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
//! The ROS 2 node, `forecloud-node`, runs it on the robot. What surrounds it are others beside it: `forecloud-bag`
//! (recordings), `forecloud-eval`, `forecloud-train`, `forecloud-video`, and the tool, `forecloud-cli`.
//!
//! | Feature | Brings |
//! |---|---|
//! | none | the predictor and the planner, on the CPU |
//! | `cuda` (default) | both on an NVIDIA GPU, whose driver is looked for at run time |

#![warn(missing_docs)]

// What tests share names the library as other crates do.
#[cfg(test)]
extern crate self as forecloud;

pub mod base;
pub mod engine;
pub mod message;
pub mod planner;
pub mod predict;
pub mod robot;
pub mod vision;

pub use base::error::{Error, Result};
