//! Lemma 6 and Corollary 7: subspace iteration. An iteration is k + 1 layers: one product with the
//! graph, and one layer a column that makes it orthogonal to those before it (Lemma 8, which runs
//! from the last column to the first; here the first column leads).

use super::Laplacian;
use forecloud::Result;

/// Top-k eigenvectors of L from start `columns` `[n, k]`, largest eigenvalue first (Lemma 6).
///
/// # Errors
/// [`forecloud::Error::Shape`] unless columns are `[n, k]`.
pub fn top_eigenvectors(
    laplacian: &Laplacian,
    columns: &[f32],
    n_iterations: usize,
) -> Result<Vec<f32>> {
    iterate(laplacian, columns, n_iterations, false, |_, product| *product)
}

/// Bottom-k eigenvectors of L, smallest eigenvalue first: iterates μI - L, μ ≥ λ_max (Corollary 7).
///
/// Without the constants of each component, which tell nothing: they are taken out in every iteration
/// ([`Laplacian::center`]). Once would not do: rounding brings them back, and they grow fastest.
///
/// # Errors
/// [`forecloud::Error::Shape`] unless columns are `[n, k]`.
pub fn bottom_eigenvectors(
    laplacian: &Laplacian,
    columns: &[f32],
    n_iterations: usize,
    mu: f32,
) -> Result<Vec<f32>> {
    iterate(laplacian, columns, n_iterations, true, |x, product| mu * x - product)
}

/// Φ ← orthonormal(step(Φ, LΦ)), centred before if it `is_centred`.
fn iterate(
    laplacian: &Laplacian,
    columns: &[f32],
    n_iterations: usize,
    is_centred: bool,
    step: impl Fn(&f32, &f32) -> f32,
) -> Result<Vec<f32>> {
    laplacian.check(columns)?;
    let (mut phi, mut product) = (columns.to_vec(), vec![0.0; columns.len()]);
    let width = columns.len() / laplacian.len().max(1);
    for _ in 0..n_iterations {
        laplacian.apply(&phi, &mut product);
        phi.iter_mut().zip(&product).for_each(|(x, product)| *x = step(x, product));
        if is_centred {
            laplacian.center(&mut phi);
        }
        orthonormalize(&mut phi, width);
    }
    Ok(phi)
}

/// Gram and Schmidt's columns of `[n, width]`; those that depend on the ones before become zero.
pub(super) fn orthonormalize(phi: &mut [f32], width: usize) {
    for c in 0..width {
        let before = dot(phi, width, c, c).sqrt();
        // Twice: once leaves f32's rounding, enlarged, in columns that were nearly dependent.
        for _ in 0..2 {
            for earlier in 0..c {
                let along = dot(phi, width, c, earlier) as f32;
                for row in phi.chunks_exact_mut(width) {
                    row[c] -= along * row[earlier];
                }
            }
        }
        let norm = dot(phi, width, c, c).sqrt();
        let scale = if norm > 1e-5 * before { 1.0 / norm } else { 0.0 };
        phi.chunks_exact_mut(width).for_each(|row| row[c] = (f64::from(row[c]) * scale) as f32);
    }
}

/// Dot product of columns `a` and `b`.
fn dot(phi: &[f32], width: usize, a: usize, b: usize) -> f64 {
    phi.chunks_exact(width).map(|row| f64::from(row[a]) * f64::from(row[b])).sum()
}
