//! The kernel against dense ones.

use super::super::check::{assert_mask, assert_products, graphs, softplus64};
use super::*;

/// Eq. 5 with α, in f64, of the loads that the mask has.
fn dense(mask: &Rwgnk, alpha: f64, params: &[f64]) -> Vec<f64> {
    let (n, lambda) = (mask.n_nodes(), softplus64(params[0]) / std::f64::consts::LN_2);
    let unit = |i: usize| -> Vec<f64> {
        let (row, mut h) = (mask.loads.row(i), vec![0.0; n]);
        for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(mask.loads.n_hops() + 1)) {
            let visits = c.iter().enumerate().map(|(t, &c)| lambda.powi(t as i32) * f64::from(c));
            h[j as usize] = visits.sum();
        }
        let norm = h.iter().map(|h| h * h).sum::<f64>().sqrt();
        h.iter().map(|h| h / norm.powf(alpha)).collect()
    };
    let units: Vec<Vec<f64>> = (0..n).map(unit).collect();
    let entry = |at: usize| units[at / n].iter().zip(&units[at % n]).map(|(a, b)| a * b).sum();
    (0..n * n).map(entry).collect()
}

#[test]
fn the_kernel_is_the_dense_one() {
    assert_mask::<Rwgnk>(|nodes, params| {
        let mut mask = Rwgnk::default();
        mask.rebuild(nodes).unwrap();
        dense(&mask, 1.0, params)
    });
}

#[test]
fn any_alpha_gives_the_dense_kernel_and_its_gradient() {
    for alpha in [0.0, 0.5, 1.7] {
        let mut mask = Rwgnk::with_alpha(alpha).unwrap();
        for graph in graphs() {
            mask.rebuild(&graph.nodes()).unwrap();
            let name = format!("{}, alpha {alpha}", graph.name);
            let of = |params: &[f64]| dense(&mask, f64::from(alpha), params);
            assert_products(&name, &mask, 1, 1e-5, of);
        }
    }
}

#[test]
fn alphas_out_of_range_are_refused() {
    for alpha in [-0.1, f32::NAN, f32::INFINITY] {
        let error = Rwgnk::with_alpha(alpha).unwrap_err();
        assert!(error.to_string().contains("alpha"), "{error}");
    }
}
