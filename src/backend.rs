//! What predictions run on.

#[cfg(feature = "cuda")]
pub mod cuda;
