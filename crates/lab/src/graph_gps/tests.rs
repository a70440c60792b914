//! The layer against a plain one in f64, and what Theorems 1 and 2 of the paper say of it.

use std::collections::BTreeMap;

use super::super::solver::{Laplacian, fast_heat_kernel};
use super::*;
use forecloud::engine::ops::check::{assert_close_of, f64s, numbers};

const D: usize = 8;

fn graph(n: usize, edges: &[(u32, u32)]) -> WeightedGraph {
    let edges: Vec<(u32, u32, f32)> = edges.iter().map(|&(i, j)| (i, j, 1.0)).collect();
    WeightedGraph::from_edges(n, &edges, false).unwrap()
}

fn ring(first: u32, n: u32) -> Vec<(u32, u32)> {
    (0..n).map(|i| (first + i, first + (i + 1) % n)).collect()
}

/// Edges with their ends, in the order of the rows.
fn edges(graph: &WeightedGraph) -> Vec<(usize, usize)> {
    let of = |i: usize| graph.neighbors(i).iter().map(move |&j| (i, j as usize));
    (0..graph.len()).flat_map(of).collect()
}

/// 4x4 rook's graph, or Shrikhande's: sixteen nodes of six neighbours, not the same, alike to 1-WL.
fn lattice(is_rook: bool) -> WeightedGraph {
    let mut edges = Vec::new();
    for (a, b) in (0..16u32).flat_map(|a| (a + 1..16).map(move |b| (a, b))) {
        let (x, y) = ((b / 4 + 4 - a / 4) % 4, (b % 4 + 4 - a % 4) % 4);
        let joined = match is_rook {
            true => x == 0 || y == 0,
            false => matches!((x, y), (0, 1 | 3) | (1 | 3, 0) | (1, 1) | (3, 3)),
        };
        edges.extend(joined.then_some((a, b)));
    }
    graph(16, &edges)
}

/// Two six-rings that share an edge, and two five-rings joined by one (decalin and bicyclopentyl).
fn rings(is_decalin: bool) -> WeightedGraph {
    match is_decalin {
        true => graph(10, &[ring(0, 10), vec![(0, 5)]].concat()),
        false => graph(10, &[ring(0, 5), ring(5, 5), vec![(0, 5)]].concat()),
    }
}

/// Colours of the nodes of both graphs that 1-WL settles on, with labels of nodes and edges as it begins
/// (the SEG-WL test of Theorem 1, whose relation is 0 apart from edges): sorted, one list a graph.
fn colours(graphs: [&WeightedGraph; 2], nodes: &dyn Fn(usize, usize) -> u64) -> [Vec<u64>; 2] {
    let mut colours = [0, 1].map(|g| (0..graphs[g].len()).map(|i| nodes(g, i)).collect::<Vec<_>>());
    for _ in 0..graphs[0].len() {
        let mut names: BTreeMap<(u64, Vec<u64>), u64> = BTreeMap::new();
        let seen = [0, 1].map(|g| {
            let of = |i: usize| {
                let heard = graphs[g].neighbors(i).iter().map(|&j| colours[g][j as usize]);
                let mut heard: Vec<u64> = heard.collect();
                heard.sort_unstable();
                (colours[g][i], heard)
            };
            (0..graphs[g].len()).map(of).collect::<Vec<_>>()
        });
        for key in seen.iter().flatten() {
            let next = names.len() as u64;
            names.entry(key.clone()).or_insert(next);
        }
        colours = seen.map(|keys| keys.iter().map(|key| names[key]).collect());
    }
    colours.map(|mut of| {
        of.sort_unstable();
        of
    })
}

/// Features of the nodes after three layers, the rows of each graph sorted.
fn after(graph: &WeightedGraph, x: &[f32], top_k: usize, seed: u64) -> Vec<Vec<f32>> {
    let (mut x, mut e) = (x.to_vec(), vec![0.3; edges(graph).len() * D]);
    for layer in 0..3 {
        let layer = GraphGps::seeded(D, 2, top_k, seed + layer).unwrap();
        [x, e] = layer.forward(graph, &x, &e).unwrap();
    }
    let mut rows: Vec<Vec<f32>> = x.chunks(D).map(<[f32]>::to_vec).collect();
    // By a rounded number: what is alike differs in its last digits.
    rows.sort_by_key(|row| row.iter().map(|x| (x * 1e3).round() as i64).collect::<Vec<_>>());
    rows
}

fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let of = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    a.iter().zip(b).map(of).fold(0.0, f32::max)
}

/// Theorem 1: without encodings the layers tell apart no two graphs that 1-WL does not, whatever k; with an
/// encoding that tells more (how much heat stays at a node), they do. The bound is not reached: gates that sum
/// to one average, so of features that are the same everywhere the layers do not even see degrees, as 1-WL does.
#[test]
fn theorem_1_the_layers_see_no_more_than_their_encodings() {
    let two_rings = graph(6, &[ring(0, 3), ring(3, 3)].concat());
    let pairs = [
        ("a six-ring, two three-rings", graph(6, &ring(0, 6)), two_rings, true, true),
        ("decalin, bicyclopentyl", rings(true), rings(false), true, true),
        // Strongly regular of the same numbers: the heat that stays is the same, too.
        ("rook, Shrikhande", lattice(true), lattice(false), true, false),
        ("a ring, a path", graph(6, &ring(0, 6)), graph(6, &ring(0, 6)[..5]), false, true),
    ];
    for (name, a, b, alike, told_by_heat) in &pairs {
        let [of_a, of_b] = colours([a, b], &|_, _| 0);
        assert_eq!(of_a == of_b, *alike, "{name}: 1-WL");
        let plain = vec![1.0; a.len() * D]
            .iter()
            .enumerate()
            .map(|(at, _)| (at % D) as f32)
            .collect::<Vec<_>>();
        let encoded = |graph: &WeightedGraph| {
            let laplacian = Laplacian::new(graph).unwrap();
            let heat = fast_heat_kernel(&laplacian, 5.0, 24).unwrap();
            let mut x = plain.clone();
            x.chunks_exact_mut(D).enumerate().for_each(|(i, x)| x[0] = 20.0 * heat[(i, i)] as f32);
            x
        };
        let of = |x: &[f32]| x.chunks(D).map(|x| (1e4 * x[0]).round() as u64).collect::<Vec<_>>();
        let (x, y) = (encoded(a), encoded(b));
        let (labels, mut seen) = ([of(&x), of(&y)], Vec::new());
        let [of_a, of_b] = colours([a, b], &|g, i| labels[g][i]);
        assert_eq!(of_a != of_b, *told_by_heat, "{name}: 1-WL with heat");
        for (top_k, seed) in [(1, 10), (3, 20), (100, 30)] {
            let difference = apart(&after(a, &plain, top_k, seed), &after(b, &plain, top_k, seed));
            assert!(difference < 1e-3, "{name}, k = {top_k}: {difference}");
            let difference = apart(&after(a, &x, top_k, seed), &after(b, &y, top_k, seed));
            seen.push(difference > 1e-2);
            assert!(*told_by_heat || difference < 1e-3, "{name}, k = {top_k}: {difference}");
        }
        assert_eq!(seen.contains(&true), *told_by_heat, "{name} with heat");
    }
}

fn softmax_to(scores: &[f64], keys: &[usize], v: &[f64]) -> f64 {
    let highest = keys.iter().map(|&j| scores[j]).fold(f64::MIN, f64::max);
    let weights: Vec<f64> = keys.iter().map(|&j| (scores[j] - highest).exp()).collect();
    let sum: f64 = keys.iter().zip(&weights).map(|(&j, w)| w * v[j]).sum();
    sum / weights.iter().sum::<f64>()
}

/// What Theorem 2 rests on: with sharper scores softmax over the k best keys nears the best key's value
/// (equation (34)) for any k, as softmax over all does; with all keys it is that; and another order of the
/// rows gives the same outputs in that order (equation (32)).
#[test]
fn theorem_2_sharp_attention_is_hardmax_for_any_k() {
    const N: usize = 40;
    let heads = Heads::new(1, 1);
    let run = |qkv: &[f32], k: usize| {
        let (mut out, mut sums, mut chosen) = (vec![0.0; N], vec![0.0; N], vec![0; N * k]);
        k_mip_attention_forward(0..N, qkv, heads, &mut out, &mut sums, &mut chosen);
        out
    };
    let numbers = numbers(3 * N, 8);
    let scaled = |lambda: f32| {
        let mut qkv = numbers.clone();
        qkv.chunks_exact_mut(3).for_each(|row| row[0] *= lambda);
        qkv
    };
    let (_, keys): ((), Vec<usize>) = ((), (0..N).collect());
    let v: Vec<f64> = numbers.chunks(3).map(|row| f64::from(row[2])).collect();
    let scores = |i: usize, lambda: f64| -> Vec<f64> {
        numbers
            .chunks(3)
            .map(|row| lambda * f64::from(numbers[3 * i]) * f64::from(row[1]))
            .collect()
    };
    let best = |i: usize| {
        let scores = scores(i, 1.0);
        (0..N).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
    };
    let hard: Vec<f64> = (0..N).map(|i| v[best(i)]).collect();
    let full: Vec<f64> = (0..N).map(|i| softmax_to(&scores(i, 1.0), &keys, &v)).collect();
    assert_close_of("all keys", &run(&scaled(1.0), N), &full, 1e-5);
    assert_close_of("one key", &run(&scaled(1.0), 1), &hard, 1e-6);
    for k in [2, 5, N] {
        let mut last = f64::INFINITY;
        for lambda in [1.0, 10.0, 100.0, 1e4, 1e6] {
            let out = f64s(&run(&scaled(lambda), k));
            let error = out.iter().zip(&hard).map(|(a, b)| (a - b).abs()).sum::<f64>() / N as f64;
            assert!(error <= last + 1e-6, "k = {k}, λ = {lambda}: {error} after {last}");
            last = error;
        }
        assert!(last < 1e-3, "k = {k}: {last} from the best key's value");
        let out = run(&scaled(1.0), k);
        let turned: Vec<f32> = scaled(1.0).chunks(3).rev().flatten().copied().collect();
        let back: Vec<f64> = run(&turned, k).iter().rev().map(|&x| f64::from(x)).collect();
        assert_close_of("turned rows", &out, &back, 1e-5);
    }
}

/// One layer against sums of its own in f64, on a graph with a lone node.
#[test]
fn the_layer_is_the_plain_one() {
    let of = graph(7, &[ring(0, 4), vec![(1, 4), (4, 5)]].concat());
    let (layer, ends) = (GraphGps::seeded(D, 2, 3, 5).unwrap(), edges(&of));
    let (x, e) = (numbers(7 * D, 1), numbers(ends.len() * D, 2));
    let [nodes, of_edges] = layer.forward(&of, &x, &e).unwrap();
    let times = |matrix: &Matrix, x: &[f64]| -> Vec<f64> {
        let rows = matrix.rows.chunks(matrix.n_in);
        rows.map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()).collect()
    };
    let norm = |x: Vec<f64>| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
    };
    let rows = |x: &[f32]| x.chunks(D).map(f64s).collect::<Vec<_>>();
    let (x, e) = (rows(&x), rows(&e));
    let [a, b, to, from] = &layer.of_nodes;
    let plus = |parts: &[Vec<f64>]| -> Vec<f64> {
        (0..parts[0].len()).map(|c| parts.iter().map(|part| part[c]).sum()).collect()
    };
    let gates: Vec<Vec<f64>> = (0..ends.len())
        .map(|at| {
            let (i, j) = ends[at];
            plus(&[times(&layer.of_edges, &e[at]), times(to, &x[i]), times(from, &x[j])])
        })
        .collect();
    let relu = |x: Vec<f64>| x.into_iter().map(|x| x.max(0.0)).collect::<Vec<f64>>();
    let wanted: Vec<f64> = (0..ends.len())
        .flat_map(|at| plus(&[e[at].clone(), relu(norm(gates[at].clone()))]))
        .collect();
    assert_close_of("edges", &of_edges, &wanted, 1e-5);
    let qkv: Vec<Vec<f64>> = x.iter().map(|x| times(&layer.qkv, x)).collect();
    let mut wanted = Vec::new();
    for i in 0..7 {
        let open = |at: usize, c: usize| 1.0 / (1.0 + (-gates[at][c]).exp());
        let mine: Vec<usize> = (0..ends.len()).filter(|&at| ends[at].0 == i).collect();
        let others: Vec<f64> = (0..D)
            .map(|c| {
                let total = mine.iter().map(|&at| open(at, c)).sum::<f64>() + 1e-6;
                mine.iter().map(|&at| open(at, c) * times(b, &x[ends[at].1])[c]).sum::<f64>()
                    / total
            })
            .collect();
        let local = relu(norm(plus(&[times(a, &x[i]), others])));
        let mut heard = Vec::new();
        for c in 0..D {
            let head = c / 4 * 4..c / 4 * 4 + 4;
            let score =
                |j: usize| head.clone().map(|c| qkv[i][c] * qkv[j][D + c]).sum::<f64>() / 2.0;
            let scores: Vec<f64> = (0..7).map(score).collect();
            let mut keys: Vec<usize> = (0..7).collect();
            keys.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let v: Vec<f64> = qkv.iter().map(|row| row[2 * D + c]).collect();
            heard.push(softmax_to(&scores, &keys[..3], &v));
        }
        let global = times(&layer.out, &heard);
        let sum = norm(plus(&[x[i].clone(), local, x[i].clone(), global]));
        let inside = relu(times(&layer.mlp[0], &sum));
        wanted.extend(norm(plus(&[sum, times(&layer.mlp[1], &inside)])));
    }
    assert_close_of("nodes", &nodes, &wanted, 1e-5);
    assert!(layer.forward(&of, &[0.0; 3], &[]).is_err());
    assert!(GraphGps::seeded(8, 3, 1, 0).is_err() && GraphGps::seeded(8, 2, 0, 0).is_err());
}
