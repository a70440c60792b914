//! Attention of linear kernel under any mask, several heads, normalised (general efficient low-rank
//! masked attention, Choromanski et al. 2022, Algorithm 1).
//!
//! Rows hold `[q | k | v]`, the feature map φ applied before. With v' = `[v | 1]`, head by head
//! a_i = Σ_a q_ia (M (k_a v'))_i: the values' columns over the last one. The mask is asked for nothing
//! but products with columns k_a v'_c, m·(d_h + 1) of a head; a stretch of features at a time, the
//! stretches side by side and summed in their order.

use std::ops::Range;

use rayon::prelude::*;

use super::linear_attention::{EPSILON, Heads};
use super::rows::SharedRows;
use crate::masks::Mask;
use crate::scratch::with_scratch;
use crate::simd::{axpy, dot, vectorized};

/// Columns that a task takes at a time, at least one feature's: wide enough for the mask's vectors,
/// few enough for the second-level cache.
const COLUMNS: usize = 128;

/// One stretch of features of one head.
#[derive(Debug, Clone)]
struct Stretch {
    head: usize,
    /// Among the features of all heads.
    features: Range<usize>,
}

/// How many features a stretch has.
fn stretch_len(heads: Heads) -> usize {
    (COLUMNS / (heads.head_width() + 1)).clamp(1, heads.n_features.max(1))
}

/// Stretches of features that are summed on their own: as many for any number of threads.
pub fn n_stretches(heads: Heads) -> usize {
    heads.n_heads * heads.n_features.div_ceil(stretch_len(heads))
}

fn stretch(heads: Heads, index: usize) -> Stretch {
    let (len, m) = (stretch_len(heads), heads.n_features);
    let (head, part) = (index / m.div_ceil(len), index % m.div_ceil(len));
    let features = head * m + part * len..head * m + ((part + 1) * len).min(m);
    Stretch { head, features }
}

/// Outputs `[n, d]` and denominators `[n, n_heads]` of rows `[n, row_len]`, which are the mask's nodes.
pub fn masked_attention_forward(
    mask: &dyn Mask,
    params: &[f32],
    rows: &[f32],
    heads: Heads,
    out: &mut [f32],
    denominators: &mut [f32],
) {
    let (n, wide) = (mask.n_nodes(), heads.head_width() + 1);
    if n == 0 {
        return;
    }
    with_scratch(n_stretches(heads) * n * wide, |parts| {
        parts.par_chunks_exact_mut(n * wide).enumerate().for_each(|(index, part)| {
            let stretch = stretch(heads, index);
            let columns = stretch.features.len() * wide;
            with_scratch(2 * n * columns, |scratch| {
                let (keys, masked) = scratch.split_at_mut(n * columns);
                spread_keys(rows, heads, &stretch, keys);
                mask.apply(params, keys, masked);
                gather(rows, heads, stretch.features.start, stretch.features.len(), masked, part);
            });
        });
        combine(parts, heads, out, denominators);
    });
}

vectorized! {
/// Columns k_a v'_c of a stretch's features, `[n, features, d_h + 1]`.
fn spread_keys(rows: &'a [f32], heads: Heads, stretch: &'a Stretch, columns: &'a mut [f32]) {
    let (dh, all) = (heads.head_width(), heads.features());
    let width = stretch.features.len() * (dh + 1);
    let keys = all + stretch.features.start..all + stretch.features.end;
    for (row, columns) in rows.chunks_exact(heads.row_len()).zip(columns.chunks_exact_mut(width)) {
        let value = &row[2 * all + stretch.head * dh..][..dh];
        for (&k, columns) in row[keys.clone()].iter().zip(columns.chunks_exact_mut(dh + 1)) {
            columns.iter_mut().zip(value).for_each(|(c, v)| *c = k * v);
            columns[dh] = k;
        }
    }
}
}

vectorized! {
/// Σ_a r_a · columns of a, `[n, d_h + 1]`, r_a the rows' numbers from `first` on.
fn gather(
    rows: &'a [f32],
    heads: Heads,
    first: usize,
    n_features: usize,
    columns: &'a [f32],
    part: &'a mut [f32],
) {
    let wide = heads.head_width() + 1;
    let rows = rows.chunks_exact(heads.row_len()).zip(columns.chunks_exact(n_features * wide));
    for ((row, columns), part) in rows.zip(part.chunks_exact_mut(wide)) {
        part.fill(0.0);
        let features = &row[first..first + n_features];
        for (&r, columns) in features.iter().zip(columns.chunks_exact(wide)) {
            axpy(part, r, columns);
        }
    }
}
}

/// The stretches' sums, added in order; values over the last column.
fn combine(parts: &[f32], heads: Heads, out: &mut [f32], denominators: &mut [f32]) {
    let per_head = n_stretches(heads) / heads.n_heads;
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let (wide, n) = (dh + 1, denominators.len() / n_heads);
    let rows = out.par_chunks_exact_mut(d).zip(denominators.par_chunks_exact_mut(n_heads));
    rows.enumerate().with_min_len(256).for_each(|(i, (out, denominators))| {
        for (head, (out, total)) in out.chunks_exact_mut(dh).zip(denominators).enumerate() {
            out.fill(0.0);
            *total = EPSILON;
            for part in 0..per_head {
                let sums = &parts[((head * per_head + part) * n + i) * wide..][..wide];
                out.iter_mut().zip(sums).for_each(|(o, s)| *o += s);
                *total += sums[dh];
            }
            out.iter_mut().for_each(|o| *o /= *total);
        }
    });
}

/// What the forward pass was given and left.
#[derive(Clone, Copy)]
pub struct MaskedSaved<'a> {
    /// Rows `[q | k | v]`.
    pub rows: &'a [f32],
    /// Its outputs.
    pub out: &'a [f32],
    /// Its denominators.
    pub denominators: &'a [f32],
}

/// Gradients `d_rows` `[n, row_len]` of all rows from those of the outputs, `[n, d]`, and those of the
/// mask's parameters, `[n_stretches, n_params]`, whose rows are to be added in order.
pub fn masked_attention_backward(
    mask: &dyn Mask,
    params: &[f32],
    saved: MaskedSaved<'_>,
    heads: Heads,
    d_out: &[f32],
    d_rows: &mut [f32],
    d_params: &mut [f64],
) {
    let (n, wide, n_parts) = (mask.n_nodes(), heads.head_width() + 1, n_stretches(heads));
    d_params.fill(0.0);
    if n == 0 {
        return;
    }
    with_scratch((heads.n_heads + n_parts) * n * wide, |scratch| {
        let (d_sums, parts) = scratch.split_at_mut(heads.n_heads * n * wide);
        gradients_of_sums(saved, heads, d_out, d_sums);
        let of_rows = SharedRows::new(d_rows, 1);
        let of_params = SharedRows::new(d_params, params.len());
        parts.par_chunks_exact_mut(n * wide).enumerate().for_each(|(index, part)| {
            let stretch = stretch(heads, index);
            let d_sums = &d_sums[stretch.head * n * wide..][..n * wide];
            // SAFETY: each stretch has a row of its own; without parameters there is none.
            let d_params = match params {
                [] => &mut [],
                _ => unsafe { of_params.rows_mut(index..index + 1) },
            };
            let gradients = Gradients { of_rows: &of_rows, d_params, d_values: part };
            stretch_backward(mask, params, saved.rows, heads, &stretch, d_sums, gradients);
        });
        sum_values(parts, heads, d_rows);
    });
}

/// What a stretch writes.
struct Gradients<'a> {
    of_rows: &'a SharedRows<'a>,
    d_params: &'a mut [f64],
    /// Its part of the values', `[n, d_h + 1]`; the last column is none's.
    d_values: &'a mut [f32],
}

/// Gradients of the features of one stretch, and its part of all others.
fn stretch_backward(
    mask: &dyn Mask,
    params: &[f32],
    rows: &[f32],
    heads: Heads,
    stretch: &Stretch,
    d_sums: &[f32],
    gradients: Gradients<'_>,
) {
    let (first, n_features) = (stretch.features.start, stretch.features.len());
    let (wide, all) = (heads.head_width() + 1, heads.features());
    let len = d_sums.len() * n_features;
    with_scratch(3 * len + d_sums.len(), |scratch| {
        let (keys, rest) = scratch.split_at_mut(len);
        let (masked, rest) = rest.split_at_mut(len);
        let (d_masked, values) = rest.split_at_mut(len);
        spread_keys(rows, heads, stretch, keys);
        mask.apply(params, keys, masked);
        spread(rows, heads, first, d_sums, d_masked);
        mask.gradients(params, keys, d_masked, gradients.d_params);
        let d_keys = keys;
        mask.apply_transposed(params, d_masked, d_keys);
        gather(rows, heads, all + first, n_features, d_keys, gradients.d_values);
        let (dh, len) = (heads.head_width(), heads.row_len());
        for (row, value) in rows.chunks_exact(len).zip(values.chunks_exact_mut(wide)) {
            value[..dh].copy_from_slice(&row[2 * all + stretch.head * dh..][..dh]);
            value[dh] = 1.0;
        }
        // SAFETY: each stretch has features of its own.
        unsafe {
            contract(gradients.of_rows, heads, first, n_features, d_sums, masked);
            contract(gradients.of_rows, heads, all + first, n_features, values, d_keys);
        }
    });
}

/// Gradients of the values: the stretches' parts, added in order.
fn sum_values(parts: &[f32], heads: Heads, d_rows: &mut [f32]) {
    let (dh, per_head) = (heads.head_width(), n_stretches(heads) / heads.n_heads);
    let (wide, n) = (dh + 1, d_rows.len() / heads.row_len());
    let rows = d_rows.par_chunks_exact_mut(heads.row_len()).enumerate().with_min_len(256);
    rows.for_each(|(i, d_row)| {
        let d_values = d_row[2 * heads.features()..].chunks_exact_mut(dh);
        for (head, d_value) in d_values.enumerate() {
            d_value.fill(0.0);
            for part in head * per_head..(head + 1) * per_head {
                let sums = &parts[(part * n + i) * wide..][..dh];
                d_value.iter_mut().zip(sums).for_each(|(d, s)| *d += s);
            }
        }
    });
}

/// Gradients of each head's sums, `[n_heads, n, d_h + 1]`, from those of the outputs.
fn gradients_of_sums(saved: MaskedSaved<'_>, heads: Heads, d_out: &[f32], d_sums: &mut [f32]) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let n = saved.out.len() / d;
    d_sums.par_chunks_exact_mut(n * (dh + 1)).enumerate().for_each(|(head, d_sums)| {
        for (i, d_sums) in d_sums.chunks_exact_mut(dh + 1).enumerate() {
            let at = i * d + head * dh..i * d + (head + 1) * dh;
            let inverse = 1.0 / saved.denominators[i * n_heads + head];
            let (d_out, out) = (&d_out[at.clone()], &saved.out[at]);
            d_sums.iter_mut().zip(d_out).for_each(|(d, g)| *d = g * inverse);
            d_sums[dh] = -dot(d_out, out) * inverse;
        }
    });
}

vectorized! {
/// Gradients of the masked columns: q_a · those of the sums.
fn spread(rows: &'a [f32], heads: Heads, first: usize, d_sums: &'a [f32], columns: &'a mut [f32]) {
    let (wide, n) = (heads.head_width() + 1, rows.len() / heads.row_len());
    let n_features = columns.len() / (n * wide);
    let columns = columns.chunks_exact_mut(n_features * wide).zip(d_sums.chunks_exact(wide));
    for (row, (columns, d_sums)) in rows.chunks_exact(heads.row_len()).zip(columns) {
        let queries = &row[first..first + n_features];
        for (&q, columns) in queries.iter().zip(columns.chunks_exact_mut(wide)) {
            columns.iter_mut().zip(d_sums).for_each(|(c, d)| *c = q * d);
        }
    }
}
}

/// Numbers `first..first + n_features` of each row of `d_rows`: the dot products of each feature's
/// columns with the node's row of `values`, `[n, d_h + 1]`.
///
/// # Safety
/// No other live reference may cover these numbers.
unsafe fn contract(
    d_rows: &SharedRows<'_>,
    heads: Heads,
    first: usize,
    n_features: usize,
    values: &[f32],
    columns: &[f32],
) {
    let (wide, len) = (heads.head_width() + 1, heads.row_len());
    let columns = columns.chunks_exact(n_features * wide).zip(values.chunks_exact(wide));
    for (i, (columns, value)) in columns.enumerate() {
        let at = i * len + first..i * len + first + n_features;
        // SAFETY: the caller's.
        let d_features = unsafe { d_rows.rows_mut(at) };
        for (d, columns) in d_features.iter_mut().zip(columns.chunks_exact(wide)) {
            *d = dot(columns, value);
        }
    }
}

#[cfg(test)]
pub(crate) mod plain {
    use super::{EPSILON, Heads};

    /// In f64 under the dense `mask` `[n, n]`, the sums written out.
    pub fn masked_attention(mask: &[f64], rows: &[f64], heads: Heads) -> Vec<f64> {
        let (d, dh, m, len) = (heads.width, heads.head_width(), heads.n_features, heads.row_len());
        let n = rows.len() / len;
        let mut out = vec![0.0; n * d];
        for (i, head) in (0..n).flat_map(|i| (0..heads.n_heads).map(move |head| (i, head))) {
            let q = &rows[i * len + head * m..][..m];
            let mut total = f64::from(EPSILON);
            for j in 0..n {
                let k = &rows[j * len + heads.features() + head * m..][..m];
                let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                let weight = mask[i * n + j] * score;
                total += weight;
                for c in head * dh..(head + 1) * dh {
                    out[i * d + c] += weight * rows[j * len + 2 * heads.features() + c];
                }
            }
            out[i * d + head * dh..][..dh].iter_mut().for_each(|o| *o /= total);
        }
        out
    }
}

#[cfg(test)]
mod tests;
