//! Positional encodings that are learnt: the layers of equation (16), forward and backward, in f64 on matrices.
//! For graphs of some hundred nodes, as the paper's molecules are.
//!
//! What goes through the layers: B `[n, d]`, at first the graph's incidence matrix, and columns Φ `[n, k]`. A
//! layer has 7 + 2 k numbers. With D_ii = Σ_j |B_ij|, A = D^-½ B Bᵀ D^-½ and C = Φ diag(w) Φᵀ,
//!
//! - B ← (1 + α_R) B + α_V (β_1 A + β_2 C) B, over its Frobenius norm,
//! - Φ ← (1 + r) Φ + (β_3 A + β_4 C) Φ diag(v), each column over its length.
//!
//! w is W^Q W^K and r, v are W^R, W^V of the paper, which are diagonal there; its α_Q α_K only stand beside β_1 and
//! β_3, and are in them here. A is the normalised Laplacian of a graph whose edges weigh 1; once B is divided by its
//! norm, A is too, since D is of B's own unit: later layers read a multiple of it.

use nalgebra::{DMatrix, DVector};

/// Numbers of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LearntLayer {
    /// α_R, α_V, β_1 to β_4 and r.
    pub scalars: [f64; 7],
    /// v, `[k]`.
    pub value: DVector<f64>,
    /// w, `[k]`.
    pub query_key: DVector<f64>,
}

impl LearntLayer {
    /// All numbers 0: a layer that only normalises.
    pub fn zeros(k: usize) -> Self {
        Self { scalars: [0.0; 7], value: DVector::zeros(k), query_key: DVector::zeros(k) }
    }

    /// One step of the subspace iteration for the bottom eigenvectors of the normalised Laplacian (Corollary 7):
    /// Φ ← Φ - A Φ / 2, whose eigenvalues are in 0..=2.
    pub fn bottom(k: usize) -> Self {
        let mut layer = Self::zeros(k);
        layer.scalars[4] = -0.5;
        layer.value.fill(1.0);
        layer
    }
}

/// Layers, each of which runs so many times in a row (the paper: three times three).
#[derive(Debug, Clone)]
pub struct LearntEncoding {
    /// The layers.
    pub layers: Vec<LearntLayer>,
    /// How often each runs.
    pub n_loops: usize,
}

/// What a layer was given, and what its outputs were divided by.
#[derive(Debug, Clone)]
struct Kept {
    b: DMatrix<f64>,
    phi: DMatrix<f64>,
    /// Norm of B, and of each column of Φ, before normalisation.
    norm: f64,
    lengths: Vec<f64>,
}

/// What the backward pass reads of a forward pass.
#[derive(Debug, Clone)]
pub struct LearntSaved {
    kept: Vec<Kept>,
    b: DMatrix<f64>,
    /// The encodings Φ, `[n, k]`.
    pub phi: DMatrix<f64>,
}

/// The parts of a layer that both passes make of its inputs.
struct Parts {
    /// D^-½, 0 where D is.
    scales: DVector<f64>,
    /// D^-½ B.
    scaled: DMatrix<f64>,
    a: DMatrix<f64>,
    c: DMatrix<f64>,
    /// β_1 A + β_2 C, and β_3 A + β_4 C.
    of_graph: DMatrix<f64>,
    of_columns: DMatrix<f64>,
}

impl Parts {
    fn new(layer: &LearntLayer, b: &DMatrix<f64>, phi: &DMatrix<f64>) -> Self {
        let degrees = b.row_iter().map(|row| row.iter().map(|b| b.abs()).sum::<f64>());
        let scale = |degree: f64| if degree > 0.0 { 1.0 / degree.sqrt() } else { 0.0 };
        let scales = DVector::from_iterator(b.nrows(), degrees.map(scale));
        let mut scaled = b.clone();
        scale_rows(&mut scaled, &scales);
        let a = &scaled * scaled.transpose();
        let c = columns_times(phi, &layer.query_key) * phi.transpose();
        let [_, _, b1, b2, b3, b4, _] = layer.scalars;
        let (of_graph, of_columns) = (&a * b1 + &c * b2, &a * b3 + &c * b4);
        Self { scales, scaled, a, c, of_graph, of_columns }
    }
}

fn scale_rows(m: &mut DMatrix<f64>, by: &DVector<f64>) {
    m.row_iter_mut().zip(by.iter()).for_each(|(mut row, by)| row *= *by);
}

/// m diag(by).
fn columns_times(m: &DMatrix<f64>, by: &DVector<f64>) -> DMatrix<f64> {
    let mut m = m.clone();
    m.column_iter_mut().zip(by.iter()).for_each(|(mut column, by)| column *= *by);
    m
}

/// Gradient of what a vector of length `norm` was before it was divided by it, `d` that after.
fn through_norm(d: &mut DMatrix<f64>, unit: &DMatrix<f64>, norm: f64) {
    if norm > 0.0 {
        let along = d.dot(unit);
        *d -= unit * along;
        *d /= norm;
    }
}

impl LearntEncoding {
    fn runs(&self) -> impl DoubleEndedIterator<Item = usize> {
        let n_loops = self.n_loops;
        (0..self.layers.len()).flat_map(move |layer| std::iter::repeat_n(layer, n_loops))
    }

    /// Encodings of a graph with the incidence matrix `b` `[n, d]` from columns `phi` `[n, k]`. Columns that are 0
    /// stay 0, and so does a graph without edges.
    pub fn forward(&self, b: DMatrix<f64>, phi: DMatrix<f64>) -> LearntSaved {
        let (mut b, mut phi, mut kept) = (b, phi, Vec::new());
        for index in self.runs() {
            let layer = &self.layers[index];
            let parts = Parts::new(layer, &b, &phi);
            let [skip, value, .., r] = layer.scalars;
            let mut next_b = &b * (1.0 + skip) + &parts.of_graph * &b * value;
            let seen = columns_times(&(&parts.of_columns * &phi), &layer.value);
            let mut next_phi = &phi * (1.0 + r) + seen;
            let norm = next_b.norm();
            if norm > 0.0 {
                next_b /= norm;
            }
            let lengths = next_phi.column_iter_mut().map(|mut column| {
                let length = column.norm();
                if length > 0.0 {
                    column /= length;
                }
                length
            });
            let lengths = lengths.collect();
            kept.push(Kept { b, phi, norm, lengths });
            (b, phi) = (next_b, next_phi);
        }
        LearntSaved { kept, b, phi }
    }

    /// From the gradient `d_phi` of the encodings to that of the columns at first; adds those of the layers'
    /// numbers to `d_layers`, one for each layer.
    pub fn backward(
        &self,
        saved: &LearntSaved,
        d_phi: DMatrix<f64>,
        d_layers: &mut [LearntLayer],
    ) -> DMatrix<f64> {
        let (mut b, mut phi) = (&saved.b, &saved.phi);
        let (mut d_b, mut d_phi) = (DMatrix::zeros(b.nrows(), b.ncols()), d_phi);
        for (index, kept) in self.runs().rev().zip(saved.kept.iter().rev()) {
            through_norm(&mut d_b, b, kept.norm);
            for (c, &length) in kept.lengths.iter().enumerate() {
                let mut d = DMatrix::from_column_slice(phi.nrows(), 1, d_phi.column(c).as_slice());
                let unit = DMatrix::from_column_slice(phi.nrows(), 1, phi.column(c).as_slice());
                through_norm(&mut d, &unit, length);
                d_phi.set_column(c, &d.column(0));
            }
            (b, phi) = (&kept.b, &kept.phi);
            [d_b, d_phi] =
                layer_back(&self.layers[index], [b, phi], [d_b, d_phi], &mut d_layers[index]);
        }
        d_phi
    }
}

/// Gradients of a layer's inputs B and Φ from those of its outputs before they are normalised.
fn layer_back(
    layer: &LearntLayer,
    [b, phi]: [&DMatrix<f64>; 2],
    [d_b, d_phi]: [DMatrix<f64>; 2],
    d_layer: &mut LearntLayer,
) -> [DMatrix<f64>; 2] {
    let parts = Parts::new(layer, b, phi);
    let [skip, value, b1, b2, b3, b4, r] = layer.scalars;
    let seen = &parts.of_columns * phi;
    let d_seen = columns_times(&d_phi, &layer.value);
    let d_of_graph = &d_b * b.transpose() * value;
    let d_of_columns = &d_seen * phi.transpose();
    let d_a = &d_of_graph * b1 + &d_of_columns * b3;
    let d_c = &d_of_graph * b2 + &d_of_columns * b4;
    let of_scalars = [
        d_b.dot(b),
        d_b.dot(&(&parts.of_graph * b)),
        d_of_graph.dot(&parts.a),
        d_of_graph.dot(&parts.c),
        d_of_columns.dot(&parts.a),
        d_of_columns.dot(&parts.c),
        d_phi.dot(phi),
    ];
    d_layer.scalars.iter_mut().zip(of_scalars).for_each(|(sum, d)| *sum += d);
    let d_c_both = &d_c + d_c.transpose();
    let through_c = &d_c_both * phi;
    for c in 0..phi.ncols() {
        d_layer.value[c] += d_phi.column(c).dot(&seen.column(c));
        d_layer.query_key[c] += 0.5 * phi.column(c).dot(&through_c.column(c));
    }
    let d_scaled = (&d_a + d_a.transpose()) * &parts.scaled;
    let mut d_b_in = &d_b * (1.0 + skip) + &parts.of_graph * &d_b * value;
    for (i, &scale) in parts.scales.iter().enumerate() {
        // dD^-½ / dD = -½ D^-3/2.
        let d_degree = -0.5 * scale.powi(3) * d_scaled.row(i).dot(&b.row(i));
        for (at, d) in d_b_in.row_mut(i).iter_mut().enumerate() {
            let entry = b[(i, at)];
            let sign = if entry == 0.0 { 0.0 } else { entry.signum() };
            *d += scale * d_scaled[(i, at)] + sign * d_degree;
        }
    }
    let d_phi_in = &d_phi * (1.0 + r)
        + &parts.of_columns * &d_seen
        + columns_times(&through_c, &layer.query_key);
    [d_b_in, d_phi_in]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::engine::ops::check::numbers;

    /// A ring of six nodes with two chords, a path of two nodes, and a node alone: B, and columns.
    fn graph(k: usize) -> (DMatrix<f64>, DMatrix<f64>) {
        let edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (1, 4), (6, 7)];
        let mut b = DMatrix::zeros(9, edges.len());
        for (at, (i, j)) in edges.into_iter().enumerate() {
            (b[(i, at)], b[(j, at)]) = (-1.0, 1.0);
        }
        (b, matrix(9, k, 3))
    }

    fn matrix(n: usize, k: usize, seed: u64) -> DMatrix<f64> {
        DMatrix::from_iterator(n, k, numbers(n * k, seed).into_iter().map(f64::from))
    }

    fn encoding(k: usize) -> LearntEncoding {
        let layer = |seed: u64| {
            let at: Vec<f64> =
                numbers(7 + 2 * k, seed).iter().map(|x| 0.4 * f64::from(*x)).collect();
            let mut layer = LearntLayer::zeros(k);
            layer.scalars.copy_from_slice(&at[..7]);
            layer.value.copy_from_slice(&at[7..7 + k]);
            layer.query_key.copy_from_slice(&at[7 + k..]);
            layer
        };
        LearntEncoding { layers: vec![layer(1), layer(2)], n_loops: 2 }
    }

    /// Equation (16) number by number.
    fn plain(of: &LearntEncoding, b: &DMatrix<f64>, phi: &DMatrix<f64>) -> DMatrix<f64> {
        let (n, d, k) = (b.nrows(), b.ncols(), phi.ncols());
        let (mut b, mut phi) = (b.clone(), phi.clone());
        for layer in of.layers.iter().flat_map(|layer| [layer; 2]) {
            let [skip, value, beta @ .., r] = layer.scalars;
            let degree = |i: usize| (0..d).map(|e| b[(i, e)].abs()).sum::<f64>();
            let similar = |i: usize, j: usize, [of_graph, of_columns]: [f64; 2]| {
                let joined = (degree(i) * degree(j)).sqrt();
                let along = (0..d).map(|e| b[(i, e)] * b[(j, e)]).sum::<f64>();
                let graph = if joined > 0.0 { along / joined } else { 0.0 };
                let columns = (0..k).map(|c| phi[(i, c)] * layer.query_key[c] * phi[(j, c)]);
                of_graph * graph + of_columns * columns.sum::<f64>()
            };
            let next_b = DMatrix::from_fn(n, d, |i, e| {
                let heard = (0..n).map(|j| similar(i, j, [beta[0], beta[1]]) * b[(j, e)]);
                (1.0 + skip) * b[(i, e)] + value * heard.sum::<f64>()
            });
            let next_phi = DMatrix::from_fn(n, k, |i, c| {
                let heard = (0..n).map(|j| similar(i, j, [beta[2], beta[3]]) * phi[(j, c)]);
                (1.0 + r) * phi[(i, c)] + layer.value[c] * heard.sum::<f64>()
            });
            let size = next_b.iter().map(|x| x * x).sum::<f64>().sqrt();
            b = next_b.map(|x| x / size);
            phi = DMatrix::from_fn(n, k, |i, c| {
                let length = (0..n).map(|j| next_phi[(j, c)].powi(2)).sum::<f64>().sqrt();
                next_phi[(i, c)] / length
            });
        }
        phi
    }

    #[test]
    fn the_layers_are_those_of_the_equation() {
        let ((b, phi), of) = (graph(3), encoding(3));
        let got = of.forward(b.clone(), phi.clone()).phi;
        assert!((got - plain(&of, &b, &phi)).amax() < 1e-12);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let k = 3;
        let ((b, phi), of, d_out) = (graph(k), encoding(k), matrix(9, k, 5));
        let objective = |of: &LearntEncoding, phi: &DMatrix<f64>| {
            of.forward(b.clone(), phi.clone()).phi.dot(&d_out)
        };
        let mut d_layers = vec![LearntLayer::zeros(k); 2];
        let d_phi = of.backward(&of.forward(b.clone(), phi.clone()), d_out.clone(), &mut d_layers);
        let close = |got: f64, [above, below]: [f64; 2], what: &str| {
            let want = (above - below) / 2e-5;
            assert!((got - want).abs() < 1e-7 + 1e-6 * want.abs(), "{what}: {got}, not {want}");
        };
        for at in 0..phi.len() {
            let moved = [1e-5, -1e-5].map(|step| {
                let mut phi = phi.clone();
                phi[at] += step;
                objective(&of, &phi)
            });
            close(d_phi[at], moved, &format!("Φ {at}"));
        }
        type Number = fn(&mut LearntLayer, usize) -> &mut f64;
        let numbers: [(usize, Number); 3] = [
            (7, |layer, at| &mut layer.scalars[at]),
            (k, |layer, at| &mut layer.value[at]),
            (k, |layer, at| &mut layer.query_key[at]),
        ];
        for (layer, (len, number)) in (0..2).flat_map(|layer| numbers.map(|of| (layer, of))) {
            for at in 0..len {
                let moved = [1e-5, -1e-5].map(|step| {
                    let mut of = of.clone();
                    *number(&mut of.layers[layer], at) += step;
                    objective(&of, &phi)
                });
                close(
                    *number(&mut d_layers[layer], at),
                    moved,
                    &format!("layer {layer}, {at} of {len}"),
                );
            }
        }
    }

    /// With the weights of Corollary 7 a column tends to the bottom eigenvector of the normalised Laplacian.
    #[test]
    fn corollary_7_is_one_of_them() {
        let (b, _) = graph(1);
        let b = b.view((0, 0), (6, 8)).clone_owned();
        let of = LearntEncoding { layers: vec![LearntLayer::bottom(1)], n_loops: 900 };
        let got = of.forward(b.clone(), DMatrix::from_element(6, 1, 1.0)).phi;
        // That of 0 is √degree.
        let degrees = b.row_iter().map(|row| row.norm());
        let want = DMatrix::from_iterator(6, 1, degrees).normalize();
        assert!((got - want).amax() < 1e-9);
    }

    /// As it is printed, the equation's A is the normalised Laplacian for B of one unit alone.
    #[test]
    fn the_printed_scaling_is_of_bs_own_unit() {
        let ((b, phi), layer) = (graph(1), LearntLayer::zeros(1));
        let degrees: Vec<f64> = b.row_iter().map(|row| row.norm_squared()).collect();
        let normalised = DMatrix::from_fn(9, 9, |i, j| {
            let joined = (degrees[i] * degrees[j]).sqrt();
            if joined > 0.0 { b.row(i).dot(&b.row(j)) / joined } else { 0.0 }
        });
        let [of_one, of_three] = [1.0, 3.0].map(|unit| Parts::new(&layer, &(&b * unit), &phi).a);
        assert!((&of_one - &normalised).amax() < 1e-12);
        assert!((of_three - normalised * 3.0).amax() < 1e-12);
    }

    #[test]
    fn nothing_stays_nothing() {
        let of = encoding(2);
        let saved = of.forward(DMatrix::zeros(4, 3), DMatrix::zeros(4, 2));
        let mut d_layers = vec![LearntLayer::zeros(2); 2];
        let d = of.backward(&saved, DMatrix::from_element(4, 2, 1.0), &mut d_layers);
        assert!(saved.phi.amax() == 0.0 && d.iter().all(|d| d.is_finite()));
    }
}
