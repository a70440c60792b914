//! Attention of linear cost, the feature map φ applied before, several heads, normalised
//! (Katharopoulos et al. 2020).
//!
//! Rows hold `[q | k | v]`: m features a head, twice, then v of width d; m is d_h but for random
//! features. Per head the whole cloud is summed up in a state of size m·(d_h + 1): S = Σ_j k_j v_jᵀ
//! `[m, d_h]` and z = Σ_j k_j; then a_i = (q_iᵀ S) / (q_i·z + ε).

use std::ops::Range;

use super::favor::Favor;
use super::linear::{Mat, matmul};
use crate::base::simd::{axpy, dot, vectorized};

/// Added to the denominators of both attentions.
pub const EPSILON: f32 = 1e-6;

/// Widths of one call.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Width d of v.
    pub width: usize,
    /// Heads; divides `width`.
    pub n_heads: usize,
    /// Features m of each head's q and k.
    pub n_features: usize,
}

impl Heads {
    /// Heads whose features are as wide as their values.
    pub fn new(width: usize, n_heads: usize) -> Self {
        Self { width, n_heads, n_features: width / n_heads }
    }

    /// Width of a head's values.
    pub fn head_width(self) -> usize {
        self.width / self.n_heads
    }

    /// Features of all heads: width of q and of k.
    pub fn features(self) -> usize {
        self.n_heads * self.n_features
    }

    /// Numbers in a row `[q | k | v]`.
    pub fn row_len(self) -> usize {
        2 * self.features() + self.width
    }

    /// Numbers in the state: S of each head, then z of each head.
    pub fn state_len(self) -> usize {
        self.n_features * self.width + self.features()
    }

    /// Sizes of the random features of rows `[q | k]`: both at once, as twice as many heads.
    pub fn favor(self) -> Favor {
        let (width, n_heads) = (2 * self.width, 2 * self.n_heads);
        Favor { width, n_heads, n_features: self.n_features }
    }

    fn split(self, state: &[f32]) -> (&[f32], &[f32]) {
        state.split_at(self.n_features * self.width)
    }

    fn split_mut(self, state: &mut [f32]) -> (&mut [f32], &mut [f32]) {
        state.split_at_mut(self.n_features * self.width)
    }

    /// q (0) or k (1) of one head.
    fn features_of(self, rows: &[f32], which: usize, head: usize) -> Mat<'_> {
        let first = which * self.features() + head * self.n_features;
        Mat::columns(rows, self.row_len(), first, self.n_features)
    }

    /// v of one head.
    fn values_of(self, rows: &[f32], head: usize) -> Mat<'_> {
        let first = 2 * self.features() + head * self.head_width();
        Mat::columns(rows, self.row_len(), first, self.head_width())
    }

    /// Where one head's S lies.
    fn square(self, head: usize) -> Range<usize> {
        let len = self.n_features * self.head_width();
        head * len..(head + 1) * len
    }
}

/// state = S and z of these rows; partial states of chunks add up to the cloud's.
pub fn linear_attention_state(qkv: &[f32], heads: Heads, state: &mut [f32]) {
    let (s, z) = heads.split_mut(state);
    for head in 0..heads.n_heads {
        let (k, v) = (heads.features_of(qkv, 1, head), heads.values_of(qkv, head));
        matmul(&mut s[heads.square(head)], heads.head_width(), k.t(), v, false);
    }
    z.fill(0.0);
    let features = heads.features();
    for row in qkv.chunks_exact(heads.row_len()) {
        z.iter_mut().zip(&row[features..2 * features]).for_each(|(z, k)| *z += k);
    }
}

/// folded = S·W per head, so that the outputs' projection a·W is [`linear_attention_queries`] ·
/// folded: one product for two. `weight` `[d, n_out]`, `folded` `[features, n_out]`.
pub fn linear_attention_fold(state: &[f32], heads: Heads, weight: &[f32], folded: &mut [f32]) {
    let (dh, m) = (heads.head_width(), heads.n_features);
    let (n_out, s) = (weight.len() / heads.width, heads.split(state).0);
    for head in 0..heads.n_heads {
        let s = Mat::new(&s[heads.square(head)], dh);
        let weight = Mat::new(&weight[head * dh * n_out..(head + 1) * dh * n_out], n_out);
        matmul(&mut folded[head * m * n_out..(head + 1) * m * n_out], n_out, s, weight, false);
    }
}

vectorized! {
    /// queries = q over its head's denominator, `[rows, features]`; `q` are the first of each
    /// `stride` numbers.
    pub fn linear_attention_queries(
        q: &'a [f32],
        stride: usize,
        state: &'a [f32],
        heads: Heads,
        queries: &'a mut [f32],
    ) {
        let (features, m) = (heads.features(), heads.n_features);
        let z = heads.split(state).1;
        for (q, queries) in q.chunks_exact(stride).zip(queries.chunks_exact_mut(features)) {
            let per_head = q[..features].chunks_exact(m).zip(z.chunks_exact(m));
            for (queries, (q, z)) in queries.chunks_exact_mut(m).zip(per_head) {
                let inverse = 1.0 / (dot(q, z) + EPSILON);
                queries.iter_mut().zip(q).for_each(|(out, q)| *out = q * inverse);
            }
        }
    }
}

vectorized! {
/// Attention outputs `out` `[rows, d]` and denominators `[rows, n_heads]` of these queries.
pub fn linear_attention_forward(
    rows: &'a [f32],
    state: &'a [f32],
    heads: Heads,
    out: &'a mut [f32],
    denominators: &'a mut [f32],
) {
    let (d, dh, m) = (heads.width, heads.head_width(), heads.n_features);
    let (s, z) = heads.split(state);
    for head in 0..heads.n_heads {
        let s = Mat::new(&s[heads.square(head)], dh);
        matmul(&mut out[head * dh..], d, heads.features_of(rows, 0, head), s, false);
    }
    let per_row = rows.chunks_exact(heads.row_len()).zip(out.chunks_exact_mut(d));
    for ((row, out), denominators) in per_row.zip(denominators.chunks_exact_mut(heads.n_heads)) {
        let per_head = row.chunks_exact(m).zip(z.chunks_exact(m));
        for ((out, (q, z)), denominator) in out.chunks_exact_mut(dh).zip(per_head).zip(denominators)
        {
            *denominator = dot(q, z) + EPSILON;
            let inverse = 1.0 / *denominator;
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }
}
}

vectorized! {
/// First half of the backward pass: from `d_out` to the queries' gradient and this chunk's share
/// of the state's gradient.
///
/// Writes `d_q` `[rows, features]` and `d_state` (same layout as the state); scales `d_out` by the
/// inverse denominators on the way. `out`, `denominators`: what the forward pass gave.
pub fn linear_attention_backward_query(
    rows: &'a [f32],
    state: &'a [f32],
    heads: Heads,
    out: &'a [f32],
    denominators: &'a [f32],
    d_out: &'a mut [f32],
    d_q: &'a mut [f32],
    d_state: &'a mut [f32],
) {
    let (d, dh, m, len) = (heads.width, heads.head_width(), heads.n_features, heads.row_len());
    let features = heads.features();
    let (s, z) = heads.split(state);
    let (d_s, d_z) = heads.split_mut(d_state);
    for (d_out, denominator) in d_out.chunks_exact_mut(dh).zip(denominators) {
        let inverse = 1.0 / denominator;
        d_out.iter_mut().for_each(|g| *g *= inverse);
    }
    for head in 0..heads.n_heads {
        let g = Mat::columns(d_out, d, head * dh, dh);
        let s = Mat::new(&s[heads.square(head)], dh);
        matmul(&mut d_q[head * m..], features, g, s.t(), false);
        let q = heads.features_of(rows, 0, head);
        matmul(&mut d_s[heads.square(head)], dh, q.t(), g, false);
    }
    d_z.fill(0.0);
    let outs = d_out.chunks_exact(d).zip(out.chunks_exact(d));
    for ((row, d_q), (d_out, out)) in
        rows.chunks_exact(len).zip(d_q.chunks_exact_mut(features)).zip(outs)
    {
        for head in 0..heads.n_heads {
            let (at, value) = (head * m..(head + 1) * m, head * dh..(head + 1) * dh);
            // The denominator's gradient, its own division already in d_out.
            let g = -dot(&d_out[value.clone()], &out[value]);
            axpy(&mut d_q[at.clone()], g, &z[at.clone()]);
            axpy(&mut d_z[at.clone()], g, &row[at]);
        }
    }
}
}

/// Second half, once all chunks' `d_state` are summed: the k and v columns of `d_rows`
/// `[rows, row_len]`.
pub fn linear_attention_backward_key(
    rows: &[f32],
    heads: Heads,
    d_state: &[f32],
    d_rows: &mut [f32],
) {
    let (dh, m, len) = (heads.head_width(), heads.n_features, heads.row_len());
    let features = heads.features();
    let (d_s, d_z) = heads.split(d_state);
    for row in d_rows.chunks_exact_mut(len) {
        row[features..2 * features].copy_from_slice(d_z);
    }
    for head in 0..heads.n_heads {
        let d_s = Mat::new(&d_s[heads.square(head)], dh);
        let (k, v) = (heads.features_of(rows, 1, head), heads.values_of(rows, head));
        matmul(&mut d_rows[features + head * m..], len, v, d_s.t(), true);
        matmul(&mut d_rows[2 * features + head * dh..], len, k, d_s, false);
    }
}

#[cfg(test)]
pub(crate) mod plain {
    use super::Heads;

    /// In f64, the sums written out. Rows `[q | k | v]`.
    pub fn linear_attention(rows: &[f64], heads: Heads) -> Vec<f64> {
        let (d, dh, m, len) = (heads.width, heads.head_width(), heads.n_features, heads.row_len());
        let n = rows.len() / len;
        let mut out = vec![0.0; n * d];
        for (i, head) in (0..n).flat_map(|i| (0..heads.n_heads).map(move |head| (i, head))) {
            let q = &rows[i * len + head * m..][..m];
            let mut total = f64::from(super::EPSILON);
            for j in 0..n {
                let k = &rows[j * len + heads.features() + head * m..][..m];
                let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                total += score;
                for c in head * dh..(head + 1) * dh {
                    out[i * d + c] += score * rows[j * len + 2 * heads.features() + c];
                }
            }
            out[i * d + head * dh..][..dh].iter_mut().for_each(|o| *o /= total);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;
    use crate::engine::ops::plain as linear_plain;

    #[test]
    fn linear_attention_and_its_gradients() {
        // As many features as values, more, and fewer.
        attention_and_its_gradients(Heads::new(12, 3));
        attention_and_its_gradients(Heads { width: 12, n_heads: 3, n_features: 5 });
        attention_and_its_gradients(Heads { width: 12, n_heads: 2, n_features: 4 });
    }

    fn attention_and_its_gradients(heads: Heads) {
        let (n, d, len, h) = (17, 12, heads.row_len(), heads.n_heads);
        let mut rows = numbers(n * len, 1);
        rows.chunks_exact_mut(len).for_each(|row| {
            row[..2 * heads.features()].iter_mut().for_each(|f| *f = f.abs() + 0.05);
        });
        let d_out = numbers(n * d, 2);
        let plain = |rows: &[f64]| plain::linear_attention(rows, heads);

        // Two chunks, so that partial states must add up.
        let chunks = [0..9, 9..n];
        let mut state = vec![0.0; heads.state_len()];
        let mut part = state.clone();
        for chunk in chunks.clone() {
            linear_attention_state(&rows[chunk.start * len..chunk.end * len], heads, &mut part);
            state.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        }
        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n * h]);
        linear_attention_forward(&rows, &state, heads, &mut out, &mut denominators);
        assert_close(&out, &plain(&f64s(&rows)), 1e-5);

        let (features, n_out) = (heads.features(), 5);
        let weight = numbers(d * n_out, 3);
        let (mut folded, mut queries) = (vec![0.0; features * n_out], vec![0.0; n * features]);
        linear_attention_fold(&state, heads, &weight, &mut folded);
        linear_attention_queries(&rows, len, &state, heads, &mut queries);
        let mut projected = vec![0.0; n * n_out];
        let product = Mat::new(&queries, features);
        matmul(&mut projected, n_out, product, Mat::new(&folded, n_out), false);
        let zero = vec![0.0; n_out];
        let want = linear_plain::linear(&plain(&f64s(&rows)), &f64s(&weight), &zero);
        assert_close(&projected, &want, 1e-5);

        let (mut d_rows, mut d_state) = (vec![0.0; rows.len()], vec![0.0; state.len()]);
        let mut d_q = vec![f32::NAN; n * features];
        let mut scaled = d_out.clone();
        for chunk in chunks {
            let wide = chunk.start * len..chunk.end * len;
            let narrow = chunk.start * d..chunk.end * d;
            linear_attention_backward_query(
                &rows[wide.clone()],
                &state,
                heads,
                &out[narrow.clone()],
                &denominators[chunk.start * h..chunk.end * h],
                &mut scaled[narrow],
                &mut d_q[chunk.start * features..chunk.end * features],
                &mut part,
            );
            d_state.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        }
        linear_attention_backward_key(&rows, heads, &d_state, &mut d_rows);
        set_columns(&mut d_rows, len, &d_q, features);
        assert_gradient(&d_rows, &rows, &d_out, plain);
    }

    #[test]
    fn favor_comes_closer_to_softmax_attention_with_more_features() {
        use crate::engine::lab::ops::softmax_attention::plain::softmax_attention;
        use crate::engine::ops::favor::favor_forward;
        let (n, d, n_heads) = (60, 16, 2);
        let mut qkv = numbers(n * 3 * d, 8);
        qkv.chunks_exact_mut(3 * d)
            .for_each(|row| row[..2 * d].iter_mut().for_each(|x| *x *= 0.55));
        let exact = softmax_attention(&f64s(&qkv), d, n_heads);
        // Mean squared error over seeds, relative to the outputs'.
        let error = |n_features: usize| -> f64 {
            let heads = Heads { width: d, n_heads, n_features };
            let (len, n_seeds) = (heads.row_len(), 12);
            let one = |seed: u64| -> f64 {
                let favor = heads.favor();
                let w = favor.projections(seed, 0);
                let mut rows = vec![0.0; n * len];
                favor_forward(favor, &w, &qkv, 3 * d, &mut rows, len);
                for (row, qkv) in rows.chunks_exact_mut(len).zip(qkv.chunks_exact(3 * d)) {
                    row[2 * heads.features()..].copy_from_slice(&qkv[2 * d..]);
                }
                let mut state = vec![0.0; heads.state_len()];
                linear_attention_state(&rows, heads, &mut state);
                let (mut out, mut totals) = (vec![0.0; n * d], vec![0.0; n * n_heads]);
                linear_attention_forward(&rows, &state, heads, &mut out, &mut totals);
                let squares = out.iter().zip(&exact).map(|(&a, e)| (f64::from(a) - e).powi(2));
                squares.sum::<f64>() / exact.iter().map(|e| e * e).sum::<f64>()
            };
            (0..n_seeds).map(one).sum::<f64>() / n_seeds as f64
        };
        // With weights of heavy tails, 8 times the features divide the error by about 3 (NumPy says
        // the same); the yardstick is attention without scores.
        let mut blind = f64s(&qkv);
        blind.chunks_exact_mut(3 * d).for_each(|row| row[..d].fill(0.0));
        let differences = softmax_attention(&blind, d, n_heads);
        let squares = differences.iter().zip(&exact).map(|(a, e)| (a - e).powi(2));
        let without = squares.sum::<f64>() / exact.iter().map(|e| e * e).sum::<f64>();
        let [few, some, many] = [16, 128, 1024].map(error);
        assert!(some < few / 2.0 && many < some / 2.0, "{few} -> {some} -> {many}");
        assert!(many < without / 4.0, "{many} against {without}");
    }
}
