//! Global softmax attention, exact: O(N²) time, O(N) memory (for comparison with linear cost).
//!
//! Rows hold `[q | k | v]`, each of width d; a_i = Σ_j softmax_j(q_i·k_j / √d_h) v_j, each head for
//! itself. Scores are made in blocks of keys, with a running maximum and sum (online softmax:
//! Milakov and Gimelshein 2018; in blocks, and the backward pass by recomputation: Dao et al. 2022).
//! The row's log-sum-exp is all that is kept of them.

use std::ops::Range;

use forecloud::base::simd::exp::exp;
use forecloud::base::simd::{dot, sum, vectorized};
use forecloud::engine::ops::linear::{Mat, matmul};
use forecloud::engine::ops::linear_attention::Heads;

/// Rows of one block of scores.
pub const BLOCK: usize = 256;

/// Numbers of scratch that calls on up to [`BLOCK`] rows take.
pub const SCRATCH_LEN: usize = 2 * BLOCK * BLOCK + 2 * BLOCK;

/// Blocks of the rows of `qkv`, in order.
fn blocks(qkv: &[f32], d: usize) -> impl Iterator<Item = Range<usize>> {
    let n = qkv.len() / (3 * d);
    (0..n).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(n))
}

/// One head's part of q (0), k (1) or v (2) of some rows.
fn part<'a>(
    qkv: &'a [f32],
    rows: &Range<usize>,
    heads: Heads,
    which: usize,
    head: usize,
) -> Mat<'a> {
    let (d, dh) = (heads.width, heads.head_width());
    let rows = &qkv[rows.start * 3 * d..rows.end * 3 * d];
    Mat::columns(rows, 3 * d, which * d + head * dh, dh)
}

/// The largest of `x`, by lanes: a single running maximum would be one number at a time.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = x.chunks_exact(16);
    let tail = chunks.remainder().iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.iter().fold(tail, |max, &lane| max.max(lane))
}

vectorized! {
/// Attention outputs `out` `[rows, d]` of the queries `rows` (up to [`BLOCK`]), and the log-sum-exp
/// `[rows, n_heads]` of each one's scores; `qkv` holds all rows.
pub fn softmax_attention_forward(
    rows: Range<usize>,
    qkv: &'a [f32],
    heads: Heads,
    out: &'a mut [f32],
    log_sums: &'a mut [f32],
    scratch: &'a mut [f32],
) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let scale = 1.0 / (dh as f32).sqrt();
    let (scores, rest) = scratch.split_at_mut(BLOCK * BLOCK);
    let (maxima, rest) = rest.split_at_mut(BLOCK);
    let sums = &mut rest[..BLOCK];
    out.fill(0.0);
    for head in 0..n_heads {
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        let q = part(qkv, &rows, heads, 0, head);
        for keys in blocks(qkv, d) {
            let scores = &mut scores[..rows.len() * keys.len()];
            matmul(scores, keys.len(), q, part(qkv, &keys, heads, 1, head).t(), false);
            let running = maxima.iter_mut().zip(sums.iter_mut());
            let outs = out.chunks_exact_mut(d).zip(scores.chunks_exact_mut(keys.len()));
            for ((out, scores), (max, total)) in outs.zip(running) {
                let highest = max.max(scale * largest(scores));
                let shrink = exp(*max - highest);
                scores.iter_mut().for_each(|s| *s = exp(*s * scale - highest));
                *total = *total * shrink + sum(scores);
                *max = highest;
                out[head * dh..(head + 1) * dh].iter_mut().for_each(|o| *o *= shrink);
            }
            let weights = Mat::new(scores, keys.len());
            matmul(&mut out[head * dh..], d, weights, part(qkv, &keys, heads, 2, head), true);
        }
        let running = maxima.iter().zip(sums.iter());
        let rows = out.chunks_exact_mut(d).zip(log_sums.chunks_exact_mut(n_heads));
        for ((out, log_sums), (max, total)) in rows.zip(running) {
            let inverse = 1.0 / total;
            out[head * dh..(head + 1) * dh].iter_mut().for_each(|o| *o *= inverse);
            log_sums[head] = max + total.ln();
        }
    }
}
}

/// Scores' gradients of a block of queries and keys, and their weights (both `[queries, keys]`).
///
/// P = exp(q·k/√d_h - log-sum-exp), dS = P (d_out·v - δ) / √d_h, with δ = d_out·out of each query.
#[inline(always)]
fn block_gradients(
    queries: Mat,
    keys: Mat,
    d_outs: Mat,
    values: Mat,
    log_sums: impl Iterator<Item = f32>,
    deltas: impl Iterator<Item = f32>,
    weights: &mut [f32],
    d_scores: &mut [f32],
) {
    let n_keys = keys.rows;
    let scale = 1.0 / (keys.cols as f32).sqrt();
    matmul(weights, n_keys, queries, keys.t(), false);
    matmul(d_scores, n_keys, d_outs, values.t(), false);
    let rows = weights.chunks_exact_mut(n_keys).zip(d_scores.chunks_exact_mut(n_keys));
    for ((weights, d_scores), (log_sum, delta)) in rows.zip(log_sums.zip(deltas)) {
        for (w, ds) in weights.iter_mut().zip(d_scores) {
            *w = exp(*w * scale - log_sum);
            *ds = *w * (*ds - delta) * scale;
        }
    }
}

vectorized! {
/// δ = d_out·out of each row and head, `[rows, n_heads]`.
pub fn softmax_attention_deltas(heads: Heads, out: &'a [f32], d_out: &'a [f32], deltas: &'a mut [f32]) {
    let dh = heads.head_width();
    let parts = out.chunks_exact(dh).zip(d_out.chunks_exact(dh));
    deltas.iter_mut().zip(parts).for_each(|(delta, (out, d_out))| *delta = dot(out, d_out));
}
}

/// What the backward passes read of all rows.
#[derive(Clone, Copy)]
pub struct SoftmaxSaved<'a> {
    /// `[q | k | v]`.
    pub qkv: &'a [f32],
    /// As the forward pass left them, `[n, n_heads]`.
    pub log_sums: &'a [f32],
    /// Gradient of the outputs, `[n, d]`.
    pub d_out: &'a [f32],
    /// From [`softmax_attention_deltas`], `[n, n_heads]`.
    pub deltas: &'a [f32],
}

vectorized! {
/// Backward pass over queries: `d_q` `[rows, d]` (rows `rows`, up to [`BLOCK`]).
///
/// `saved.d_out` and `saved.deltas` hold the rows of this chunk alone.
pub fn softmax_attention_backward_query(
    rows: Range<usize>,
    saved: SoftmaxSaved<'a>,
    heads: Heads,
    d_q: &'a mut [f32],
    scratch: &'a mut [f32],
) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let (weights, d_scores) = scratch.split_at_mut(BLOCK * BLOCK);
    for head in 0..n_heads {
        for (index, keys) in blocks(saved.qkv, d).enumerate() {
            let size = rows.len() * keys.len();
            let k = part(saved.qkv, &keys, heads, 1, head);
            let log_sums = &saved.log_sums[rows.start * n_heads..rows.end * n_heads];
            block_gradients(
                part(saved.qkv, &rows, heads, 0, head),
                k,
                Mat::columns(saved.d_out, d, head * dh, dh),
                part(saved.qkv, &keys, heads, 2, head),
                log_sums.iter().skip(head).step_by(n_heads).copied(),
                saved.deltas.iter().skip(head).step_by(n_heads).copied(),
                &mut weights[..size],
                &mut d_scores[..size],
            );
            let d_scores = Mat::new(&d_scores[..size], keys.len());
            matmul(&mut d_q[head * dh..], d, d_scores, k, index > 0);
        }
    }
}
}

vectorized! {
/// Backward pass over keys: the k and v columns of `d_qkv` `[rows, 3d]` (rows `keys`, up to
/// [`BLOCK`]). Every block of keys gathers from all blocks of queries, in order.
pub fn softmax_attention_backward_key(
    keys: Range<usize>,
    saved: SoftmaxSaved<'a>,
    heads: Heads,
    d_qkv: &'a mut [f32],
    scratch: &'a mut [f32],
) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let (weights, d_scores) = scratch.split_at_mut(BLOCK * BLOCK);
    for head in 0..n_heads {
        for (index, rows) in blocks(saved.qkv, d).enumerate() {
            let size = rows.len() * keys.len();
            let per_row = rows.start * n_heads..rows.end * n_heads;
            let q = part(saved.qkv, &rows, heads, 0, head);
            let d_out = Mat::columns(&saved.d_out[rows.start * d..rows.end * d], d, head * dh, dh);
            block_gradients(
                q,
                part(saved.qkv, &keys, heads, 1, head),
                d_out,
                part(saved.qkv, &keys, heads, 2, head),
                saved.log_sums[per_row.clone()].iter().skip(head).step_by(n_heads).copied(),
                saved.deltas[per_row].iter().skip(head).step_by(n_heads).copied(),
                &mut weights[..size],
                &mut d_scores[..size],
            );
            let d_scores = Mat::new(&d_scores[..size], keys.len());
            let weights = Mat::new(&weights[..size], keys.len());
            matmul(&mut d_qkv[d + head * dh..], 3 * d, d_scores.t(), q, index > 0);
            matmul(&mut d_qkv[2 * d + head * dh..], 3 * d, weights.t(), d_out, index > 0);
        }
    }
}
}

#[cfg(test)]
pub(crate) mod plain {
    /// Softmax attention in f64, the scores written out. Rows `[q | k | v]`.
    pub fn softmax_attention(qkv: &[f64], d: usize, n_heads: usize) -> Vec<f64> {
        let (n, dh) = (qkv.len() / (3 * d), d / n_heads);
        let mut out = vec![0.0; n * d];
        for i in 0..n {
            for at in (0..d).step_by(dh) {
                let score = |j: usize| -> f64 {
                    let (q, k) = (&qkv[i * 3 * d + at..][..dh], &qkv[j * 3 * d + d + at..][..dh]);
                    q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (dh as f64).sqrt()
                };
                let highest = (0..n).map(score).fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = (0..n).map(|j| (score(j) - highest).exp()).sum();
                for j in 0..n {
                    let weight = (score(j) - highest).exp() / total;
                    for c in 0..dh {
                        out[i * d + at + c] += weight * qkv[j * 3 * d + 2 * d + at + c];
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::engine::ops::check::*;

    /// Forward and backward on chunks of 256 rows.
    fn run(qkv: &[f32], d_out: &[f32], heads: Heads) -> (Vec<f32>, Vec<f32>) {
        let (d, n_heads) = (heads.width, heads.n_heads);
        let n = qkv.len() / (3 * d);
        let mut scratch = vec![f32::NAN; SCRATCH_LEN];
        let (mut out, mut log_sums) = (vec![f32::NAN; n * d], vec![0.0; n * n_heads]);
        let (mut deltas, mut d_qkv) = (log_sums.clone(), vec![f32::NAN; qkv.len()]);
        let mut d_q = vec![f32::NAN; n * d];
        for rows in blocks(qkv, d) {
            let (narrow, thin) =
                (rows.start * d..rows.end * d, rows.start * n_heads..rows.end * n_heads);
            let (out, log_sums) = (&mut out[narrow.clone()], &mut log_sums[..]);
            softmax_attention_forward(
                rows.clone(),
                qkv,
                heads,
                out,
                &mut log_sums[thin.clone()],
                &mut scratch,
            );
            let d_out = &d_out[narrow.clone()];
            softmax_attention_deltas(heads, out, d_out, &mut deltas[thin.clone()]);
            let saved = SoftmaxSaved { qkv, log_sums, d_out, deltas: &deltas[thin] };
            softmax_attention_backward_query(rows, saved, heads, &mut d_q[narrow], &mut scratch);
        }
        for keys in blocks(qkv, d) {
            let wide = keys.start * 3 * d..keys.end * 3 * d;
            let saved = SoftmaxSaved { qkv, log_sums: &log_sums, d_out, deltas: &deltas };
            softmax_attention_backward_key(keys, saved, heads, &mut d_qkv[wide], &mut scratch);
        }
        set_columns(&mut d_qkv, 3 * d, &d_q, d);
        (out, d_qkv)
    }

    #[test]
    fn softmax_attention_and_its_gradients() {
        let heads = Heads::new(12, 3);
        let (n, d) = (23, 12);
        let (qkv, d_out) = (numbers(n * 3 * d, 1), numbers(n * d, 2));
        let (out, d_qkv) = run(&qkv, &d_out, heads);
        let plain = |qkv: &[f64]| plain::softmax_attention(qkv, d, heads.n_heads);
        assert_close(&out, &plain(&f64s(&qkv)), 1e-5);
        assert_gradient(&d_qkv, &qkv, &d_out, plain);
    }

    #[test]
    fn blocks_of_keys_and_large_scores_change_nothing() {
        let heads = Heads::new(4, 2);
        let (n, d) = (2 * BLOCK + 45, 4);
        let mut qkv = numbers(n * 3 * d, 3);
        // Scores of hundreds: their exponentials alone would leave f32.
        qkv.chunks_exact_mut(3 * d).step_by(7).for_each(|row| {
            row[..2 * d].iter_mut().for_each(|x| *x *= 12.0);
        });
        let d_out = numbers(n * d, 4);
        let (out, d_qkv) = run(&qkv, &d_out, heads);
        assert_close(&out, &plain::softmax_attention(&f64s(&qkv), d, 2), 2e-5);
        // Some elements by differences; all would take minutes.
        let objective = |x: &[f64]| -> f64 {
            let out = plain::softmax_attention(x, d, 2);
            out.iter().zip(&d_out).map(|(y, &g)| y * f64::from(g)).sum()
        };
        let scale = d_qkv.iter().fold(0f32, |m, g| m.max(g.abs()));
        for at in [5, 3 * d * 300 + 1, 3 * d * 300 + 9, 3 * d * (n - 1) + 6] {
            let mut x = f64s(&qkv);
            x[at] += 1e-5;
            let above = objective(&x);
            x[at] -= 2e-5;
            let numeric = (above - objective(&x)) / 2e-5;
            let error = (f64::from(d_qkv[at]) - numeric).abs();
            assert!(error < 2e-5 * f64::from(scale), "{at}: {} against {numeric}", d_qkv[at]);
        }
    }
}
