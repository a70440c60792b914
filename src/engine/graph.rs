//! Graphs of the particles: k-NN graph, walks on it, their merged loads; built once per step and
//! shared by all layers.

pub mod knn;
pub mod loads;
pub mod walks;
pub mod weighted;

pub use knn::KnnGraph;
pub use loads::Loads;
pub use weighted::{EdgeWeights, WeightedGraph};
