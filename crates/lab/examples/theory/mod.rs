//! The theory of graph random features, to hold measurements and tests against: kernels of graphs as
//! power series, what is proven of their estimates, and graphs to try both on.

pub mod bounds;
pub mod generate;
pub mod series;
