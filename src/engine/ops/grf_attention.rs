//! Local attention under the graph random feature mask, over merged rows (GRF masking, Eq. 28
//! with its normaliser; one head, the feature map φ applied before).
//!
//! With M_ij = Σ_t f_t c(i, j, t) from the loads and rows `[q | k | v]`, q and k of m features (random
//! ones may be more or fewer than v's width d):
//! a_i = Σ_j M_ij (q_i·k_j) v_j / (Σ_j M_ij (q_i·k_j) + ε). Cost: entries of the loads times d.

use std::ops::Range;

use pulp::Simd;

use super::linear_attention::EPSILON;
use crate::base::simd::{WithSimd, axpys, dispatch, dots};
use crate::engine::graph::Loads;
use crate::engine::graph::loads::{Row, TransposedLoads};

/// M_ij from the loads of one entry.
#[inline(always)]
fn mask(hop_weights: &[f32], loads: &[f32]) -> f32 {
    hop_weights.iter().zip(loads).map(|(f, c)| f * c).sum()
}

/// Attention outputs `out` `[rows, d]` and denominators of the queries `rows`; `qkv` holds all rows.
pub fn grf_attention_forward(
    rows: Range<usize>,
    qkv: &[f32],
    n_features: usize,
    loads: &Loads,
    hop_weights: &[f32],
    out: &mut [f32],
    denominators: &mut [f32],
) {
    let widths = Widths { m: n_features, d: out.len() / rows.len().max(1) };
    dispatch(Forward { rows, widths, qkv, loads, hop_weights, out, denominators });
}

/// Widths of q and of k, and of v.
#[derive(Clone, Copy)]
struct Widths {
    m: usize,
    d: usize,
}

impl Widths {
    /// Numbers in a row `[q | k | v]`.
    #[inline(always)]
    fn row_len(self) -> usize {
        2 * self.m + self.d
    }
}

struct Forward<'a> {
    rows: Range<usize>,
    widths: Widths,
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
        let outs = self.out.chunks_exact_mut(self.widths.d).zip(self.denominators);
        for (i, (out, denominator)) in self.rows.zip(outs) {
            let query = Query::new(i, self.widths, self.qkv, self.loads, self.hop_weights);
            out.fill(0.0);
            let mut total = EPSILON;
            let mut entry = 0;
            while entry + GROUP <= query.row.nodes.len() {
                total += query.attend::<S, GROUP>(simd, entry, out);
                entry += GROUP;
            }
            while entry < query.row.nodes.len() {
                total += query.attend::<S, 1>(simd, entry, out);
                entry += 1;
            }
            *denominator = total;
            let inverse = 1.0 / total;
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }
}

/// Entries of a row that are taken at once: independent sums keep the processor's adders busy.
const GROUP: usize = 4;

/// One query and the keys that its walks reach.
struct Query<'a> {
    q: &'a [f32],
    row: Row<'a>,
    widths: Widths,
    qkv: &'a [f32],
    hop_weights: &'a [f32],
}

impl<'a> Query<'a> {
    #[inline(always)]
    fn new(
        i: usize,
        widths: Widths,
        qkv: &'a [f32],
        loads: &'a Loads,
        hop_weights: &'a [f32],
    ) -> Query<'a> {
        let q = &qkv[i * widths.row_len()..][..widths.m];
        Query { q, row: loads.row(i), widths, qkv, hop_weights }
    }

    /// Loads per hop of an entry.
    #[inline(always)]
    fn loads(&self, entry: usize) -> &'a [f32] {
        let hops = self.hop_weights.len();
        &self.row.loads[entry * hops..][..hops]
    }

    /// Keys and values of `N` entries.
    #[inline(always)]
    fn keys<const N: usize>(&self, entry: usize) -> ([&'a [f32]; N], [&'a [f32]; N]) {
        let (Widths { m, d }, len) = (self.widths, self.widths.row_len());
        let (mut k, mut v) = ([self.q; N], [self.q; N]);
        for n in 0..N {
            let row = &self.qkv[self.row.nodes[entry + n] as usize * len + m..][..m + d];
            (k[n], v[n]) = row.split_at(m);
        }
        (k, v)
    }

    /// Adds the values of `N` entries to `out`, and gives the sum of their weights.
    #[inline(always)]
    fn attend<S: Simd, const N: usize>(&self, simd: S, entry: usize, out: &mut [f32]) -> f32 {
        let (k, v) = self.keys::<N>(entry);
        let scores = dots(simd, self.q, k);
        let mut weights = [0.0; N];
        for n in 0..N {
            weights[n] = mask(self.hop_weights, self.loads(entry + n)) * scores[n];
        }
        axpys(simd, out, weights, v);
        weights.iter().sum()
    }

    /// Adds the gradients of `N` entries; `d_total` is that of the denominator, which is not in `hops`
    /// yet.
    #[inline(always)]
    fn backward<S: Simd, const N: usize>(
        &self,
        simd: S,
        entry: usize,
        (d_out, d_total): (&[f32], f32),
        dq: &mut [f32],
        hops: &mut HopSums,
        edges: &mut EdgeGradients<'_>,
    ) {
        let (k, v) = self.keys::<N>(entry);
        let (scores, d_weights) = (dots(simd, self.q, k), dots(simd, d_out, v));
        let mut d_scores = [0.0; N];
        for n in 0..N {
            let (loads, d_weight) = (self.loads(entry + n), d_weights[n] + d_total);
            let m = mask(self.hop_weights, loads);
            d_scores[n] = m * d_weight;
            edges.weights[entry + n] = m * scores[n];
            edges.d_scores[entry + n] = d_scores[n];
            hops.add(loads, scores[n], d_weights[n]);
        }
        axpys(simd, dq, d_scores, k);
    }
}

/// Most hop weights: those of the longest walks, and of none.
pub const MAX_HOP_WEIGHTS: usize = 9;

/// What the entries of one row say of the hop weights' gradient.
///
/// Weighted by the hop weights it is 0 but for ε: what is added nearly cancels, in each row and over
/// all. So sums are f64, and the denominator's gradient is that of these very terms.
#[derive(Default)]
struct HopSums {
    /// Σ_j s_ij c(i, j, t) g_ij, with scores s and the values' part g of the weights' gradient.
    gained: [f64; MAX_HOP_WEIGHTS],
    /// Σ_j s_ij c(i, j, t).
    shared: [f64; MAX_HOP_WEIGHTS],
}

impl HopSums {
    #[inline(always)]
    fn add(&mut self, loads: &[f32], score: f32, d_weight: f32) {
        let (score, d_weight) = (f64::from(score), f64::from(d_weight));
        for ((gained, shared), &c) in self.gained.iter_mut().zip(&mut self.shared).zip(loads) {
            let share = score * f64::from(c);
            *shared += share;
            *gained += share * d_weight;
        }
    }

    /// Adds the row's gradient.
    #[inline(always)]
    fn add_to(&self, hop_weights: &[f32], d_hop_weights: &mut [f64]) {
        let total = |sums: &[f64]| -> f64 {
            sums.iter().zip(hop_weights).map(|(sum, &f)| sum * f64::from(f)).sum()
        };
        let mean = total(&self.gained) / (total(&self.shared) + f64::from(EPSILON));
        let sums = self.gained.iter().zip(&self.shared);
        for (df, (gained, shared)) in d_hop_weights.iter_mut().zip(sums) {
            *df += gained - mean * shared;
        }
    }
}

/// Gradients of one entry of the mask, kept between the two backward passes.
pub struct EdgeGradients<'a> {
    /// M_ij (q_i·k_j): weight of v_j in the numerator.
    pub weights: &'a mut [f32],
    /// Gradient of the score q_i·k_j.
    pub d_scores: &'a mut [f32],
}

/// Backward pass over queries: `d_q` (rows of the chunk, `[rows, m]`), the gradient of the hop
/// weights, and per entry what the keys' pass needs (`edges`, from the chunk's first place on).
///
/// Scales `d_out` by the inverse denominators; the keys' pass reads it so. At most
/// [`MAX_HOP_WEIGHTS`].
pub fn grf_attention_backward_query(
    rows: Range<usize>,
    qkv: &[f32],
    n_features: usize,
    loads: &Loads,
    hop_weights: &[f32],
    out: &[f32],
    denominators: &[f32],
    d_out: &mut [f32],
    d_q: &mut [f32],
    d_hop_weights: &mut [f64],
    edges: EdgeGradients<'_>,
) {
    let widths = Widths { m: n_features, d: out.len() / rows.len().max(1) };
    let forward = (qkv, loads, hop_weights, out, denominators);
    dispatch(BackwardQuery { rows, widths, forward, d_out, d_q, d_hop_weights, edges });
}

struct BackwardQuery<'a> {
    rows: Range<usize>,
    widths: Widths,
    /// Of the forward pass: rows, loads, hop weights, outputs, denominators.
    forward: (&'a [f32], &'a Loads, &'a [f32], &'a [f32], &'a [f32]),
    d_out: &'a mut [f32],
    d_q: &'a mut [f32],
    d_hop_weights: &'a mut [f64],
    edges: EdgeGradients<'a>,
}

impl WithSimd for BackwardQuery<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (qkv, loads, hop_weights, out, denominators) = self.forward;
        let (mut edge_weights, mut edge_d_scores) = (self.edges.weights, self.edges.d_scores);
        let mut place = if self.rows.is_empty() { 0 } else { loads.row(self.rows.start).start };
        let Widths { m, d } = self.widths;
        let outs = out.chunks_exact(d).zip(self.d_out.chunks_exact_mut(d));
        let outs = outs.zip(denominators).zip(self.d_q.chunks_exact_mut(m));
        for (i, (((out, d_out), denominator), dq)) in self.rows.zip(outs) {
            let query = Query::new(i, self.widths, qkv, loads, hop_weights);
            // This row's entries; some places before them may be unused.
            edge_weights = &mut edge_weights[query.row.start - place..];
            edge_d_scores = &mut edge_d_scores[query.row.start - place..];
            place = query.row.start;
            let mut edges = EdgeGradients { weights: edge_weights, d_scores: edge_d_scores };
            let inverse = 1.0 / denominator;
            d_out.iter_mut().for_each(|g| *g *= inverse);
            let [d_total] = dots(simd, d_out, [out]).map(|g| -g);
            let mut hops = HopSums::default();
            dq.fill(0.0);
            let mut entry = 0;
            while entry + GROUP <= query.row.nodes.len() {
                query.backward::<S, GROUP>(
                    simd,
                    entry,
                    (d_out, d_total),
                    dq,
                    &mut hops,
                    &mut edges,
                );
                entry += GROUP;
            }
            while entry < query.row.nodes.len() {
                query.backward::<S, 1>(simd, entry, (d_out, d_total), dq, &mut hops, &mut edges);
                entry += 1;
            }
            hops.add_to(hop_weights, self.d_hop_weights);
        }
    }
}

/// Backward pass over keys: the k and v columns of `d_qkv` (rows `keys`, `[rows, 2m + d]`), reading
/// the scaled `d_out` and `edges` of all queries. No atomics: every key gathers from the transposed loads.
pub fn grf_attention_backward_key(
    keys: Range<usize>,
    qkv: &[f32],
    n_features: usize,
    transposed: &TransposedLoads,
    d_out: &[f32],
    edge_weights: &[f32],
    edge_d_scores: &[f32],
    d_qkv: &mut [f32],
) {
    let m = n_features;
    let widths = Widths { m, d: d_qkv.len() / keys.len().max(1) - 2 * m };
    let edges = (edge_weights, edge_d_scores);
    dispatch(BackwardKey { keys, widths, qkv, transposed, d_out, edges, d_qkv });
}

struct BackwardKey<'a> {
    keys: Range<usize>,
    widths: Widths,
    qkv: &'a [f32],
    transposed: &'a TransposedLoads,
    d_out: &'a [f32],
    /// Weights and gradients of the scores, by place.
    edges: (&'a [f32], &'a [f32]),
    d_qkv: &'a mut [f32],
}

impl WithSimd for BackwardKey<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let d_qkv = std::mem::take(&mut self.d_qkv);
        let (m, len) = (self.widths.m, self.widths.row_len());
        for (j, d_qkv) in self.keys.clone().zip(d_qkv.chunks_exact_mut(len)) {
            let (dk, dv) = d_qkv[m..].split_at_mut(m);
            dk.fill(0.0);
            dv.fill(0.0);
            let n = self.transposed.column(j).0.len();
            let mut entry = 0;
            while entry + GROUP <= n {
                self.gather::<S, GROUP>(simd, j, entry, dk, dv);
                entry += GROUP;
            }
            while entry < n {
                self.gather::<S, 1>(simd, j, entry, dk, dv);
                entry += 1;
            }
        }
    }
}

impl BackwardKey<'_> {
    /// Adds what `N` queries of key `j` say.
    #[inline(always)]
    fn gather<S: Simd, const N: usize>(
        &self,
        simd: S,
        j: usize,
        entry: usize,
        dk: &mut [f32],
        dv: &mut [f32],
    ) {
        let (queries, places) = self.transposed.column(j);
        let (edge_weights, edge_d_scores) = self.edges;
        let (Widths { m, d }, len) = (self.widths, self.widths.row_len());
        let (mut q, mut d_out) = ([self.qkv; N], [self.d_out; N]);
        let (mut weights, mut d_scores) = ([0.0; N], [0.0; N]);
        for n in 0..N {
            let (query, place) = (queries[entry + n] as usize, places[entry + n] as usize);
            q[n] = &self.qkv[query * len..][..m];
            d_out[n] = &self.d_out[query * d..][..d];
            (weights[n], d_scores[n]) = (edge_weights[place], edge_d_scores[place]);
        }
        axpys(simd, dk, d_scores, q);
        axpys(simd, dv, weights, d_out);
    }
}

#[cfg(test)]
pub(crate) mod plain {
    use crate::engine::graph::Loads;

    /// GRF attention in f64 with the dense mask written out. Rows `[q | k | v]`, v of width d.
    pub fn grf_attention(qkv: &[f64], m: usize, d: usize, loads: &Loads, f: &[f64]) -> Vec<f64> {
        let len = 2 * m + d;
        let n = qkv.len() / len;
        let mut out = vec![0.0; n * d];
        for i in 0..n {
            let mut mask = vec![0.0; n];
            let row = loads.row(i);
            for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(f.len())) {
                mask[j as usize] = c.iter().zip(f).map(|(&c, f)| f64::from(c) * f).sum();
            }
            let q = &qkv[i * len..][..m];
            let mut total = f64::from(super::EPSILON);
            for j in 0..n {
                let k = &qkv[j * len + m..][..m];
                let w = mask[j] * q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
                total += w;
                (0..d).for_each(|c| out[i * d + c] += w * qkv[j * len + 2 * m + c]);
            }
            out[i * d..(i + 1) * d].iter_mut().for_each(|o| *o /= total);
        }
        out
    }

    /// Gradient of Σ d_out·[`grf_attention`] by `f`, in f64 and for these few numbers alone: by the
    /// entries of the loads, so that it is quick for many rows.
    pub fn hop_gradient(
        qkv: &[f64],
        (m, d): (usize, usize),
        loads: &Loads,
        f: &[f64],
        d_out: &[f64],
    ) -> Vec<f64> {
        let len = 2 * m + d;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut df = vec![0.0; f.len()];
        for (i, d_out) in d_out.chunks_exact(d).enumerate() {
            let (row, q) = (loads.row(i), &qkv[i * len..][..m]);
            let entries: Vec<(f64, f64, Vec<f64>)> = (row.nodes.iter())
                .zip(row.loads.chunks_exact(f.len()))
                .map(|(&j, c)| {
                    let key = &qkv[j as usize * len + m..][..m + d];
                    let c = c.iter().map(|&c| f64::from(c)).collect();
                    (dot(q, &key[..m]), dot(d_out, &key[m..]), c)
                })
                .collect();
            let weights = || entries.iter().map(|(score, _, c)| dot(c, f) * score);
            let total = weights().sum::<f64>() + f64::from(super::EPSILON);
            let mean = weights().zip(&entries).map(|(w, (_, g, _))| w * g).sum::<f64>() / total;
            for (score, g, c) in &entries {
                let d_mask = score * (g - mean) / total;
                df.iter_mut().zip(c).for_each(|(df, c)| *df += d_mask * c);
            }
        }
        df
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::graph::KnnGraph;
    use crate::engine::ops::check::*;

    /// What the queries' pass leaves.
    struct Back {
        df: [f64; 4],
        scaled: Vec<f32>,
        d_q: Vec<f32>,
        w: Vec<f32>,
        ds: Vec<f32>,
    }

    /// The queries' pass, chunk by chunk; the gradients of the hop weights are added up in f64.
    fn queries_back(
        chunks: impl IntoIterator<Item = Range<usize>>,
        (qkv, m, d): (&[f32], usize, usize),
        loads: &Loads,
        f: &[f32; 4],
        (out, denominators): (&[f32], &[f32]),
        mut scaled: Vec<f32>,
    ) -> Back {
        let (mut df, mut d_q) = ([0.0; 4], vec![f32::NAN; denominators.len() * m]);
        let (mut w, mut ds) = (vec![0.0; loads.n_places()], vec![0.0; loads.n_places()]);
        for rows in chunks {
            let (narrow, place) = (rows.start * d..rows.end * d, loads.row(rows.start).start);
            let mut part = [0.0; 4];
            grf_attention_backward_query(
                rows.clone(),
                qkv,
                m,
                loads,
                f,
                &out[narrow.clone()],
                &denominators[rows.clone()],
                &mut scaled[narrow],
                &mut d_q[rows.start * m..rows.end * m],
                &mut part,
                EdgeGradients { weights: &mut w[place..], d_scores: &mut ds[place..] },
            );
            df.iter_mut().zip(part).for_each(|(df, part)| *df += part);
        }
        Back { df, scaled, d_q, w, ds }
    }

    #[test]
    fn grf_attention_and_its_gradients() {
        // As many features as values, more, and fewer.
        for (m, d) in [(11, 11), (10, 7), (5, 19)] {
            attention_and_its_gradients(23, m, d);
        }
    }

    fn attention_and_its_gradients(n: usize, m: usize, d: usize) {
        let len = 2 * m + d;
        let points: Vec<[f32; 3]> =
            numbers(3 * n, 5).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let mut graph = KnnGraph::default();
        graph.rebuild(&points, 3).unwrap();
        let (mut loads, mut transposed) = (Loads::default(), TransposedLoads::default());
        loads.rebuild(&graph, 3).unwrap();
        transposed.rebuild(&loads);

        let mut qkv = numbers(n * len, 1);
        qkv.chunks_exact_mut(len)
            .for_each(|row| row[..2 * m].iter_mut().for_each(|f| *f = f.abs()));
        let f = [0.7f32, 0.4, 1.3, 0.2];
        let d_out = numbers(n * d, 2);
        let chunks = [0..9, 9..n];
        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n]);
        for rows in chunks.clone() {
            let out = &mut out[rows.start * d..rows.end * d];
            let totals = &mut denominators[rows.clone()];
            grf_attention_forward(rows, &qkv, m, &loads, &f, out, totals);
        }
        let (qkv64, f64s_) = (f64s(&qkv), f64s(&f));
        assert_close(&out, &plain::grf_attention(&qkv64, m, d, &loads, &f64s_), 1e-5);

        let back =
            queries_back(chunks, (&qkv, m, d), &loads, &f, (&out, &denominators), d_out.clone());
        let (mut d_qkv, Back { df, scaled, d_q, w, ds }) = (vec![0.0; qkv.len()], back);
        for keys in [0..5, 5..n] {
            let d_qkv = &mut d_qkv[keys.start * len..keys.end * len];
            grf_attention_backward_key(keys, &qkv, m, &transposed, &scaled, &w, &ds, d_qkv);
        }
        set_columns(&mut d_qkv, len, &d_q, m);
        assert_gradient(&d_qkv, &qkv, &d_out, |x| plain::grf_attention(x, m, d, &loads, &f64s_));
        let df = df.map(|df| df as f32);
        assert_gradient(&df, &f, &d_out, |f| plain::grf_attention(&qkv64, m, d, &loads, f));
    }

    /// Rows by which the gradient of the hop weights climbs, and as many by which it falls again:
    /// within each chunk it ends at 1/1024 of where it was.
    #[test]
    fn hop_gradients_that_nearly_cancel_are_exact() {
        const HALF: usize = 128;
        let (n, m, d) = (8 * HALF, 6, 5);
        let len = 2 * m + d;
        let mut points: Vec<[f32; 3]> =
            numbers(3 * n, 5).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let mut qkv: Vec<f32> = numbers(n * len, 1).iter().map(|x| x.abs()).collect();
        let falls = |i: usize| i % (2 * HALF) >= HALF;
        for i in (0..n).filter(|&i| falls(i)) {
            let [x, y, z] = points[i - HALF];
            points[i] = [x + 64.0, y, z];
            qkv.copy_within((i - HALF) * len..(i - HALF + 1) * len, i * len);
        }
        let (mut graph, mut loads) = (KnnGraph::default(), Loads::default());
        graph.rebuild(&points, 3).unwrap();
        loads.rebuild(&graph, 3).unwrap();
        let f = [0.7f32, 0.4, 1.3, 0.2];
        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n]);
        grf_attention_forward(0..n, &qkv, m, &loads, &f, &mut out, &mut denominators);
        // What a row gains by more weight on itself: of one sign in all rows.
        let d_out: Vec<f32> = (0..n * d)
            .map(|at| {
                let (i, c) = (at / d, at % d);
                let gain = qkv[i * len + 2 * m + c] - out[at];
                if falls(i) { gain * (1.0 / 1024.0 - 1.0) } else { gain }
            })
            .collect();
        let want = plain::hop_gradient(&f64s(&qkv), (m, d), &loads, &f64s(&f), &f64s(&d_out));

        let chunks = (0..n).step_by(2 * HALF).map(|start| start..start + 2 * HALF);
        let Back { df, .. } =
            queries_back(chunks, (&qkv, m, d), &loads, &f, (&out, &denominators), d_out);
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off: Vec<f64> = df.iter().zip(&want).map(|(df, want)| df - want).collect();
        let error = norm(&off) / norm(&want);
        assert!(error < 1e-5, "off by {error:.1e} of the norm: {df:?} against {want:?}");
    }
}
