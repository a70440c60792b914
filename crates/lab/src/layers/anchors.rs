//! Anchors: a subset of the nodes that stands for all, for message passing.
//!
//! Every s-th node is an anchor. Where nodes are in Morton order (the scene and its history are, as
//! they were sampled) that spreads the anchors evenly over space. Anchors and the rest are numbered
//! on their own, each in the order of the nodes, so that rows of either lie densely in memory and
//! those of a chunk of nodes adjacent.

use std::ops::Range;

use forecloud::base::geometry::{Neighbors, Vec3};
use forecloud::engine::graph::KnnGraph;
use forecloud::{Error, Result};

/// Lists of indices, one behind the other.
#[derive(Debug, Default, Clone)]
struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

/// Anchors of a graph's nodes, and which of them is nearest to each of the rest.
#[derive(Debug, Default, Clone)]
pub struct Anchors {
    stride: usize,
    /// Of all nodes (m).
    positions: Vec<Vec3>,
    anchor_positions: Vec<Vec3>,
    rest_positions: Vec<Vec3>,
    /// Nearest anchor of each of the rest, by its number among the anchors.
    nearest: Vec<u32>,
    search: Neighbors,
    /// Of each node, the anchors that have it as a neighbour.
    heard_by_anchors: Lists,
    /// Of each anchor, those of the rest that it is nearest to.
    heard_by_rest: Lists,
}

impl Anchors {
    /// Makes every `stride`-th node of `positions` (m) an anchor; finds each other's nearest.
    /// Reuses this object's memory.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `stride` is 2 or more; as [`Neighbors::nearest`].
    pub fn rebuild(&mut self, positions: &[Vec3], stride: usize) -> Result<()> {
        if stride < 2 {
            return Err(Error::Shape { what: "stride of the anchors", expected: 2, got: stride });
        }
        self.stride = stride;
        self.positions.clear();
        self.positions.extend_from_slice(positions);
        self.anchor_positions.clear();
        self.anchor_positions.extend(positions.iter().step_by(stride));
        self.rest_positions.clear();
        for group in positions.chunks(stride) {
            self.rest_positions.extend_from_slice(&group[1..]);
        }
        self.search.nearest(&self.anchor_positions, &self.rest_positions, &mut self.nearest)
    }

    /// Lists by sender, for the backward pass; `knn` is the graph of the same nodes.
    pub fn transpose(&mut self, knn: &KnnGraph) {
        let stride = self.stride;
        let neighbors = |a: usize| knn.neighbors(a * stride);
        self.heard_by_anchors.transpose(self.positions.len(), self.n_anchors(), neighbors);
        let nearest = |r: usize| std::slice::from_ref(&self.nearest[r]);
        self.heard_by_rest.transpose(self.anchor_positions.len(), self.nearest.len(), nearest);
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// True before the first [`Anchors::rebuild`].
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Number of anchors.
    pub fn n_anchors(&self) -> usize {
        self.anchor_positions.len()
    }

    /// Number of nodes that are none.
    pub fn n_rest(&self) -> usize {
        self.rest_positions.len()
    }

    /// Node of anchor `a`.
    #[inline]
    pub fn anchor_node(&self, a: usize) -> usize {
        a * self.stride
    }

    /// Node of the rest's number `r`.
    #[inline]
    pub fn rest_node(&self, r: usize) -> usize {
        r + r / (self.stride - 1) + 1
    }

    /// The anchors among `nodes`.
    #[inline]
    pub fn anchors_in(&self, nodes: &Range<usize>) -> Range<usize> {
        nodes.start.div_ceil(self.stride)..nodes.end.div_ceil(self.stride)
    }

    /// The rest among `nodes`.
    #[inline]
    pub fn rest_in(&self, nodes: &Range<usize>) -> Range<usize> {
        let before = |node: usize| node - node.div_ceil(self.stride);
        before(nodes.start)..before(nodes.end)
    }

    /// Position of node `i` (m).
    #[inline]
    pub fn position(&self, i: usize) -> Vec3 {
        self.positions[i]
    }

    /// Position of anchor `a` (m).
    #[inline]
    pub fn anchor_position(&self, a: usize) -> Vec3 {
        self.anchor_positions[a]
    }

    /// Position of the rest's number `r` (m).
    #[inline]
    pub fn rest_position(&self, r: usize) -> Vec3 {
        self.rest_positions[r]
    }

    /// The anchor nearest to the rest's number `r`; of equally near ones, the first.
    #[inline]
    pub fn nearest(&self, r: usize) -> &[u32] {
        std::slice::from_ref(&self.nearest[r])
    }

    /// Anchors that have node `i` as a neighbour, ascending.
    #[inline]
    pub fn anchors_that_hear(&self, i: usize) -> &[u32] {
        self.heard_by_anchors.list(i)
    }

    /// Those of the rest that anchor `a` is nearest to, ascending.
    #[inline]
    pub fn rest_that_hears(&self, a: usize) -> &[u32] {
        self.heard_by_rest.list(a)
    }
}

impl Lists {
    #[inline]
    fn list(&self, i: usize) -> &[u32] {
        &self.items[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// For each of `n_senders` the receivers, of `n_receivers`, whose `senders` it is among.
    fn transpose<'a>(
        &mut self,
        n_senders: usize,
        n_receivers: usize,
        senders: impl Fn(usize) -> &'a [u32],
    ) {
        self.starts.clear();
        self.starts.resize(n_senders + 2, 0);
        for &j in (0..n_receivers).flat_map(&senders) {
            self.starts[j as usize + 2] += 1;
        }
        for j in 2..self.starts.len() {
            self.starts[j] += self.starts[j - 1];
        }
        self.items.resize(self.starts[n_senders + 1] as usize, 0);
        for (i, &j) in (0..n_receivers).flat_map(|i| senders(i).iter().map(move |j| (i, j))) {
            let at = &mut self.starts[j as usize + 1];
            self.items[*at as usize] = i as u32;
            *at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::base::geometry::squared_distance;
    use forecloud::base::random::{draw, uniform};

    fn points(n: u64) -> Vec<Vec3> {
        (0..n).map(|i| std::array::from_fn(|axis| uniform(draw(7, 0, i, axis as u64)))).collect()
    }

    #[test]
    fn every_node_is_an_anchor_or_hears_the_nearest_one() {
        for (n, stride) in [(1003, 4), (50, 2), (64, 7), (5, 9), (1, 2)] {
            let positions = points(n);
            let n = positions.len();
            let mut anchors = Anchors::default();
            anchors.rebuild(&positions, stride).unwrap();
            assert_eq!(anchors.n_anchors() + anchors.n_rest(), n);
            let mut nodes: Vec<usize> =
                (0..anchors.n_anchors()).map(|a| anchors.anchor_node(a)).collect();
            assert!(nodes.iter().all(|node| node % stride == 0));
            for r in 0..anchors.n_rest() {
                let node = anchors.rest_node(r);
                nodes.push(node);
                assert_eq!(anchors.rest_position(r), positions[node]);
                let distance = |a: &usize| {
                    squared_distance(&positions[node], &positions[anchors.anchor_node(*a)])
                };
                let nearest = (0..anchors.n_anchors())
                    .min_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.cmp(b)));
                assert_eq!(anchors.nearest(r), [nearest.unwrap() as u32]);
            }
            nodes.sort_unstable();
            assert!(nodes.iter().copied().eq(0..n), "each node is one or the other");
            // Chunks split both kinds without gaps.
            let (mut next_anchor, mut next_rest) = (0, 0);
            for start in (0..n).step_by(10) {
                let chunk = start..(start + 10).min(n);
                let (a, r) = (anchors.anchors_in(&chunk), anchors.rest_in(&chunk));
                assert_eq!((a.start, r.start), (next_anchor, next_rest));
                assert!(a.clone().all(|a| chunk.contains(&anchors.anchor_node(a))));
                assert!(r.clone().all(|r| chunk.contains(&anchors.rest_node(r))));
                assert_eq!(a.len() + r.len(), chunk.len());
                (next_anchor, next_rest) = (a.end, r.end);
            }
        }
        assert!(Anchors::default().rebuild(&points(9), 1).is_err());
    }

    #[test]
    fn transposed_lists_say_the_same() {
        let positions = points(203);
        let mut knn = KnnGraph::default();
        knn.rebuild(&positions, 3).unwrap();
        let mut anchors = Anchors::default();
        anchors.rebuild(&positions, 4).unwrap();
        anchors.transpose(&knn);
        let mut n_heard = 0;
        for i in 0..203 {
            let heard = anchors.anchors_that_hear(i);
            assert!(heard.is_sorted());
            n_heard += heard.len();
            let hears = |&a: &u32| knn.neighbors(4 * a as usize).contains(&(i as u32));
            assert!(heard.iter().all(hears));
        }
        assert_eq!(n_heard, 3 * anchors.n_anchors());
        let told: Vec<usize> = (0..anchors.n_anchors())
            .flat_map(|a| {
                let heard = anchors.rest_that_hears(a);
                assert!(heard.iter().all(|&r| anchors.nearest(r as usize) == [a as u32]));
                heard.iter().map(|&r| r as usize)
            })
            .collect();
        assert_eq!(told.len(), anchors.n_rest());
    }
}
