//! The kernel against dense ones: of the same walks, and of all walks.

use super::super::check::{
    TestGraph, assert_mask, assert_products, dense_graph, graph, graphs, identity, matmul,
    softplus64,
};
use super::*;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud::engine::ops::check::{f64s, numbers};

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

/// A graph's nodes with `n_walks` walks of three hops.
fn sampled(graph: &TestGraph, sampler: Sampler, n_walks: usize, seed: u64) -> Nodes<'_> {
    let walks = WalkConfig { sampler, n_walks, halting: Halting::Hops(HOPS), importance: true };
    let seed = WalkSeed { seed, stamp_ns: 11 };
    Nodes { n_hops: HOPS, walks: Some(walks), seed, ..graph.nodes() }
}

const HOPS: usize = 3;
/// θ, so that λ is 0.94.
const THETA: f32 = -0.09;

/// All entries `[n, n]`, as products with the mask give them.
fn entries(mask: &Rwgnk) -> Vec<f64> {
    let n = mask.n_nodes();
    let (x, mut y) = (identity(n).iter().map(|&x| x as f32).collect::<Vec<_>>(), vec![0.0; n * n]);
    mask.apply(&[THETA], &x, &mut y);
    f64s(&y)
}

/// What walks of a graph W make on average, and how far one walk strays.
struct Expected {
    n: usize,
    /// E[f_i]: h = Σ_t λ^t W^t, `[n, n]`.
    visits: Vec<f64>,
    /// |h_i|².
    squares: Vec<f64>,
    /// E|f_i - h_i|² of one walk's f_i.
    variances: Vec<f64>,
}

impl Expected {
    /// Of walks that go along any edge of a node alike.
    fn of(graph: &TestGraph) -> Self {
        let (n, w) = (graph.positions.len(), dense_graph(&graph.graph));
        let lambda = softplus64(f64::from(THETA)) / std::f64::consts::LN_2;
        let mut powers = vec![identity(n)];
        for t in 0..HOPS {
            powers.push(matmul(&powers[t], &w, n));
        }
        let discounted =
            |at: usize| (0..=HOPS).map(|t| lambda.powi(t as i32) * powers[t][at]).sum();
        let visits: Vec<f64> = (0..n * n).map(discounted).collect();
        let squares: Vec<f64> =
            visits.chunks_exact(n).map(|h| h.iter().map(|h| h * h).sum()).collect();
        // E|f|² = Σ_s Σ_t λ^(s+t) P(the same node after s and t hops).
        let variance = |i: usize| {
            let mut sum = 0.0;
            for (s, t) in (0..=HOPS).flat_map(|s| (s..=HOPS).map(move |t| (s, t))) {
                let together: f64 =
                    (0..n).map(|k| powers[s][i * n + k] * powers[t - s][k * n + k]).sum();
                let times = if s == t { 1.0 } else { 2.0 };
                sum += times * lambda.powi((s + t) as i32) * together;
            }
            sum - squares[i]
        };
        let variances = (0..n).map(variance).collect();
        Self { n, visits, squares, variances }
    }

    /// Eq. 5, of all walks.
    fn kernel(&self, alpha: f64) -> Vec<f64> {
        let row = |i: usize| &self.visits[i * self.n..][..self.n];
        let entry = |at: usize| {
            let (i, j) = (at / self.n, at % self.n);
            let product: f64 = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
            product / (self.squares[i] * self.squares[j]).powf(alpha / 2.0)
        };
        (0..self.n * self.n).map(entry).collect()
    }
}

#[test]
fn walks_are_drawn_by_the_seed_on_any_number_of_threads() {
    let ring: Vec<_> = (0..2500).flat_map(|i| [(i, (i + 1) % 2500), (i, (i + 7) % 2500)]).collect();
    let graph = graph("a ring", 2500, &ring);
    let product = |seed: u64, n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let mut mask = Rwgnk::default();
        pool.install(|| mask.rebuild(&sampled(&graph, Sampler::Repelling, 5, seed))).unwrap();
        let (x, mut y) = (numbers(2500, 9), vec![0.0; 2500]);
        mask.apply(&[THETA], &x, &mut y);
        y
    };
    let once = product(1, 1);
    assert_eq!(once, product(1, 3), "the same seed");
    let others = once.iter().zip(product(2, 1)).filter(|(a, b)| **a != *b).count();
    assert!(others > 2400, "another seed changes only {others} of 2500 nodes");
}

/// With α = 0 an entry of two nodes has the kernel's as mean: their walks are independent. That of a node
/// with itself is of the same walks twice, so above it by their variance, which falls with their number.
#[test]
fn the_mean_over_draws_is_the_kernel() {
    let graph = &graphs()[3];
    let (expected, n_draws, n_walks) = (Expected::of(graph), 4000, 4);
    let (n, mut want) = (expected.n, expected.kernel(0.0));
    (0..n).for_each(|i| want[i * n + i] += expected.variances[i] / n_walks as f64);
    let mut mask = Rwgnk::with_alpha(0.0).unwrap();
    let (mut sums, mut squares) = (vec![0.0; n * n], vec![0.0; n * n]);
    for seed in 0..n_draws {
        mask.rebuild(&sampled(graph, Sampler::Iid, n_walks, seed)).unwrap();
        for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(entries(&mask)) {
            *sum += x / n_draws as f64;
            *square += x * x / n_draws as f64;
        }
    }
    for (at, want) in want.iter().enumerate() {
        let spread = (squares[at] - sums[at] * sums[at]).max(0.0);
        let off = (sums[at] - want).abs();
        let allowed = 4.5 * (spread / n_draws as f64).sqrt() + 1e-5;
        assert!(off < allowed, "({}, {}): {}, not {want}", at / n, at % n, sums[at]);
    }
}

/// With α = 1: |û - u| ≤ 2 |ĥ - h| / |h|, so that the mean square error of an entry is at most
/// 8 (v_i / |h_i|² + v_j / |h_j|²) over the number of walks that are independent, v their variances;
/// repelling ones stray less. With any α four times the walks quarter the mean square error, more or less.
#[test]
fn more_walks_come_closer_to_the_kernel() {
    let graph = &graphs()[3];
    let expected = Expected::of(graph);
    let (n, n_draws) = (expected.n, 100);
    let relative = |i: usize| expected.variances[i] / expected.squares[i];
    let kinds = [(0.5, Sampler::Iid), (1.0, Sampler::Iid), (1.0, Sampler::Repelling)];
    for (alpha, sampler) in kinds {
        let want = expected.kernel(f64::from(alpha));
        let mut mask = Rwgnk::with_alpha(alpha).unwrap();
        let mut before = f64::INFINITY;
        for n_walks in [4, 16, 64, 256] {
            let mut errors = vec![0.0; n * n];
            for seed in 0..n_draws {
                mask.rebuild(&sampled(graph, sampler, n_walks, seed)).unwrap();
                for ((error, got), want) in errors.iter_mut().zip(entries(&mask)).zip(&want) {
                    *error += (got - want).powi(2) / n_draws as f64;
                }
            }
            if alpha == 1.0 {
                for (at, error) in errors.iter().enumerate() {
                    let bound = 8.0 * (relative(at / n) + relative(at % n)) / n_walks as f64;
                    assert!(*error < bound, "{at}: {error} of {n_walks} walks, above {bound}");
                }
            }
            let what = format_args!("alpha {alpha}, {n_walks} walks, {sampler:?}");
            let error = errors.iter().sum::<f64>() / (n * n) as f64;
            assert!(error < 0.35 * before, "{what}: {error}, after {before} of fewer");
            before = error;
        }
    }
}
