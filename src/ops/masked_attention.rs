//! Attention of linear kernel under any mask, several heads, normalised (general efficient low-rank
//! masked attention, Choromanski et al. 2022, Algorithm 1).
//!
//! Rows hold `[q | k | v]`, the feature map φ applied before. Head by head
//! a_i = Σ_a q_ia (M (k_a v))_i over Σ_a q_ia (M k_a)_i. The mask is asked for nothing but products with
//! the columns k_a v_c and k_a, m·(d_h + 1) of a head. A task takes a stretch of features, the stretches'
//! sums are added in their order; within a stretch columns go through the mask in blocks that stay in
//! the cache.

use std::ops::Range;

use rayon::prelude::*;

use super::linear_attention::{EPSILON, Heads};
use super::rows::SharedRows;
use crate::masks::{BackwardColumns, Mask};
use crate::scratch::with_scratch;
use crate::simd::{axpys, dot, dots, scaled, vectorized};

/// Columns of values that a task takes, at least one feature's.
const COLUMNS: usize = 128;
/// Numbers of a block of columns (1 MiB): with what a product makes of it, it stays in a core's share of
/// the caches.
const BLOCK: usize = 1 << 18;
/// Fewest columns of a block, if there are as many: with fewer, masks would rather look for rows than
/// work on them.
const FEWEST: usize = 32;

/// One stretch of features of one head.
#[derive(Debug, Clone)]
struct Stretch {
    head: usize,
    /// Among the features of all heads.
    features: Range<usize>,
}

/// How many features a stretch has.
fn stretch_len(heads: Heads) -> usize {
    (COLUMNS / heads.head_width().max(1)).clamp(1, heads.n_features.max(1))
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

impl Stretch {
    /// Its features block by block, as many a block as its columns over `n` nodes leave in the cache.
    fn blocks(&self, heads: Heads, n: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let dh = heads.head_width().max(1);
        let len = (BLOCK / (n.max(1) * dh)).max(FEWEST.div_ceil(dh));
        let Range { start, end } = self.features;
        (start..end).step_by(len).map(move |first| first..(first + len).min(end))
    }

    /// Most columns that go through the mask at once: a block's, or its features.
    fn most_columns(&self, heads: Heads, n: usize) -> usize {
        let of_values = self.blocks(heads, n).map(|block| block.len() * heads.head_width()).max();
        of_values.unwrap_or(0).max(self.features.len())
    }
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
    let (n, dh) = (mask.n_nodes(), heads.head_width());
    if n == 0 {
        return;
    }
    // Of each stretch the sums of the values, [n, d_h], and the totals, [n].
    with_scratch(n_stretches(heads) * n * (dh + 1), |parts| {
        parts.par_chunks_exact_mut(n * (dh + 1)).enumerate().for_each(|(index, part)| {
            let stretch = stretch(heads, index);
            let (sums, totals) = part.split_at_mut(n * dh);
            sums.fill(0.0);
            with_scratch(2 * n * stretch.most_columns(heads, n), |scratch| {
                let (keys, masked) = scratch.split_at_mut(scratch.len() / 2);
                for block in stretch.blocks(heads, n) {
                    let len = n * dh * block.len();
                    let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
                    spread_keys(rows, heads, stretch.head, &block, keys);
                    mask.apply(params, keys, masked);
                    gather(rows, heads, block.start, masked, sums);
                }
                let (all, features) = (heads.features(), stretch.features.clone());
                let (keys, masked) =
                    (&mut keys[..n * features.len()], &mut masked[..n * features.len()]);
                copy_features(rows, heads, all + features.start, keys);
                mask.apply(params, keys, masked);
                weigh(rows, heads, features.start, masked, totals);
            });
        });
        combine(parts, heads, out, denominators);
    });
}

vectorized! {
/// Columns k_a v_c of a block's features, `[n, features, d_h]`.
fn spread_keys[simd](
    rows: &'a [f32],
    heads: Heads,
    head: usize,
    features: &'a Range<usize>,
    columns: &'a mut [f32],
) {
    let (dh, all) = (heads.head_width(), heads.features());
    let keys = all + features.start..all + features.end;
    let columns = columns.chunks_exact_mut(features.len() * dh);
    for (row, columns) in rows.chunks_exact(heads.row_len()).zip(columns) {
        let value = &row[2 * all + head * dh..][..dh];
        for (&k, columns) in row[keys.clone()].iter().zip(columns.chunks_exact_mut(dh)) {
            scaled(simd, columns, k, value);
        }
    }
}
}

/// Numbers `first..` of each row, as many as `columns` `[n, features]` has.
fn copy_features(rows: &[f32], heads: Heads, first: usize, columns: &mut [f32]) {
    let n_features = columns.len() * heads.row_len() / rows.len();
    let rows = rows.chunks_exact(heads.row_len());
    for (row, columns) in rows.zip(columns.chunks_exact_mut(n_features)) {
        columns.copy_from_slice(&row[first..first + n_features]);
    }
}

vectorized! {
/// Adds Σ_a r_a · columns of a to `sums`, `[n, d_h]`, r_a the rows' numbers from `first` on.
fn gather[simd](rows: &'a [f32], heads: Heads, first: usize, columns: &'a [f32], sums: &'a mut [f32]) {
    let (dh, len) = (heads.head_width(), heads.row_len());
    let n_features = columns.len() / sums.len();
    let rows = rows.chunks_exact(len).zip(columns.chunks_exact(n_features * dh));
    for ((row, columns), sums) in rows.zip(sums.chunks_exact_mut(dh)) {
        let features = &row[first..first + n_features];
        for (&r, columns) in features.iter().zip(columns.chunks_exact(dh)) {
            axpys(simd, sums, [r], [columns]);
        }
    }
}
}

vectorized! {
/// Totals Σ_a r_a · column a, r_a the rows' numbers from `first` on.
fn weigh(rows: &'a [f32], heads: Heads, first: usize, columns: &'a [f32], totals: &'a mut [f32]) {
    let n_features = columns.len() / totals.len();
    let rows = rows.chunks_exact(heads.row_len()).zip(columns.chunks_exact(n_features));
    for ((row, columns), total) in rows.zip(totals) {
        *total = dot(&row[first..first + n_features], columns);
    }
}
}

/// The stretches' sums, added in order; values over the totals.
fn combine(parts: &[f32], heads: Heads, out: &mut [f32], denominators: &mut [f32]) {
    let per_head = n_stretches(heads) / heads.n_heads;
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let n = denominators.len() / n_heads;
    let rows = out.par_chunks_exact_mut(d).zip(denominators.par_chunks_exact_mut(n_heads));
    rows.enumerate().with_min_len(256).for_each(|(i, (out, denominators))| {
        for (head, (out, total)) in out.chunks_exact_mut(dh).zip(denominators).enumerate() {
            out.fill(0.0);
            *total = EPSILON;
            let of_head = parts.chunks_exact(n * (dh + 1)).skip(head * per_head);
            for part in of_head.take(per_head) {
                out.iter_mut().zip(&part[i * dh..][..dh]).for_each(|(o, s)| *o += s);
                *total += part[n * dh + i];
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
    let (n, dh, n_parts) = (mask.n_nodes(), heads.head_width(), n_stretches(heads));
    d_params.fill(0.0);
    if n == 0 {
        return;
    }
    let of_head = n * (dh + 1);
    with_scratch(heads.n_heads * of_head + n_parts * n * dh, |scratch| {
        let (d_sums, parts) = scratch.split_at_mut(heads.n_heads * of_head);
        gradients_of_sums(saved, heads, d_out, d_sums);
        let of_rows = SharedRows::new(d_rows, 1);
        let of_params = SharedRows::new(d_params, params.len());
        parts.par_chunks_exact_mut(n * dh).enumerate().for_each(|(index, d_values)| {
            let stretch = stretch(heads, index);
            let d_sums = &d_sums[stretch.head * of_head..][..of_head];
            // SAFETY: each stretch has a row of its own; without parameters there is none.
            let d_params = match params {
                [] => &mut [],
                _ => unsafe { of_params.rows_mut(index..index + 1) },
            };
            let gradients = Gradients { of_rows: &of_rows, d_params, d_values };
            stretch_backward(mask, params, saved.rows, heads, &stretch, d_sums, gradients);
        });
        sum_values(parts, heads, d_rows);
    });
}

/// What a stretch writes.
struct Gradients<'a> {
    of_rows: &'a SharedRows<'a>,
    d_params: &'a mut [f64],
    /// Its part of the values', `[n, d_h]`.
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
    let (n, dh, all) = (mask.n_nodes(), heads.head_width(), heads.features());
    let (d_sums, d_totals) = d_sums.split_at(n * dh);
    let Gradients { of_rows, d_params, d_values } = gradients;
    d_values.fill(0.0);
    let most = n * stretch.most_columns(heads, n);
    let (first, n_features) = (stretch.features.start, stretch.features.len());
    with_scratch(4 * most + n * dh + 2 * n * n_features, |scratch| {
        let (keys, rest) = scratch.split_at_mut(most);
        let (masked, rest) = rest.split_at_mut(most);
        let (d_masked, rest) = rest.split_at_mut(most);
        let (d_keys, rest) = rest.split_at_mut(most);
        let (values, rest) = rest.split_at_mut(n * dh);
        let (d_q, d_k) = rest.split_at_mut(n * n_features);
        copy_features(rows, heads, 2 * all + stretch.head * dh, values);
        for block in stretch.blocks(heads, n) {
            let len = n * dh * block.len();
            let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
            let (d_masked, d_keys) = (&mut d_masked[..len], &mut d_keys[..len]);
            spread_keys(rows, heads, stretch.head, &block, keys);
            spread(rows, heads, block.start, d_sums, d_masked);
            let columns = BackwardColumns { x: keys, dy: d_masked, y: masked, dx: d_keys };
            mask.backward(params, columns, d_params);
            gather(rows, heads, all + block.start, d_keys, d_values);
            contract(d_sums, masked, dh, block.start - first, d_q);
            contract(values, d_keys, dh, block.start - first, d_k);
        }
        let len = n * n_features;
        let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
        let (d_masked, d_keys) = (&mut d_masked[..len], &mut d_keys[..len]);
        copy_features(rows, heads, all + first, keys);
        spread(rows, heads, first, d_totals, d_masked);
        let columns = BackwardColumns { x: keys, dy: d_masked, y: masked, dx: d_keys };
        mask.backward(params, columns, d_params);
        for (at, (d, masked)) in d_q.iter_mut().zip(&*masked).enumerate() {
            *d += d_totals[at / n_features] * masked;
        }
        d_k.iter_mut().zip(&*d_keys).for_each(|(d, d_key)| *d += d_key);
        for (first, d_features) in [(first, d_q), (all + first, d_k)] {
            for (i, d_features) in d_features.chunks_exact(n_features).enumerate() {
                let at = i * heads.row_len() + first;
                // SAFETY: each stretch has features of its own.
                unsafe { of_rows.rows_mut(at..at + n_features) }.copy_from_slice(d_features);
            }
        }
    });
}

/// Gradients of the values: the stretches' parts, added in order.
fn sum_values(parts: &[f32], heads: Heads, d_rows: &mut [f32]) {
    let (dh, per_head) = (heads.head_width(), n_stretches(heads) / heads.n_heads);
    let n = d_rows.len() / heads.row_len();
    let rows = d_rows.par_chunks_exact_mut(heads.row_len()).enumerate().with_min_len(256);
    rows.for_each(|(i, d_row)| {
        let d_values = d_row[2 * heads.features()..].chunks_exact_mut(dh);
        for (head, d_value) in d_values.enumerate() {
            d_value.fill(0.0);
            for part in head * per_head..(head + 1) * per_head {
                let sums = &parts[(part * n + i) * dh..][..dh];
                d_value.iter_mut().zip(sums).for_each(|(d, s)| *d += s);
            }
        }
    });
}

/// Gradients of each head's sums, `[n, d_h]`, and then of its totals, `[n]`, from those of the outputs.
fn gradients_of_sums(saved: MaskedSaved<'_>, heads: Heads, d_out: &[f32], d_sums: &mut [f32]) {
    let (d, dh, n_heads) = (heads.width, heads.head_width(), heads.n_heads);
    let n = saved.out.len() / d;
    d_sums.par_chunks_exact_mut(n * (dh + 1)).enumerate().for_each(|(head, d_sums)| {
        let (d_sums, d_totals) = d_sums.split_at_mut(n * dh);
        for (i, (d_sums, d_total)) in d_sums.chunks_exact_mut(dh).zip(d_totals).enumerate() {
            let at = i * d + head * dh..i * d + (head + 1) * dh;
            let inverse = 1.0 / saved.denominators[i * n_heads + head];
            let (d_out, out) = (&d_out[at.clone()], &saved.out[at]);
            d_sums.iter_mut().zip(d_out).for_each(|(d, g)| *d = g * inverse);
            *d_total = -dot(d_out, out) * inverse;
        }
    });
}

vectorized! {
/// Gradients of the masked columns: q_a · those of the sums, or of the totals.
fn spread[simd](rows: &'a [f32], heads: Heads, first: usize, d_sums: &'a [f32], columns: &'a mut [f32]) {
    let n = rows.len() / heads.row_len();
    let (wide, n_features) = (d_sums.len() / n, columns.len() / d_sums.len());
    let columns = columns.chunks_exact_mut(n_features * wide).zip(d_sums.chunks_exact(wide));
    for (row, (columns, d_sums)) in rows.chunks_exact(heads.row_len()).zip(columns) {
        let queries = &row[first..first + n_features];
        for (&q, columns) in queries.iter().zip(columns.chunks_exact_mut(wide)) {
            scaled(simd, columns, q, d_sums);
        }
    }
}
}

vectorized! {
/// Dot products of the columns of a block's features, `[n, features, d_h]`, with the node's row of `values`,
/// `[n, d_h]`, into the numbers `first..` of each row of `d_features`, `[n, the stretch's features]`.
fn contract[simd](
    values: &'a [f32],
    columns: &'a [f32],
    dh: usize,
    first: usize,
    d_features: &'a mut [f32],
) {
    let (block, stretch) = (columns.len() / values.len(), d_features.len() * dh / values.len());
    let rows = values.chunks_exact(dh).zip(columns.chunks_exact(block * dh));
    for ((value, columns), d) in rows.zip(d_features.chunks_exact_mut(stretch)) {
        for (d, columns) in d[first..first + block].iter_mut().zip(columns.chunks_exact(dh)) {
            [*d] = dots(simd, value, [columns]);
        }
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
