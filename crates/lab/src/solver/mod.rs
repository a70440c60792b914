//! Solvers of the graph's Laplacian L = D - W as layers of the linear transformer (Cheng, Carin and
//! Sra, "Graph Transformers Dream of Electric Flow", equation (3)) with the weights of its lemmas.
//!
//! With those weights attention's BBᵀ is L, so a layer of Lemmas 1 to 3 and 6 is one sparse product.
//! Columns lie in rows `[n, width]`, a row a node. Where the paper assumes a connected graph, "sums to
//! zero" here means on each connected component.

pub mod bounds;
mod dense;
mod encoding;
mod laplacian;
mod learnt;
mod resistance;
mod series;
mod subspace;
pub mod transformer;

pub use dense::{MAX_DENSE_NODES, MAX_FAST_LAYERS, fast_electric_flow, fast_heat_kernel};
pub use encoding::{PositionalConfig, positional_encoding};
pub use laplacian::Laplacian;
pub use learnt::{LearntEncoding, LearntLayer, LearntSaved};
pub use resistance::{effective_resistance, effective_resistance_between};
pub use series::{electric_flow, heat_kernel, resistive_embedding};
pub use subspace::{bottom_eigenvectors, top_eigenvectors};

#[cfg(test)]
mod tests;
