//! The model: what the Interlacer is, its weights and its fused engine on the CPU.

pub mod cpu;
pub mod interlacer;
pub mod rollout;
pub mod tokens;
pub mod weights;

pub use cpu::{Engine, Gradients, Mode, StepGraph};
pub use interlacer::{InterlacerConfig, Layout, Span};
