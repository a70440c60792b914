//! What the masks' tests share: graphs of all sorts, dense matrices in f64, and the comparison.

use super::{BackwardColumns, Mask, Nodes, StepMask};
use forecloud::base::geometry::{Vec3, squared_distance};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use forecloud::engine::ops::check::{assert_close_of, f64s, numbers};

/// A graph with places for its nodes.
pub struct TestGraph {
    pub name: &'static str,
    pub positions: Vec<Vec3>,
    pub graph: WeightedGraph,
}

impl TestGraph {
    pub fn nodes(&self) -> Nodes<'_> {
        let (positions, graph) = (&self.positions, &self.graph);
        let seed = WalkSeed { seed: 3, stamp_ns: 4 };
        Nodes { positions, graph, n_hops: 3, walks: None, cell_m: 0.04, seed }
    }
}

/// Nodes at random places in a box of 20 cm, joined by `edges`; weights of a row sum to one.
pub fn graph(name: &'static str, n: usize, edges: &[(u32, u32)]) -> TestGraph {
    let place = |p: &[f32]| [0.1 * p[0], 0.1 * p[1], 0.1 * p[2]];
    let positions = numbers(3 * n, 40 + n as u64).chunks_exact(3).map(place).collect();
    let mut degrees = vec![0.0f32; n];
    for &(i, j) in edges {
        degrees[i as usize] += 1.0;
        degrees[j as usize] += 1.0;
    }
    let both = edges.iter().flat_map(|&(i, j)| [(i, j), (j, i)]);
    let weighted = both.map(|(i, j)| (i, j, 1.0 / degrees[i as usize]));
    let weighted: Vec<(u32, u32, f32)> = weighted.collect();
    TestGraph { name, positions, graph: WeightedGraph::from_edges(n, &weighted, true).unwrap() }
}

/// Path, tree, grid, random graph (Erdős–Rényi), one node, two components with a lone node, none at
/// all, and k-NN graphs with even weights and by distance.
pub fn graphs() -> Vec<TestGraph> {
    let path: Vec<_> = (0..12).map(|i| (i, i + 1)).collect();
    let tree: Vec<_> = (1..15).map(|i| ((i - 1) / 2, i)).collect();
    let mut grid = Vec::new();
    for (x, y) in (0..5).flat_map(|y| (0..4).map(move |x| (x, y))) {
        grid.extend((x < 3).then_some((y * 4 + x, y * 4 + x + 1)));
        grid.extend((y < 4).then_some((y * 4 + x, y * 4 + x + 4)));
    }
    let chance = numbers(18 * 18, 5);
    let pairs = (0..18).flat_map(|i| (i + 1..18).map(move |j| (i, j)));
    let random: Vec<_> = pairs.filter(|&(i, j)| chance[(i * 18 + j) as usize] > 0.7).collect();
    let apart = [(0, 1), (1, 2), (2, 0), (4, 5), (5, 6)];
    let mut all = vec![
        graph("a path", 13, &path),
        graph("a tree", 15, &tree),
        graph("a grid", 20, &grid),
        graph("a random graph", 18, &random),
        graph("one node", 1, &[]),
        graph("a graph in parts", 7, &apart),
        graph("no node", 0, &[]),
    ];
    for (name, weights) in [
        ("a k-NN graph", EdgeWeights::Uniform),
        ("a k-NN graph by distance", EdgeWeights::Distance { bandwidth_m: 0.05 }),
    ] {
        let mut of = graph(name, 40, &[]);
        let mut knn = KnnGraph::default();
        knn.rebuild(&of.positions, 3).unwrap();
        of.graph.rebuild(&knn, &of.positions, weights);
        all.push(of);
    }
    all
}

/// W of a graph, `[n, n]`.
pub fn dense_graph(graph: &WeightedGraph) -> Vec<f64> {
    let n = graph.len();
    let mut dense = vec![0.0; n * n];
    for i in 0..n {
        for (&j, &w) in graph.neighbors(i).iter().zip(graph.weights(i)) {
            dense[i * n + j as usize] += f64::from(w);
        }
    }
    dense
}

/// Normalised Laplacian L of the graph taken both ways, `[n, n]`.
pub fn dense_laplacian(nodes: &Nodes<'_>) -> Vec<f64> {
    let (n, w) = (nodes.positions.len(), dense_graph(nodes.graph));
    let a: Vec<f64> = (0..n * n).map(|at| 0.5 * (w[at] + w[at % n * n + at / n])).collect();
    let degree: Vec<f64> = (0..n).map(|i| a[i * n..(i + 1) * n].iter().sum()).collect();
    let entry = |at: usize| {
        let (i, j) = (at / n, at % n);
        let own = f64::from(u8::from(i == j && degree[i] > 0.0));
        let joined = degree[i] > 0.0 && degree[j] > 0.0;
        own - if joined { a[at] / (degree[i] * degree[j]).sqrt() } else { 0.0 }
    };
    (0..n * n).map(entry).collect()
}

pub fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect()
}

/// a·b of matrices `[n, n]`.
pub fn matmul(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let entry = |at: usize| (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum();
    (0..n * n).map(entry).collect()
}

/// exp(a) of `[n, n]`: Taylor's series of a / 2^10, squared ten times.
pub fn exponential(a: &[f64], n: usize) -> Vec<f64> {
    let small: Vec<f64> = a.iter().map(|a| a / 1024.0).collect();
    let (mut sum, mut term) = (identity(n), identity(n));
    for k in 1..12 {
        term = matmul(&term, &small, n).iter().map(|t| t / f64::from(k)).collect();
        sum.iter_mut().zip(&term).for_each(|(s, t)| *s += t);
    }
    (0..10).fold(sum, |sum, _| matmul(&sum, &sum, n))
}

pub fn softplus64(x: f64) -> f64 {
    x.exp().ln_1p()
}

/// Ways between all nodes along the minimum spanning forest (Prim's algorithm, edges as long as their
/// ends are apart in f32), infinite between its trees.
pub fn spanning_forest(nodes: &Nodes<'_>) -> Vec<f64> {
    ways(nodes, f64::from)
}

/// The same, in edges.
pub fn spanning_forest_edges(nodes: &Nodes<'_>) -> Vec<f64> {
    ways(nodes, |_| 1.0)
}

fn ways(nodes: &Nodes<'_>, way: impl Fn(f32) -> f64) -> Vec<f64> {
    let n = nodes.positions.len();
    let mut ways = vec![f64::INFINITY; n * n];
    (0..n).for_each(|i| ways[i * n + i] = 0.0);
    let mut edges = Vec::new();
    for i in 0..n {
        for &j in nodes.graph.neighbors(i) {
            let d = squared_distance(&nodes.positions[i], &nodes.positions[j as usize]).sqrt();
            edges.extend([(d, i, j as usize), (d, j as usize, i)]);
        }
    }
    let mut reached = vec![false; n];
    for first in 0..n {
        if std::mem::replace(&mut reached[first], true) {
            continue;
        }
        let mut tree = vec![first];
        loop {
            let open = edges.iter().filter(|e| tree.contains(&e.1) && !reached[e.2]);
            let Some(&(d, from, to)) = open.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            for &other in &tree {
                let way = ways[other * n + from] + way(d);
                (ways[other * n + to], ways[to * n + other]) = (way, way);
            }
            reached[to] = true;
            tree.push(to);
        }
    }
    ways
}

/// Holds a mask's products and gradients to those of the `dense` matrix in f64, on all graphs.
#[track_caller]
pub fn assert_mask<M: StepMask + Default>(dense: impl Fn(&Nodes<'_>, &[f64]) -> Vec<f64>) {
    assert_mask_within::<M>(1e-5, dense);
}

/// The same, of masks that are as near as `tolerance`.
#[track_caller]
pub fn assert_mask_within<M: StepMask + Default>(
    tolerance: f64,
    dense: impl Fn(&Nodes<'_>, &[f64]) -> Vec<f64>,
) {
    let mut mask = M::default();
    for graph in graphs() {
        let nodes = graph.nodes();
        mask.rebuild(&nodes).unwrap();
        assert_eq!(mask.n_nodes(), graph.positions.len());
        let n_params = M::n_params(nodes.n_hops);
        assert_products(graph.name, &mask, n_params, tolerance, |params| dense(&nodes, params));
    }
}

/// Holds products and gradients of one mask to those of the `dense` matrix in f64.
#[track_caller]
pub fn assert_products(
    name: &str,
    mask: &dyn Mask,
    n_params: usize,
    tolerance: f64,
    dense: impl Fn(&[f64]) -> Vec<f64>,
) {
    const WIDTH: usize = 5;
    let n = mask.n_nodes();
    let params = numbers(n_params, 6);
    let (x, dy) = (numbers(n * WIDTH, 7), numbers(n * WIDTH, 8));
    let times = |matrix: &[f64], transposed: bool, x: &[f32]| -> Vec<f64> {
        let of = |i: usize, j: usize| matrix[if transposed { j * n + i } else { i * n + j }];
        let entry = |at: usize| {
            let (i, c) = (at / WIDTH, at % WIDTH);
            (0..n).map(|j| of(i, j) * f64::from(x[j * WIDTH + c])).sum()
        };
        (0..n * WIDTH).map(entry).collect()
    };
    let matrix = dense(&f64s(&params));
    let mut y = vec![f32::NAN; x.len()];
    mask.apply(&params, &x, &mut y);
    assert_close_of(format_args!("M x of {name}"), &y, &times(&matrix, false, &x), tolerance);
    y.fill(f32::NAN);
    mask.apply_transposed(&params, &x, &mut y);
    assert_close_of(format_args!("Mᵀ x of {name}"), &y, &times(&matrix, true, &x), tolerance);

    let mut d_params = vec![0.0; params.len()];
    mask.gradients(&params, &x, &dy, &mut d_params);
    let objective = |params: &[f64]| -> f64 {
        let y = times(&dense(params), false, &x);
        y.iter().zip(&dy).map(|(y, &g)| y * f64::from(g)).sum()
    };
    let mut at = f64s(&params);
    let numeric: Vec<f64> = (0..at.len())
        .map(|p| {
            let here = at[p];
            let [above, below] = [1e-5, -1e-5].map(|step| {
                at[p] = here + step;
                objective(&at)
            });
            at[p] = here;
            (above - below) / 2e-5
        })
        .collect();
    // Sums of many terms of either sign: held to the size of what is summed.
    let size: f64 = dy.iter().map(|&g| f64::from(g).abs()).sum::<f64>().max(1.0);
    for (p, (got, want)) in d_params.iter().zip(&numeric).enumerate() {
        let error = (got - want).abs();
        assert!(error <= 10.0 * tolerance * size, "gradient {p} of {name}: {got}, not {want}");
    }
    let (mut dx, mut d_together) = (vec![f32::NAN; x.len()], vec![0.0; params.len()]);
    y.fill(f32::NAN);
    let columns = BackwardColumns { x: &x, dy: &dy, y: &mut y, dx: &mut dx };
    mask.backward(&params, columns, &mut d_together);
    let what = format_args!("of {name}, all of a backward pass");
    assert_close_of(format_args!("M x {what}"), &y, &times(&matrix, false, &x), tolerance);
    assert_close_of(format_args!("Mᵀ dy {what}"), &dx, &times(&matrix, true, &dy), tolerance);
    assert_eq!(d_together, d_params, "gradients {what}");
    assert_wide(name, mask, &params, [&x, &dy], &d_params);
}

/// Wide columns, which go through vectors of all lengths, give what narrow ones do.
fn assert_wide(name: &str, mask: &dyn Mask, params: &[f32], narrow: [&[f32]; 2], d_narrow: &[f64]) {
    // Of AVX-512: eight vectors, four, two, one, and a part of one; of others some of it twice.
    const TIMES: usize = 49;
    let n = mask.n_nodes().max(1);
    let wide = |x: &[f32]| -> Vec<f32> {
        x.chunks(x.len().div_ceil(n).max(1)).flat_map(|row| row.repeat(TIMES)).collect()
    };
    type Product = fn(&dyn Mask, &[f32], &[f32], &mut [f32]);
    let products: [Product; 2] = [
        |mask, params, x, y| mask.apply(params, x, y),
        |mask, params, x, y| mask.apply_transposed(params, x, y),
    ];
    for product in products {
        let (mut y, mut y_wide) =
            (vec![f32::NAN; narrow[0].len()], vec![f32::NAN; TIMES * narrow[0].len()]);
        product(mask, params, narrow[0], &mut y);
        product(mask, params, &wide(narrow[0]), &mut y_wide);
        assert_close_of(format_args!("wide columns of {name}"), &y_wide, &f64s(&wide(&y)), 1e-5);
    }
    let mut d_wide = vec![0.0; params.len()];
    mask.gradients(params, &wide(narrow[0]), &wide(narrow[1]), &mut d_wide);
    let mean: Vec<f32> = d_wide.iter().map(|d| (d / TIMES as f64) as f32).collect();
    assert_close_of(format_args!("gradients of wide columns of {name}"), &mean, d_narrow, 1e-4);
}
