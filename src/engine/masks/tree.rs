//! Trees, any function of distance: M_ij = f(edges from i to j along the forest), 0 between trees and
//! beyond [`REACH`] edges, f a number learnt for each distance (masked attention, Lemma 6.1);
//! f = softplus(θ).
//!
//! By centroids ([`super::centroids`]): what passes through a centroid is summed by distance, and each
//! node hears the sums at f(its distance + theirs). The lemma multiplies by FFT, O(N log² N); with a
//! table of R distances the plain product is no more, and all is O(N (log N + R)) where nodes have few
//! branches.

use super::centroids::{Centroids, REACH, Seen, Step};
use super::spanning::Spanning;
use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use crate::Result;
use crate::base::scratch::with_scratch;
use crate::base::simd::{axpys, dot, sum_of_rows, vectorized};

/// The forest of the step's graph, taken apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    spanning: Spanning,
    centroids: Centroids,
}

vectorized! {
/// Adds the branch's rows to the sums of each distance.
fn gather[simd](seen: &'a [Seen], x: &'a [f32], width: usize, sums: &'a mut [f32]) {
    for seen in seen {
        let x = &x[seen.node as usize * width..][..width];
        axpys(simd, &mut sums[seen.distance as usize * width..][..width], [1.0], [x]);
    }
}
}

vectorized! {
/// What a branch hears of the sums of the others, `n_sums` distances: y_i += Σ_e f(d_i + e) sums_e.
fn hear[simd](
    seen: &'a [Seen],
    f: &'a [f32],
    sums: &'a [f32],
    n_sums: usize,
    width: usize,
    y: &'a mut [f32],
    heard: &'a mut [f32],
) {
    let mut of = None;
    for seen in seen {
        let distance = seen.distance as usize;
        if of != Some(distance) {
            of = Some(distance);
            let terms = f[distance..].iter().copied().zip(0..n_sums);
            sum_of_rows(simd, heard, sums, terms);
        }
        axpys(simd, &mut y[seen.node as usize * width..][..width], [1.0], [&*heard]);
    }
}
}

impl StepMask for Tree {
    fn n_params(_: usize) -> usize {
        REACH
    }

    fn reads() -> Reads {
        Reads::NOTHING
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.spanning.rebuild(nodes);
        self.centroids.rebuild(&self.spanning);
        Ok(())
    }
}

impl Mask for Tree {
    fn n_nodes(&self) -> usize {
        self.spanning.parents.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let width = x.len() / self.n_nodes().max(1);
        with_scratch(REACH + (REACH + 1) * width, |scratch| {
            let (f, rest) = scratch.split_at_mut(REACH);
            let (sums, heard) = rest.split_at_mut(REACH * width);
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            // Each node is a centroid once.
            y.iter_mut().zip(x).for_each(|(y, x)| *y = f[0] * x);
            self.centroids.meetings(|step| match step {
                Step::Begin => sums.fill(0.0),
                Step::Meet(seen, others) => hear(seen, f, sums, others, width, y, heard),
                Step::Join(seen) => gather(seen, x, width, sums),
            });
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂f_t: Σ dy_i·x_j over the pairs that are t edges apart.
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let width = x.len() / self.n_nodes().max(1);
        let mut of_f = [0.0; REACH];
        of_f[0] = x.chunks(64).zip(dy.chunks(64)).map(|(x, dy)| f64::from(dot(x, dy))).sum();
        with_scratch(2 * REACH * width, |scratch| {
            let (sums, of_dy) = scratch.split_at_mut(REACH * width);
            self.centroids.meetings(|step| match step {
                Step::Begin => sums.fill(0.0),
                Step::Meet(seen, others) => {
                    correlate(seen, dy, sums, others, width, of_dy, &mut of_f)
                }
                Step::Join(seen) => gather(seen, x, width, sums),
            });
        });
        for (d, (of_f, &theta)) in d_params.iter_mut().zip(of_f.iter().zip(params)) {
            *d += of_f * sigmoid(theta);
        }
    }
}

vectorized! {
/// Adds to each f_t what a branch's `dy` at distance d and the others' sums at t - d bring.
fn correlate(
    seen: &'a [Seen],
    dy: &'a [f32],
    sums: &'a [f32],
    n_sums: usize,
    width: usize,
    of_dy: &'a mut [f32],
    of_f: &'a mut [f64; REACH],
) {
    let Some(last) = seen.last() else { return };
    let (first, n) = (seen[0].distance as usize, last.distance as usize + 1);
    of_dy[first * width..n * width].fill(0.0);
    gather(seen, dy, width, of_dy);
    for d in first..n {
        let others = sums.chunks_exact(width.max(1)).take(n_sums);
        for (of_f, sums) in of_f[d..].iter_mut().zip(others) {
            *of_f += f64::from(dot(&of_dy[d * width..][..width], sums));
        }
    }
}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::masks::check::{
        assert_mask, assert_products, softplus64, spanning_forest_edges,
    };
    use crate::engine::masks::spanning::ROOT;

    #[test]
    fn the_trees_mask_is_the_dense_one() {
        assert_mask::<Tree>(|nodes, params| {
            let f =
                |edges: &f64| params.get(*edges as usize).map_or(0.0, |&theta| softplus64(theta));
            spanning_forest_edges(nodes).iter().map(f).collect()
        });
    }

    /// Beyond the reach there is nothing; a star's centre is its centroid at once.
    #[test]
    fn long_paths_and_stars_are_taken_apart() {
        let path: Vec<u32> = (0..90u32).map(|i| i.wrapping_sub(1)).collect();
        let star = [&[ROOT][..], &[0; 40]].concat();
        for (name, parents) in [("a long path", path), ("a star", star)] {
            let n = parents.len();
            let mut tree = Tree::default();
            tree.spanning.parents = parents;
            tree.centroids.rebuild(&tree.spanning);
            assert_products(name, &tree, REACH, 1e-5, |params| {
                let edges = |i: usize, j: usize| match name {
                    "a star" => usize::from(i != j) + usize::from(i.min(j) > 0 && i != j),
                    _ => i.abs_diff(j),
                };
                let entry = |at| params.get(edges(at / n, at % n)).map_or(0.0, |&p| softplus64(p));
                (0..n * n).map(entry).collect()
            });
        }
    }
}
