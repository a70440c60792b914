//! Local attention under the graph random feature mask, over merged rows (GRF masking, Eq. 28
//! with its normaliser; one head, φ = ReLU applied before).
//!
//! With M_ij = Σ_t f_t c(i, j, t) from the loads and rows `[q | k | v]` of width d:
//! a_i = Σ_j M_ij (q_i·k_j) v_j / (Σ_j M_ij (q_i·k_j) + ε). Cost: entries of the loads times d.

use std::ops::Range;

use pulp::Simd;

use super::linear_attention::EPSILON;
use super::simd::{WithSimd, axpy, axpys, dispatch, dot, dots};
use crate::graph::Loads;
use crate::graph::loads::TransposedLoads;

/// M_ij from the loads of one entry.
#[inline(always)]
fn mask(hop_weights: &[f32], loads: &[f32]) -> f32 {
    hop_weights.iter().zip(loads).map(|(f, c)| f * c).sum()
}

/// Attention outputs `out` `[rows, d]` and denominators of the queries `rows`; `qkv` holds all rows.
pub fn grf_attention_forward(
    rows: Range<usize>,
    qkv: &[f32],
    loads: &Loads,
    hop_weights: &[f32],
    out: &mut [f32],
    denominators: &mut [f32],
) {
    let d = out.len() / rows.len().max(1);
    dispatch(Forward { rows, d, qkv, loads, hop_weights, out, denominators });
}

struct Forward<'a> {
    rows: Range<usize>,
    d: usize,
    qkv: &'a [f32],
    loads: &'a Loads,
    hop_weights: &'a [f32],
    out: &'a mut [f32],
    denominators: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let outs = self.out.chunks_exact_mut(self.d).zip(self.denominators);
        for (i, (out, denominator)) in self.rows.zip(outs) {
            let row = self.loads.row(i);
            let query = Query {
                q: &self.qkv[i * 3 * self.d..][..self.d],
                qkv: self.qkv,
                hop_weights: self.hop_weights,
            };
            let loads = |entry: usize| &row.loads[entry * self.hop_weights.len()..];
            out.fill(0.0);
            let mut total = EPSILON;
            let mut groups = row.nodes.chunks_exact(GROUP);
            let mut entry = 0;
            for group in groups.by_ref() {
                let nodes: [u32; GROUP] = std::array::from_fn(|g| group[g]);
                let loads = std::array::from_fn(|g| loads(entry + g));
                total += query.attend(simd, nodes, loads, out);
                entry += GROUP;
            }
            for &node in groups.remainder() {
                total += query.attend(simd, [node], [loads(entry)], out);
                entry += 1;
            }
            *denominator = total;
            let inverse = 1.0 / total;
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }
}

/// Keys that a query attends to at once: independent sums keep the processor's adders busy.
const GROUP: usize = 4;

struct Query<'a> {
    q: &'a [f32],
    qkv: &'a [f32],
    hop_weights: &'a [f32],
}

impl Query<'_> {
    /// Adds the values of `nodes` to `out`, and gives the sum of their weights.
    #[inline(always)]
    fn attend<S: Simd, const N: usize>(
        &self,
        simd: S,
        nodes: [u32; N],
        loads: [&[f32]; N],
        out: &mut [f32],
    ) -> f32 {
        let d = self.q.len();
        let kv = nodes.map(|j| self.qkv[j as usize * 3 * d + d..][..2 * d].split_at(d));
        let scores = dots(simd, self.q, kv.map(|(k, _)| k));
        let weights: [f32; N] =
            std::array::from_fn(|n| mask(self.hop_weights, loads[n]) * scores[n]);
        axpys(simd, out, weights, kv.map(|(_, v)| v));
        weights.iter().sum()
    }
}

/// Gradients of one entry of the mask, kept between the two backward passes.
pub struct EdgeGradients<'a> {
    /// M_ij (q_i·k_j): weight of v_j in the numerator.
    pub weights: &'a mut [f32],
    /// Gradient of the score q_i·k_j.
    pub d_scores: &'a mut [f32],
}

/// Backward pass over queries: the q columns of `d_qkv` (rows of the chunk), the gradient of the
/// hop weights, and per entry what the keys' pass needs (`edges`, from the chunk's first place on).
///
/// Scales `d_out` by the inverse denominators; the keys' pass reads it so.
#[inline(always)]
pub fn grf_attention_backward_query(
    rows: Range<usize>,
    qkv: &[f32],
    loads: &Loads,
    hop_weights: &[f32],
    out: &[f32],
    denominators: &[f32],
    d_out: &mut [f32],
    d_qkv: &mut [f32],
    d_hop_weights: &mut [f32],
    edges: EdgeGradients<'_>,
) {
    let d = out.len() / rows.len().max(1);
    let (wide, hops) = (3 * d, hop_weights.len());
    let first_place = if rows.is_empty() { 0 } else { loads.row(rows.start).start };
    let outs = out.chunks_exact(d).zip(d_out.chunks_exact_mut(d)).zip(denominators);
    for ((i, ((out, d_out), denominator)), d_qkv) in
        rows.zip(outs).zip(d_qkv.chunks_exact_mut(wide))
    {
        let inverse = 1.0 / denominator;
        d_out.iter_mut().for_each(|g| *g *= inverse);
        let d_total = -dot(d_out, out);
        let (q, dq) = (&qkv[i * wide..][..d], &mut d_qkv[..d]);
        dq.fill(0.0);
        let row = loads.row(i);
        for (entry, (&j, c)) in row.nodes.iter().zip(row.loads.chunks_exact(hops)).enumerate() {
            let kv = &qkv[j as usize * wide + d..][..2 * d];
            let (k, v) = kv.split_at(d);
            let (m, score) = (mask(hop_weights, c), dot(q, k));
            let d_weight = dot(d_out, v) + d_total;
            let place = row.start + entry - first_place;
            edges.weights[place] = m * score;
            edges.d_scores[place] = m * d_weight;
            axpy(dq, m * d_weight, k);
            axpy(d_hop_weights, d_weight * score, c);
        }
    }
}

/// Backward pass over keys: the k and v columns of `d_qkv` (rows `keys`), reading the scaled
/// `d_out` and `edges` of all queries. No atomics: every key gathers from the transposed loads.
#[inline(always)]
pub fn grf_attention_backward_key(
    keys: Range<usize>,
    qkv: &[f32],
    transposed: &TransposedLoads,
    d_out: &[f32],
    edge_weights: &[f32],
    edge_d_scores: &[f32],
    d_qkv: &mut [f32],
) {
    let wide = d_qkv.len() / keys.len().max(1);
    let d = wide / 3;
    for (j, d_qkv) in keys.zip(d_qkv.chunks_exact_mut(wide)) {
        let (dk, dv) = d_qkv[d..].split_at_mut(d);
        dk.fill(0.0);
        dv.fill(0.0);
        let (queries, places) = transposed.column(j);
        for (&i, &place) in queries.iter().zip(places) {
            let (i, place) = (i as usize, place as usize);
            axpy(dk, edge_d_scores[place], &qkv[i * wide..][..d]);
            axpy(dv, edge_weights[place], &d_out[i * d..][..d]);
        }
    }
}

#[cfg(test)]
pub(crate) mod plain {
    use crate::graph::Loads;

    /// GRF attention in f64 with the dense mask written out. Rows `[q | k | v]`.
    pub fn grf_attention(qkv: &[f64], d: usize, loads: &Loads, hop_weights: &[f64]) -> Vec<f64> {
        let n = qkv.len() / (3 * d);
        let mut out = vec![0.0; n * d];
        for i in 0..n {
            let mut mask = vec![0.0; n];
            let row = loads.row(i);
            for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(hop_weights.len())) {
                mask[j as usize] = c.iter().zip(hop_weights).map(|(&c, f)| f64::from(c) * f).sum();
            }
            let q = &qkv[i * 3 * d..][..d];
            let mut total = f64::from(super::EPSILON);
            for j in 0..n {
                let k = &qkv[j * 3 * d + d..][..d];
                let w = mask[j] * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
                total += w;
                for c in 0..d {
                    out[i * d + c] += w * qkv[j * 3 * d + 2 * d + c];
                }
            }
            out[i * d..(i + 1) * d].iter_mut().for_each(|o| *o /= total);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::KnnGraph;
    use crate::ops::check::*;
    use crate::ops::relu::relu_forward;

    #[test]
    fn grf_attention_and_its_gradients() {
        let (n, d) = (23, 11);
        let points: Vec<[f32; 3]> =
            numbers(3 * n, 5).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let mut graph = KnnGraph::default();
        graph.rebuild(&points, 3).unwrap();
        let (mut loads, mut transposed) = (Loads::default(), TransposedLoads::default());
        loads.rebuild(&graph, 3).unwrap();
        transposed.rebuild(&loads);

        let mut qkv = numbers(n * 3 * d, 1);
        qkv.chunks_exact_mut(3 * d).for_each(|row| relu_forward(&mut row[..2 * d]));
        let f = [0.7f32, 0.4, 1.3, 0.2];
        let d_out = numbers(n * d, 2);
        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n]);
        grf_attention_forward(0..9, &qkv, &loads, &f, &mut out[..9 * d], &mut denominators[..9]);
        grf_attention_forward(9..n, &qkv, &loads, &f, &mut out[9 * d..], &mut denominators[9..]);
        let (qkv64, f64s_) = (f64s(&qkv), f64s(&f));
        assert_close(&out, &plain::grf_attention(&qkv64, d, &loads, &f64s_), 1e-5);

        let (mut d_qkv, mut scaled, mut df) = (vec![0.0; qkv.len()], d_out.clone(), [0.0f32; 4]);
        let (mut w, mut ds) = (vec![0.0; loads.n_places()], vec![0.0; loads.n_places()]);
        for rows in [0..9, 9..n] {
            let (narrow, wide) =
                (rows.start * d..rows.end * d, rows.start * 3 * d..rows.end * 3 * d);
            let place = loads.row(rows.start).start;
            grf_attention_backward_query(
                rows.clone(),
                &qkv,
                &loads,
                &f,
                &out[narrow.clone()],
                &denominators[rows.clone()],
                &mut scaled[narrow],
                &mut d_qkv[wide],
                &mut df,
                EdgeGradients { weights: &mut w[place..], d_scores: &mut ds[place..] },
            );
        }
        for rows in [0..5, 5..n] {
            let wide = rows.start * 3 * d..rows.end * 3 * d;
            grf_attention_backward_key(rows, &qkv, &transposed, &scaled, &w, &ds, &mut d_qkv[wide]);
        }
        assert_gradient(&d_qkv, &qkv, &d_out, |x| plain::grf_attention(x, d, &loads, &f64s_));
        assert_gradient(&df, &f, &d_out, |f| plain::grf_attention(&qkv64, d, &loads, f));
    }
}
