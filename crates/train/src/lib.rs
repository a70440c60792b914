//! Training: recordings and windows of them, the loss against the true flow, AdamW, the loop.

#[cfg(test)]
#[path = "../../../tests/support/check.rs"]
mod check;

pub mod adamw;
mod augment;
mod checkpoint;
pub mod config;
pub mod dataset;
pub mod differences;
mod episode;
pub mod evaluate;
pub mod files;
pub mod hindsight;
pub mod hold_out;
pub mod labels;
pub mod memory;
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
