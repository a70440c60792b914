//! Attention of linear kernel under any mask, several heads, normalised (general efficient low-rank
//! masked attention, Choromanski et al. 2022, Algorithm 1).
//!
//! Rows hold `[q | k | v]`, the feature map φ applied before. Head by head
//! a_i = Σ_a q_ia (M (k_a v))_i over Σ_a q_ia (M k_a)_i. The mask is asked for nothing but products with
//! the columns k_a v_c and k_a, m·(d_h + 1) of a head. A task takes a stretch of features, the stretches'
//! sums are added in their order; within a stretch columns go through the mask in blocks that stay in
//! the cache. Where the mask's nodes stand in groups ([`Mask::groups`]), columns are sums over groups.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::super::masks::{BackwardColumns, Mask};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpys, dot, dots, scaled, vectorized};
pub use forecloud::engine::ops::linear_attention::{EPSILON, Heads};
use forecloud::engine::ops::rows::SharedRows;

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

/// Rows `[q | k | v]` of nodes, and what their products with the mask are made through: a mask of the nodes,
/// or of their groups.
#[derive(Clone, Copy)]
struct Input<'a> {
    rows: &'a [f32],
    heads: Heads,
    mask: &'a dyn Mask,
    groups: Option<&'a [u32]>,
    /// Rows of the columns: nodes, or groups.
    n: usize,
}

impl<'a> Input<'a> {
    fn new(rows: &'a [f32], heads: Heads, mask: &'a dyn Mask) -> Self {
        let (groups, mask) = match mask.groups() {
            Some((groups, mask)) => (Some(groups), mask),
            None => (None, mask),
        };
        Self { rows, heads, mask, groups, n: mask.n_nodes() }
    }

    /// The row of the columns in which node `i` stands.
    #[inline(always)]
    fn row(&self, i: usize) -> usize {
        self.groups.map_or(i, |groups| groups[i] as usize)
    }

    /// Each node's numbers in its row, from `first` on, with the row of the columns in which it stands.
    #[inline(always)]
    fn nodes(self, first: usize) -> impl Iterator<Item = (&'a [f32], usize)> {
        let rows = self.rows.chunks_exact(self.heads.row_len()).enumerate();
        rows.map(move |(i, row)| (&row[first..], self.row(i)))
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
    let input = Input::new(rows, heads, mask);
    // Of each stretch the sums of the values, [n, d_h], and the totals, [n].
    with_scratch(n_stretches(heads) * n * (dh + 1), |parts| {
        parts.par_chunks_exact_mut(n * (dh + 1)).enumerate().for_each(|(index, part)| {
            let stretch = stretch(heads, index);
            let (sums, totals) = part.split_at_mut(n * dh);
            sums.fill(0.0);
            with_scratch(2 * input.n * stretch.most_columns(heads, input.n), |scratch| {
                let (keys, masked) = scratch.split_at_mut(scratch.len() / 2);
                for block in stretch.blocks(heads, input.n) {
                    let len = input.n * dh * block.len();
                    let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
                    spread_keys(input, stretch.head, &block, keys);
                    input.mask.apply(params, keys, masked);
                    gather(input, block.start, masked, sums);
                }
                let (all, features) = (heads.features(), stretch.features.clone());
                let len = input.n * features.len();
                let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
                copy_features(input, all + features.start, keys);
                input.mask.apply(params, keys, masked);
                weigh(input, features.start, masked, totals);
            });
        });
        combine(parts, heads, out, denominators);
    });
}

vectorized! {
/// Columns k_a v_c of a block's features, `[rows, features, d_h]`.
fn spread_keys[simd](input: Input<'a>, head: usize, features: &'a Range<usize>, columns: &'a mut [f32]) {
    let (dh, all) = (input.heads.head_width(), input.heads.features());
    let value = 2 * all + head * dh - (all + features.start);
    let len = features.len() * dh;
    clear_groups(input, columns);
    for (row, at) in input.nodes(all + features.start) {
        let (keys, value) = (&row[..features.len()], &row[value..][..dh]);
        put_products(simd, input, keys, value, &mut columns[at * len..][..len]);
    }
}
}

/// Sums begin at zero.
fn clear_groups(input: Input<'_>, columns: &mut [f32]) {
    if input.groups.is_some() {
        columns.fill(0.0);
    }
}

/// All products of `a` and `b`, `[a, b]`: a node's own, or added to those of its group.
#[inline(always)]
fn put_products<S: Simd>(simd: S, input: Input<'_>, a: &[f32], b: &[f32], products: &mut [f32]) {
    let is_shared = input.groups.is_some();
    for (&a, products) in a.iter().zip(products.chunks_exact_mut(b.len())) {
        match is_shared {
            true => axpys(simd, products, [a], [b]),
            false => scaled(simd, products, a, b),
        }
    }
}

/// Numbers `first..` of each row, as many as `columns` `[rows, features]` has.
fn copy_features(input: Input<'_>, first: usize, columns: &mut [f32]) {
    let n_features = columns.len() / input.n;
    clear_groups(input, columns);
    for (row, at) in input.nodes(first) {
        let columns = &mut columns[at * n_features..][..n_features];
        match input.groups {
            Some(_) => columns.iter_mut().zip(row).for_each(|(sum, x)| *sum += x),
            None => columns.copy_from_slice(&row[..n_features]),
        }
    }
}

vectorized! {
/// Adds Σ_a r_a · columns of a to `sums`, `[n, d_h]`, r_a the nodes' numbers from `first` on.
fn gather[simd](input: Input<'a>, first: usize, columns: &'a [f32], sums: &'a mut [f32]) {
    let dh = input.heads.head_width();
    let len = columns.len() / input.n;
    for ((row, at), sums) in input.nodes(first).zip(sums.chunks_exact_mut(dh)) {
        let columns = columns[at * len..][..len].chunks_exact(dh);
        for (&r, columns) in row.iter().zip(columns) {
            axpys(simd, sums, [r], [columns]);
        }
    }
}
}

vectorized! {
/// Totals Σ_a r_a · column a, r_a the nodes' numbers from `first` on.
fn weigh(input: Input<'a>, first: usize, columns: &'a [f32], totals: &'a mut [f32]) {
    let n_features = columns.len() / input.n;
    for ((row, at), total) in input.nodes(first).zip(totals) {
        *total = dot(&row[..n_features], &columns[at * n_features..][..n_features]);
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
    let input = Input::new(saved.rows, heads, mask);
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
            stretch_backward(input, params, &stretch, d_sums, gradients);
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
    input: Input<'_>,
    params: &[f32],
    stretch: &Stretch,
    d_sums: &[f32],
    gradients: Gradients<'_>,
) {
    let Input { heads, mask, .. } = input;
    let (dh, all) = (heads.head_width(), heads.features());
    let n = d_sums.len() / (dh + 1);
    let (d_sums, d_totals) = d_sums.split_at(n * dh);
    let Gradients { of_rows, d_params, d_values } = gradients;
    d_values.fill(0.0);
    let most = input.n * stretch.most_columns(heads, input.n);
    let (first, n_features) = (stretch.features.start, stretch.features.len());
    with_scratch(4 * most + n * dh + 2 * n * n_features, |scratch| {
        let (keys, rest) = scratch.split_at_mut(most);
        let (masked, rest) = rest.split_at_mut(most);
        let (d_masked, rest) = rest.split_at_mut(most);
        let (d_keys, rest) = rest.split_at_mut(most);
        let (values, rest) = rest.split_at_mut(n * dh);
        let (d_q, d_k) = rest.split_at_mut(n * n_features);
        copy_values(input, stretch.head, values);
        for block in stretch.blocks(heads, input.n) {
            let len = input.n * dh * block.len();
            let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
            let (d_masked, d_keys) = (&mut d_masked[..len], &mut d_keys[..len]);
            spread_keys(input, stretch.head, &block, keys);
            spread(input, block.start, d_sums, d_masked);
            let columns = BackwardColumns { x: keys, dy: d_masked, y: masked, dx: d_keys };
            mask.backward(params, columns, d_params);
            gather(input, all + block.start, d_keys, d_values);
            contract(input, d_sums, masked, block.start - first, d_q);
            contract(input, values, d_keys, block.start - first, d_k);
        }
        let len = input.n * n_features;
        let (keys, masked) = (&mut keys[..len], &mut masked[..len]);
        let (d_masked, d_keys) = (&mut d_masked[..len], &mut d_keys[..len]);
        copy_features(input, all + first, keys);
        spread(input, first, d_totals, d_masked);
        let columns = BackwardColumns { x: keys, dy: d_masked, y: masked, dx: d_keys };
        mask.backward(params, columns, d_params);
        let of_nodes = d_q.chunks_exact_mut(n_features).zip(d_k.chunks_exact_mut(n_features));
        for (i, (d_q, d_k)) in of_nodes.enumerate() {
            let at = input.row(i) * n_features..(input.row(i) + 1) * n_features;
            let totals = masked[at.clone()].iter().map(|masked| d_totals[i] * masked);
            d_q.iter_mut().zip(totals).for_each(|(d, d_total)| *d += d_total);
            d_k.iter_mut().zip(&d_keys[at]).for_each(|(d, d_key)| *d += d_key);
        }
        for (first, d_features) in [(first, d_q), (all + first, d_k)] {
            for (i, d_features) in d_features.chunks_exact(n_features).enumerate() {
                let at = i * heads.row_len() + first;
                // SAFETY: each stretch has features of its own.
                unsafe { of_rows.rows_mut(at..at + n_features) }.copy_from_slice(d_features);
            }
        }
    });
}

/// The values of a head, `[n, d_h]`.
fn copy_values(input: Input<'_>, head: usize, values: &mut [f32]) {
    let dh = input.heads.head_width();
    let first = 2 * input.heads.features() + head * dh;
    for ((row, _), values) in input.nodes(first).zip(values.chunks_exact_mut(dh)) {
        values.copy_from_slice(&row[..dh]);
    }
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
fn spread[simd](input: Input<'a>, first: usize, d_sums: &'a [f32], columns: &'a mut [f32]) {
    let len = columns.len() / input.n;
    let wide = d_sums.len() * input.heads.row_len() / input.rows.len();
    clear_groups(input, columns);
    for ((row, at), d_sums) in input.nodes(first).zip(d_sums.chunks_exact(wide)) {
        put_products(simd, input, &row[..len / wide], d_sums, &mut columns[at * len..][..len]);
    }
}
}

vectorized! {
/// Dot products of the columns of a block's features, `[rows, features, d_h]`, with the node's row of `values`,
/// `[n, d_h]`, into the numbers `first..` of each row of `d_features`, `[n, the stretch's features]`.
fn contract[simd](
    input: Input<'a>,
    values: &'a [f32],
    columns: &'a [f32],
    first: usize,
    d_features: &'a mut [f32],
) {
    let (dh, len) = (input.heads.head_width(), columns.len() / input.n);
    let stretch = d_features.len() * dh / values.len();
    let d_features = d_features.chunks_exact_mut(stretch);
    for (i, (value, d)) in values.chunks_exact(dh).zip(d_features).enumerate() {
        let columns = columns[input.row(i) * len..][..len].chunks_exact(dh);
        for (d, columns) in d[first..].iter_mut().zip(columns) {
            [*d] = dots(simd, value, [columns]);
        }
    }
}
}

#[cfg(test)]
use forecloud::engine::ops::plain;

#[cfg(test)]
mod tests;
