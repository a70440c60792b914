//! The network: k-NN graph, walks, operations, the Interlacer, and what it runs on (CPU or CUDA).

pub mod backend;
pub mod graph;
pub mod masks;
pub mod model;
pub mod motion_class;
pub mod ops;
pub mod rollout_input;
