//! Positional encodings as features of tokens: where in the tokens' graph each lies, by the solvers of
//! [`crate::engine::graph::solver`].

use super::{TokenConfig, Tokens};
use crate::Result;
use crate::engine::graph::solver::{Laplacian, PositionalConfig, positional_encoding};
use crate::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};

/// Which positional encodings tokens are told, beside [`super::Inputs`].
///
/// Of the tokens' k-NN graph, all edges alike; within a roll-out no gradient flows through them, and none
/// is lost where the neighbours stay the same, as the encodings then do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encodings {
    /// None.
    #[default]
    None,
    /// Heat kernel: four random demands, the same in every pass, spread a little and far: eight columns.
    Heat,
    /// Bottom eigenvectors of the Laplacian, as subspace iteration finds them: eight.
    Eigenvectors,
    /// Both.
    Both,
}

/// Random demands of each scale.
const N_DEMANDS: usize = 4;
/// Scales of the heat kernel, in 1 / the bound of λ_max.
const SCALES: [f32; 2] = [1.0, 4.0];
/// Layers of the heat kernel: what is left out is below rounding at these scales.
const N_LAYERS: usize = 24;
/// Features of the heat kernel.
pub const N_HEAT: usize = N_DEMANDS * SCALES.len();
/// Eigenvectors, and iterations for them.
pub const N_VECTORS: usize = 8;
const N_ITERATIONS: usize = 32;

impl Encodings {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Heat, Self::Eigenvectors, Self::Both];

    /// Its name in model files and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Heat => "heat",
            Self::Eigenvectors => "eigenvectors",
            Self::Both => "both",
        }
    }

    /// Features a token.
    pub fn width(self) -> usize {
        let (heat, vectors) = self.parts();
        usize::from(heat) * N_HEAT + usize::from(vectors) * N_VECTORS
    }

    /// Whether there is a heat kernel, and whether there are eigenvectors.
    fn parts(self) -> (bool, bool) {
        (matches!(self, Self::Heat | Self::Both), matches!(self, Self::Eigenvectors | Self::Both))
    }

    fn config(self) -> PositionalConfig {
        let (heat, vectors) = self.parts();
        PositionalConfig {
            n_demands: N_DEMANDS,
            scales: if heat { SCALES.to_vec() } else { Vec::new() },
            n_layers: N_LAYERS,
            n_eigenvectors: if vectors { N_VECTORS } else { 0 },
            n_iterations: N_ITERATIONS,
            seed: 0,
        }
    }
}

/// The graph that encodings are of.
#[derive(Debug, Clone, Default)]
pub(super) struct EncodedGraph {
    knn: KnnGraph,
    weighted: WeightedGraph,
}

impl Tokens {
    /// Fills the last features of every row, if `config` has encodings.
    pub(super) fn encode_graph(&mut self, config: &TokenConfig) -> Result<()> {
        if config.encodings == Encodings::None {
            return Ok(());
        }
        let EncodedGraph { knn, weighted } = &mut self.graph;
        knn.rebuild(&self.positions, config.k)?;
        weighted.rebuild(knn, &self.positions, EdgeWeights::Uniform);
        let encoded = positional_encoding(&Laplacian::new(weighted)?, &config.encodings.config())?;
        let (width, all) = (config.encodings.width(), config.n_features());
        for (row, encoded) in self.features.chunks_exact_mut(all).zip(encoded.chunks_exact(width)) {
            row[all - width..].copy_from_slice(encoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Inputs;
    use crate::engine::model::tokens::tests::{ONE, THREE, state};

    #[test]
    fn encodings_are_told_behind_all_else_and_change_nothing_of_it() {
        let at = state(9, 6, 5, 1);
        for (plain, encodings) in [
            (ONE, Encodings::Heat),
            (THREE, Encodings::Eigenvectors),
            (TokenConfig { inputs: Inputs::Paper, ..THREE }, Encodings::Both),
        ] {
            let config = TokenConfig { encodings, ..plain };
            assert_eq!(config.n_features(), plain.n_features() + encodings.width());
            let encode = |config: &TokenConfig| {
                let mut tokens = Tokens::default();
                tokens.encode(&at, config).unwrap();
                tokens
            };
            let (told, before) = (encode(&config), encode(&plain));
            let n = plain.n_features();
            let mut of_graph = Vec::new();
            let rows = told.features.chunks_exact(config.n_features());
            for (row, before) in rows.zip(before.features.chunks_exact(n)) {
                assert_eq!(&row[..n], before);
                of_graph.extend_from_slice(&row[n..]);
            }
            let mut knn = KnnGraph::default();
            knn.rebuild(&told.positions, config.k).unwrap();
            let mut weighted = WeightedGraph::default();
            weighted.rebuild(&knn, &told.positions, EdgeWeights::Uniform);
            let laplacian = Laplacian::new(&weighted).unwrap();
            let want = positional_encoding(&laplacian, &encodings.config()).unwrap();
            assert_eq!(of_graph, want);
            let width = encodings.width();
            for column in 0..width {
                let size: f32 = want.iter().skip(column).step_by(width).map(|x| x * x).sum();
                assert!(size > 0.0 && size.is_finite(), "{column} of {}", encodings.name());
            }
        }
    }

    #[test]
    fn names_are_those_of_model_files() {
        for encodings in Encodings::ALL {
            let json = serde_json::to_string(&encodings).unwrap();
            assert_eq!(json, format!("\"{}\"", encodings.name()));
        }
    }
}
