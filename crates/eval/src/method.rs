//! Whose predictions are compared.

/// Whose prediction it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The model, in this process.
    Model,
    /// What a node published.
    Node,
    /// Nothing moves.
    NothingMoves,
    /// Constant velocity, estimated from the nearest history particle.
    VelocityEstimated,
    /// Constant velocity, the true one of the step before (privileged; needs the truth).
    VelocityTrue,
    /// The later observation itself, drawn as sparsely as particles are: the best that a
    /// comparison with it can give (only where it is compared with).
    Observed,
}

impl Method {
    /// All methods, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Model,
        Self::Node,
        Self::NothingMoves,
        Self::VelocityEstimated,
        Self::VelocityTrue,
        Self::Observed,
    ];

    /// Its name in JSON and CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Node => "node",
            Self::NothingMoves => "nothing_moves",
            Self::VelocityEstimated => "velocity_estimated",
            Self::VelocityTrue => "velocity_true",
            Self::Observed => "observed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_serialised() {
        for method in Method::ALL {
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
        }
    }
}
