//! Two passes over a forest, up and down, by which each node hears all others of its tree.
//!
//! A tree's order is not the memory's, so the processor does not see by itself what comes next: where rows are
//! not in the nearest caches, they are fetched some nodes ahead.

use std::ops::Range;

use pulp::Simd;

use super::spanning::{ROOT, Spanning};
use forecloud::base::simd::{
    Stretches, add_stretch, by_stretches, load, prefetch, store, vectorized,
};

/// Numbers of columns from which on rows are fetched ahead (4 MiB).
const FAR: usize = 1 << 20;
/// By how many nodes.
const AHEAD: usize = 8;

/// Begins to fetch the rows of the node at `place` of the order, if there is one, of each of `columns`.
#[inline(always)]
fn fetch<const N: usize>(
    forest: &Spanning,
    place: Option<usize>,
    width: usize,
    columns: [&[f32]; N],
) {
    let Some(&v) = place.and_then(|place| forest.order.get(place)) else { return };
    for columns in columns {
        prefetch(&columns[v as usize * width..][..width]);
    }
}

vectorized! {
/// up_v = x_v + Σ_children w_c up_c, what comes from below.
pub(super) fn climb[simd](forest: &'a Spanning, w: &'a [f32], x: &'a [f32], up: &'a mut [f32]) {
    let width = x.len() / forest.parents.len().max(1);
    if x.len() < FAR {
        climb_all::<S, false>(simd, forest, w, x, up, width);
    } else {
        climb_all::<S, true>(simd, forest, w, x, up, width);
    }
}
}

#[inline(always)]
fn climb_all<S: Simd, const IS_FAR: bool>(
    simd: S,
    forest: &Spanning,
    w: &[f32],
    x: &[f32],
    up: &mut [f32],
    width: usize,
) {
    for (at, &v) in forest.order.iter().enumerate().rev() {
        if IS_FAR {
            fetch(forest, at.checked_sub(AHEAD), width, [x, up]);
        }
        by_stretches(simd, width, Climb { forest, w, x, up, width, v: v as usize });
    }
}

struct Climb<'a> {
    forest: &'a Spanning,
    w: &'a [f32],
    x: &'a [f32],
    up: &'a mut [f32],
    width: usize,
    v: usize,
}

impl<S: Simd> Stretches<S> for Climb<'_> {
    #[inline(always)]
    fn stretch<const N: usize>(&mut self, simd: S, at: Range<usize>) {
        let (v, parent) = (self.v, self.forest.parents[self.v]);
        let mut sum = load::<S, N>(simd, &self.x[v * self.width..][at.clone()]);
        for &child in self.forest.neighbors(v).iter().filter(|&&child| child != parent) {
            let child = child as usize;
            let up = &self.up[child * self.width..][at.clone()];
            add_stretch(simd, &mut sum, self.w[child], up);
        }
        store(simd, &mut self.up[v * self.width..][at], sum);
    }
}

vectorized! {
/// From what comes from below to all: y_v = (1 - w²) up_v + w y_parent, in place.
pub(super) fn descend[simd](forest: &'a Spanning, w: &'a [f32], y: &'a mut [f32]) {
    let width = y.len() / forest.parents.len().max(1);
    if y.len() < FAR {
        descend_all::<S, false>(simd, forest, w, y, width);
    } else {
        descend_all::<S, true>(simd, forest, w, y, width);
    }
}
}

#[inline(always)]
fn descend_all<S: Simd, const IS_FAR: bool>(
    simd: S,
    forest: &Spanning,
    w: &[f32],
    y: &mut [f32],
    width: usize,
) {
    for (at, &v) in forest.order.iter().enumerate() {
        if IS_FAR {
            fetch(forest, Some(at + AHEAD), width, [y]);
        }
        let (v, parent) = (v as usize, forest.parents[v as usize]);
        if parent != ROOT {
            let parent = parent as usize * width;
            by_stretches(simd, width, Descend { w: w[v], y, v: v * width, parent });
        }
    }
}

struct Descend<'a> {
    w: f32,
    y: &'a mut [f32],
    v: usize,
    parent: usize,
}

impl<S: Simd> Stretches<S> for Descend<'_> {
    #[inline(always)]
    fn stretch<const N: usize>(&mut self, simd: S, at: Range<usize>) {
        let keep = simd.splat_f32s(1.0 - self.w * self.w);
        let mut y = load::<S, N>(simd, &self.y[self.v..][at.clone()]);
        y.iter_mut().for_each(|y| *y = simd.mul_f32s(keep, *y));
        add_stretch(simd, &mut y, self.w, &self.y[self.parent..][at.clone()]);
        store(simd, &mut self.y[self.v..][at], y);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::graphs;
    use super::*;
    use forecloud::engine::ops::check::numbers;

    vectorized! {
    fn far[simd](forest: &'a Spanning, w: &'a [f32], x: &'a [f32], y: &'a mut [f32], width: usize) {
        climb_all::<S, true>(simd, forest, w, x, y, width);
        descend_all::<S, true>(simd, forest, w, y, width);
    }
    }

    /// The masks' tests are of few nodes; what is fetched changes nothing.
    #[test]
    fn passes_that_fetch_are_those_that_do_not() {
        let mut forest = Spanning::default();
        for graph in graphs() {
            forest.rebuild(&graph.nodes());
            let (n, width) = (graph.positions.len(), 37);
            let (w, x) = (numbers(n, 1), numbers(n * width, 2));
            let (mut near, mut fetched) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            climb(&forest, &w, &x, &mut near);
            descend(&forest, &w, &mut near);
            far(&forest, &w, &x, &mut fetched, width);
            assert_eq!(near, fetched, "{}", graph.name);
        }
    }
}
