//! Lemmas 1 to 3: gradient descent and power series, a sparse product a layer.

use super::Laplacian;
use forecloud::Result;
use forecloud::base::simd::{axpy, vectorized};

/// Potentials φ ≈ L⁺ψ of `demands` ψ `[n, width]` (Lemma 1, weights of equation (10)).
///
/// A layer is φ ← φ - δ (L φ - ψ), from 0: one step of gradient descent on the dual energy (5).
/// Demands sum to zero on each component; δ ≤ 1 / λ_max ([`Laplacian::step`]).
///
/// # Errors
/// [`forecloud::Error::Shape`] unless demands are `[n, width]`, [`forecloud::Error::Config`] for a δ that
/// is certainly too large: above 1 / the largest degree.
pub fn electric_flow(
    laplacian: &Laplacian,
    demands: &[f32],
    n_layers: usize,
    delta: f32,
) -> Result<Vec<f32>> {
    laplacian.check(demands)?;
    laplacian.check_step(delta)?;
    let (mut phi, mut product) = (vec![0.0; demands.len()], vec![0.0; demands.len()]);
    for _ in 0..n_layers {
        laplacian.apply(&phi, &mut product);
        add_scaled(&mut phi, -delta, &product);
        add_scaled(&mut phi, delta, demands);
    }
    Ok(phi)
}

/// √(L⁺) ψ of `demands` ψ `[n, width]`: resistive embedding (Lemma 2, equation (12)).
///
/// Layer l adds α_l (I - δL)^l ψ, α_l = √δ · binom(2l, l) / 4^l. Demands and δ as in
/// [`electric_flow`].
///
/// # Errors
/// As [`electric_flow`].
pub fn resistive_embedding(
    laplacian: &Laplacian,
    demands: &[f32],
    n_layers: usize,
    delta: f32,
) -> Result<Vec<f32>> {
    laplacian.check(demands)?;
    laplacian.check_step(delta)?;
    let (mut power, mut product) = (demands.to_vec(), vec![0.0; demands.len()]);
    let mut sum = vec![0.0; demands.len()];
    let mut alpha = f64::from(delta).sqrt();
    for layer in 0..n_layers {
        add_scaled(&mut sum, alpha as f32, &power);
        laplacian.apply(&power, &mut product);
        add_scaled(&mut power, -delta, &product);
        alpha *= (2 * layer + 1) as f64 / (2 * layer + 2) as f64;
    }
    Ok(sum)
}

/// e^(-sL) ψ of `demands` ψ `[n, width]`, any demands (Lemma 3).
///
/// Layer l adds (-s L)^l ψ / l!. Terms grow to e^(s λ_max) before they fall and cancel: in f32 the
/// error does not go below about 1e-7 · e^(s λ_max), so keep s λ_max under about 5.
///
/// # Errors
/// [`forecloud::Error::Shape`] unless demands are `[n, width]`.
pub fn heat_kernel(
    laplacian: &Laplacian,
    demands: &[f32],
    s: f32,
    n_layers: usize,
) -> Result<Vec<f32>> {
    laplacian.check(demands)?;
    let (mut term, mut product) = (demands.to_vec(), vec![0.0; demands.len()]);
    let mut sum = vec![0.0; demands.len()];
    for layer in 0..n_layers {
        add_scaled(&mut sum, 1.0, &term);
        // The factorial within the term: powers of L alone overflow.
        laplacian.apply(&term, &mut product);
        term.fill(0.0);
        add_scaled(&mut term, -s / (layer + 1) as f32, &product);
    }
    Ok(sum)
}

vectorized! {
/// y += a·x.
fn add_scaled(y: &'a mut [f32], a: f32, x: &'a [f32]) {
    axpy(y, a, x);
}
}
