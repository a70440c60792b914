//! Centrality encoding: M_ij = sin(π/4 (z(d_i) + z(d_j))), d the degree of a node, how many others it is
//! joined with in the graph taken both ways, and z in 0..1 a number learnt for each degree (GRF masking,
//! App. B, of Chen et al. 2024); z = sigmoid(θ). It tells hubs from ends and nothing of who is near whom:
//! an ablation. Of rank two, as sin(a + b) = sin a cos b + cos a sin b: O(N).

use std::f32::consts::FRAC_PI_4;

use super::{Mask, Nodes, Reads, StepMask, sigmoid};
use forecloud::Result;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpy, dot, vectorized};

/// Degrees that are told apart: 0 to 30, and more.
const DEGREES: usize = 32;
/// Rows whose sums are added before those of others: sums of many rows stay exact.
const BLOCK: usize = 256;

/// Degree of each node, below [`DEGREES`].
#[derive(Debug, Clone, Default)]
pub(super) struct Centrality {
    degrees: Vec<u32>,
}

/// Sine and cosine of π/4 z of each degree.
fn waves(params: &[f32]) -> [[f32; 2]; DEGREES] {
    let mut waves = [[0.0; 2]; DEGREES];
    for (wave, &theta) in waves.iter_mut().zip(params) {
        let (sin, cos) = (FRAC_PI_4 * sigmoid(theta) as f32).sin_cos();
        *wave = [sin, cos];
    }
    waves
}

vectorized! {
/// Sums of all rows times their sines, and times their cosines: `[2, width]`; `part` is as long.
fn sums(
    degrees: &'a [u32],
    waves: &'a [[f32; 2]; DEGREES],
    x: &'a [f32],
    sums: &'a mut [f32],
    part: &'a mut [f32],
) {
    let width = sums.len() / 2;
    sums.fill(0.0);
    for (degrees, x) in degrees.chunks(BLOCK).zip(x.chunks((BLOCK * width).max(1))) {
        part.fill(0.0);
        let (of_sines, of_cosines) = part.split_at_mut(width);
        for (&degree, x) in degrees.iter().zip(x.chunks_exact(width.max(1))) {
            let [sin, cos] = waves[degree as usize];
            axpy(of_sines, sin, x);
            axpy(of_cosines, cos, x);
        }
        axpy(sums, 1.0, part);
    }
}
}

vectorized! {
/// y_i = sin_i (Σ cos x) + cos_i (Σ sin x).
fn spread(degrees: &'a [u32], waves: &'a [[f32; 2]; DEGREES], sums: &'a [f32], y: &'a mut [f32]) {
    let (of_sines, of_cosines) = sums.split_at(sums.len() / 2);
    for (&degree, y) in degrees.iter().zip(y.chunks_exact_mut(of_sines.len().max(1))) {
        let [sin, cos] = waves[degree as usize];
        for (y, (s, c)) in y.iter_mut().zip(of_sines.iter().zip(of_cosines)) {
            *y = sin * c + cos * s;
        }
    }
}
}

impl StepMask for Centrality {
    fn n_params(_: usize) -> usize {
        DEGREES
    }

    fn reads() -> Reads {
        Reads::NOTHING
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        let graph = nodes.graph;
        self.degrees.clear();
        self.degrees.resize(graph.len(), 0);
        for i in 0..graph.len() {
            for &j in graph.neighbors(i).iter().filter(|&&j| j as usize != i) {
                self.degrees[i] += 1;
                // An edge that also leads back is counted by the other end.
                let leads_back = graph.neighbors(j as usize).contains(&(i as u32));
                self.degrees[j as usize] += u32::from(!leads_back);
            }
        }
        self.degrees.iter_mut().for_each(|degree| *degree = (*degree).min(DEGREES as u32 - 1));
        Ok(())
    }
}

impl Mask for Centrality {
    fn n_nodes(&self) -> usize {
        self.degrees.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let (width, waves) = (x.len() / self.n_nodes().max(1), waves(params));
        with_scratch(4 * width, |scratch| {
            let (total, part) = scratch.split_at_mut(2 * width);
            sums(&self.degrees, &waves, x, total, part);
            spread(&self.degrees, &waves, total, y);
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂z_i, as the one that hears and as the one that is heard:
    /// π/4 [cos_i (dy_i·Σ cos x + x_i·Σ cos dy) - sin_i (dy_i·Σ sin x + x_i·Σ sin dy)].
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let (width, waves) = (x.len() / self.n_nodes().max(1), waves(params));
        let mut of_z = [0.0f64; DEGREES];
        with_scratch(6 * width, |scratch| {
            let (of_x, rest) = scratch.split_at_mut(2 * width);
            let (of_dy, part) = rest.split_at_mut(2 * width);
            sums(&self.degrees, &waves, x, of_x, part);
            sums(&self.degrees, &waves, dy, of_dy, part);
            let rows = x.chunks_exact(width.max(1)).zip(dy.chunks_exact(width.max(1)));
            for (&degree, (x, dy)) in self.degrees.iter().zip(rows) {
                let [sin, cos] = waves[degree as usize];
                let along = |which: usize| {
                    let at = which * width..(which + 1) * width;
                    f64::from(dot(dy, &of_x[at.clone()])) + f64::from(dot(x, &of_dy[at]))
                };
                of_z[degree as usize] += f64::from(cos) * along(1) - f64::from(sin) * along(0);
            }
        });
        for ((d, of_z), &theta) in d_params.iter_mut().zip(of_z).zip(params) {
            let z = sigmoid(theta);
            *d += f64::from(FRAC_PI_4) * of_z * z * (1.0 - z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_mask, assert_products, dense_graph};
    use super::*;

    fn entry(params: &[f64], degrees: [usize; 2]) -> f64 {
        let z = |degree: usize| 1.0 / (1.0 + (-params[degree]).exp());
        (std::f64::consts::FRAC_PI_4 * (z(degrees[0]) + z(degrees[1]))).sin()
    }

    #[test]
    fn the_centralitys_mask_is_the_dense_one() {
        assert_mask::<Centrality>(|nodes, params| {
            let (n, w) = (nodes.positions.len(), dense_graph(nodes.graph));
            let joined = |i: usize, j: usize| i != j && w[i * n + j] + w[j * n + i] > 0.0;
            let degree = |i: usize| (0..n).filter(|&j| joined(i, j)).count();
            (0..n * n).map(|at| entry(params, [degree(at / n), degree(at % n)])).collect()
        });
    }

    /// More rows than a block, and degrees beyond the table.
    #[test]
    fn many_nodes_and_hubs_are_the_dense_ones() {
        use forecloud::engine::graph::WeightedGraph;
        use forecloud::engine::graph::walks::WalkSeed;
        let n = 2 * BLOCK + 9;
        let star: Vec<(u32, u32, f32)> = (1..n as u32).map(|i| (0, i, 1.0)).collect();
        let (positions, graph) =
            (vec![[0.0; 3]; n], WeightedGraph::from_edges(n, &star, true).unwrap());
        let seed = WalkSeed { seed: 0, stamp_ns: 0 };
        let (positions, graph) = (&positions[..], &graph);
        let nodes = Nodes { positions, graph, n_hops: 3, walks: None, cell_m: 0.04, seed };
        let mut mask = Centrality::default();
        mask.rebuild(&nodes).unwrap();
        assert_products("a star", &mask, DEGREES, 1e-5, |params| {
            let degree = |i: usize| if i == 0 { DEGREES - 1 } else { 1 };
            (0..n * n).map(|at| entry(params, [degree(at / n), degree(at % n)])).collect()
        });
    }
}
