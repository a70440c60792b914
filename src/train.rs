//! Training: recordings and windows of them, the loss against the true flow, AdamW, the loop.

pub mod adamw;
mod augment;
pub mod compare;
pub mod dataset;
mod episode;
pub mod preset;
pub mod reading;
pub mod skipped;
pub mod trainer;
