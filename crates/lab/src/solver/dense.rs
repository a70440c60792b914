//! Lemmas 4 and 5: multiplicative polynomials. They square (cube) whole matrices `[n, n]` a layer, so
//! they are for small graphs, in f64.

use nalgebra::DMatrix;

use super::Laplacian;
use forecloud::{Error, Result};

/// Most nodes that matrices are made for.
pub const MAX_DENSE_NODES: usize = 512;
/// Most layers: 2^64 steps of descent, 3^64 of heat.
pub const MAX_FAST_LAYERS: usize = 64;

/// L⁺ `[n, n]` by δ Π_l (I + (Î - δL)^(2^l)), l < `n_layers`: 2^layers steps of descent (Lemma 4).
///
/// Starts at δÎ, not the paper's δI, which leaves an error of δ along the constants for good.
///
/// # Errors
/// [`Error::Shape`] for more than [`MAX_DENSE_NODES`] nodes, [`Error::Config`] for more than
/// [`MAX_FAST_LAYERS`] layers and unless 0 < δ ≤ 1 / λ_max.
pub fn fast_electric_flow(
    laplacian: &Laplacian,
    n_layers: usize,
    delta: f64,
) -> Result<DMatrix<f64>> {
    check(laplacian, n_layers)?;
    let dense = laplacian.dense();
    let max = largest_eigenvalue(&dense);
    // δ is often made of f32 sums.
    if !(delta > 0.0 && delta * max <= 1.0 + 1e-6) {
        let most = 1.0 / max;
        return Err(outside(
            "delta",
            format!("{delta} is not above 0 and at most {most}, 1 / λ_max"),
        ));
    }
    let projection = laplacian.dense_projection();
    let mut power = &projection - dense * delta;
    let mut phi = projection * delta;
    for _ in 0..n_layers {
        phi += &power * &phi;
        power = &power * &power;
    }
    Ok(phi)
}

/// e^(-sL) `[n, n]` by (I - sL / 3^layers)^(3^layers): a layer is Z ← Z Zᵀ Z (Lemma 5).
///
/// Keeps Y = Z - I, of which a layer makes 3Y + 3Y² + Y³: Z itself would round sL / 3^layers away from
/// some thirty layers on. Each layer takes out what rounding leaves along the constants, which would grow
/// threefold a layer.
///
/// # Errors
/// [`Error::Shape`] for more than [`MAX_DENSE_NODES`] nodes. [`Error::Config`] for more than
/// [`MAX_FAST_LAYERS`] layers, for an s below 0, and where s λ_max is above 3^layers: the lemma assumes that
/// it is not, and the powers would grow beyond all bounds.
pub fn fast_heat_kernel(laplacian: &Laplacian, s: f64, n_layers: usize) -> Result<DMatrix<f64>> {
    check(laplacian, n_layers)?;
    let (n, dense) = (laplacian.len(), laplacian.dense());
    let (reach, steps) = (s * largest_eigenvalue(&dense), 3f64.powf(n_layers as f64));
    if !(s >= 0.0 && reach.is_finite()) {
        return Err(outside("s", format!("{s} is not a time from 0 on")));
    }
    if reach > steps * (1.0 + 1e-9) {
        let problem = format!(
            "{n_layers} are too few: 3^{n_layers} is below s·λ_max = {reach:.4}; take {} or more",
            reach.log(3.0).ceil()
        );
        return Err(outside("n_layers", problem));
    }
    let projection = laplacian.dense_projection();
    let mut y = &projection * dense * (-s / steps);
    for _ in 0..n_layers {
        let square = &y * &y;
        y = &projection * (&square * &y + square * 3.0 + y * 3.0);
    }
    Ok(y + DMatrix::identity(n, n))
}

/// λ_max, 0 of no nodes.
fn largest_eigenvalue(dense: &DMatrix<f64>) -> f64 {
    if dense.is_empty() {
        return 0.0;
    }
    dense.symmetric_eigenvalues().iter().copied().fold(0.0, f64::max)
}

fn outside(key: &str, problem: String) -> Error {
    Error::Config { key: key.into(), problem }
}

fn check(laplacian: &Laplacian, n_layers: usize) -> Result<()> {
    let (what, expected, got) = ("nodes (at most)", MAX_DENSE_NODES, laplacian.len());
    if got > expected {
        return Err(Error::Shape { what, expected, got });
    }
    if n_layers > MAX_FAST_LAYERS {
        return Err(outside("n_layers", format!("{n_layers} is not in 0..={MAX_FAST_LAYERS}")));
    }
    Ok(())
}
