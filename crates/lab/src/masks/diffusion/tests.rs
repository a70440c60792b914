//! Diffusion against the dense exponential.

use super::super::check::{assert_mask, dense_laplacian, exponential, graphs, softplus64};
use super::*;

fn dense(nodes: &Nodes<'_>, lambda: f64) -> Vec<f64> {
    let l: Vec<f64> = dense_laplacian(nodes).iter().map(|l| -lambda * l).collect();
    exponential(&l, nodes.positions.len())
}

#[test]
fn the_diffusion_is_the_dense_one() {
    assert_mask::<Diffusion>(|nodes, params| {
        dense(nodes, softplus64(params[0]) / std::f64::consts::LN_2)
    });
}

/// What is left out is below the tolerance for all λ, and what is kept is no more than that asks for.
#[test]
fn the_error_bound_holds_and_is_near() {
    for lambda in [0.0, 1e-3, 0.5, 2.0, 9.0, MAX_LAMBDA] {
        let mut terms = [0.0; MAX_TERMS];
        let n_terms = coefficients(lambda, &mut terms);
        let rest = |n: usize| 1.0 - terms[..n].iter().sum::<f64>();
        assert!(rest(n_terms) < TOLERANCE && n_terms < MAX_TERMS, "{lambda}: {n_terms} terms");
        assert!(n_terms == 1 || rest(n_terms - 1) >= TOLERANCE, "{lambda}: fewer would do");
        // The series at an eigenvalue s of S is exp(λ (s - 1)).
        for s in [-1.0f64, -0.3, 0.0, 0.8, 1.0] {
            let angle = s.acos();
            let value: f64 = (0..n_terms).map(|t| terms[t] * (t as f64 * angle).cos()).sum();
            let error = (value - (lambda * (s - 1.0)).exp()).abs();
            assert!(error <= rest(n_terms) + 1e-12, "λ = {lambda}, s = {s}: {error}");
        }
    }
}

#[test]
fn to_spread_on_is_to_spread_longer() {
    for graph in graphs() {
        let n = graph.positions.len();
        let mut mask = Diffusion::default();
        mask.rebuild(&graph.nodes()).unwrap();
        let x: Vec<f32> = (0..n).map(|i| (i % 3) as f32).collect();
        let [mut half, mut twice, mut whole] = [0, 1, 2].map(|_| vec![0.0; n]);
        mask.spread(1.5, &x, &mut half);
        mask.spread(1.5, &half, &mut twice);
        mask.spread(3.0, &x, &mut whole);
        for (a, b) in twice.iter().zip(&whole) {
            assert!((a - b).abs() < 1e-5, "{}: {a}, {b}", graph.name);
        }
    }
}

#[test]
fn too_long_a_diffusion_is_the_longest() {
    assert_eq!(lambda(1e6), (MAX_LAMBDA, 0.0));
    assert!((lambda(0.0).0 - 1.0).abs() < 1e-6);
}
