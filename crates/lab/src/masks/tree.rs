//! Trees, any function of distance: M_ij = f(edges from i to j along the forest), 0 between trees, f a number
//! learnt for each distance (masked attention, Lemma 6.1); f = softplus(θ). As a layer's mask f has
//! [`REACH`] numbers and is 0 beyond; [`Tree::new`] makes it over any forest with as many as are asked for.
//!
//! By centroids ([`super::centroids`]): what passes through a centroid is summed by distance, and each
//! node hears the sums at f(its distance + theirs). Where these are few, that is a plain product, and all is
//! O(N (log N + R)) for R distances where nodes have few branches; else it goes by FFT ([`hankel`]), as in
//! the lemma, O(N log² N).

mod hankel;

use std::ops::Range;

use super::centroids::{Centroids, Seen, Step};
use super::spanning::Spanning;
use super::{Mask, Nodes, Reads, StepMask, sigmoid, softplus};
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::{axpys, dot, sum_of_rows, vectorized};
use forecloud::{Error, Result};

/// Distances that a layer tells apart: 0 to 31 edges.
const REACH: usize = 32;
/// Products of distances of one branch with those of the others from which on FFTs take less time.
const MANY: usize = 1 << 14;

/// The mask along the trees of a forest.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    reach: usize,
    spanning: Spanning,
    centroids: Centroids,
}

impl Tree {
    /// The mask over the forest of `n` nodes that `edges` make; f has `reach` numbers, for 0 to reach - 1
    /// edges, and is 0 beyond: n are enough for any forest.
    ///
    /// # Errors
    /// [`Error::Shape`] for edges of nodes that are not there, [`Error::Config`] where edges close a ring, and
    /// for a reach of 0 or of more than 2³¹.
    pub fn new(n: usize, edges: &[(u32, u32)], reach: usize) -> Result<Self> {
        const MOST: usize = 1 << 31;
        let (what, config) = ("a node of an edge", |key: &str, problem| {
            Err(Error::Config { key: key.into(), problem })
        });
        if let Some(&(i, j)) = edges.iter().find(|(i, j)| *i.max(j) as usize >= n) {
            return Err(Error::Shape { what, expected: n, got: i.max(j) as usize });
        }
        if !(1..=MOST).contains(&reach) || n > MOST {
            return config(
                "reach",
                format!("{reach} distances of {n} nodes; allowed are 1 to {MOST}"),
            );
        }
        let mut tree = Self { reach, ..Self::default() };
        if let Some((i, j)) = tree.spanning.rebuild_of(n, edges) {
            return config("edges", format!("the one from {i} to {j} closes a ring: not a forest"));
        }
        tree.centroids.rebuild(&tree.spanning, reach);
        Ok(tree)
    }

    /// Parameters: distances that are told apart.
    pub fn n_params(&self) -> usize {
        self.reach
    }
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
        self.reach = REACH;
        self.spanning.rebuild(nodes);
        self.centroids.rebuild(&self.spanning, REACH);
        Ok(())
    }
}

impl Mask for Tree {
    fn n_nodes(&self) -> usize {
        self.spanning.parents.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let (reach, width) = (self.reach, x.len() / self.n_nodes().max(1));
        let n_sums = self.centroids.n_distances();
        with_scratch(reach + (n_sums + 1) * width, |scratch| {
            let (f, rest) = scratch.split_at_mut(reach);
            let (sums, heard) = rest.split_at_mut(n_sums * width);
            f.iter_mut().zip(params).for_each(|(f, &theta)| *f = softplus(theta));
            // Each node is a centroid once.
            y.iter_mut().zip(x).for_each(|(y, x)| *y = f[0] * x);
            self.centroids.meetings(|step| match step {
                Step::Begin(n_sums) => sums[..n_sums * width].fill(0.0),
                Step::Meet(seen, others) if n_distances(seen) * others > MANY => {
                    hankel::hear(seen, f, &sums[..others * width], width, y);
                }
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
        let mut of_f = vec![0.0; self.reach];
        of_f[0] = x.chunks(64).zip(dy.chunks(64)).map(|(x, dy)| f64::from(dot(x, dy))).sum();
        let n_sums = self.centroids.n_distances();
        with_scratch(2 * n_sums * width, |scratch| {
            let (sums, of_dy) = scratch.split_at_mut(n_sums * width);
            self.centroids.meetings(|step| match step {
                Step::Begin(n_sums) => sums[..n_sums * width].fill(0.0),
                Step::Meet(seen, others) => {
                    let Some(d) = by_distance(seen, dy, width, of_dy) else { return };
                    let (of_dy, sums) = (&of_dy[d.start * width..], &sums[..others * width]);
                    let of_dy = &of_dy[..d.len() * width];
                    match d.len() * others > MANY {
                        true => hankel::correlate(d.start, of_dy, sums, width, &mut of_f),
                        false => correlate(d.start, of_dy, sums, width, &mut of_f),
                    }
                }
                Step::Join(seen) => gather(seen, x, width, sums),
            });
        });
        for (d, (of_f, &theta)) in d_params.iter_mut().zip(of_f.iter().zip(params)) {
            *d += of_f * sigmoid(theta);
        }
    }
}

/// Distances between a branch's nearest and farthest node, both told.
fn n_distances(seen: &[Seen]) -> usize {
    let ends = seen.first().zip(seen.last());
    ends.map_or(0, |(first, last)| (last.distance - first.distance) as usize + 1)
}

/// Sums of a branch's rows by distance into their places of `sums`; gives the distances.
fn by_distance(seen: &[Seen], x: &[f32], width: usize, sums: &mut [f32]) -> Option<Range<usize>> {
    let start = seen.first()?.distance as usize;
    let end = start + n_distances(seen);
    sums[start * width..end * width].fill(0.0);
    gather(seen, x, width, sums);
    Some(start..end)
}

vectorized! {
/// Adds to each f_t what a branch's sums of `dy` from distance `first` on, at d, and the others' sums at
/// t - d bring.
fn correlate(first: usize, of_dy: &'a [f32], sums: &'a [f32], width: usize, of_f: &'a mut [f64]) {
    for (at, of_dy) in of_dy.chunks_exact(width.max(1)).enumerate() {
        let others = sums.chunks_exact(width.max(1));
        for (of_f, sums) in of_f[first + at..].iter_mut().zip(others) {
            *of_f += f64::from(dot(of_dy, sums));
        }
    }
}
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_mask, assert_products, softplus64, spanning_forest_edges};
    use super::*;
    use forecloud::engine::ops::check::{assert_close_of, numbers};

    #[test]
    fn the_trees_mask_is_the_dense_one() {
        assert_mask::<Tree>(|nodes, params| {
            let f =
                |edges: &f64| params.get(*edges as usize).map_or(0.0, |&theta| softplus64(theta));
            spanning_forest_edges(nodes).iter().map(f).collect()
        });
    }

    /// Beyond the reach there is nothing, within any there is all; a star's centre is its centroid at once.
    #[test]
    fn long_paths_and_stars_are_taken_apart() {
        let path: Vec<(u32, u32)> = (1..90u32).map(|i| (i, i - 1)).collect();
        let star: Vec<(u32, u32)> = (1..41u32).map(|i| (0, i)).collect();
        for (name, n, edges, reach) in [
            ("a path, 32 distances", 90, &path, REACH),
            ("a path, all", 90, &path, 90),
            ("a path, more than there are", 90, &path, 200),
            ("a path, none but the own", 90, &path, 1),
            ("a star", 41, &star, REACH),
        ] {
            let tree = Tree::new(n, edges, reach).unwrap();
            assert_products(name, &tree, tree.n_params(), 1e-5, |params| {
                let edges = |i: usize, j: usize| match name {
                    "a star" => usize::from(i != j) + usize::from(i.min(j) > 0 && i != j),
                    _ => i.abs_diff(j),
                };
                let entry = |at| params.get(edges(at / n, at % n)).map_or(0.0, |&p| softplus64(p));
                (0..n * n).map(entry).collect()
            });
        }
    }

    /// A long path with branches, by FFT, against Lemma 6.2 in f64: each node counts what is below it by
    /// distance, and gets the rest from its parent.
    #[test]
    fn long_trees_are_those_of_the_other_lemma() {
        const N: usize = 1500;
        let parent = |i: usize| if i < 1000 { i - 1 } else { 7 * (i - 1000) % i };
        let edges: Vec<(u32, u32)> = (1..N).map(|i| (i as u32, parent(i) as u32)).collect();
        let tree = Tree::new(N, &edges, N).unwrap();
        let (params, x) = (numbers(N, 3), numbers(N, 4));
        let mut below = vec![vec![0.0; N]; N];
        for i in (0..N).rev() {
            below[i][0] = f64::from(x[i]);
            if i > 0 {
                let (above, from) = below.split_at_mut(i);
                let sums = above[parent(i)][1..].iter_mut().zip(&from[0]);
                sums.for_each(|(sum, x)| *sum += x);
            }
        }
        let mut all = below.clone();
        for i in 1..N {
            for d in 1..N {
                let own = if d > 1 { below[i][d - 2] } else { 0.0 };
                all[i][d] += all[parent(i)][d - 1] - own;
            }
        }
        let f = |theta: &f32| softplus64(f64::from(*theta));
        let hear = |all: &Vec<f64>| all.iter().zip(&params).map(|(x, p)| x * f(p)).sum();
        let wanted: Vec<f64> = all.iter().map(hear).collect();
        let mut y = vec![f32::NAN; N];
        tree.apply(&params, &x, &mut y);
        assert_close_of("a long tree", &y, &wanted, 1e-5);
        // The gradient of Σ dy·M x by f_t is Σ_i dy_i all_i(t).
        let (dy, mut d_params) = (numbers(N, 5), vec![0.0; N]);
        tree.gradients(&params, &x, &dy, &mut d_params);
        let of_f = |t: usize| all.iter().zip(&dy).map(|(all, &dy)| all[t] * f64::from(dy)).sum();
        let wanted: Vec<f64> = (0..N).map(|t| -> f64 { of_f(t) }).collect();
        for (t, (got, wanted)) in d_params.iter().zip(wanted).enumerate() {
            let wanted = wanted * sigmoid(params[t]);
            assert!((got - wanted).abs() < 1e-3, "{t}: {got}, not {wanted}");
        }
    }

    #[test]
    fn what_is_no_forest_is_refused() {
        let told =
            |edges: &[(u32, u32)], reach| Tree::new(3, edges, reach).unwrap_err().to_string();
        assert!(told(&[(0, 3)], 4).contains("a node of an edge"));
        assert!(told(&[(0, 1), (1, 2), (2, 0)], 4).contains("from 2 to 0 closes a ring"));
        assert!(told(&[(1, 1)], 4).contains("ring"));
        assert!(told(&[], 0).contains("reach"));
        assert_eq!(Tree::new(0, &[], 5).unwrap().n_nodes(), 0);
    }
}
