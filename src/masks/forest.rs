//! Trees: M_ij = exp(-a·d_ij), d_ij the length of the way from i to j along the forest, 0 between
//! trees (exp of affine distance, masked attention, section 3.3; the affine constant cancels in a
//! normalised attention). Two passes over the forest, up and down, give all products.
//!
//! The forest is the minimum spanning forest of the graph (edges taken both ways, by length): what
//! hangs together, a body or a limb, hangs together in it.

use super::{Mask, Nodes, sigmoid, softplus};
use crate::Result;
use crate::geometry::squared_distance;
use crate::scratch::with_scratch;
use crate::simd::{axpy, dot, vectorized};

/// Way on which the mask falls to 1/e where softplus(θ) is 1 (m).
const LENGTH_M: f32 = 0.05;
/// A tree's root.
const ROOT: u32 = u32::MAX;

/// Minimum spanning forest of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Forest {
    /// Nodes, parents before children.
    order: Vec<u32>,
    /// Parent of each node, and the way to it (m).
    parents: Vec<u32>,
    lengths: Vec<f32>,
    edges: Vec<(f32, u32, u32)>,
    /// Union-find while the forest grows; afterwards where each node's branches begin.
    sets: Vec<u32>,
    branches: Vec<(u32, u32, f32)>,
}

/// The set of `i`, the way there made shorter.
fn find(sets: &mut [u32], mut i: u32) -> u32 {
    while sets[i as usize] != i {
        sets[i as usize] = sets[sets[i as usize] as usize];
        i = sets[i as usize];
    }
    i
}

impl Forest {
    /// Kruskal's algorithm; ties in length go to lower nodes.
    fn span(&mut self, nodes: &Nodes<'_>) {
        let n = nodes.positions.len();
        self.edges.clear();
        for i in 0..n as u32 {
            for &j in nodes.graph.neighbors(i as usize).iter().filter(|&&j| j != i) {
                let (a, b) = (&nodes.positions[i as usize], &nodes.positions[j as usize]);
                self.edges.push((squared_distance(a, b).sqrt(), i.min(j), i.max(j)));
            }
        }
        self.edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        self.sets.clear();
        self.sets.extend(0..n as u32);
        self.branches.clear();
        for &(length, i, j) in &self.edges {
            let (a, b) = (find(&mut self.sets, i), find(&mut self.sets, j));
            if a != b {
                self.sets[b as usize] = a;
                self.branches.extend([(i, j, length), (j, i, length)]);
            }
        }
    }

    /// Orders the nodes from the trees' first nodes on, breadth first.
    fn root(&mut self, n: usize) {
        self.branches.sort_unstable_by_key(|&(i, j, _)| (i, j));
        self.sets.clear();
        let starts = (0..=n as u32).map(|i| self.branches.partition_point(|edge| edge.0 < i));
        self.sets.extend(starts.map(|start| start as u32));
        self.parents.clear();
        self.parents.resize(n, 0);
        self.lengths.clear();
        self.lengths.resize(n, f32::NAN);
        self.order.clear();
        let mut next = 0;
        for first in 0..n as u32 {
            if !self.lengths[first as usize].is_nan() {
                continue;
            }
            self.reach(first, ROOT, 0.0);
            while let Some(&node) = self.order.get(next) {
                next += 1;
                let at = self.sets[node as usize] as usize..self.sets[node as usize + 1] as usize;
                for place in at {
                    let (_, child, length) = self.branches[place];
                    if child != self.parents[node as usize] {
                        self.reach(child, node, length);
                    }
                }
            }
        }
    }

    fn reach(&mut self, node: u32, parent: u32, length: f32) {
        self.order.push(node);
        (self.parents[node as usize], self.lengths[node as usize]) = (parent, length);
    }
}

/// exp(-a·length) for θ.
fn fade(theta: f32, length: f32) -> f32 {
    (-softplus(theta) / LENGTH_M * length).exp()
}

vectorized! {
/// up_v = x_v + Σ_children w_c up_c: what comes from below.
fn climb(forest: &'a Forest, theta: f32, x: &'a [f32], up: &'a mut [f32]) {
    let width = x.len() / forest.parents.len().max(1);
    up.copy_from_slice(x);
    for &v in forest.order.iter().rev().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let (from, to) = pair(up, v as usize, forest.parents[v as usize] as usize, width);
        axpy(to, fade(theta, forest.lengths[v as usize]), from);
    }
}
}

vectorized! {
/// From what comes from below to all: y_v = (1 - w²) up_v + w y_parent, in place.
fn descend(forest: &'a Forest, theta: f32, y: &'a mut [f32]) {
    let width = y.len() / forest.parents.len().max(1);
    for &v in forest.order.iter().filter(|&&v| forest.parents[v as usize] != ROOT) {
        let w = fade(theta, forest.lengths[v as usize]);
        let (to, from) = pair(y, v as usize, forest.parents[v as usize] as usize, width);
        let keep = 1.0 - w * w;
        to.iter_mut().zip(&*from).for_each(|(y, p)| *y = keep * *y + w * p);
    }
}
}

/// Rows `a` and `b`, which are two.
#[inline(always)]
fn pair(rows: &mut [f32], a: usize, b: usize, width: usize) -> (&mut [f32], &mut [f32]) {
    let (low, high) = rows.split_at_mut(a.max(b) * width);
    let (low, high) = (&mut low[a.min(b) * width..][..width], &mut high[..width]);
    if a < b { (low, high) } else { (high, low) }
}

impl Mask for Forest {
    fn n_params(_: usize) -> usize {
        1
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.span(nodes);
        self.root(nodes.positions.len());
        Ok(())
    }

    fn n_nodes(&self) -> usize {
        self.parents.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        climb(self, params[0], x, y);
        descend(self, params[0], y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.apply(params, x, y);
    }

    /// ∂a = -Σ_edges length · (what of dy·M x crosses the edge, either way).
    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let theta = params[0];
        let width = x.len() / self.n_nodes().max(1);
        with_scratch(4 * x.len(), |scratch| {
            let (ups, alls) = scratch.split_at_mut(2 * x.len());
            let (up_x, up_dy) = ups.split_at_mut(x.len());
            let (all_x, all_dy) = alls.split_at_mut(x.len());
            for (from, up, all) in [(x, &mut *up_x, &mut *all_x), (dy, &mut *up_dy, &mut *all_dy)] {
                climb(self, theta, from, up);
                all.copy_from_slice(up);
                descend(self, theta, all);
            }
            let row = |rows: &[f32], node: u32| -> std::ops::Range<usize> {
                debug_assert!(!rows.is_empty());
                node as usize * width..(node as usize + 1) * width
            };
            let mut d_rate = 0.0;
            for (v, &parent) in (0u32..).zip(&self.parents).filter(|(_, parent)| **parent != ROOT) {
                let length = self.lengths[v as usize];
                let w = fade(theta, length);
                let (here, there) = (row(x, v), row(x, parent));
                // From below the edge to all beyond it, and back: what the parent has without it.
                let [mut crossing, mut twice] = [0.0; 2];
                crossing += dot(&up_dy[here.clone()], &all_x[there.clone()]);
                crossing += dot(&up_x[here.clone()], &all_dy[there]);
                twice += dot(&up_dy[here.clone()], &up_x[here]);
                d_rate -= f64::from(length * w) * f64::from(crossing - 2.0 * w * twice);
            }
            d_params[0] += d_rate * sigmoid(theta) / f64::from(LENGTH_M);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masks::check::{assert_mask, softplus64, spanning_forest};

    #[test]
    fn the_forests_mask_is_the_dense_one() {
        assert_mask::<Forest>(|nodes, params| {
            let rate = softplus64(params[0]) / f64::from(LENGTH_M);
            spanning_forest(nodes).iter().map(|d| (-rate * d).exp()).collect()
        });
    }
}
