//! The examples' theory of graph random features: its formulas and its graphs are what they say.

use crate::theory;

use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud::engine::graph::{KnnGraph, WeightedGraph};
use theory::bounds::*;
use theory::generate::*;
use theory::series::*;

#[test]
fn deconvolution_gives_the_known_sequences() {
    assert!(deconvolve(&kernels::inverse_square(8)).iter().all(|f| (f - 1.0).abs() < 1e-12));
    // exp(U): 1 / (2^k k!).
    let mut expected = 1.0;
    for (k, f) in deconvolve(&kernels::exponential(8)).into_iter().enumerate() {
        expected /= if k > 0 { 2.0 * k as f64 } else { 1.0 };
        assert!((f / expected - 1.0).abs() < 1e-12, "{k}: {f}");
    }
    // (I - U)^-1: (2k-1)!! / (2k)!!.
    let f = deconvolve(&[1.0; 4]);
    for (f, expected) in f.iter().zip([1.0, 1.0 / 2.0, 3.0 / 8.0, 15.0 / 48.0]) {
        assert!((f - expected).abs() < 1e-12, "{f}");
    }
    assert!(deconvolve(&[]).is_empty() && deconvolve(&[0.0, 1.0]).is_empty());
    assert!(deconvolve(&[-1.0]).is_empty() && deconvolve(&[f64::NAN]).is_empty());
}

#[test]
fn the_dense_series_is_the_series() {
    // A directed cycle of three with weight ½: W³ = I / 8.
    let edges = [(0, 1, 0.5), (1, 2, 0.5), (2, 0, 0.5)];
    let graph = WeightedGraph::from_edges(3, &edges, true).unwrap();
    let m = dense(&graph, &[1.0, 2.0, 3.0, 4.0]);
    let expected = [1.5, 1.0, 0.75, 0.75, 1.5, 1.0, 1.0, 0.75, 1.5];
    assert_eq!(m, expected);
}

/// On a directed graph of unequal weights: every sampler and either end of the walks.
#[test]
fn estimates_are_unbiased() {
    let edges: Vec<(u32, u32, f32)> = (0..9u32)
        .flat_map(|i| (1..=3 + i % 2).map(move |j| (i, (i + j * j) % 9, 0.1 * j as f32)))
        .collect();
    let graph = WeightedGraph::from_edges(9, &edges, true).unwrap();
    let f = [1.0, 0.5, -0.25, 0.5];
    let exact = dense(&graph, &f);
    for halting in [Halting::Hops(3), Halting::Probability { p_halt: 0.3, max_hops: 3 }] {
        for sampler in
            [Sampler::Iid, Sampler::Antithetic, Sampler::Repelling, Sampler::AntitheticRepelling]
        {
            let config = WalkConfig { sampler, n_walks: 5, halting, importance: true };
            let n_trials = 4000;
            let mut mean = vec![0.0; exact.len()];
            for seed in 0..n_trials {
                let seed = WalkSeed { seed, stamp_ns: 7 };
                let features = features(&graph, &f, &config, seed);
                mean.iter_mut().zip(features).for_each(|(m, x)| *m += x / n_trials as f64);
            }
            let error = relative_squared_error(&mean, &exact);
            assert!(error < 1e-4, "{sampler:?} {halting:?}: {error}");
        }
    }
}

#[test]
fn without_importance_weights_every_visit_counts_one() {
    let graph = WeightedGraph::from_edges(2, &[(0, 1, 0.125)], false).unwrap();
    let config = WalkConfig {
        sampler: Sampler::Iid,
        n_walks: 2,
        halting: Halting::Hops(2),
        importance: false,
    };
    let seed = WalkSeed { seed: 1, stamp_ns: 0 };
    assert_eq!(features(&graph, &[1.0, 10.0, 100.0], &config, seed), [101., 10., 10., 101.]);
}

#[test]
fn the_longest_walk_solves_the_lemmas_equation() {
    for (n, p_halt, delta) in [(1, 0.5, 0.1), (4, 0.5, 0.05), (27, 0.1, 0.5)] {
        let b = longest_walk(n, p_halt, delta);
        let probability = (1.0 - (1.0 - p_halt).powf(b)).powi(n as i32);
        assert!((probability - (1.0 - delta)).abs() < 1e-9, "{n}, {p_halt}, {delta}");
        assert!(nonzero_bound(n, p_halt, delta) >= nonzero_bound_as_stated(n, p_halt, delta));
    }
    assert_eq!(longest_walk(1, 0.5, 0.25), 2.0, "a quarter of the walks has over two nodes");
    assert_eq!(longest_walk(4, 0.0, 0.1), f64::INFINITY);
}

#[test]
fn the_tails_are_the_papers_expressions() {
    let (t, n, c) = (0.7, 5, 1.3f64);
    let exponent = t * t * 125.0 / (2.0 * 81.0 * c.powi(4));
    assert!((tail_bound(Side::Symmetric, t, n, c) - 2.0 * (-exponent).exp()).abs() < 1e-12);
    for side in [Side::Symmetric, Side::Asymmetric] {
        let t = deviation_bound(side, 0.05, n, c);
        assert!((tail_bound(side, t, n, c) - 0.05).abs() < 1e-12, "{side:?}");
    }
}

#[test]
fn the_load_bound_is_a_series_in_the_largest_hop() {
    let graph = WeightedGraph::from_edges(3, &[(0, 1, 0.5), (1, 2, -1.0)], false).unwrap();
    // Node 1: two edges of at most 1, so each hop's load grows by up to 2 / (1 - 0.5).
    assert_eq!(load_bound(&graph, &[1.0, -0.5, 0.25], 0.5), 1.0 + 0.5 * 4.0 + 0.25 * 16.0);
    assert_eq!(load_bound(&WeightedGraph::default(), &[1.5, 2.0], 0.5), 1.5);
}

fn degrees(graph: &WeightedGraph) -> Vec<usize> {
    (0..graph.len()).map(|i| graph.neighbors(i).len()).collect()
}

#[test]
fn nodes_have_the_neighbours_of_their_lattice() {
    assert_eq!(degrees(&path(4).unwrap()), [1, 2, 2, 1]);
    assert_eq!(degrees(&ring(5).unwrap()), [2; 5]);
    assert_eq!(ring(2).unwrap(), path(2).unwrap());
    let grid = grid(2, 3).unwrap();
    assert_eq!(degrees(&grid), [2, 3, 2, 2, 3, 2]);
    assert_eq!((grid.neighbors(1), grid.neighbors(5)), (&[0, 2, 4][..], &[2, 4][..]));
    assert!(path(0).unwrap().is_empty() && path(1).unwrap().neighbors(0).is_empty());
    assert!(path(usize::MAX).is_err() && theory::generate::grid(usize::MAX, 2).is_err());
}

#[test]
fn random_graphs_have_their_share_of_the_pairs() {
    let n = 400;
    for p in [0.0, 0.1, 0.5, 1.0] {
        let graph = erdos_renyi(n, p, 7).unwrap();
        let share = degrees(&graph).iter().sum::<usize>() as f64 / (n * (n - 1)) as f64;
        // Of 79,800 pairs: three standard deviations are at most 0.0054.
        assert!((share - p).abs() < 0.006, "{p}: {share}");
    }
    assert_ne!(erdos_renyi(n, 0.5, 7).unwrap(), erdos_renyi(n, 0.5, 8).unwrap());
    assert!(erdos_renyi(n, 1.1, 7).is_err() && erdos_renyi(n, f64::NAN, 7).is_err());
    assert!(erdos_renyi(1 << 20, 0.1, 7).is_err());
}

#[test]
fn mutual_neighbours_are_joined_once() {
    let knn = KnnGraph::from_neighbors(1, vec![1, 0, 1]).unwrap();
    let graph = symmetric_knn(&knn).unwrap();
    assert_eq!((graph.neighbors(1), graph.weights(1)), (&[0, 2][..], &[1.0, 1.0][..]));
}
