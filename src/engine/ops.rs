//! Operations of the model on a chunk of rows: forward and backward side by side, each with a
//! plain f64 version that the tests hold it against.
//!
//! All matrices are row-major f32. Weights are stored `[in, out]`, so that y = x·W + b.

pub mod charbonnier;
pub mod conv2d;
pub mod favor;
pub mod feature_map;
pub mod grf_attention;
mod held_product;
pub mod layer_norm;
pub mod likelihood;
pub mod linear;
pub mod linear_attention;
pub mod motion_head;
pub mod relu;
pub mod resample2d;
pub mod rows;

#[cfg(test)]
#[path = "../../tests/support/check.rs"]
pub(crate) mod check;
#[cfg(test)]
#[path = "../../tests/support/plain.rs"]
pub(crate) mod plain;
