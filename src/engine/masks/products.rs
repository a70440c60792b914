//! Products of a sparse matrix with columns: what several masks are made of.

use crate::base::simd::{axpy, axpys, long_dot, sum_of_rows, vectorized};
use crate::engine::graph::WeightedGraph;

vectorized! {
/// y = W x of columns `[n, width]`.
pub(super) fn product[simd](graph: &'a WeightedGraph, x: &'a [f32], y: &'a mut [f32]) {
    let width = x.len() / graph.len().max(1);
    for (i, y) in y.chunks_exact_mut(width.max(1)).enumerate() {
        let edges = graph.neighbors(i).iter().zip(graph.weights(i));
        sum_of_rows(simd, y, x, edges.map(|(&j, &w)| (w, j as usize)));
    }
}
}

vectorized! {
/// y = Wᵀ x of columns `[n, width]`.
pub(super) fn product_transposed[simd](graph: &'a WeightedGraph, x: &'a [f32], y: &'a mut [f32]) {
    let width = x.len() / graph.len().max(1);
    y.fill(0.0);
    for (i, x) in x.chunks_exact(width.max(1)).enumerate() {
        for (&j, &w) in graph.neighbors(i).iter().zip(graph.weights(i)) {
            axpys(simd, &mut y[j as usize * width..][..width], [w], [x]);
        }
    }
}
}

vectorized! {
/// y += a·x.
pub(super) fn add_scaled(y: &'a mut [f32], a: f32, x: &'a [f32]) {
    axpy(y, a, x);
}
}

vectorized! {
/// sum += x·y, a stretch in f32, the stretches in f64: what adds to a parameter nearly cancels.
pub(super) fn add_dot[simd](x: &'a [f32], y: &'a [f32], sum: &'a mut f64) {
    for (x, y) in x.chunks(512).zip(y.chunks(512)) {
        *sum += f64::from(long_dot(simd, x, y));
    }
}
}
