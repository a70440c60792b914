//! From particles to the mask: k-NN graph, walks, merged loads; built once per step.

pub mod random;
