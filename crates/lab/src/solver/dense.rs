//! Lemmas 4 and 5: multiplicative polynomials. They square (cube) whole matrices `[n, n]` a layer, so
//! they are for small graphs, in f64.

use nalgebra::DMatrix;

use super::Laplacian;
use forecloud::{Error, Result};

/// Most nodes that matrices are made for.
pub const MAX_DENSE_NODES: usize = 512;

/// L⁺ `[n, n]` by δ Π_l (I + (Î - δL)^(2^l)), l < `n_layers`: 2^layers steps of descent (Lemma 4).
///
/// Starts at δÎ, not the paper's δI, which leaves an error of δ along the constants for good.
///
/// # Errors
/// [`Error::Shape`] for more than [`MAX_DENSE_NODES`] nodes.
pub fn fast_electric_flow(
    laplacian: &Laplacian,
    n_layers: usize,
    delta: f64,
) -> Result<DMatrix<f64>> {
    check(laplacian)?;
    let projection = laplacian.dense_projection();
    let mut power = &projection - laplacian.dense() * delta;
    let mut phi = projection * delta;
    for _ in 0..n_layers {
        phi += &power * &phi;
        power = &power * &power;
    }
    Ok(phi)
}

/// e^(-sL) `[n, n]` by (I - sL / 3^layers)^(3^layers): a layer is Z ← Z Zᵀ Z (Lemma 5).
///
/// # Errors
/// [`Error::Shape`] for more than [`MAX_DENSE_NODES`] nodes.
pub fn fast_heat_kernel(laplacian: &Laplacian, s: f64, n_layers: usize) -> Result<DMatrix<f64>> {
    check(laplacian)?;
    let n = laplacian.len();
    let scale = s / 3f64.powf(n_layers as f64);
    let mut z = DMatrix::identity(n, n) - laplacian.dense() * scale;
    for _ in 0..n_layers {
        z = &z * z.transpose() * &z;
    }
    Ok(z)
}

fn check(laplacian: &Laplacian) -> Result<()> {
    let (what, expected, got) = ("nodes (at most)", MAX_DENSE_NODES, laplacian.len());
    if got <= expected { Ok(()) } else { Err(Error::Shape { what, expected, got }) }
}
