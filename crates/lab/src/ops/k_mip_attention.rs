//! Attention to the k keys of largest inner product, exact: O(N²) time for the scores alone, O(N k)
//! memory (k-MIP attention, Graph Transformer 003).
//!
//! Rows hold `[q | k | v]`, each of width d; head by head a_i = Σ_j softmax_j(q_i·k_j / √d_h) v_j over the
//! k keys j of largest q_i·k_j, ties to the lower j. Scores are made in blocks; what is kept of a block are
//! the largest of 16 comb-like sets of keys (`comb_maxima`). The k-th largest of those
//! bounds the k-th largest score from below, and the few combs that reach it are scored again; it is found
//! among those that reach the k-th largest of larger combs' maxima.

use std::ops::Range;

use rayon::prelude::*;

use super::comb_maxima::{CombMaxima, LANES};
use forecloud::base::simd::exp::exp;
use forecloud::base::simd::{axpy, dot, prefetch, vectorized};
use forecloud::engine::ops::linear::Mat;
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::ops::rows::SharedRows;

/// Rows of a call, and keys of a block of scores.
pub const BLOCK: usize = 256;
/// In place of a key where there are fewer than k.
pub const NO_KEY: u32 = u32::MAX;

/// Maxima of combs, of which one is kept for each lane of vectors.
const GROUP: usize = 8 * LANES;

/// Memory that each thread keeps.
#[derive(Default)]
struct Search {
    scores: CombMaxima,
    /// Largest score of each query and comb of keys, `[rows, combs]`.
    maxima: Vec<f32>,
    /// One query's largest of larger combs.
    larger: Vec<f32>,
    /// Combs that may reach the threshold, with their maxima.
    reaching: Vec<(f32, u32)>,
    /// Keys that may be chosen, with their scores.
    candidates: Vec<(f32, u32)>,
}

thread_local! {
    static SEARCH: std::cell::RefCell<Search> = std::cell::RefCell::default();
}

/// Combs of `n` keys in blocks of `block`.
fn n_combs(n: usize, block: usize) -> usize {
    n / block * LANES + (n % block).min(LANES)
}

/// Keys of a comb, of `n`.
fn keys_of(comb: usize, n: usize) -> impl Iterator<Item = usize> {
    let first = comb / LANES * BLOCK;
    (first + comb % LANES..(first + BLOCK).min(n)).step_by(LANES)
}

vectorized! {
/// The largest number of each lane, of as many as `maxima` has.
fn maxima(numbers: &'a [f32], maxima: &'a mut [f32]) {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let whole = numbers.chunks_exact(LANES);
    let tail = whole.remainder();
    for numbers in whole {
        for lane in 0..LANES {
            let number = numbers[lane];
            largest[lane] = if number > largest[lane] { number } else { largest[lane] };
        }
    }
    for (largest, &number) in largest.iter_mut().zip(tail) {
        *largest = largest.max(number);
    }
    maxima.copy_from_slice(&largest[..maxima.len()]);
}
}

vectorized! {
/// Combs whose maximum is not below `floor`.
fn reach(maxima: &'a [f32], floor: f32, reaching: &'a mut Vec<(f32, u32)>) {
    reaching.clear();
    for (index, maxima) in maxima.chunks(LANES).enumerate() {
        // Few do: a look at all lanes at once.
        if maxima.iter().fold(false, |any, &max| any | (max >= floor)) {
            let combs = (index * LANES) as u32..;
            reaching.extend(maxima.iter().copied().zip(combs).filter(|max| max.0 >= floor));
        }
    }
}
}

vectorized! {
/// Scores the keys of the combs whose maximum is not below `threshold`, and keeps those that are not
/// below `floor`.
fn score_again(
    qkv: &'a [f32],
    heads: Heads,
    head: usize,
    row: usize,
    combs: &'a [(f32, u32)],
    threshold: f32,
    floor: f32,
    candidates: &'a mut Vec<(f32, u32)>,
) {
    let n = qkv.len() / (3 * heads.width);
    let q = part(qkv, row, heads, 0, head);
    candidates.clear();
    for (at, &(_, comb)) in combs.iter().enumerate().filter(|(_, comb)| comb.0 >= threshold) {
        // Keys of a comb lie far apart: those of the next one are on their way meanwhile.
        for key in combs.get(at + 1).into_iter().flat_map(|next| keys_of(next.1 as usize, n)) {
            prefetch(part(qkv, key, heads, 1, head));
        }
        for key in keys_of(comb as usize, n) {
            let score = dot(q, part(qkv, key, heads, 1, head));
            if score >= floor {
                candidates.push((score, key as u32));
            }
        }
    }
}
}

impl Search {
    /// A number that at least k of a query's maxima reach: the k-th largest of larger combs.
    fn least(larger: &mut Vec<f32>, of: &[f32], k: usize) -> f32 {
        larger.clear();
        larger.resize(n_combs(of.len(), GROUP), 0.0);
        for (of, larger) in of.chunks(GROUP).zip(larger.chunks_mut(LANES)) {
            maxima(of, larger);
        }
        if k >= larger.len() {
            return f32::NEG_INFINITY;
        }
        *larger.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    }

    /// The `k` keys of largest score of a query into `candidates`, by key. The k-th largest maximum is no
    /// more than the k-th largest score, so all of them lie in combs that reach it.
    fn choose(&mut self, qkv: &[f32], heads: Heads, head: usize, row: usize, k: usize, at: usize) {
        let n_combs = n_combs(qkv.len() / (3 * heads.width), BLOCK);
        let maxima = &self.maxima[at * n_combs..(at + 1) * n_combs];
        let mut threshold = f32::NEG_INFINITY;
        reach(maxima, Self::least(&mut self.larger, maxima, k), &mut self.reaching);
        if k < self.reaching.len() {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0);
            threshold = self.reaching.select_nth_unstable_by(k - 1, order).1.0;
        }
        // A product of matrices rounds otherwise than a sum of its own.
        let floor = threshold - 1e-4 * threshold.abs();
        let (combs, candidates) = (&self.reaching, &mut self.candidates);
        score_again(qkv, heads, head, row, combs, threshold, floor, candidates);
        if candidates.len() < k {
            let all = f32::NEG_INFINITY;
            score_again(qkv, heads, head, row, combs, threshold, all, candidates);
        }
        if candidates.len() > k {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            candidates.select_nth_unstable_by(k - 1, order);
            candidates.truncate(k);
        }
        candidates.sort_unstable_by_key(|candidate| candidate.1);
    }
}

/// One head's part of q (0), k (1) or v (2) of a row.
fn part(qkv: &[f32], row: usize, heads: Heads, which: usize, head: usize) -> &[f32] {
    let (d, dh) = (heads.width, heads.head_width());
    &qkv[(row * 3 + which) * d + head * dh..][..dh]
}

/// The same of a block of rows.
fn block(qkv: &[f32], rows: Range<usize>, heads: Heads, which: usize, head: usize) -> Mat<'_> {
    let (d, dh) = (heads.width, heads.head_width());
    Mat::columns(&qkv[rows.start * 3 * d..rows.end * 3 * d], 3 * d, which * d + head * dh, dh)
}

/// Attention outputs `out` `[rows, d]` of the queries `rows` (up to [`BLOCK`]); of each head the log-sum-exp
/// `[rows, n_heads]` of its chosen scores and the keys `chosen` `[rows, n_heads, k]`, in ascending order, then
/// [`NO_KEY`]. `qkv` holds all rows.
pub fn k_mip_attention_forward(
    rows: Range<usize>,
    qkv: &[f32],
    heads: Heads,
    out: &mut [f32],
    log_sums: &mut [f32],
    chosen: &mut [u32],
) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let (n, k) = (qkv.len() / (3 * d), chosen.len() / (rows.len() * n_heads).max(1));
    let scale = 1.0 / (dh as f32).sqrt();
    out.fill(0.0);
    let n_combs = n_combs(n, BLOCK);
    SEARCH.with_borrow_mut(|search| {
        search.maxima.resize(rows.len() * n_combs, 0.0);
        for head in 0..n_heads {
            search.scores.set_queries(block(qkv, rows.clone(), heads, 0, head));
            for (index, first) in (0..n).step_by(BLOCK).enumerate() {
                let keys = block(qkv, first..(first + BLOCK).min(n), heads, 1, head);
                search.scores.of_keys(keys, &mut search.maxima, n_combs, index * LANES);
            }
            for (row, i) in rows.clone().enumerate() {
                search.choose(qkv, heads, head, i, k, row);
                let best = &search.candidates;
                best.iter().for_each(|best| prefetch(part(qkv, best.1 as usize, heads, 2, head)));
                let at = row * n_heads + head;
                let highest = best.iter().fold(f32::MIN, |max, best| max.max(scale * best.0));
                let out = &mut out[row * d + head * dh..][..dh];
                let mut total = 0.0;
                for &(score, key) in best {
                    let weight = exp(scale * score - highest);
                    total += weight;
                    axpy(out, weight, part(qkv, key as usize, heads, 2, head));
                }
                out.iter_mut().for_each(|o| *o /= total);
                log_sums[at] = highest + total.ln();
                let chosen = &mut chosen[at * k..(at + 1) * k];
                chosen.fill(NO_KEY);
                chosen.iter_mut().zip(best).for_each(|(to, best)| *to = best.1);
            }
        }
    });
}

/// What the forward pass was given and left of all rows.
#[derive(Clone, Copy)]
pub struct KMipSaved<'a> {
    /// `[q | k | v]`.
    pub qkv: &'a [f32],
    /// Outputs, `[n, d]`.
    pub out: &'a [f32],
    /// `[n, n_heads]`.
    pub log_sums: &'a [f32],
    /// `[n, n_heads, k]`.
    pub chosen: &'a [u32],
}

/// Intermediate results of the backward pass, in memory that is kept.
#[derive(Debug, Default)]
pub struct KMipScratch {
    /// Weight and score's gradient of each query, head and chosen key.
    weights: Vec<[f32; 2]>,
    /// Where each key's queries begin, head by head, and the places of `weights` that chose it.
    starts: Vec<u32>,
    chose: Vec<u32>,
}

impl KMipScratch {
    /// Sorts the places by head and key; in a key's list they ascend.
    fn turn(&mut self, n: usize, n_heads: usize, chosen: &[u32]) {
        let k = chosen.len() / (n * n_heads).max(1);
        let list = |place: usize| place / k % n_heads * n + chosen[place] as usize;
        let places = || (0..chosen.len()).filter(|&place| chosen[place] != NO_KEY);
        self.starts.clear();
        self.starts.resize(n_heads * n + 2, 0);
        places().for_each(|place| self.starts[list(place) + 2] += 1);
        (2..self.starts.len()).for_each(|i| self.starts[i] += self.starts[i - 1]);
        self.chose.resize(chosen.len(), 0);
        for place in places() {
            let at = &mut self.starts[list(place) + 1];
            self.chose[*at as usize] = place as u32;
            *at += 1;
        }
    }
}

/// Gradients `d_rows` `[n, 3d]` of all rows from those of the outputs, `[n, d]`. Which keys are chosen has no
/// gradient.
pub fn k_mip_attention_backward(
    saved: KMipSaved<'_>,
    heads: Heads,
    d_out: &[f32],
    d_rows: &mut [f32],
    scratch: &mut KMipScratch,
) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let n = d_out.len() / d;
    let k = saved.chosen.len() / (n * n_heads).max(1);
    if n == 0 || k == 0 {
        return d_rows.fill(0.0);
    }
    scratch.turn(n, n_heads, saved.chosen);
    scratch.weights.resize(saved.chosen.len(), [0.0; 2]);
    let scale = 1.0 / (dh as f32).sqrt();
    let weights = scratch.weights.par_chunks_exact_mut(n_heads * k).with_min_len(64);
    weights.zip(d_rows.par_chunks_exact_mut(3 * d)).enumerate().for_each(
        |(i, (weights, d_row))| {
            for (head, weights) in weights.chunks_exact_mut(k).enumerate() {
                let of_out = i * d + head * dh..i * d + (head + 1) * dh;
                let d_out = &d_out[of_out.clone()];
                let delta = dot(d_out, &saved.out[of_out]);
                let q = part(saved.qkv, i, heads, 0, head);
                let d_q = &mut d_row[head * dh..(head + 1) * dh];
                d_q.fill(0.0);
                let at = i * n_heads + head;
                let chosen = &saved.chosen[at * k..(at + 1) * k];
                for (&key, weight) in chosen.iter().zip(weights).filter(|(key, _)| **key != NO_KEY)
                {
                    let [key_row, value] =
                        [1, 2].map(|which| part(saved.qkv, key as usize, heads, which, head));
                    let w = exp(scale * dot(q, key_row) - saved.log_sums[at]);
                    let d_score = w * (dot(d_out, value) - delta) * scale;
                    *weight = [w, d_score];
                    axpy(d_q, d_score, key_row);
                }
            }
        },
    );
    let (starts, chose, weights) = (&scratch.starts, &scratch.chose, &scratch.weights);
    let rows = SharedRows::new(d_rows, 3 * d);
    (0..n).into_par_iter().with_min_len(64).for_each(|j| {
        // SAFETY: each task has a row of its own.
        let d_row = unsafe { rows.rows_mut(j..j + 1) };
        let (d_keys, d_values) = d_row[d..].split_at_mut(d);
        d_keys.fill(0.0);
        d_values.fill(0.0);
        for head in 0..n_heads {
            let list = head * n + j;
            let of = head * dh..(head + 1) * dh;
            for &place in &chose[starts[list] as usize..starts[list + 1] as usize] {
                let i = place as usize / (n_heads * k);
                let [w, d_score] = weights[place as usize];
                axpy(&mut d_keys[of.clone()], d_score, part(saved.qkv, i, heads, 0, head));
                axpy(&mut d_values[of.clone()], w, &d_out[i * d + head * dh..][..dh]);
            }
        }
    });
}

#[cfg(test)]
pub(crate) mod plain {
    /// k-MIP attention in f64, all scores sorted. Rows `[q | k | v]`.
    pub fn k_mip_attention(qkv: &[f64], d: usize, n_heads: usize, k: usize) -> Vec<f64> {
        let (n, dh) = (qkv.len() / (3 * d), d / n_heads);
        let mut out = vec![0.0; n * d];
        for (i, at) in (0..n).flat_map(|i| (0..d).step_by(dh).map(move |at| (i, at))) {
            let score = |j: usize| -> f64 {
                let (q, k) = (&qkv[i * 3 * d + at..][..dh], &qkv[j * 3 * d + d + at..][..dh]);
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (dh as f64).sqrt()
            };
            let mut best: Vec<usize> = (0..n).collect();
            best.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
            best.truncate(k);
            let total: f64 = best.iter().map(|&j| score(j).exp()).sum();
            for &j in &best {
                let weight = score(j).exp() / total;
                for c in 0..dh {
                    out[i * d + at + c] += weight * qkv[j * 3 * d + 2 * d + at + c];
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

    fn run(qkv: &[f32], d_out: &[f32], heads: Heads, k: usize) -> (Vec<f32>, Vec<f32>, Vec<u32>) {
        let (d, n_heads) = (heads.width, heads.n_heads);
        let n = qkv.len() / (3 * d);
        let (mut out, mut log_sums) = (vec![f32::NAN; n * d], vec![f32::NAN; n * n_heads]);
        let mut chosen = vec![0; n * n_heads * k];
        for start in (0..n).step_by(BLOCK) {
            let rows = start..(start + BLOCK).min(n);
            let thin = rows.start * n_heads..rows.end * n_heads;
            k_mip_attention_forward(
                rows.clone(),
                qkv,
                heads,
                &mut out[rows.start * d..rows.end * d],
                &mut log_sums[thin.clone()],
                &mut chosen[thin.start * k..thin.end * k],
            );
        }
        let saved = KMipSaved { qkv, out: &out, log_sums: &log_sums, chosen: &chosen };
        let mut d_rows = vec![f32::NAN; qkv.len()];
        k_mip_attention_backward(saved, heads, d_out, &mut d_rows, &mut KMipScratch::default());
        (out, d_rows, chosen)
    }

    #[test]
    fn k_mip_attention_and_its_gradients() {
        let heads = Heads::new(12, 3);
        for (n, k) in [(23, 4), (23, 1), (23, 40), (1, 2)] {
            let (qkv, d_out) = (numbers(n * 36, 1), numbers(n * 12, 2));
            let (out, d_rows, _) = run(&qkv, &d_out, heads, k);
            let plain = |qkv: &[f64]| plain::k_mip_attention(qkv, 12, 3, k);
            assert_close(&out, &plain(&f64s(&qkv)), 1e-5);
            assert_gradient(&d_rows, &qkv, &d_out, plain);
        }
        assert!(run(&[], &[], heads, 4).0.is_empty());
    }

    /// Many blocks, and scores that rise with the key, so that each key is among the best for a while.
    #[test]
    fn the_best_keys_are_found_wherever_they_lie() {
        let (n, k, heads) = (3 * BLOCK + 19, 7, Heads::new(2, 1));
        for (name, key) in [
            ("rising", (|j| j as f32) as fn(usize) -> f32),
            ("falling", |j| -(j as f32)),
            ("all alike", |_| 1.0),
            ("in steps", |j| (j * 7919 % 40) as f32),
        ] {
            let row = |j: usize| [1.0, 0.0, key(j), 0.0, j as f32, 1.0];
            let qkv: Vec<f32> = (0..n).flat_map(row).collect();
            let (_, _, chosen) = run(&qkv, &vec![0.0; 2 * n], heads, k);
            let mut best: Vec<usize> = (0..n).collect();
            best.sort_by(|&a, &b| key(b).total_cmp(&key(a)).then(a.cmp(&b)));
            best.truncate(k);
            best.sort_unstable();
            for chosen in chosen.chunks_exact(k) {
                let chosen: Vec<usize> = chosen.iter().map(|&j| j as usize).collect();
                assert_eq!(chosen, best, "{name}");
            }
        }
    }
}
