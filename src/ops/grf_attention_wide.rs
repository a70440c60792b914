//! GRF-masked attention whose features are not as wide as its values: after FAVOR+.
//!
//! Rows hold `[φ(q) | φ(k) | v]`: m features, twice, then v of width d; one head. Otherwise as
//! [`super::grf_attention`].

use std::ops::Range;

use super::grf_attention::EdgeGradients;
use super::grf_attention::mask;
use super::linear_attention::EPSILON;
use super::simd::{axpy, dot, vectorized};
use crate::graph::Loads;
use crate::graph::loads::TransposedLoads;

vectorized! {
/// Attention outputs `out` `[rows, d]` and denominators of the queries `queries`; `rows` holds all
/// rows, `n_features` is m.
pub fn grf_attention_wide_forward(
    queries: Range<usize>,
    rows: &'a [f32],
    n_features: usize,
    loads: &'a Loads,
    hop_weights: &'a [f32],
    out: &'a mut [f32],
    denominators: &'a mut [f32],
) {
    let (d, m, hops) = (out.len() / queries.len().max(1), n_features, hop_weights.len());
    let len = 2 * m + d;
    for ((i, out), denominator) in queries.zip(out.chunks_exact_mut(d)).zip(denominators) {
        let row = loads.row(i);
        let q = &rows[i * len..][..m];
        let mut total = EPSILON;
        out.fill(0.0);
        for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(hops)) {
            let (k, v) = rows[j as usize * len + m..][..m + d].split_at(m);
            let weight = mask(hop_weights, c) * dot(q, k);
            total += weight;
            axpy(out, weight, v);
        }
        *denominator = total;
        let inverse = 1.0 / total;
        out.iter_mut().for_each(|o| *o *= inverse);
    }
}
}

vectorized! {
/// Backward pass over queries, as [`super::grf_attention::grf_attention_backward_query`]: the φ(q)
/// columns of `d_rows` (rows of the chunk); scales `d_out` by the inverse denominators.
pub fn grf_attention_wide_backward_query(
    queries: Range<usize>,
    rows: &'a [f32],
    n_features: usize,
    loads: &'a Loads,
    hop_weights: &'a [f32],
    out: &'a [f32],
    denominators: &'a [f32],
    d_out: &'a mut [f32],
    d_rows: &'a mut [f32],
    d_hop_weights: &'a mut [f32],
    edges: EdgeGradients<'a>,
) {
    let (d, m, hops) = (out.len() / queries.len().max(1), n_features, hop_weights.len());
    let len = 2 * m + d;
    let first_place = if queries.is_empty() { 0 } else { loads.row(queries.start).start };
    let outs = out.chunks_exact(d).zip(d_out.chunks_exact_mut(d)).zip(denominators);
    for ((i, ((out, d_out), denominator)), d_row) in
        queries.zip(outs).zip(d_rows.chunks_exact_mut(len))
    {
        let inverse = 1.0 / denominator;
        d_out.iter_mut().for_each(|g| *g *= inverse);
        let d_total = -dot(d_out, out);
        let (q, dq) = (&rows[i * len..][..m], &mut d_row[..m]);
        dq.fill(0.0);
        let row = loads.row(i);
        for (entry, (&j, c)) in row.nodes.iter().zip(row.loads.chunks_exact(hops)).enumerate() {
            let (k, v) = rows[j as usize * len + m..][..m + d].split_at(m);
            let (mask, score) = (mask(hop_weights, c), dot(q, k));
            let d_weight = dot(d_out, v) + d_total;
            let place = row.start + entry - first_place;
            edges.weights[place] = mask * score;
            edges.d_scores[place] = mask * d_weight;
            axpy(dq, mask * d_weight, k);
            axpy(d_hop_weights, d_weight * score, c);
        }
    }
}
}

vectorized! {
/// Backward pass over keys, as [`super::grf_attention::grf_attention_backward_key`]: the φ(k) and v
/// columns of `d_rows` (rows `keys`).
pub fn grf_attention_wide_backward_key(
    keys: Range<usize>,
    rows: &'a [f32],
    n_features: usize,
    transposed: &'a TransposedLoads,
    d_out: &'a [f32],
    edge_weights: &'a [f32],
    edge_d_scores: &'a [f32],
    d_rows: &'a mut [f32],
) {
    let (len, m) = (d_rows.len() / keys.len().max(1), n_features);
    let d = len - 2 * m;
    for (j, d_row) in keys.zip(d_rows.chunks_exact_mut(len)) {
        let (dk, dv) = d_row[m..].split_at_mut(m);
        dk.fill(0.0);
        dv.fill(0.0);
        let (queries, places) = transposed.column(j);
        for (&i, &place) in queries.iter().zip(places) {
            let (i, place) = (i as usize, place as usize);
            axpy(dk, edge_d_scores[place], &rows[i * len..][..m]);
            axpy(dv, edge_weights[place], &d_out[i * d..][..d]);
        }
    }
}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::KnnGraph;
    use crate::ops::check::*;

    /// In f64 with the dense mask written out.
    fn plain(rows: &[f64], d: usize, m: usize, loads: &Loads, f: &[f64]) -> Vec<f64> {
        let len = 2 * m + d;
        let n = rows.len() / len;
        let mut out = vec![0.0; n * d];
        for i in 0..n {
            let row = loads.row(i);
            let mut mask = vec![0.0; n];
            for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
                mask[j as usize] = c.iter().zip(f).map(|(&c, f)| f64::from(c) * f).sum();
            }
            let mut total = f64::from(EPSILON);
            for j in 0..n {
                let (q, k) = (&rows[i * len..][..m], &rows[j * len + m..][..m]);
                let weight = mask[j] * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
                total += weight;
                (0..d).for_each(|c| out[i * d + c] += weight * rows[j * len + 2 * m + c]);
            }
            out[i * d..(i + 1) * d].iter_mut().for_each(|o| *o /= total);
        }
        out
    }

    #[test]
    fn wide_grf_attention_and_its_gradients() {
        let (n, d, m) = (23, 7, 10);
        let len = 2 * m + d;
        let points: Vec<[f32; 3]> =
            numbers(3 * n, 5).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let mut graph = KnnGraph::default();
        graph.rebuild(&points, 3).unwrap();
        let (mut loads, mut transposed) = (Loads::default(), TransposedLoads::default());
        loads.rebuild(&graph, 3).unwrap();
        transposed.rebuild(&loads);
        let mut rows = numbers(n * len, 1);
        rows.chunks_exact_mut(len)
            .for_each(|row| row[..2 * m].iter_mut().for_each(|f| *f = f.abs()));
        let f = [0.7f32, 0.4, 1.3, 0.2];
        let d_out = numbers(n * d, 2);
        let chunks = [0..9, 9..n];

        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n]);
        for chunk in chunks.clone() {
            let out = &mut out[chunk.start * d..chunk.end * d];
            let totals = &mut denominators[chunk.clone()];
            grf_attention_wide_forward(chunk, &rows, m, &loads, &f, out, totals);
        }
        assert_close(&out, &plain(&f64s(&rows), d, m, &loads, &f64s(&f)), 1e-5);

        let (mut d_rows, mut scaled, mut df) = (vec![0.0; rows.len()], d_out.clone(), [0.0f32; 4]);
        let (mut w, mut ds) = (vec![0.0; loads.n_places()], vec![0.0; loads.n_places()]);
        for chunk in chunks {
            let (narrow, place) = (chunk.start * d..chunk.end * d, loads.row(chunk.start).start);
            let wide = chunk.start * len..chunk.end * len;
            grf_attention_wide_backward_query(
                chunk.clone(),
                &rows,
                m,
                &loads,
                &f,
                &out[narrow.clone()],
                &denominators[chunk],
                &mut scaled[narrow],
                &mut d_rows[wide],
                &mut df,
                EdgeGradients { weights: &mut w[place..], d_scores: &mut ds[place..] },
            );
        }
        for keys in [0..5, 5..n] {
            let wide = keys.start * len..keys.end * len;
            let d_rows = &mut d_rows[wide];
            grf_attention_wide_backward_key(keys, &rows, m, &transposed, &scaled, &w, &ds, d_rows);
        }
        assert_gradient(&d_rows, &rows, &d_out, |x| plain(x, d, m, &loads, &f64s(&f)));
        assert_gradient(&df, &f, &d_out, |f| plain(&f64s(&rows), d, m, &loads, f));
    }
}
