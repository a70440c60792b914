//! The layers against the eigenvectors of the dense Laplacian in f64, and against the lemmas' bounds.

use nalgebra::{DMatrix, DVector};

use super::*;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::ops::check::numbers;

/// A path, a grid, a random graph with weights, two parts with a lone node, one node.
pub(super) fn laplacians() -> Vec<(&'static str, Laplacian)> {
    let path: Vec<(u32, u32, f32)> = (0..11).map(|i| (i, i + 1, 1.0)).collect();
    let mut grid = Vec::new();
    for (x, y) in (0..4).flat_map(|y| (0..5).map(move |x| (x, y))) {
        grid.extend((x < 4).then_some((y * 5 + x, y * 5 + x + 1, 1.0)));
        grid.extend((y < 3).then_some((y * 5 + x, y * 5 + x + 5, 1.0)));
    }
    let chance = numbers(16 * 16, 3);
    let pairs = (0..16u32).flat_map(|i| (i + 1..16).map(move |j| (i, j)));
    let weight = |(i, j): (u32, u32)| (i, j, chance[(i * 16 + j) as usize]);
    let random: Vec<_> = pairs.map(weight).filter(|edge| edge.2 > 0.3).collect();
    let parts = [(0, 1, 0.5), (1, 2, 2.0), (2, 0, 1.0), (4, 5, 0.3)];
    let of = |n, edges: &[(u32, u32, f32)]| {
        Laplacian::new(&WeightedGraph::from_edges(n, edges, false).unwrap()).unwrap()
    };
    vec![
        ("a path", of(12, &path)),
        ("a grid", of(20, &grid)),
        ("a random graph", of(16, &random)),
        ("parts", of(6, &parts)),
        ("one node", of(1, &[])),
    ]
}

/// f of L's eigenvalues, null ones left out, and the smallest and largest that are not null.
pub(super) fn function(laplacian: &Laplacian, f: impl Fn(f64) -> f64) -> (DMatrix<f64>, f64, f64) {
    let eigen = laplacian.dense().symmetric_eigen();
    let values = eigen.eigenvalues.iter().copied();
    let (mut min, mut max) = (f64::INFINITY, 0.0f64);
    let mapped = values.map(|value| {
        if value < 1e-9 {
            return 0.0;
        }
        (min, max) = (min.min(value), max.max(value));
        f(value)
    });
    let mapped = DVector::from_iterator(laplacian.len(), mapped);
    let vectors = &eigen.eigenvectors;
    (vectors * DMatrix::from_diagonal(&mapped) * vectors.transpose(), min, max)
}

/// Demands `[n, 2]` that sum to zero on each component.
pub(super) fn demands(laplacian: &Laplacian) -> Vec<f32> {
    let mut demands = numbers(2 * laplacian.len(), 9);
    laplacian.center(&mut demands);
    demands
}

/// The larger of the two columns' errors, relative to their demands.
fn error(got: &[f32], exact: &DMatrix<f64>, demands: &[f32]) -> f64 {
    let column = |of: &[f32], c: usize| {
        DVector::from_iterator(of.len() / 2, of.iter().skip(c).step_by(2).map(|&x| f64::from(x)))
    };
    let of = |c| {
        let demand = column(demands, c);
        (column(got, c) - exact * &demand).norm() / demand.norm().max(1e-30)
    };
    of(0).max(of(1))
}

#[test]
fn products_are_those_of_the_dense_laplacian() {
    for (name, laplacian) in laplacians() {
        let x = numbers(2 * laplacian.len(), 4);
        let mut y = vec![f32::NAN; x.len()];
        laplacian.apply(&x, &mut y);
        assert!(error(&y, &laplacian.dense(), &x) < 1e-6, "{name}");
        let mut centred = x.clone();
        laplacian.center(&mut centred);
        assert!(error(&centred, &laplacian.dense_projection(), &x) < 1e-6, "{name}");
        let (_, _, max) = function(&laplacian, |_| 1.0);
        assert!(f64::from(laplacian.lambda_bound()) >= max, "{name}");
    }
}

/// Lemmas 1 and 2, layer by layer, down to what f32 leaves.
#[test]
fn flows_and_embeddings_stay_within_their_bounds() {
    for (name, laplacian) in laplacians() {
        let (demands, delta) = (demands(&laplacian), laplacian.step());
        let (inverse, min, _) = function(&laplacian, |value| 1.0 / value);
        let (root, ..) = function(&laplacian, |value| value.powf(-0.5));
        let floor = 1e-5 / min.min(1.0);
        let mut last = f64::INFINITY;
        for n_layers in [1, 4, 16, 64, 256, 1024] {
            let flow = electric_flow(&laplacian, &demands, n_layers, delta).unwrap();
            let of_flow = error(&flow, &inverse, &demands);
            let bound = bounds::electric_flow(n_layers, f64::from(delta), min);
            assert!(of_flow <= bound + floor, "{name}, {n_layers}: {of_flow} above {bound}");
            assert!(of_flow <= last + floor, "{name}, {n_layers}: no better");
            last = of_flow;
            let embedding = resistive_embedding(&laplacian, &demands, n_layers, delta).unwrap();
            let of_embedding = error(&embedding, &root, &demands);
            let bound = bounds::resistive_embedding(n_layers, f64::from(delta), min);
            assert!(of_embedding <= bound + floor, "{name}, {n_layers}: {of_embedding}, {bound}");
        }
    }
}

/// Lemma 1 as it is printed fails where λ_min is below 1 (path of twelve nodes, one layer).
#[test]
fn the_flows_printed_bound_is_too_small_for_few_layers() {
    let (_, path) = laplacians().swap_remove(0);
    let (inverse, min, _) = function(&path, |value| 1.0 / value);
    // The demand that is hardest: the eigenvector of λ_min.
    let eigen = path.dense().symmetric_eigen();
    let at = (0..12).find(|&i| (eigen.eigenvalues[i] - min).abs() < 1e-9).unwrap();
    let demand: Vec<f32> =
        eigen.eigenvectors.column(at).iter().flat_map(|&x| [x as f32; 2]).collect();
    let flow = electric_flow(&path, &demand, 1, path.step()).unwrap();
    let error = error(&flow, &inverse, &demand);
    let delta = f64::from(path.step());
    assert!(error > 2.0 * bounds::electric_flow_printed(1, delta, min), "{error}");
    assert!(error <= bounds::electric_flow(1, delta, min) + 1e-5, "{error}");
}

/// Lemma 3, and Lemmas 4 and 5 with matrices.
#[test]
fn heat_and_the_fast_ways_stay_within_their_bounds() {
    for (name, laplacian) in laplacians() {
        let (x, n) = (numbers(2 * laplacian.len(), 5), laplacian.len());
        let (inverse, min, max) = function(&laplacian, |value| 1.0 / value);
        let identity = DMatrix::<f64>::identity(n, n);
        let s = 1.0 / f64::from(laplacian.lambda_bound()).max(1.0);
        let of_heat = function(&laplacian, |value| (-s * value).exp()).0;
        let heat = &of_heat + &identity - laplacian.dense_projection();
        for n_layers in [8, 10, 14, 20] {
            let ours = heat_kernel(&laplacian, &x, s as f32, n_layers).unwrap();
            let error = error(&ours, &heat, &x);
            let bound = bounds::heat_kernel(n_layers, s, max);
            assert!(error <= bound + 2e-6, "{name}, {n_layers}: {error} above {bound}");
        }
        let delta = f64::from(laplacian.step());
        for n_layers in 0..12 {
            let flow = fast_electric_flow(&laplacian, n_layers, delta).unwrap();
            let error = (flow - &inverse).symmetric_eigenvalues().amax();
            let bound = bounds::fast_electric_flow(n_layers, delta, min);
            assert!(error <= bound + 1e-9, "{name}, {n_layers}: {error} above {bound}");
            let fast = fast_heat_kernel(&laplacian, s, n_layers).unwrap();
            let error = (fast - &heat).symmetric_eigenvalues().amax();
            let bound = bounds::fast_heat_kernel(n_layers, s, max);
            assert!(error <= bound + 1e-9, "{name}, {n_layers}: {error} above {bound}");
        }
    }
}

/// Lemma 5 far from small times: up to what it assumes, s λ_max = 3^L, it holds; beyond, it is refused.
#[test]
fn fast_heat_is_right_or_refused() {
    for (name, laplacian) in laplacians() {
        let (_, _, max) = function(&laplacian, |_| 1.0);
        let n = laplacian.len();
        let rest = DMatrix::<f64>::identity(n, n) - laplacian.dense_projection();
        for n_layers in [0, 1, 2, 3, 5, 12, 40, MAX_FAST_LAYERS] {
            let most = 3f64.powf(n_layers as f64) / max.max(1e-300);
            for s in [0.0, 1e-3, 1.0, 1e3, 0.1 * most, 0.9 * most, most] {
                if !s.is_finite() || s > most {
                    continue;
                }
                let fast = fast_heat_kernel(&laplacian, s, n_layers).unwrap();
                let heat = function(&laplacian, |value| (-s * value).exp()).0 + &rest;
                let error = (fast - heat).symmetric_eigenvalues().amax();
                let bound = bounds::fast_heat_kernel(n_layers, s, max).min(2.0);
                assert!(error <= bound + 1e-9, "{name}, {n_layers}, {s}: {error} above {bound}");
            }
            if max > 0.0 {
                for beyond in [1.01, 2.1, 1e6] {
                    let told = fast_heat_kernel(&laplacian, beyond * most, n_layers).unwrap_err();
                    assert!(told.to_string().contains("n_layers"), "{told}");
                }
            }
        }
        assert!(fast_heat_kernel(&laplacian, 1.0, MAX_FAST_LAYERS + 1).is_err());
        for s in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(fast_heat_kernel(&laplacian, s, 3).is_err(), "{s}");
        }
    }
}

/// Steps with which descent would diverge are refused, as the lemmas do; those up to there do not.
#[test]
fn too_long_steps_are_refused() {
    let (_, path) = laplacians().swap_remove(0);
    let demands = demands(&path);
    for delta in [0.51, 3.0, 0.0, -0.1, f32::NAN, f32::INFINITY] {
        assert!(electric_flow(&path, &demands, 3, delta).is_err(), "{delta}");
        assert!(resistive_embedding(&path, &demands, 3, delta).is_err(), "{delta}");
        assert!(fast_electric_flow(&path, 3, f64::from(delta)).is_err(), "{delta}");
    }
    let longest = electric_flow(&path, &demands, 5000, 0.5).unwrap();
    assert!(longest.iter().all(|x| x.abs() < 1e3));
}

/// Lemma 6 and Corollary 7: the spaces of the iterations are those of the eigenvectors.
#[test]
fn subspace_iteration_finds_eigenvectors() {
    for (name, laplacian) in laplacians().into_iter().take(3) {
        let n = laplacian.len();
        let dense = laplacian.dense();
        let values = {
            let mut values: Vec<f64> = dense.symmetric_eigenvalues().iter().copied().collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let mut start = numbers(2 * n, 6);
        laplacian.center(&mut start);
        let mu = laplacian.lambda_bound();
        let top = top_eigenvectors(&laplacian, &start, 3000).unwrap();
        let bottom = bottom_eigenvectors(&laplacian, &start, 6000, mu).unwrap();
        for (what, vectors, wanted) in [
            ("top", top, [values[n - 1], values[n - 2]]),
            ("bottom", bottom, [values[1], values[2]]),
        ] {
            for (c, wanted) in wanted.into_iter().enumerate() {
                let vector = DVector::from_iterator(
                    n,
                    vectors.iter().skip(c).step_by(2).map(|&x| f64::from(x)),
                );
                assert!((vector.norm() - 1.0).abs() < 1e-5, "{name}");
                let rayleigh = vector.dot(&(&dense * &vector));
                assert!(
                    (rayleigh - wanted).abs() < 1e-4,
                    "{name}, {what} {c}: {rayleigh}, {wanted}"
                );
            }
        }
    }
}

#[test]
fn encodings_are_finite_seeded_and_of_their_width() {
    let config = PositionalConfig {
        n_demands: 3,
        scales: vec![0.5, 4.0],
        n_layers: 24,
        n_eigenvectors: 2,
        n_iterations: 200,
        seed: 7,
    };
    for (name, laplacian) in laplacians() {
        let features = positional_encoding(&laplacian, &config).unwrap();
        assert_eq!(features.len(), laplacian.len() * config.width(), "{name}");
        assert!(features.iter().all(|x| x.is_finite()), "{name}");
        assert_eq!(features, positional_encoding(&laplacian, &config).unwrap());
    }
    let (_, path) = laplacians().swap_remove(0);
    let other = PositionalConfig { seed: 8, ..config.clone() };
    let of = |config| positional_encoding(&path, config).unwrap();
    assert_ne!(of(&config), of(&other));
}

#[test]
fn bad_graphs_and_columns_are_refused() {
    let negative = WeightedGraph::from_edges(2, &[(0, 1, -1.0)], false).unwrap();
    assert!(Laplacian::new(&negative).is_err());
    let (_, path) = laplacians().swap_remove(0);
    assert!(electric_flow(&path, &[0.0; 13], 1, 0.1).is_err());
    let n = MAX_DENSE_NODES + 1;
    let large = Laplacian::new(&WeightedGraph::from_edges(n, &[], false).unwrap()).unwrap();
    assert!(fast_electric_flow(&large, 1, 0.1).is_err());
    assert!(fast_heat_kernel(&large, 0.1, 1).is_err());
    let none = Laplacian::new(&WeightedGraph::default()).unwrap();
    assert!(electric_flow(&none, &[], 3, none.step()).unwrap().is_empty());
}
