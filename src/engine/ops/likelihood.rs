//! The likelihood of errors, from which a model learns how sure it is.
//!
//! An error e ≥ 0 of a prediction that was told to be off by σ costs ln σ + e / σ: least where σ is the
//! mean of such errors (an exponential distribution; Laplace's in one dimension). The error itself is
//! held constant, so that the motions are learnt from [`super::charbonnier`] alone: else a model would
//! rather be unsure than right (Seitzer et al., ICLR 2022, on β-NLL).

/// Least error, in metres, or what rests would ask for a σ of nothing.
pub const LEAST_ERROR_M: f32 = 2e-4;
/// Largest e / σ that counts, so that one surprise is no step of a hundred.
const MAX_RATIO: f32 = 8.0;

/// Gradients of Σ w_i (ln σ_i + e_i / σ_i) / Σ w_i with respect to ln σ_i, times `scale`, into
/// `d_log_sigmas`. Positions and `sigmas` in metres.
pub fn likelihood(
    predicted: &[[f32; 3]],
    target: &[[f32; 3]],
    sigmas: &[f32],
    weights: &[f32],
    scale: f32,
    d_log_sigmas: &mut Vec<f32>,
) {
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let scale = if total > 0.0 { scale / total as f32 } else { 0.0 };
    let rows = predicted.iter().zip(target).zip(sigmas).zip(weights);
    d_log_sigmas.clear();
    d_log_sigmas.extend(rows.map(|(((p, t), sigma), w)| {
        let squares: f32 = (0..3).map(|axis| (p[axis] - t[axis]).powi(2)).sum();
        let ratio = (squares.sqrt() + LEAST_ERROR_M) / sigma;
        scale * w * (1.0 - ratio.min(MAX_RATIO))
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigma_becomes_the_mean_error_of_what_looks_alike() {
        // One sigma for points whose errors are 1, 2 and 6 mm, of which the last counts half.
        let predicted = [[0.001, 0.0, 0.0], [0.0, 0.002, 0.0], [0.0, 0.0, 0.006f32]];
        let (target, weights) = ([[0.0; 3]; 3], [1.0, 1.0, 0.5f32]);
        let (mut log_sigma, mut d) = (0.005f32.ln(), Vec::new());
        for _ in 0..2000 {
            let sigmas = [log_sigma.exp(); 3];
            likelihood(&predicted, &target, &sigmas, &weights, 1.0, &mut d);
            log_sigma -= 0.05 * d.iter().sum::<f32>();
        }
        let expected = (0.001 + 0.002 + 0.5 * 0.006) / 2.5 + LEAST_ERROR_M;
        assert!((log_sigma.exp() / expected - 1.0).abs() < 1e-3, "{}", log_sigma.exp());
    }

    #[test]
    fn no_weight_no_gradient_and_one_surprise_is_bounded() {
        let mut d = vec![9.0];
        likelihood(&[[1.0; 3]], &[[0.0; 3]], &[1e-4], &[0.0], 1.0, &mut d);
        assert_eq!(d, [0.0]);
        likelihood(&[[1.0; 3]], &[[0.0; 3]], &[1e-4], &[2.0], 1.0, &mut d);
        assert_eq!(d, [1.0 - MAX_RATIO]);
    }
}
