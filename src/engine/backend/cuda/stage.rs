//! The parts that a step is measured in.

/// Parts of a step, as they are measured: of all blocks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nearest points of the robot, features, candidates.
    Tokens,
    /// k-NN graph.
    Neighbors,
    /// Walks, enumerated and merged.
    Walks,
    /// Features to the model's width.
    Embed,
    /// LayerNorm and `[q | k | v]` of both attentions.
    Projections,
    /// φ(K)ᵀ[V, 1], folded into the projection behind it.
    LinearState,
    /// Projection of linear attention.
    LinearOut,
    /// GRF attention by merged rows.
    GrfRows,
    /// Projection of GRF attention.
    GrfOut,
    /// LayerNorm, the MLP's hidden layer, ReLU.
    MlpUp,
    /// The MLP's output.
    MlpDown,
    /// LayerNorm and outputs.
    Head,
    /// Displacements and the next state.
    Motion,
}

impl Stage {
    /// All of them, in the order of a step.
    pub const ALL: [Self; 13] = [
        Self::Tokens,
        Self::Neighbors,
        Self::Walks,
        Self::Embed,
        Self::Projections,
        Self::LinearState,
        Self::LinearOut,
        Self::GrfRows,
        Self::GrfOut,
        Self::MlpUp,
        Self::MlpDown,
        Self::Head,
        Self::Motion,
    ];
}
