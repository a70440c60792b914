//! Global attention of linear cost: the feature map φ applied before, several heads, normalised
//! (Katharopoulos et al. 2020).
//!
//! Rows hold `[q | k | v]`, each of width d. Per head the whole cloud is summed up in a state of
//! size d_h·(d_h + 1): S = Σ_j k_j v_jᵀ and z = Σ_j k_j; then a_i = (q_iᵀ S) / (q_i·z + ε).

use super::linear::{Mat, matmul};
use super::simd::{axpy, dot, vectorized};

/// Added to the denominators of both attentions.
pub const EPSILON: f32 = 1e-6;

/// Widths of one call.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Width of q, of k and of v.
    pub width: usize,
    /// Heads; divides `width`.
    pub n_heads: usize,
}

impl Heads {
    /// Width of a head.
    pub fn head_width(self) -> usize {
        self.width / self.n_heads
    }

    /// Numbers in the state: S of each head, then z of each head.
    pub fn state_len(self) -> usize {
        self.width * self.head_width() + self.width
    }

    fn split(self, state: &[f32]) -> (&[f32], &[f32]) {
        state.split_at(self.width * self.head_width())
    }
}

/// state = S and z of these rows; partial states of chunks add up to the cloud's.
pub fn linear_attention_state(qkv: &[f32], heads: Heads, state: &mut [f32]) {
    let (d, dh) = (heads.width, heads.head_width());
    let (s, z) = state.split_at_mut(d * dh);
    for head in 0..heads.n_heads {
        let k = Mat::columns(qkv, 3 * d, d + head * dh, dh);
        let v = Mat::columns(qkv, 3 * d, 2 * d + head * dh, dh);
        matmul(&mut s[head * dh * dh..(head + 1) * dh * dh], dh, k.t(), v, false);
    }
    z.fill(0.0);
    for row in qkv.chunks_exact(3 * d) {
        z.iter_mut().zip(&row[d..2 * d]).for_each(|(z, k)| *z += k);
    }
}

/// folded = S·W per head, so that the outputs' projection a·W is [`linear_attention_queries`] ·
/// folded: one product for two. `weight` and `folded` `[d, n_out]`.
pub fn linear_attention_fold(state: &[f32], heads: Heads, weight: &[f32], folded: &mut [f32]) {
    let (d, dh) = (heads.width, heads.head_width());
    let (n_out, s) = (weight.len() / d, heads.split(state).0);
    for head in 0..heads.n_heads {
        let rows = head * dh * n_out..(head + 1) * dh * n_out;
        let s = Mat::new(&s[head * dh * dh..(head + 1) * dh * dh], dh);
        matmul(&mut folded[rows.clone()], n_out, s, Mat::new(&weight[rows], n_out), false);
    }
}

vectorized! {
    /// queries = q over its head's denominator, `[rows, d]`; `q` are the first d of each `stride`
    /// numbers.
    pub fn linear_attention_queries(
        q: &'a [f32],
        stride: usize,
        state: &'a [f32],
        heads: Heads,
        queries: &'a mut [f32],
    ) {
        let (d, dh) = (heads.width, heads.head_width());
        let z = heads.split(state).1;
        for (q, queries) in q.chunks_exact(stride).zip(queries.chunks_exact_mut(d)) {
            let per_head = q[..d].chunks_exact(dh).zip(z.chunks_exact(dh));
            for (queries, (q, z)) in queries.chunks_exact_mut(dh).zip(per_head) {
                let inverse = 1.0 / (dot(q, z) + EPSILON);
                queries.iter_mut().zip(q).for_each(|(out, q)| *out = q * inverse);
            }
        }
    }
}

vectorized! {
    /// Attention outputs `out` `[rows, d]` and denominators `[rows, n_heads]` of these queries.
    pub fn linear_attention_forward(
        qkv: &'a [f32],
        state: &'a [f32],
        heads: Heads,
        out: &'a mut [f32],
        denominators: &'a mut [f32],
    ) {
        let (d, dh) = (heads.width, heads.head_width());
        let (s, z) = heads.split(state);
        for head in 0..heads.n_heads {
            let q = Mat::columns(qkv, 3 * d, head * dh, dh);
            let s = Mat::new(&s[head * dh * dh..(head + 1) * dh * dh], dh);
            matmul(&mut out[head * dh..], d, q, s, false);
        }
        let rows = qkv.chunks_exact(3 * d).zip(out.chunks_exact_mut(d));
        for ((qkv, out), denominators) in rows.zip(denominators.chunks_exact_mut(heads.n_heads)) {
            let per_head = qkv[..d].chunks_exact(dh).zip(z.chunks_exact(dh));
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
    /// Writes the q columns of `d_qkv` and `d_state` (same layout as the state); scales `d_out` by
    /// the inverse denominators on the way. `out`, `denominators`: what the forward pass gave.
    pub fn linear_attention_backward_query(
        qkv: &'a [f32],
        state: &'a [f32],
        heads: Heads,
        out: &'a [f32],
        denominators: &'a [f32],
        d_out: &'a mut [f32],
        d_qkv: &'a mut [f32],
        d_state: &'a mut [f32],
    ) {
        let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
        let (s, z) = heads.split(state);
        let (d_s, d_z) = d_state.split_at_mut(d * dh);
        for (d_out, denominators) in d_out.chunks_exact_mut(d).zip(denominators.chunks_exact(n_heads)) {
            for (d_out, denominator) in d_out.chunks_exact_mut(dh).zip(denominators) {
                let inverse = 1.0 / denominator;
                d_out.iter_mut().for_each(|g| *g *= inverse);
            }
        }
        for head in 0..n_heads {
            let (at, square) = (head * dh, head * dh * dh..(head + 1) * dh * dh);
            let g = Mat::columns(d_out, d, at, dh);
            matmul(&mut d_qkv[at..], 3 * d, g, Mat::new(&s[square.clone()], dh).t(), false);
            matmul(&mut d_s[square], dh, Mat::columns(qkv, 3 * d, at, dh).t(), g, false);
        }
        d_z.fill(0.0);
        for (row, (d_out, out)) in d_out.chunks_exact(d).zip(out.chunks_exact(d)).enumerate() {
            let (q, dq) = (&qkv[row * 3 * d..][..d], &mut d_qkv[row * 3 * d..][..d]);
            for at in (0..d).step_by(dh) {
                let head = at..at + dh;
                // The denominator's gradient, its own division already in d_out.
                let g = -dot(&d_out[head.clone()], &out[head.clone()]);
                axpy(&mut dq[head.clone()], g, &z[head.clone()]);
                axpy(&mut d_z[head.clone()], g, &q[head]);
            }
        }
    }
}

/// Second half, once all chunks' `d_state` are summed: the k and v columns of `d_qkv`.
pub fn linear_attention_backward_key(
    qkv: &[f32],
    heads: Heads,
    d_state: &[f32],
    d_qkv: &mut [f32],
) {
    let (d, dh) = (heads.width, heads.head_width());
    let (d_s, d_z) = heads.split(d_state);
    for row in d_qkv.chunks_exact_mut(3 * d) {
        row[d..2 * d].copy_from_slice(d_z);
    }
    for head in 0..heads.n_heads {
        let at = head * dh;
        let d_s = Mat::new(&d_s[head * dh * dh..(head + 1) * dh * dh], dh);
        let k = Mat::columns(qkv, 3 * d, d + at, dh);
        let v = Mat::columns(qkv, 3 * d, 2 * d + at, dh);
        matmul(&mut d_qkv[d + at..], 3 * d, v, d_s.t(), true);
        matmul(&mut d_qkv[2 * d + at..], 3 * d, k, d_s, false);
    }
}

#[cfg(test)]
pub(crate) mod plain {
    /// Normalised linear attention in f64, the sums written out. Rows `[q | k | v]`.
    pub fn linear_attention(qkv: &[f64], d: usize, n_heads: usize) -> Vec<f64> {
        let (n, dh) = (qkv.len() / (3 * d), d / n_heads);
        let mut out = vec![0.0; n * d];
        for i in 0..n {
            for head in 0..n_heads {
                let at = head * dh;
                let q = &qkv[i * 3 * d + at..][..dh];
                let (mut total, mut numerator) = (super::EPSILON as f64, vec![0.0; dh]);
                for j in 0..n {
                    let k = &qkv[j * 3 * d + d + at..][..dh];
                    let v = &qkv[j * 3 * d + 2 * d + at..][..dh];
                    let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                    total += score;
                    numerator.iter_mut().zip(v).for_each(|(a, v)| *a += score * v);
                }
                for (c, a) in numerator.iter().enumerate() {
                    out[i * d + at + c] = a / total;
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::*;
    use crate::ops::linear::plain as linear_plain;
    use crate::ops::relu::relu_forward;

    #[test]
    fn linear_attention_and_its_gradients() {
        let heads = Heads { width: 12, n_heads: 3 };
        let (n, d) = (17, heads.width);
        let mut qkv = numbers(n * 3 * d, 1);
        qkv.chunks_exact_mut(3 * d).for_each(|row| {
            relu_forward(&mut row[..2 * d]);
            // A head whose query is 0 everywhere has a kink there, no gradient to compare with.
            row[..d].iter_mut().for_each(|q| *q += 0.05);
        });
        let d_out = numbers(n * d, 2);
        let plain = |qkv: &[f64]| plain::linear_attention(qkv, d, heads.n_heads);

        // Two chunks, so that partial states must add up.
        let chunks = [0..9, 9..n];
        let mut state = vec![0.0; heads.state_len()];
        let mut part = state.clone();
        for rows in chunks.clone() {
            linear_attention_state(&qkv[rows.start * 3 * d..rows.end * 3 * d], heads, &mut part);
            state.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        }
        let (mut out, mut denominators) = (vec![0.0; n * d], vec![0.0; n * heads.n_heads]);
        linear_attention_forward(&qkv, &state, heads, &mut out, &mut denominators);
        assert_close(&out, &plain(&f64s(&qkv)), 1e-5);

        let (weight, n_out) = (numbers(d * 5, 3), 5);
        let (mut folded, mut queries) = (vec![0.0; d * n_out], vec![0.0; n * d]);
        linear_attention_fold(&state, heads, &weight, &mut folded);
        linear_attention_queries(&qkv, 3 * d, &state, heads, &mut queries);
        let mut projected = vec![0.0; n * n_out];
        matmul(&mut projected, n_out, Mat::new(&queries, d), Mat::new(&folded, n_out), false);
        let zero = vec![0.0; n_out];
        let want = linear_plain::linear(&plain(&f64s(&qkv)), &f64s(&weight), &zero);
        assert_close(&projected, &want, 1e-5);

        let mut d_qkv = vec![0.0; qkv.len()];
        let mut d_state = vec![0.0; state.len()];
        let mut scaled = d_out.clone();
        for rows in chunks {
            let (wide, narrow) =
                (rows.start * 3 * d..rows.end * 3 * d, rows.start * d..rows.end * d);
            linear_attention_backward_query(
                &qkv[wide.clone()],
                &state,
                heads,
                &out[narrow.clone()],
                &denominators[rows.start * heads.n_heads..rows.end * heads.n_heads],
                &mut scaled[narrow],
                &mut d_qkv[wide],
                &mut part,
            );
            d_state.iter_mut().zip(&part).for_each(|(s, p)| *s += p);
        }
        linear_attention_backward_key(&qkv, heads, &d_state, &mut d_qkv);
        assert_gradient(&d_qkv, &qkv, &d_out, plain);
    }
}
