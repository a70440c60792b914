//! The training loss: weighted Charbonnier distance of displacements to the true flow.

/// Where the loss turns from quadratic to linear, in metres.
pub const DELTA_M: f32 = 1e-3;

/// Loss in metres: Σ w_i (√(|x_i - x*_i|² + δ²) - δ) / Σ w_i, and its gradient times `scale`,
/// added to `d_predicted`.
///
/// `weights` holds one weight for each particle; 0 leaves a particle out. Summed in f64, so the
/// loss does not depend on how many particles there are.
pub fn charbonnier(
    predicted: &[[f32; 3]],
    target: &[[f32; 3]],
    weights: &[f32],
    scale: f32,
    d_predicted: &mut [[f32; 3]],
) -> f64 {
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    if total <= 0.0 {
        return 0.0;
    }
    let mut loss = 0.0;
    let rows = predicted.iter().zip(target).zip(weights).zip(d_predicted);
    for (((p, t), &w), d) in rows {
        let e: [f32; 3] = std::array::from_fn(|axis| p[axis] - t[axis]);
        let root = (e[0] * e[0] + e[1] * e[1] + e[2] * e[2] + DELTA_M * DELTA_M).sqrt();
        loss += f64::from(w) * f64::from(root - DELTA_M);
        let g = scale * w / (root * total as f32);
        (0..3).for_each(|axis| d[axis] += g * e[axis]);
    }
    loss / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    #[test]
    fn charbonnier_and_its_gradient() {
        let vectors = |x: &[f32]| x.chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect::<Vec<_>>();
        let x: Vec<f32> = numbers(30, 1).iter().map(|x| 0.01 * x).collect();
        let target: Vec<f32> = numbers(30, 2).iter().map(|x| 0.01 * x).collect();
        let w = [1.0, 0.25, 0.0, 0.1, 1.0, 0.15, 1.0, 0.3, 0.2, 1.0f32];
        let delta = f64::from(DELTA_M);
        let plain = |x: &[f64]| -> Vec<f64> {
            let total: f64 = w.iter().map(|&w| f64::from(w)).sum();
            let distance = |i: usize| -> f64 {
                let squares = (0..3).map(|a| (x[3 * i + a] - f64::from(target[3 * i + a])).powi(2));
                (squares.sum::<f64>() + delta * delta).sqrt() - delta
            };
            vec![(0..10).map(|i| f64::from(w[i]) * distance(i)).sum::<f64>() / total]
        };
        let mut d = vec![[0.0; 3]; 10];
        let loss = charbonnier(&vectors(&x), &vectors(&target), &w, 2.0, &mut d);
        assert!((loss - plain(&f64s(&x))[0]).abs() < 1e-8);
        assert_gradient(d.as_flattened(), &x, &[2.0], plain);
    }

    #[test]
    fn no_weight_no_loss() {
        let mut d = [[0.0; 3]; 1];
        assert_eq!(charbonnier(&[[1.0; 3]], &[[0.0; 3]], &[0.0], 1.0, &mut d), 0.0);
        assert_eq!(d, [[0.0; 3]]);
    }
}
