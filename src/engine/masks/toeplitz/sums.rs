//! Products of a block-Toeplitz mask under which few nodes hear each other, summed one by one: exact to
//! rounding, and faster than transforms.

use std::ops::Range;

use pulp::Simd;

use crate::base::simd::{Stretches, add_stretch, by_stretches, store, vectorized};
use crate::engine::masks::padded_grid::Axis;
use crate::engine::masks::products::add_dot;

/// Most nodes that one hears in the mean: with more, transforms take less time (`cargo bench --bench
/// toeplitz`).
const MAX_HEARD: f64 = 128.0;
/// Most pairs of rows that are kept.
const MAX_PAIRS: f64 = (1 << 20) as f64;

/// Rows along the last axis, and which hear which.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// Length of a row, and how far along it nodes hear.
    len: usize,
    reach: usize,
    /// Row by row: where its pairs end.
    ends: Vec<u32>,
    pairs: Vec<Pair>,
}

/// A row that is heard, and the place of the first offset along the last axis among the parameters.
#[derive(Debug, Clone, Copy)]
struct Pair {
    row: u32,
    first: u32,
}

impl Sums {
    /// For a grid of `axes`, unless transforms are better.
    pub fn new(axes: &[Axis]) -> Option<Self> {
        let side = |axis: &Axis| 2 * axis.reach + 1;
        let heard: f64 = axes.iter().map(mean_heard).product();
        let (last, outer) = axes.split_last()?;
        let n_rows: usize = outer.iter().map(|axis| axis.len).product();
        let n_pairs = n_rows as f64 * heard / mean_heard(last);
        // Without nodes: nothing is heard, and neither number is one.
        if !(heard <= MAX_HEARD && n_pairs <= MAX_PAIRS) {
            return None;
        }
        let mut pairs = vec![vec![Pair { row: 0, first: 0 }]];
        for axis in outer {
            pairs = pairs.into_iter().flat_map(|pairs| along(axis, &pairs)).collect();
        }
        let mut sums = Self { len: last.len, reach: last.reach, ends: vec![], pairs: vec![] };
        for of_row in pairs {
            let first = |pair: Pair| Pair { first: pair.first * side(last) as u32, ..pair };
            sums.pairs.extend(of_row.into_iter().map(first));
            sums.ends.push(sums.pairs.len() as u32);
        }
        Some(sums)
    }

    /// Each row's pairs.
    fn rows(&self) -> impl Iterator<Item = &[Pair]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let pairs = &self.pairs[start..end as usize];
            start = end as usize;
            pairs
        })
    }

    /// Nodes of a row that `at` hears.
    fn heard(&self, at: usize) -> Range<usize> {
        at.saturating_sub(self.reach)..(at + self.reach + 1).min(self.len)
    }

    /// y = M x of the numbers `f` of the offsets; Mᵀ x of them in reverse.
    pub fn product(&self, f: &[f32], x: &[f32], y: &mut [f32]) {
        product(self, f, x, y);
    }

    /// Calls `add` with each offset and what of dy·M x it brings in a row.
    pub fn gradients(&self, x: &[f32], dy: &[f32], mut add: impl FnMut(usize, f64)) {
        let row_len = x.len() / self.ends.len().max(1);
        let width = row_len / self.len.max(1);
        for (pairs, dy) in self.rows().zip(dy.chunks_exact(row_len.max(1))) {
            for pair in pairs {
                let x = &x[pair.row as usize * row_len..][..row_len];
                for index in 0..2 * self.reach + 1 {
                    // The offset `index - reach`: to minus from.
                    let to = index.saturating_sub(self.reach);
                    let from = self.reach.saturating_sub(index);
                    let n = self.len.saturating_sub(to.max(from)) * width;
                    let mut sum = 0.0;
                    add_dot(&dy[to * width..][..n], &x[from * width..][..n], &mut sum);
                    add(pair.first as usize + index, sum);
                }
            }
        }
    }
}

/// Places along an axis that one hears in the mean: at its ends fewer than offsets.
fn mean_heard(axis: &Axis) -> f64 {
    let (len, reach) = (axis.len as f64, axis.reach as f64);
    (2.0 * reach + 1.0) - reach * (reach + 1.0) / len
}

/// The pairs of the rows that a row becomes with one more axis: its places, and from each the offsets that
/// stay in the grid.
fn along(axis: &Axis, pairs: &[Pair]) -> Vec<Vec<Pair>> {
    let (len, reach) = (axis.len, axis.reach);
    let of_place = |to: usize| {
        let heard = move |pair: &Pair| {
            let pair = *pair;
            (0..2 * reach + 1).filter_map(move |index| {
                let from = (to + reach).checked_sub(index).filter(|&from| from < len)?;
                let row = pair.row * len as u32 + from as u32;
                Some(Pair { row, first: pair.first * (2 * reach as u32 + 1) + index as u32 })
            })
        };
        pairs.iter().flat_map(heard).collect()
    };
    (0..len).map(of_place).collect()
}

vectorized! {
fn product[simd](sums: &'a Sums, f: &'a [f32], x: &'a [f32], y: &'a mut [f32]) {
    let row_len = x.len() / sums.ends.len().max(1);
    let width = row_len / sums.len.max(1);
    if width == 0 {
        return;
    }
    for (pairs, y) in sums.rows().zip(y.chunks_exact_mut(row_len)) {
        for (to, y) in y.chunks_exact_mut(width).enumerate() {
            by_stretches(simd, width, Heard { sums, pairs, f, x, to, y });
        }
    }
}
}

/// What a node hears of some columns.
struct Heard<'a> {
    sums: &'a Sums,
    pairs: &'a [Pair],
    f: &'a [f32],
    x: &'a [f32],
    to: usize,
    y: &'a mut [f32],
}

impl<S: Simd> Stretches<S> for Heard<'_> {
    #[inline(always)]
    fn stretch<const N: usize>(&mut self, simd: S, at: Range<usize>) {
        let (width, heard) = (self.y.len(), self.sums.heard(self.to));
        let mut sum = [simd.splat_f32s(0.0); N];
        for pair in self.pairs {
            // Nodes that follow each other are heard at offsets that fall.
            let highest = pair.first as usize + self.to + self.sums.reach - heard.start;
            let row = pair.row as usize * self.sums.len;
            for (back, from) in heard.clone().enumerate() {
                let x = &self.x[(row + from) * width..][at.clone()];
                add_stretch(simd, &mut sum, self.f[highest - back], x);
            }
        }
        store(simd, &mut self.y[at], sum);
    }
}
