//! What the lemmas promise: bounds on the error of `n_layers` layers, relative to a demand's norm
//! (Lemmas 1 to 3) or in the spectral norm (4 and 5). `min` and `max` are the smallest nonzero and the
//! largest eigenvalue of L. For checks, in f64, of exact arithmetic.

/// Lemma 1 as printed: exp(-δ L λ_min / 2) / √λ_min. Too small where λ_min < 1 and layers are few: its
/// proof takes ‖L⁺ψ‖² for at most ‖ψ‖² / λ_min, which is ‖ψ‖² / λ_min². See [`electric_flow`].
pub fn electric_flow_printed(n_layers: usize, delta: f64, min: f64) -> f64 {
    (-0.5 * delta * n_layers as f64 * min).exp() / min.sqrt()
}

/// Lemma 1, mended: exp(-δ L λ_min) / λ_min, for δ ≤ 1 / λ_max.
pub fn electric_flow(n_layers: usize, delta: f64, min: f64) -> f64 {
    (-delta * n_layers as f64 * min).exp() / min
}

/// Lemma 2, δ ≤ 1 / λ_max in place of 1 / λ_max: exp(-δ L λ_min) / (λ_min √(δ L)).
pub fn resistive_embedding(n_layers: usize, delta: f64, min: f64) -> f64 {
    let steps = delta * n_layers as f64;
    (-steps * min).exp() / (min * steps.sqrt())
}

/// Lemma 3: 2^(-L + 8 s λ_max + 1), where 8 s λ_max ≤ L; infinite elsewhere.
pub fn heat_kernel(n_layers: usize, s: f64, max: f64) -> f64 {
    let surplus = n_layers as f64 - 8.0 * s * max;
    if surplus < 0.0 { f64::INFINITY } else { (1.0 - surplus).exp2() }
}

/// Lemma 4: exp(-δ 2^L λ_min) / λ_min, for δ ≤ 1 / λ_max.
pub fn fast_electric_flow(n_layers: usize, delta: f64, min: f64) -> f64 {
    (-delta * (n_layers as f64).exp2() * min).exp() / min
}

/// Lemma 5: 3^(1 - L) s² λ_max², where s λ_max ≤ 3^L; infinite elsewhere.
pub fn fast_heat_kernel(n_layers: usize, s: f64, max: f64) -> f64 {
    let (x, steps) = (s * max, 3f64.powf(n_layers as f64));
    if x > steps { f64::INFINITY } else { 3.0 * x * x / steps }
}
