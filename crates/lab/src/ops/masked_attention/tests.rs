//! Attention under masks against the dense one, the fused GRF attention and PyTorch.

use super::super::super::masks::{MaskKind, Nodes};
use super::*;
use forecloud::base::simd::axpy;
use forecloud::engine::graph::{EdgeWeights, KnnGraph, Loads, WeightedGraph};
use forecloud::engine::ops::check::*;
use forecloud::engine::ops::grf_attention::grf_attention_forward;

/// A mask whose every entry is a parameter.
#[derive(Debug, Clone, Default)]
struct Dense {
    n: usize,
}

impl Dense {
    fn times(&self, of: impl Fn(usize, usize) -> f32, x: &[f32], y: &mut [f32]) {
        let width = x.len() / self.n;
        y.fill(0.0);
        for (i, j) in (0..self.n).flat_map(|i| (0..self.n).map(move |j| (i, j))) {
            axpy(&mut y[i * width..(i + 1) * width], of(i, j), &x[j * width..(j + 1) * width]);
        }
    }
}

impl Mask for Dense {
    fn n_nodes(&self) -> usize {
        self.n
    }
    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.times(|i, j| params[i * self.n + j], x, y);
    }
    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.times(|i, j| params[j * self.n + i], x, y);
    }
    fn gradients(&self, _: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let width = x.len() / self.n;
        for (at, d) in d_params.iter_mut().enumerate() {
            let (i, j) = (at / self.n, at % self.n);
            let (dy, x) = (&dy[i * width..(i + 1) * width], &x[j * width..(j + 1) * width]);
            *d += dy.iter().zip(x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        }
    }
}

/// A mask over the 3-NN graph of `positions`.
fn over(kind: MaskKind, positions: &[[f32; 3]], n_hops: usize) -> Box<dyn Mask> {
    let (mut knn, mut graph) = (KnnGraph::default(), WeightedGraph::default());
    knn.rebuild(positions, 3).unwrap();
    graph.rebuild(&knn, positions, EdgeWeights::Uniform);
    let (graph, seed) = (&graph, Default::default());
    kind.over(&Nodes { positions, graph, n_hops, walks: None, cell_m: 0.04, seed }).unwrap()
}

/// Rows `[q | k | v]` of non-negative features.
fn rows(n: usize, heads: Heads) -> Vec<f32> {
    let mut rows = numbers(n * heads.row_len(), 1);
    rows.chunks_exact_mut(heads.row_len()).for_each(|row| {
        row[..2 * heads.features()].iter_mut().for_each(|f| *f = f.abs() + 0.05);
    });
    rows
}

struct Both {
    out: Vec<f32>,
    d_rows: Vec<f32>,
    d_params: Vec<f64>,
}

fn both_ways(mask: &dyn Mask, params: &[f32], rows: &[f32], heads: Heads, d_out: &[f32]) -> Both {
    let n = mask.n_nodes();
    let (mut out, mut denominators) =
        (vec![f32::NAN; n * heads.width], vec![0.0; n * heads.n_heads]);
    masked_attention_forward(mask, params, rows, heads, &mut out, &mut denominators);
    let saved = MaskedSaved { rows, out: &out, denominators: &denominators };
    let (mut d_rows, n_parts) = (vec![f32::NAN; rows.len()], n_stretches(heads));
    let mut parts = vec![f64::NAN; n_parts * params.len()];
    masked_attention_backward(mask, params, saved, heads, d_out, &mut d_rows, &mut parts);
    let sum = |at: usize| parts.iter().skip(at).step_by(params.len()).sum();
    let d_params = (0..params.len()).map(sum).collect();
    Both { out, d_rows, d_params }
}

#[test]
fn masked_attention_and_its_gradients() {
    let n = 11;
    for heads in [
        Heads::new(12, 3),
        Heads { width: 12, n_heads: 3, n_features: 5 },
        Heads { width: 12, n_heads: 2, n_features: 4 },
        // More columns than a stretch takes.
        Heads { width: 40, n_heads: 1, n_features: 9 },
    ] {
        let (mask, rows, d_out) = (Dense { n }, rows(n, heads), numbers(n * heads.width, 2));
        let entries: Vec<f32> = numbers(n * n, 3).iter().map(|m| m.abs()).collect();
        let got = both_ways(&mask, &entries, &rows, heads, &d_out);
        let plain = |mask: &[f64], rows: &[f64]| plain::masked_attention(mask, rows, heads);
        assert_close(&got.out, &plain(&f64s(&entries), &f64s(&rows)), 1e-5);
        let of_rows = |rows: &[f64]| plain(&f64s(&entries), rows);
        assert_gradient_of("rows", &got.d_rows, &rows, &d_out, of_rows);
        let d_entries: Vec<f32> = got.d_params.iter().map(|&d| d as f32).collect();
        let of_mask = |mask: &[f64]| plain(mask, &f64s(&rows));
        assert_gradient_of("the mask", &d_entries, &entries, &d_out, of_mask);
    }
}

/// Copies of a mask side by side.
#[derive(Debug)]
struct Copies(Dense, usize);

impl Mask for Copies {
    fn n_nodes(&self) -> usize {
        self.0.n * self.1
    }
    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let len = x.len() / self.1;
        let parts = x.chunks_exact(len).zip(y.chunks_exact_mut(len));
        parts.for_each(|(x, y)| self.0.apply(params, x, y));
    }
    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let len = x.len() / self.1;
        let parts = x.chunks_exact(len).zip(y.chunks_exact_mut(len));
        parts.for_each(|(x, y)| self.0.apply_transposed(params, x, y));
    }
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let len = x.len() / self.1;
        let parts = x.chunks_exact(len).zip(dy.chunks_exact(len));
        parts.for_each(|(x, dy)| self.0.gradients(params, x, dy, d_params));
    }
}

/// So many nodes that a stretch's columns go through the mask in blocks: each copy is as it is alone.
#[test]
fn columns_go_through_the_mask_in_blocks() {
    let (n, copies) = (10, 700);
    for heads in [Heads::new(40, 2), Heads { width: 24, n_heads: 2, n_features: 7 }] {
        let blocks = |n| stretch(heads, 0).blocks(heads, n).count();
        assert!(blocks(n) == 1 && blocks(n * copies) > 1, "{heads:?}: {}", blocks(n * copies));
        let (rows, d_out) = (rows(n, heads), numbers(n * heads.width, 2));
        let entries: Vec<f32> = numbers(n * n, 3).iter().map(|m| m.abs()).collect();
        let one = both_ways(&Dense { n }, &entries, &rows, heads, &d_out);
        let mask = Copies(Dense { n }, copies);
        let all = both_ways(&mask, &entries, &rows.repeat(copies), heads, &d_out.repeat(copies));
        assert_close(&all.out, &f64s(&one.out.repeat(copies)), 1e-6);
        assert_close(&all.d_rows, &f64s(&one.d_rows.repeat(copies)), 1e-6);
        let mean: Vec<f32> = all.d_params.iter().map(|d| (d / copies as f64) as f32).collect();
        assert_close(&mean, &one.d_params, 1e-6);
    }
}

/// The fused attention over rows of loads is the general one under the power series of its graph.
#[test]
fn the_fused_grf_attention_is_the_general_one() {
    let (n, n_hops, heads) = (120, 3, Heads::new(16, 1));
    let positions: Vec<[f32; 3]> =
        numbers(3 * n, 8).chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect();
    let mut knn = KnnGraph::default();
    knn.rebuild(&positions, 3).unwrap();
    let mut loads = Loads::default();
    loads.rebuild(&knn, n_hops).unwrap();
    let logits = numbers(n_hops + 1, 9);
    let f: Vec<f32> = logits.iter().map(|theta| theta.exp().ln_1p()).collect();
    let (rows, d_out) = (rows(n, heads), numbers(n * heads.width, 2));
    let (mut fused, mut denominators) = (vec![0.0; n * heads.width], vec![0.0; n]);
    grf_attention_forward(0..n, &rows, 16, &loads, &f, &mut fused, &mut denominators);

    let series = over(MaskKind::from_name("series").unwrap(), &positions, n_hops);
    let general = both_ways(&*series, &logits, &rows, heads, &d_out);
    assert_close(&general.out, &f64s(&fused), 1e-5);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (n, heads) = (300, Heads::new(32, 2));
    let (mask, rows, d_out) = (Dense { n }, rows(n, heads), numbers(n * heads.width, 2));
    let entries: Vec<f32> = numbers(n * n, 3).iter().map(|m| m.abs()).collect();
    let [one, four] = [1, 4].map(|n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| both_ways(&mask, &entries, &rows, heads, &d_out))
    });
    assert!(one.out == four.out && one.d_rows == four.d_rows && one.d_params == four.d_params);
}

/// A mask that does not tell of its groups.
#[derive(Debug)]
struct NodeByNode<'a>(&'a dyn Mask);

impl Mask for NodeByNode<'_> {
    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }
    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.0.apply(params, x, y);
    }
    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.0.apply_transposed(params, x, y);
    }
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        self.0.gradients(params, x, dy, d_params);
    }
}

#[test]
fn sums_over_groups_give_what_nodes_give_one_by_one() {
    let (n, n_hops) = (150, 2);
    // Some six nodes a cell.
    let positions: Vec<[f32; 3]> = numbers(3 * n, 9)
        .chunks_exact(3)
        .map(|p| [0.04 * p[0], 0.05 * p[1], 0.02 * p[2]])
        .collect();
    let mut n_grouped = 0;
    for kind in MaskKind::all() {
        let mask = &*over(kind, &positions, n_hops);
        let Some((groups, of_groups)) = mask.groups() else { continue };
        n_grouped += 1;
        assert!(groups.len() == n && 2 * of_groups.n_nodes() < n, "{}", of_groups.n_nodes());
        let params = numbers(kind.n_params(n_hops), 4);
        for heads in [Heads::new(12, 3), Heads { width: 40, n_heads: 1, n_features: 9 }] {
            let (rows, d_out) = (rows(n, heads), numbers(n * heads.width, 2));
            let got = both_ways(mask, &params, &rows, heads, &d_out);
            let want = both_ways(&NodeByNode(mask), &params, &rows, heads, &d_out);
            assert_close(&got.out, &f64s(&want.out), 1e-5);
            assert_close(&got.d_rows, &f64s(&want.d_rows), 1e-5);
            let d_params: Vec<f32> = got.d_params.iter().map(|&d| d as f32).collect();
            assert_close(&d_params, &want.d_params, 1e-5);
        }
    }
    assert!(n_grouped > 0);
}
