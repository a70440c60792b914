//! The minimum spanning forest of a step's graph: edges taken both ways, by length. What hangs together,
//! a body or a limb, hangs together in it.

use super::Nodes;
use forecloud::base::geometry::squared_distance;

/// A tree's root.
pub(super) const ROOT: u32 = u32::MAX;

/// Minimum spanning forest of a graph, each tree rooted at its first node.
#[derive(Debug, Clone, Default)]
pub(super) struct Spanning {
    /// Nodes, parents before children, depth first.
    pub order: Vec<u32>,
    /// Parent of each node, or [`ROOT`].
    pub parents: Vec<u32>,
    /// The way to it (m).
    pub lengths: Vec<f32>,
    edges: Vec<(f32, u32, u32)>,
    /// Union-find while the forest grows; afterwards where each node's neighbours begin.
    sets: Vec<u32>,
    branches: Vec<(u32, u32, f32)>,
    /// Neighbours in the forest.
    ends: Vec<u32>,
    /// What is still to be ordered: nodes, their parents and the ways to these.
    open: Vec<(u32, u32, f32)>,
}

/// The set of `i`, the way there made shorter.
fn find(sets: &mut [u32], mut i: u32) -> u32 {
    while sets[i as usize] != i {
        sets[i as usize] = sets[sets[i as usize] as usize];
        i = sets[i as usize];
    }
    i
}

impl Spanning {
    /// Spans `nodes`, in memory that it has.
    pub fn rebuild(&mut self, nodes: &Nodes<'_>) {
        self.span(nodes);
        self.root(nodes.positions.len());
    }

    /// Takes the forest that `edges` make, all of the same length; gives the first one that closes a ring.
    pub fn rebuild_of(&mut self, n: usize, edges: &[(u32, u32)]) -> Option<(u32, u32)> {
        self.sets.clear();
        self.sets.extend(0..n as u32);
        self.branches.clear();
        for &(i, j) in edges {
            if !self.join(1.0, i, j) {
                return Some((i, j));
            }
        }
        self.root(n);
        None
    }

    /// Makes an edge a branch, unless its ends are joined.
    fn join(&mut self, length: f32, i: u32, j: u32) -> bool {
        let (a, b) = (find(&mut self.sets, i), find(&mut self.sets, j));
        if a != b {
            self.sets[b as usize] = a;
            self.branches.extend([(i, j, length), (j, i, length)]);
        }
        a != b
    }

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
        for at in 0..self.edges.len() {
            let (length, i, j) = self.edges[at];
            self.join(length, i, j);
        }
    }

    /// Orders the nodes from the trees' first nodes on, depth first: in passes over them a node's parent and
    /// children are near in time, so their rows are still in the cache.
    fn root(&mut self, n: usize) {
        self.branches.sort_unstable_by_key(|&(i, j, _)| (i, j));
        self.sets.clear();
        self.sets.resize(n + 1, 0);
        self.branches.iter().for_each(|branch| self.sets[branch.0 as usize + 1] += 1);
        (0..n).for_each(|i| self.sets[i + 1] += self.sets[i]);
        self.ends.clear();
        self.ends.extend(self.branches.iter().map(|branch| branch.1));
        self.parents.clear();
        self.parents.resize(n, 0);
        self.lengths.clear();
        self.lengths.resize(n, f32::NAN);
        self.order.clear();
        for first in 0..n as u32 {
            if !self.lengths[first as usize].is_nan() {
                continue;
            }
            self.open.push((first, ROOT, 0.0));
            while let Some((node, parent, length)) = self.open.pop() {
                self.order.push(node);
                self.parents[node as usize] = parent;
                self.lengths[node as usize] = length;
                let at = self.sets[node as usize] as usize..self.sets[node as usize + 1] as usize;
                let branches = self.branches[at].iter().rev();
                let children = branches.filter(|branch| branch.1 != parent);
                self.open.extend(children.map(|&(_, child, length)| (child, node, length)));
            }
        }
    }

    /// Nodes that `node` is joined with in the forest.
    pub fn neighbors(&self, node: usize) -> &[u32] {
        &self.ends[self.sets[node] as usize..self.sets[node + 1] as usize]
    }
}
