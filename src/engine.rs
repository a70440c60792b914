//! The network: k-NN graph, walks, operations, the Interlacer, and what it runs on (CPU or CUDA).

pub mod backend;
pub mod graph;
pub mod model;
pub mod motion_class;
pub mod ops;
pub mod registry;
pub mod rollout_input;
pub mod step_graph;

// Tests of the engine run with every layer; what runs on the robot is built without them.
#[cfg(test)]
#[path = "../crates/lab/src/lib.rs"]
#[allow(unused_imports, dead_code, reason = "what other crates take of it")]
mod lab;
