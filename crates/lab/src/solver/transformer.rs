//! The linear transformer itself, as the paper has it: equations (1), (3), (6) and (7) in f64 on matrices,
//! and the weights of its lemmas (Lemma 9). The other files of this folder run the same layers as one sparse
//! product each; this one says what of, and is what they are held to. For small graphs.

use nalgebra::DMatrix;

use super::Laplacian;

/// Incidence matrix B `[n, d]` of the graph (equation (1)), edges by their lower node: B Bᵀ = L.
pub fn incidence(laplacian: &Laplacian) -> DMatrix<f64> {
    let edges = laplacian.edges();
    let mut b = DMatrix::zeros(laplacian.len(), edges.len());
    for (at, &(i, j, weight)) in edges.iter().enumerate() {
        b[(i as usize, at)] = -f64::from(weight).sqrt();
        b[(j as usize, at)] = f64::from(weight).sqrt();
    }
    b
}

/// Weights of a layer on states of h rows, each `[h, h]`.
#[derive(Debug, Clone)]
pub struct Weights {
    /// W^V.
    pub value: DMatrix<f64>,
    /// W^Qᵀ W^K, which is all that attention has of the two.
    pub query_key: DMatrix<f64>,
    /// W^R.
    pub skip: DMatrix<f64>,
}

impl Weights {
    /// A layer: Z + W^V Z Zᵀ W^Qᵀ W^K Z + W^R Z of a state Z `[h, n]` (equations (2) and (3)).
    pub fn layer(&self, z: &DMatrix<f64>) -> DMatrix<f64> {
        let attention = z.transpose() * &self.query_key * z;
        z + &self.value * z * attention + &self.skip * z
    }
}

/// Divides rows `first..` of a state by their lengths (the normalisation of equation (6)).
pub fn normalize_rows(z: &mut DMatrix<f64>, first: usize) {
    for mut row in z.row_iter_mut().skip(first) {
        let norm = row.norm();
        if norm > 0.0 {
            row /= norm;
        }
    }
}

/// Weights of a parameter-efficient layer (equation (7)): three numbers for the graph's part of the state,
/// and matrices `[m, m]` for its columns.
#[derive(Debug, Clone)]
pub struct Efficient {
    /// α^V.
    pub alpha_value: f64,
    /// α^Q α^K.
    pub alpha_query_key: f64,
    /// α^R.
    pub alpha_skip: f64,
    /// W^V,Φ, W^Q,Φᵀ W^K,Φ and W^R,Φ.
    pub columns: Weights,
}

impl Efficient {
    /// A layer on B `[n, d]` and Φ `[n, m]` (equation (7)).
    pub fn layer(&self, b: &DMatrix<f64>, phi: &DMatrix<f64>) -> [DMatrix<f64>; 2] {
        let columns = phi * &self.columns.query_key * phi.transpose();
        let attention = b * b.transpose() * self.alpha_query_key + columns;
        let seen = attention.transpose();
        let of_graph = b * (1.0 + self.alpha_skip) + &seen * b * self.alpha_value;
        let of_columns =
            phi + phi * self.columns.skip.transpose() + seen * phi * self.columns.value.transpose();
        [of_graph, of_columns]
    }

    /// The same layer in the form of equation (3), of graphs with `d` edges (the blocks of Lemma 9).
    pub fn full(&self, d: usize) -> Weights {
        let block = |alpha: f64, columns: &DMatrix<f64>| {
            let m = columns.nrows();
            let mut all = DMatrix::zeros(d + m, d + m);
            all.view_mut((0, 0), (d, d)).fill_with_identity();
            all *= alpha;
            all.view_mut((d, d), (m, m)).copy_from(columns);
            all
        };
        Weights {
            value: block(self.alpha_value, &self.columns.value),
            query_key: block(self.alpha_query_key, &self.columns.query_key),
            skip: block(self.alpha_skip, &self.columns.skip),
        }
    }

    /// Attention by the graph alone: BBᵀ = L, the graph kept.
    fn by_graph(value: DMatrix<f64>, skip: DMatrix<f64>) -> Self {
        let query_key = DMatrix::zeros(value.nrows(), value.nrows());
        let columns = Weights { value, query_key, skip };
        Self { alpha_value: 0.0, alpha_query_key: 1.0, alpha_skip: 0.0, columns }
    }

    /// Lemma 1 on columns \[Ψ, Φ\] of `k` demands: Φ ← Φ - δ (L Φ - Ψ) (equation (10)).
    ///
    /// Lemma 9 prints W^V's block in the columns of Ψ, where Φ would never be read.
    pub fn electric_flow(k: usize, delta: f64) -> Self {
        Self::by_graph(blocks(k, [0.0, 0.0, 0.0, -delta]), blocks(k, [0.0, 0.0, delta, 0.0]))
    }

    /// Layer `l` of Lemma 2 on columns \[Λ, Φ\]: Φ ← Φ + α_l Λ, Λ ← (I - δL) Λ (equation (12)).
    ///
    /// Lemma 9 prints 1 / λ_max in place of α_l = √δ · binom(2l, l) / 4^l.
    pub fn resistive_embedding(k: usize, delta: f64, l: usize) -> Self {
        let alpha = (0..l).fold(delta.sqrt(), |a, i| a * (2 * i + 1) as f64 / (2 * i + 2) as f64);
        Self::by_graph(blocks(k, [-delta, 0.0, 0.0, 0.0]), blocks(k, [0.0, 0.0, alpha, 0.0]))
    }

    /// Layer `l` of Lemma 3 on columns \[Λ, Φ\]: Φ ← Φ + (-s)^l / l! Λ, Λ ← L Λ.
    pub fn heat_kernel(k: usize, s: f64, l: usize) -> Self {
        let alpha = (1..=l).fold(1.0, |alpha, i| -alpha * s / i as f64);
        Self::by_graph(blocks(k, [1.0, 0.0, 0.0, 0.0]), blocks(k, [-1.0, 0.0, alpha, 0.0]))
    }

    /// The product of Lemma 6 on `k` columns: Φ ← L Φ; with `mu`, that of Corollary 7: Φ ← (μI - L) Φ.
    ///
    /// Corollary 7 prints W^V = I, which gives μI + L.
    pub fn subspace_product(k: usize, mu: Option<f64>) -> Self {
        let (sign, rest) = mu.map_or((1.0, 0.0), |mu| (-1.0, mu));
        let identity = DMatrix::identity(k, k);
        Self::by_graph(&identity * sign, identity * (rest - 1.0))
    }

    /// Lemma 8: takes from column `i` of `k` what it has along the columns after it, which are of length 1.
    pub fn orthogonalize(k: usize, i: usize) -> Self {
        let entry = |is: fn(usize, usize) -> bool| {
            DMatrix::from_fn(k, k, |a, b| f64::from(u8::from(a == b && is(a, i))))
        };
        let columns = Weights {
            value: -entry(|a, i| a == i),
            query_key: entry(|a, i| a > i),
            skip: DMatrix::zeros(k, k),
        };
        Self { alpha_value: 0.0, alpha_query_key: 0.0, alpha_skip: 0.0, columns }
    }
}

/// \[a I, b I; c I, d I\] of blocks `[k, k]`.
fn blocks(k: usize, [a, b, c, d]: [f64; 4]) -> DMatrix<f64> {
    DMatrix::from_fn(2 * k, 2 * k, |row, column| match (row / k, column / k) {
        _ if row % k != column % k => 0.0,
        (0, 0) => a,
        (0, _) => b,
        (_, 0) => c,
        _ => d,
    })
}

#[cfg(test)]
mod tests;
