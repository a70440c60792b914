//! Attention under a mask of graph random features, over merged rows, as GRF masking has it (Eq. 28) by either kernel:
//! softmax, A_ij = exp(q_i·k_j / √m), or linear, A_ij = q_i·k_j; several heads, each with an f of its own.
//!
//! Rows hold `[q | k | v]`, q and k of m features a head. With the loads c of walks, head by head
//! a_i = Σ_j A_ij M_ij v_j / Σ_j A_ij |M|_ij, M_ij = Σ_t f_t c(i, j, t), |M|_ij = Σ_t |f_t c(i, j, t)|.
//! Where no f_t is negative that is the paper's normaliser; softmax attention is then that with the bias log M.
//! Where some are, it is safe all the same: no sum that it divides by crosses 0, and no output is larger than
//! the largest value. The paper's Σ_j A_ij M_ij may be 0 there. Cost: entries of the loads times d.

use std::ops::Range;

use rayon::prelude::*;

use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::exp::exp;
use forecloud::base::simd::{axpy, dot, vectorized};
use forecloud::engine::graph::Loads;
use forecloud::engine::graph::loads::TransposedLoads;
pub use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::ops::rows::SharedRows;

/// Rows of a task.
const ROWS: usize = 32;

/// A of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Similarity {
    /// exp(q·k / √m).
    Softmax,
    /// q·k, the feature map applied before: no product may be negative.
    Linear,
}

/// What the attention goes over.
#[derive(Clone, Copy, Debug)]
pub struct GrfKernel<'a> {
    /// A.
    pub similarity: Similarity,
    /// Widths of the rows.
    pub heads: Heads,
    /// Merged walks of all rows.
    pub loads: &'a Loads,
    /// f of any sign, `[n_heads, hops + 1]`, as many a head as an entry of the loads has.
    pub hop_weights: &'a [f32],
}

impl GrfKernel<'_> {
    /// Hop weights of a head.
    fn n_hop_weights(&self) -> usize {
        self.loads.n_hops() + 1
    }

    /// Hop weights over the largest magnitude of each head, and these: outputs stay what they are, and sums
    /// are of normal numbers however small f is.
    fn scaled(&self) -> (Vec<f32>, Vec<f32>) {
        let mut scaled = self.hop_weights.to_vec();
        let heads = scaled.chunks_exact_mut(self.n_hop_weights());
        let largest = heads.map(|f| {
            let largest = f.iter().fold(0.0f32, |max, f| max.max(f.abs()));
            if largest > 0.0 {
                f.iter_mut().for_each(|f| *f /= largest);
            }
            largest
        });
        let largest = largest.collect();
        (scaled, largest)
    }
}

/// What tasks read: rows, loads and scaled hop weights.
#[derive(Clone, Copy)]
struct Input<'a> {
    of: GrfKernel<'a>,
    rows: &'a [f32],
    hop_weights: &'a [f32],
}

impl<'a> Input<'a> {
    /// q (0), k (1) or v (2) of a row and head.
    #[inline(always)]
    fn part(&self, i: usize, which: usize, head: usize) -> &'a [f32] {
        let heads = self.of.heads;
        let (m, dh) = (heads.n_features, heads.head_width());
        let len = if which == 2 { dh } else { m };
        &self.rows[i * heads.row_len() + which * heads.features() + head * len..][..len]
    }

    #[inline(always)]
    fn hop_weights(&self, head: usize) -> &'a [f32] {
        let n = self.of.n_hop_weights();
        &self.hop_weights[head * n..(head + 1) * n]
    }

    /// What q·k is multiplied by.
    #[inline(always)]
    fn scale(&self) -> f32 {
        match self.of.similarity {
            Similarity::Softmax => 1.0 / (self.of.heads.n_features as f32).sqrt(),
            Similarity::Linear => 1.0,
        }
    }

    /// A / e^log of a scaled score, and its derivative by the score.
    #[inline(always)]
    fn weigh(&self, score: f32, log: f32) -> [f32; 2] {
        match self.of.similarity {
            Similarity::Softmax => [exp(score - log); 2],
            Similarity::Linear => {
                let inverse = exp(-log);
                [score * inverse, inverse]
            }
        }
    }
}

/// M_ij and |M|_ij from the loads of one entry.
#[inline(always)]
fn mask(hop_weights: &[f32], loads: &[f32]) -> [f32; 2] {
    let terms = hop_weights.iter().zip(loads).map(|(f, c)| f * c);
    terms.fold([0.0; 2], |[m, size], term| [m + term, size + term.abs()])
}

/// Outputs `[n, d]` of rows `[n, row_len]`, and `log_sums` `[n, n_heads]`: the logarithm of each denominator, infinite
/// where a row hears nothing (f is 0), whose output is 0.
pub fn grf_kernel_attention_forward(
    of: GrfKernel<'_>,
    rows: &[f32],
    out: &mut [f32],
    log_sums: &mut [f32],
) {
    let (d, n_heads) = (of.heads.width, of.heads.n_heads);
    let hop_weights = &of.scaled().0[..];
    let input = Input { of, rows, hop_weights };
    let tasks = out.par_chunks_mut(ROWS * d).zip(log_sums.par_chunks_mut(ROWS * n_heads));
    tasks.enumerate().for_each(|(task, (out, log_sums))| {
        forward_rows(task * ROWS, input, out, log_sums);
    });
}

vectorized! {
fn forward_rows(first: usize, input: Input<'a>, out: &'a mut [f32], log_sums: &'a mut [f32]) {
    let Heads { width: d, n_heads, .. } = input.of.heads;
    let (dh, scale) = (input.of.heads.head_width(), input.scale());
    let rows = out.chunks_exact_mut(d).zip(log_sums.chunks_exact_mut(n_heads));
    for (i, (out, log_sums)) in (first..).zip(rows) {
        let row = input.of.loads.row(i);
        with_scratch(row.nodes.len(), |scores| {
            for (head, out) in out.chunks_exact_mut(dh).enumerate() {
                let (q, f) = (input.part(i, 0, head), input.hop_weights(head));
                // Of softmax the largest score: its exponential alone may leave f32.
                let mut highest = match input.of.similarity {
                    Similarity::Softmax => f32::NEG_INFINITY,
                    Similarity::Linear => 0.0,
                };
                let entries = row.nodes.iter().zip(row.loads.chunks_exact(f.len()));
                for (score, (&j, loads)) in scores.iter_mut().zip(entries.clone()) {
                    *score = scale * dot(q, input.part(j as usize, 1, head));
                    if input.of.similarity == Similarity::Softmax && mask(f, loads)[1] > 0.0 {
                        highest = highest.max(*score);
                    }
                }
                let mut total = 0.0;
                out.fill(0.0);
                for (score, (&j, loads)) in scores.iter().zip(entries) {
                    let [m, size] = mask(f, loads);
                    if size > 0.0 {
                        let [e, _] = input.weigh(*score, highest);
                        total += e * size;
                        axpy(out, e * m, input.part(j as usize, 2, head));
                    }
                }
                log_sums[head] = f32::INFINITY;
                if total > 0.0 {
                    log_sums[head] = highest + total.ln();
                    out.iter_mut().for_each(|o| *o /= total);
                }
            }
        });
    }
}
}

/// What the forward pass was given and left.
#[derive(Clone, Copy, Debug)]
pub struct GrfKernelSaved<'a> {
    /// Rows `[q | k | v]`.
    pub rows: &'a [f32],
    /// Logarithms of its denominators.
    pub log_sums: &'a [f32],
}

/// Gradients `d_rows` `[n, row_len]` of all rows from those of the outputs, `[n, d]`, and those of the hop weights,
/// `[n_heads, hops + 1]` (where one is 0, of |f| as 0). `transposed`: of the loads.
pub fn grf_kernel_attention_backward(
    of: GrfKernel<'_>,
    transposed: &TransposedLoads,
    saved: GrfKernelSaved<'_>,
    d_out: &[f32],
    d_rows: &mut [f32],
    d_hop_weights: &mut [f64],
) {
    let Heads { width: d, n_heads, .. } = of.heads;
    let (hop_weights, largest) = of.scaled();
    let input = Input { of, rows: saved.rows, hop_weights: &hop_weights };
    let n = saved.log_sums.len() / n_heads;
    let n_places = of.loads.n_places();
    let tasks = || (0..n.div_ceil(ROWS)).map(|task| task * ROWS..((task + 1) * ROWS).min(n));
    let mut parts = vec![0.0f64; tasks().len() * hop_weights.len()];
    with_scratch(2 * n_places * n_heads, |scratch| {
        // Of each entry and head: e M, and the gradient of the product q·k.
        let (weights, d_scores) = scratch.split_at_mut(n_places * n_heads);
        let all = SharedRows::new(d_rows, of.heads.row_len());
        let [of_weights, of_scores] =
            [&mut *weights, &mut *d_scores].map(|of| SharedRows::new(of, n_heads));
        let each = parts.par_chunks_exact_mut(hop_weights.len().max(1)).enumerate();
        each.for_each(|(task, part)| {
            let rows = task * ROWS..((task + 1) * ROWS).min(n);
            // SAFETY: each task has rows of its own, and each row places of its own.
            let d_rows = unsafe { all.rows_mut(rows.clone()) };
            let (log_sums, d_out) =
                (&saved.log_sums[rows.start * n_heads..], &d_out[rows.start * d..]);
            let edges = Edges { weights: &of_weights, d_scores: &of_scores };
            backward_queries(rows, input, log_sums, d_out, edges, d_rows, part);
        });
        let (weights, d_scores) = (&*weights, &*d_scores);
        let edges = d_rows.par_chunks_mut(ROWS * of.heads.row_len()).enumerate();
        edges.for_each(|(task, d_rows)| {
            backward_keys(task * ROWS, input, transposed, d_out, [weights, d_scores], d_rows);
        });
    });
    d_hop_weights.fill(0.0);
    for part in parts.chunks_exact(hop_weights.len().max(1)) {
        d_hop_weights.iter_mut().zip(part).for_each(|(d, part)| *d += part);
    }
    let heads = d_hop_weights.chunks_exact_mut(of.n_hop_weights());
    for (d, largest) in heads.zip(largest).filter(|head| head.1 > 0.0) {
        d.iter_mut().for_each(|d| *d /= f64::from(largest));
    }
}

/// What the pass over queries leaves to that over keys, `[places, n_heads]`.
#[derive(Clone, Copy)]
struct Edges<'a> {
    weights: &'a SharedRows<'a>,
    d_scores: &'a SharedRows<'a>,
}

vectorized! {
/// Gradients of the queries `rows`, and of the hop weights what these rows tell.
fn backward_queries(
    rows: Range<usize>,
    input: Input<'a>,
    log_sums: &'a [f32],
    d_out: &'a [f32],
    edges: Edges<'a>,
    d_rows: &'a mut [f32],
    d_hop_weights: &'a mut [f64],
) {
    let Heads { width: d, n_heads, n_features: m, .. } = input.of.heads;
    let (dh, scale, n_hops) = (input.of.heads.head_width(), input.scale(), input.of.n_hop_weights());
    let outer = d_rows.chunks_exact_mut(input.of.heads.row_len());
    let outer = outer.zip(d_out.chunks_exact(d).zip(log_sums.chunks_exact(n_heads)));
    for (i, (d_row, (d_out, log_sums))) in rows.zip(outer) {
        let row = input.of.loads.row(i);
        let places = row.start..row.start + row.nodes.len();
        // SAFETY: no other row has these places.
        let (weights, d_scores) = unsafe {
            (edges.weights.rows_mut(places.clone()), edges.d_scores.rows_mut(places))
        };
        with_scratch(row.nodes.len(), |slopes| for head in 0..n_heads {
            let (f, d_out) = (input.hop_weights(head), &d_out[head * dh..][..dh]);
            let (q, d_q) = (input.part(i, 0, head), &mut d_row[head * m..][..m]);
            let entries = row.nodes.iter().zip(row.loads.chunks_exact(n_hops)).enumerate();
            // Σ_j e w·v, over the sum of e |M|, which is 1 but for rounding.
            let [mut gained, mut total] = [0.0f64; 2];
            for (entry, (&j, loads)) in entries.clone() {
                let at = entry * n_heads + head;
                let [mask, size] = mask(f, loads);
                let [e, slope] = match size > 0.0 {
                    true => {
                        let score = scale * dot(q, input.part(j as usize, 1, head));
                        input.weigh(score, log_sums[head])
                    }
                    false => [0.0; 2],
                };
                slopes[entry] = slope;
                weights[at] = e;
                d_scores[at] = dot(d_out, input.part(j as usize, 2, head));
                gained += f64::from(e * mask) * f64::from(d_scores[at]);
                total += f64::from(e * size);
            }
            let mean = if total > 0.0 { gained / total } else { 0.0 };
            d_q.fill(0.0);
            let d_f = &mut d_hop_weights[head * n_hops..][..n_hops];
            for (entry, (&j, loads)) in entries {
                let at = entry * n_heads + head;
                let [mask, size] = mask(f, loads);
                let (e, gain) = (weights[at], d_scores[at]);
                for ((d, &c), &f) in d_f.iter_mut().zip(loads).zip(f) {
                    let sign = if f == 0.0 { 0.0 } else { f64::from(f.signum() * c.abs()) };
                    *d += f64::from(e) * (f64::from(c) * f64::from(gain) - sign * mean);
                }
                weights[at] = e * mask;
                d_scores[at] = scale * slopes[entry] * (mask * gain - size * mean as f32);
                axpy(d_q, d_scores[at], input.part(j as usize, 1, head));
            }
        });
    }
}
}

vectorized! {
/// Gradients of the keys and values from row `first` on: each gathers from the queries that reach it, in order.
fn backward_keys(
    first: usize,
    input: Input<'a>,
    transposed: &'a TransposedLoads,
    d_out: &'a [f32],
    edges: [&'a [f32]; 2],
    d_rows: &'a mut [f32],
) {
    let Heads { width: d, n_heads, n_features: m, .. } = input.of.heads;
    let (heads, dh, [weights, d_scores]) = (input.of.heads, input.of.heads.head_width(), edges);
    for (j, d_row) in (first..).zip(d_rows.chunks_exact_mut(heads.row_len())) {
        let (d_k, d_v) = d_row[heads.features()..].split_at_mut(heads.features());
        d_k.fill(0.0);
        d_v.fill(0.0);
        let (rows, places) = transposed.column(j);
        for (&i, &place) in rows.iter().zip(places) {
            let (i, place) = (i as usize, place as usize * n_heads);
            for head in 0..n_heads {
                let q = input.part(i, 0, head);
                axpy(&mut d_k[head * m..][..m], d_scores[place + head], q);
                let d_out = &d_out[i * d + head * dh..][..dh];
                axpy(&mut d_v[head * dh..][..dh], weights[place + head], d_out);
            }
        }
    }
}
}

#[cfg(test)]
mod tests;
