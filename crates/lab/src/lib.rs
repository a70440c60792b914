//! The laboratory: layers beside those that ship. Programs that link it call [`register`], and then load
//! models that have such layers.

#![warn(missing_docs)]

pub mod layers;
pub mod masks;
pub mod ops;

pub use layers::register;
