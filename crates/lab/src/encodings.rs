//! Positional encodings by the solvers of [`super::solver`]: where in the tokens' graph, all edges alike, each
//! token lies.

use super::solver::{Laplacian, PositionalConfig, positional_encoding};
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use forecloud::engine::model::Encodings;
use forecloud::engine::registry::{EncodingKind, EncodingSpec};

/// Heat kernel: four random demands, the same in every pass, spread a little and far: eight columns.
pub const HEAT: Encodings = of(&BySolver { name: "heat", heat: true, eigenvectors: false });
/// Bottom eigenvectors of the Laplacian, as subspace iteration finds them: eight.
pub const EIGENVECTORS: Encodings =
    of(&BySolver { name: "eigenvectors", heat: false, eigenvectors: true });
/// Both.
pub const BOTH: Encodings = of(&BySolver { name: "both", heat: true, eigenvectors: true });

/// Random demands of each scale.
const N_DEMANDS: usize = 4;
/// Scales of the heat kernel, in 1 / the bound of λ_max.
const SCALES: [f32; 2] = [1.0, 4.0];
/// Layers of the heat kernel: what is left out is below rounding at these scales.
const N_LAYERS: usize = 24;
/// Eigenvectors, and iterations for them.
const N_VECTORS: usize = 8;
const N_ITERATIONS: usize = 32;

const fn of(spec: &'static BySolver) -> Encodings {
    Encodings::Registered(EncodingKind::of(spec))
}

/// All encodings.
pub(super) fn all() -> impl Iterator<Item = EncodingKind> {
    [HEAT, EIGENVECTORS, BOTH].into_iter().filter_map(|encodings| match encodings {
        Encodings::Registered(kind) => Some(kind),
        Encodings::None => None,
    })
}

#[derive(Debug)]
struct BySolver {
    name: &'static str,
    heat: bool,
    eigenvectors: bool,
}

impl BySolver {
    fn config(&self) -> PositionalConfig {
        PositionalConfig {
            n_demands: N_DEMANDS,
            scales: if self.heat { SCALES.to_vec() } else { Vec::new() },
            n_layers: N_LAYERS,
            n_eigenvectors: if self.eigenvectors { N_VECTORS } else { 0 },
            n_iterations: N_ITERATIONS,
            seed: 0,
        }
    }
}

impl EncodingSpec for BySolver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn width(&self) -> usize {
        self.config().width()
    }

    fn encode(&self, positions: &[Vec3], k: usize) -> Result<Vec<f32>> {
        let (mut knn, mut weighted) = (KnnGraph::default(), WeightedGraph::default());
        knn.rebuild(positions, k)?;
        weighted.rebuild(&knn, positions, EdgeWeights::Uniform);
        positional_encoding(&Laplacian::new(&weighted)?, &self.config())
    }
}
