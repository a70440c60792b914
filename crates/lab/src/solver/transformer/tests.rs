//! The transformer with the lemmas' weights against the sparse solvers, its two forms against each other.

use super::super::subspace::orthonormalize;
use super::super::tests::{demands, laplacians};
use super::super::{electric_flow, heat_kernel, resistive_embedding};
use super::*;
use forecloud::engine::ops::check::numbers;

const K: usize = 2;

fn columns(rows: &[f32]) -> DMatrix<f64> {
    DMatrix::from_row_iterator(rows.len() / K, K, rows.iter().map(|&x| f64::from(x)))
}

/// \[Ψ, 0\].
fn with_zeros(psi: &DMatrix<f64>) -> DMatrix<f64> {
    let mut phi = psi.clone();
    phi.resize_horizontally_mut(2 * K, 0.0);
    phi
}

/// Runs layers in both forms, and holds them to each other (Lemma 9). Gives Φ.
#[track_caller]
fn run(name: &str, b: &DMatrix<f64>, phi: DMatrix<f64>, layers: &[Efficient]) -> DMatrix<f64> {
    let (n, d, m) = (b.nrows(), b.ncols(), phi.ncols());
    let mut z = DMatrix::zeros(d + m, n);
    z.view_mut((0, 0), (d, n)).copy_from(&b.transpose());
    z.view_mut((d, 0), (m, n)).copy_from(&phi.transpose());
    let mut state = [b.clone(), phi];
    for layer in layers {
        z = layer.full(d).layer(&z);
        state = layer.layer(&state[0], &state[1]);
    }
    let [of_graph, of_columns] = state;
    let apart = (z.rows(0, d).transpose() - of_graph).amax();
    let apart = apart.max((z.rows(d, m).transpose() - &of_columns).amax());
    assert!(apart < 1e-9 * z.amax().max(1.0), "{name}: (7) is off (3) by {apart}");
    of_columns
}

#[test]
fn the_incidence_makes_the_laplacian() {
    for (name, laplacian) in laplacians() {
        let b = incidence(&laplacian);
        assert!((&b * b.transpose() - laplacian.dense()).amax() < 1e-6, "{name}");
    }
}

/// Lemmas 1 to 3 by both forms of the transformer, against the sparse layers.
#[test]
fn the_lemmas_weights_do_what_the_solvers_do() {
    const LAYERS: usize = 7;
    for (name, laplacian) in laplacians() {
        let (b, psi, delta) = (incidence(&laplacian), demands(&laplacian), laplacian.step());
        let of = |layer: &dyn Fn(usize) -> Efficient| {
            let layers: Vec<Efficient> = (0..LAYERS).map(layer).collect();
            run(name, &b, with_zeros(&columns(&psi)), &layers).columns(K, K).into_owned()
        };
        let s = 0.7 * delta;
        let (step, time) = (f64::from(delta), f64::from(s));
        for (what, got, wanted) in [
            (
                "flow",
                of(&|_| Efficient::electric_flow(K, step)),
                electric_flow(&laplacian, &psi, LAYERS, delta),
            ),
            (
                "embedding",
                of(&|l| Efficient::resistive_embedding(K, step, l)),
                resistive_embedding(&laplacian, &psi, LAYERS, delta),
            ),
            (
                "heat",
                of(&|l| Efficient::heat_kernel(K, time, l)),
                heat_kernel(&laplacian, &psi, s, LAYERS),
            ),
        ] {
            let wanted = columns(&wanted.unwrap());
            let apart = (got - &wanted).amax();
            assert!(apart < 1e-5 * wanted.amax().max(1.0), "{name}, {what}: {apart}");
        }
    }
}

/// Lemmas 6 and 8: k + 1 layers are an iteration, whose columns are orthonormal from the last on.
#[test]
fn the_subspace_layers_are_an_iteration() {
    for (name, laplacian) in laplacians().into_iter().take(3) {
        let (n, b) = (laplacian.len(), incidence(&laplacian));
        let start = numbers(3 * n, 6);
        let phi = DMatrix::from_row_iterator(n, 3, start.iter().map(|&x| f64::from(x)));
        let mu = f64::from(laplacian.lambda_bound());
        for (mu, matrix) in [
            (None, laplacian.dense()),
            (Some(mu), DMatrix::identity(n, n) * mu - laplacian.dense()),
        ] {
            let product = run(name, &b, phi.clone(), &[Efficient::subspace_product(3, mu)]);
            assert!((&product - &matrix * &phi).amax() < 1e-9, "{name}");
            let mut columns = product.transpose();
            normalize_rows(&mut columns, 0);
            for i in (0..3).rev() {
                let layer = [Efficient::orthogonalize(3, i)];
                columns = run(name, &b, columns.transpose(), &layer).transpose();
                normalize_rows(&mut columns, 0);
            }
            // Ours begins with the first column.
            let mut wanted: Vec<f32> = Vec::new();
            for i in 0..n {
                wanted.extend((0..3).rev().map(|c| product[(i, c)] as f32));
            }
            orthonormalize(&mut wanted, 3);
            for (i, c) in (0..n).flat_map(|i| (0..3).map(move |c| (i, c))) {
                let (got, want) = (columns[(2 - c, i)], f64::from(wanted[i * 3 + c]));
                assert!((got - want).abs() < 1e-4, "{name}: {got}, not {want}");
            }
        }
    }
}

/// As printed, Lemma 9's weights for Lemma 1 never read Φ, and Corollary 7's give μI + L.
#[test]
fn printed_weights_are_not_those_of_the_lemmas() {
    let (_, path) = laplacians().swap_remove(0);
    let (b, psi) = (incidence(&path), columns(&demands(&path)));
    let mut printed = Efficient::electric_flow(K, 0.2);
    printed.columns.value = blocks(K, [0.0, 0.0, -0.2, 0.0]);
    let of = |layer: Efficient| run("a path", &b, with_zeros(&psi), &vec![layer; 50]);
    let straight = (&psi - path.dense() * &psi) * (50.0 * 0.2);
    assert!((of(printed).columns(K, K) - straight).amax() < 1e-9);
    assert!((of(Efficient::electric_flow(K, 0.2)).columns(K, K).amax() - 10.0).abs() > 1.0);
    let mut printed = Efficient::subspace_product(K, Some(5.0));
    printed.columns.value.neg_mut();
    let plus = DMatrix::identity(12, 12) * 5.0 + path.dense();
    assert!((run("a path", &b, psi.clone(), &[printed]) - plus * &psi).amax() < 1e-9);
}

/// Lemma 10: another order of the edges gives the graph's part in that order, and the same columns.
#[test]
fn the_order_of_edges_does_not_matter() {
    for (name, laplacian) in laplacians() {
        let (b, phi) = (incidence(&laplacian), with_zeros(&columns(&demands(&laplacian))));
        let order: Vec<usize> = (0..b.ncols()).rev().collect();
        let turned = b.select_columns(&order);
        let some = |seed| {
            let of = numbers(16, seed);
            DMatrix::from_iterator(4, 4, of.iter().map(|&x| 0.05 * f64::from(x)))
        };
        let layer = |l: u64| Efficient {
            alpha_value: -0.03,
            alpha_query_key: 0.4,
            alpha_skip: 0.1,
            columns: Weights { value: some(l), query_key: some(l + 20), skip: some(l + 40) },
        };
        let (mut here, mut there) = ([b, phi.clone()], [turned, phi]);
        for l in 0..4 {
            here = layer(l).layer(&here[0], &here[1]);
            there = layer(l).layer(&there[0], &there[1]);
        }
        let size = here[0].amax().max(here[1].amax()).max(1.0);
        assert!(size.is_finite(), "{name}");
        assert!((here[0].select_columns(&order) - &there[0]).amax() < 1e-9 * size, "{name}");
        assert!((&here[1] - &there[1]).amax() < 1e-9 * size, "{name}");
    }
}
