//! Training: windows of recordings, the loss against the true flow, AdamW, the loop.

pub mod adamw;
pub mod dataset;
pub mod trainer;
