//! The laboratory: the comparison of layers, and figures of the papers.

#[path = "../../examples/scaling/measure.rs"]
mod measure;
#[path = "../../examples/theory/mod.rs"]
#[allow(dead_code)]
mod theory;

mod compare;
mod kernel_error;
mod scaling;
mod theories;

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
