//! From particles to the mask: k-NN graph, walks, merged loads, or anchors of message passing; built
//! once per step and shared by all layers.

pub mod anchors;
pub mod knn;
pub mod loads;
pub mod mask;
pub mod walks;
pub mod weighted;

pub use anchors::Anchors;
pub use knn::KnnGraph;
pub use loads::Loads;
pub use mask::{MaskConfig, StepGraph};
pub use weighted::{EdgeWeights, WeightedGraph};
