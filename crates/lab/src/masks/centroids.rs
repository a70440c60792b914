//! Centroid decomposition of a forest: the ways of a tree that lead through its centroid are told by the
//! ends' distances from it; without the centroid parts of at most half the nodes are left, which are
//! taken apart in the same way. So each node is seen from at most log2 N + 1 centroids.

use std::ops::Range;

use super::spanning::{ROOT, Spanning};

/// A node as seen from a centroid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub node: u32,
    /// Edges between them.
    pub distance: u32,
}

/// A centroid, or what hangs on one of its edges: nodes within reach by distance, which are consecutive.
#[derive(Debug, Clone)]
struct Branch {
    seen: Range<u32>,
    /// Of a centroid, which is the first branch of its own.
    is_centroid: bool,
}

/// A forest's centroids and what each sees.
#[derive(Debug, Clone, Default)]
pub(super) struct Centroids {
    /// Distances that are told apart, from 0 on.
    reach: usize,
    seen: Vec<Seen>,
    branches: Vec<Branch>,
    work: Work,
}

/// What the decomposition needs.
#[derive(Debug, Clone, Default)]
struct Work {
    /// Neighbours of each node in the forest: `starts` into `ends`.
    starts: Vec<u32>,
    ends: Vec<u32>,
    sizes: Vec<u32>,
    taken: Vec<bool>,
    /// Nodes of a part with where they were come from.
    part: Vec<(u32, u32)>,
    open: Vec<u32>,
}

impl Work {
    fn rebuild(&mut self, spanning: &Spanning) {
        let n = spanning.parents.len();
        self.starts.clear();
        self.starts.resize(n + 2, 0);
        let edges = || (0u32..).zip(&spanning.parents).filter(|(_, parent)| **parent != ROOT);
        for (child, &parent) in edges() {
            self.starts[child as usize + 2] += 1;
            self.starts[parent as usize + 2] += 1;
        }
        (2..n + 2).for_each(|i| self.starts[i] += self.starts[i - 1]);
        self.ends.clear();
        self.ends.resize(self.starts[n + 1] as usize, 0);
        for (child, &parent) in edges() {
            for (from, to) in [(child, parent), (parent, child)] {
                let at = &mut self.starts[from as usize + 1];
                self.ends[*at as usize] = to;
                *at += 1;
            }
        }
        self.sizes.clear();
        self.sizes.resize(n, 0);
        self.taken.clear();
        self.taken.resize(n, false);
    }

    fn neighbors(&self, node: u32) -> Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// The part of the forest that `first` is in, breadth first.
    fn walk(&mut self, first: u32) {
        self.part.clear();
        self.part.push((first, ROOT));
        let mut next = 0;
        while let Some(&(node, from)) = self.part.get(next) {
            next += 1;
            for at in self.neighbors(node) {
                let to = self.ends[at];
                if to != from && !self.taken[to as usize] {
                    self.part.push((to, node));
                }
            }
        }
    }

    /// A node of the part without which none of what is left has more than half of it.
    fn centroid(&mut self, first: u32) -> u32 {
        self.walk(first);
        self.part.iter().for_each(|&(node, _)| self.sizes[node as usize] = 1);
        let half = self.part.len() as u32 / 2;
        for &(node, from) in self.part.iter().rev() {
            let size = self.sizes[node as usize];
            // The deepest with more than half below it; breadth first, the first from behind.
            if size > half || from == ROOT {
                return node;
            }
            self.sizes[from as usize] += size;
        }
        first
    }
}

impl Centroids {
    /// Takes the forest apart, in memory that it has; looks no farther than `reach` distances, from 0 on.
    pub fn rebuild(&mut self, spanning: &Spanning, reach: usize) {
        self.reach = reach;
        self.seen.clear();
        self.branches.clear();
        self.work.rebuild(spanning);
        for first in 0..spanning.parents.len() as u32 {
            if spanning.parents[first as usize] != ROOT {
                continue;
            }
            self.work.open.push(first);
            while let Some(part) = self.work.open.pop() {
                let centroid = self.work.centroid(part);
                self.work.taken[centroid as usize] = true;
                self.look_around(centroid);
            }
        }
    }

    fn look_around(&mut self, centroid: u32) {
        let start = self.seen.len() as u32;
        self.seen.push(Seen { node: centroid, distance: 0 });
        self.branches.push(Branch { seen: start..start + 1, is_centroid: true });
        for at in self.work.neighbors(centroid) {
            let first = self.work.ends[at];
            if self.work.taken[first as usize] {
                continue;
            }
            self.work.open.push(first);
            if self.reach < 2 {
                continue;
            }
            let start = self.seen.len();
            // Breadth first, no farther than f reaches; `seen` is its own queue.
            self.work.part.clear();
            self.work.part.push((first, centroid));
            self.seen.push(Seen { node: first, distance: 1 });
            let mut next = 0;
            while let Some(&(node, from)) = self.work.part.get(next) {
                let distance = self.seen[start + next].distance + 1;
                next += 1;
                if distance as usize == self.reach {
                    break;
                }
                for at in self.work.neighbors(node) {
                    let to = self.work.ends[at];
                    if to != from && !self.work.taken[to as usize] {
                        self.work.part.push((to, node));
                        self.seen.push(Seen { node: to, distance });
                    }
                }
            }
            let seen = start as u32..self.seen.len() as u32;
            self.branches.push(Branch { seen, is_centroid: false });
        }
    }
}

/// A step of the way over the branches of a centroid.
pub(super) enum Step<'a> {
    /// A centroid's first: there are no others yet, and there will be so many distances.
    Begin(usize),
    /// The branch meets the others, which have so many distances.
    Meet(&'a [Seen], usize),
    /// From now on the branch is one of the others.
    Join(&'a [Seen]),
}

impl Centroids {
    /// Distances at which a centroid sees nodes, of one with these branches.
    fn n_seen(&self, branches: &[Branch]) -> usize {
        let last = |branch: &Branch| {
            self.seen[branch.seen.start as usize..branch.seen.end as usize].last()
        };
        branches.iter().filter_map(last).map(|seen| seen.distance as usize + 1).max().unwrap_or(0)
    }

    /// The most distances at which any centroid sees nodes.
    pub fn n_distances(&self) -> usize {
        self.branches
            .chunk_by(|_, next| !next.is_centroid)
            .map(|of| self.n_seen(of))
            .max()
            .unwrap_or(0)
    }

    /// Goes over the branches of each centroid, in order and in reverse: each pair meets once either
    /// way, so that nothing is ever subtracted.
    pub fn meetings(&self, mut step: impl FnMut(Step<'_>)) {
        for branches in self.branches.chunk_by(|_, next| !next.is_centroid) {
            for reverse in [false, true] {
                let mut others = 0;
                step(Step::Begin(self.n_seen(branches)));
                for at in 0..branches.len() {
                    let branch = &branches[if reverse { branches.len() - 1 - at } else { at }];
                    let seen = &self.seen[branch.seen.start as usize..branch.seen.end as usize];
                    step(Step::Meet(seen, others));
                    step(Step::Join(seen));
                    others = others.max(seen.last().map_or(0, |seen| seen.distance as usize + 1));
                }
            }
        }
    }
}
