//! Layers of equation (7) on ten columns, forward and backward: what they make of a graph's matrix and of
//! columns that are learnt too.
//!
//! A layer reads B alone through M = B Bᵀ, so M goes through the layers in its place. With the attention
//! T = α_QK M + Φ Q Φᵀ and G = (1 + α_R) I + α_V T,
//!
//! - M ← G M Gᵀ over its trace, which is B over its Frobenius norm,
//! - Φ ← Φ (I + R) + T Φ V, each column over its length (equation (6)).

use nalgebra::SMatrix;

pub const NODES: usize = 10;
pub type Matrix = SMatrix<f64, NODES, NODES>;

/// Numbers of a matrix, and of a layer: α_V, α_QK, α_R, then V, Q and R column by column.
pub const OF_MATRIX: usize = NODES * NODES;
pub const OF_LAYER: usize = 3 + 3 * OF_MATRIX;

/// What a layer was given, and what its outputs were divided by.
struct Kept {
    m: Matrix,
    phi: Matrix,
    trace: f64,
    lengths: [f64; NODES],
}

struct Layer {
    scalars: [f64; 3],
    value: Matrix,
    query_key: Matrix,
    skip: Matrix,
}

impl Layer {
    fn of(numbers: &[f64]) -> Self {
        let (scalars, matrices) = numbers.split_at(3);
        let matrix =
            |at: usize| Matrix::from_column_slice(&matrices[at * OF_MATRIX..][..OF_MATRIX]);
        let scalars = [scalars[0], scalars[1], scalars[2]];
        Self { scalars, value: matrix(0), query_key: matrix(1), skip: matrix(2) }
    }

    /// T and G.
    fn parts(&self, m: &Matrix, phi: &Matrix) -> [Matrix; 2] {
        let [value, query_key, skip] = self.scalars;
        let t = m * query_key + phi * self.query_key * phi.transpose();
        [t, Matrix::identity() * (1.0 + skip) + t * value]
    }

    /// Outputs, and what they were divided by.
    fn forward(&self, m: &Matrix, phi: &Matrix) -> (Matrix, Matrix, f64, [f64; NODES]) {
        let [t, g] = self.parts(m, phi);
        let (next_m, mut next_phi) =
            (g * m * g.transpose(), phi + phi * self.skip + t * phi * self.value);
        let (trace, mut lengths) = (next_m.trace().max(1e-30), [0.0; NODES]);
        for (mut column, length) in next_phi.column_iter_mut().zip(&mut lengths) {
            *length = column.norm().max(1e-30);
            column /= *length;
        }
        (next_m / trace, next_phi, trace, lengths)
    }

    /// Gradients of the inputs from those `d_m`, `d_phi` of the outputs `out`; adds those of the numbers.
    fn backward(
        &self,
        kept: &Kept,
        out: [&Matrix; 2],
        [d_m, mut d_phi]: [Matrix; 2],
        d_numbers: &mut [f64],
    ) -> [Matrix; 2] {
        let (m, phi) = (&kept.m, &kept.phi);
        let [t, g] = self.parts(m, phi);
        let d_m = (d_m - Matrix::identity() * d_m.dot(out[0])) / kept.trace;
        for (c, length) in kept.lengths.iter().enumerate() {
            let unit = out[1].column(c);
            let along = d_phi.column(c).dot(&unit);
            let d = (d_phi.column(c) - unit * along) / *length;
            d_phi.set_column(c, &d);
        }
        let [value, query_key, _] = self.scalars;
        let d_g = (d_m + d_m.transpose()) * g * m;
        let d_seen = d_phi * self.value.transpose();
        let d_t = d_g * value + d_seen * phi.transpose();
        let of_scalars = [d_g.dot(&t), d_t.dot(m), d_g.trace()];
        let of_matrices =
            [(t * phi).transpose() * d_phi, phi.transpose() * d_t * phi, phi.transpose() * d_phi];
        let all = of_scalars.iter().chain(of_matrices.iter().flat_map(|matrix| matrix.iter()));
        d_numbers.iter_mut().zip(all).for_each(|(sum, d)| *sum += d);
        let d_phi_in = d_phi
            + d_phi * self.skip.transpose()
            + t.transpose() * d_seen
            + d_t * phi * self.query_key.transpose()
            + d_t.transpose() * phi * self.query_key;
        [g.transpose() * d_m * g + d_t * query_key, d_phi_in]
    }
}

/// A graph: its Laplacian over its trace, and its eigenvectors as columns, smallest eigenvalue first.
pub struct Graph {
    pub m: Matrix,
    pub eigenvectors: Matrix,
}

/// Squared distance of each column of `phi` from the eigenvector, of either sign: loss_1 to loss_10.
fn losses(phi: &Matrix, graph: &Graph) -> [f64; NODES] {
    std::array::from_fn(|c| 2.0 - 2.0 * phi.column(c).dot(&graph.eigenvectors.column(c)).abs())
}

/// The losses of layers with these numbers: Φ at first, column by column, then each layer's. Adds the gradient
/// of the mean of the first `n_wanted` to `gradient`, if it is given.
pub fn run(
    numbers: &[f64],
    graph: &Graph,
    n_wanted: usize,
    gradient: Option<&mut [f64]>,
) -> [f64; NODES] {
    let (start, layers) = numbers.split_at(OF_MATRIX);
    let layers: Vec<Layer> = layers.chunks_exact(OF_LAYER).map(Layer::of).collect();
    let (mut m, mut phi) = (graph.m, Matrix::from_column_slice(start));
    let mut kept = Vec::with_capacity(layers.len());
    for layer in &layers {
        let (next_m, next_phi, trace, lengths) = layer.forward(&m, &phi);
        kept.push(Kept { m, phi, trace, lengths });
        (m, phi) = (next_m, next_phi);
    }
    let losses = losses(&phi, graph);
    let Some(gradient) = gradient else { return losses };
    let (mut d_m, mut d_phi) = (Matrix::zeros(), Matrix::zeros());
    for c in 0..n_wanted {
        let wanted = graph.eigenvectors.column(c);
        let sign = if phi.column(c).dot(&wanted) < 0.0 { -1.0 } else { 1.0 };
        d_phi.set_column(c, &(wanted * (-2.0 * sign / n_wanted as f64)));
    }
    let (of_start, of_layers) = gradient.split_at_mut(OF_MATRIX);
    let numbers = of_layers.chunks_exact_mut(OF_LAYER).rev();
    for ((layer, kept), d_numbers) in layers.iter().zip(&kept).rev().zip(numbers) {
        [d_m, d_phi] = layer.backward(kept, [&m, &phi], [d_m, d_phi], d_numbers);
        (m, phi) = (kept.m, kept.phi);
    }
    of_start.iter_mut().zip(d_phi.iter()).for_each(|(sum, d)| *sum += d);
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::base::random::{draw, normal_pair};

    fn numbers(n: usize, size: f64) -> Vec<f64> {
        let normal = |at: usize| f64::from(normal_pair(draw(7, 0, at as u64, 1))[0]);
        (0..n).map(|at| size * normal(at)).collect()
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let b = Matrix::from_column_slice(&numbers(OF_MATRIX, 1.0));
        let m = b * b.transpose();
        let eigenvectors = m.symmetric_eigen().eigenvectors;
        let graph = Graph { m: m / m.trace(), eigenvectors };
        for n_wanted in [5, NODES] {
            let mut at = numbers(OF_MATRIX + 3 * OF_LAYER, 0.3);
            let mut gradient = vec![0.0; at.len()];
            run(&at, &graph, n_wanted, Some(&mut gradient));
            let loss = |at: &[f64]| {
                run(at, &graph, n_wanted, None)[..n_wanted].iter().sum::<f64>() / n_wanted as f64
            };
            for (i, got) in gradient.iter().enumerate() {
                let here = at[i];
                let [above, below] = [1e-5, -1e-5].map(|step| {
                    at[i] = here + step;
                    loss(&at)
                });
                at[i] = here;
                let want = (above - below) / 2e-5;
                assert!((got - want).abs() < 1e-7 + 1e-5 * want.abs(), "{i}: {got}, not {want}");
            }
        }
    }

    /// With the weights of Corollary 7 the first column tends to the constants.
    #[test]
    fn corollary_7_is_one_of_them() {
        let ring = Matrix::from_fn(|i, j| match (i + NODES - j) % NODES {
            0 => 2.0,
            1 | 9 => -1.0,
            _ => 0.0,
        });
        let mut eigenvectors = Matrix::identity();
        eigenvectors.column_mut(0).fill(1.0 / (NODES as f64).sqrt());
        let graph = Graph { m: ring / ring.trace(), eigenvectors };
        let mut layer = vec![0.0; OF_LAYER];
        layer[1] = 1.0;
        (0..NODES).for_each(|i| layer[3 + i * NODES + i] = -3.0);
        let mut all = Matrix::identity().as_slice().to_vec();
        (0..200).for_each(|_| all.extend(&layer));
        assert!(run(&all, &graph, 1, None)[0] < 1e-9);
    }
}
