//! What the operations' tests share: seeded numbers, comparison, central finite differences.

use crate::graph::random::{draw, normal_pair};

/// `n` seeded standard normal numbers.
pub fn numbers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| normal_pair(draw(seed, 0, i, 0))[0]).collect()
}

pub fn f64s(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Holds `got` to `want` within `tolerance` times the largest magnitude (at least 1e-6 of it).
pub fn assert_close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1e-12f64, |m, w| m.max(w.abs()));
    for (i, (&g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs();
        assert!(error <= tolerance * scale, "element {i}: {g} against {w}, scale {scale}");
    }
}

/// Holds `gradient` of Σ dy·f(x) to central differences of the plain `f`.
pub fn assert_gradient(gradient: &[f32], x: &[f32], dy: &[f32], f: impl Fn(&[f64]) -> Vec<f64>) {
    let objective =
        |x: &[f64]| -> f64 { f(x).iter().zip(dy).map(|(y, &g)| y * f64::from(g)).sum() };
    let mut point = f64s(x);
    let numeric: Vec<f64> = (0..x.len())
        .map(|i| {
            let (at, step) = (point[i], 1e-6 * point[i].abs().max(1.0));
            point[i] = at + step;
            let above = objective(&point);
            point[i] = at - step;
            let below = objective(&point);
            point[i] = at;
            (above - below) / (2.0 * step)
        })
        .collect();
    assert_close(gradient, &numeric, 2e-5);
}
