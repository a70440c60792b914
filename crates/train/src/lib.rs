//! Training: recordings and windows of them, the loss against the true flow, AdamW, the loop.

#![warn(missing_docs)]

#[cfg(test)]
#[path = "../../../tests/support/check.rs"]
mod check;

pub mod adamw;
mod augment;
pub mod calibration;
mod checkpoint;
pub mod compare;
pub mod config;
pub mod dataset;
mod differences;
mod episode;
pub mod evaluate;
pub mod files;
pub mod flow_labels;
pub mod hindsight;
pub mod hold_out;
pub mod memory;
pub mod moving_camera;
pub mod origin;
pub mod pixels;
pub mod preset;
pub mod progress;
pub mod reading;
pub mod rig;
mod second_look;
pub mod skipped;
mod stretches;
pub mod trainer;
pub mod validation;
pub mod video;
