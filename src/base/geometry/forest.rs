//! Sets that grow together: a forest of parents (union and find), the least index the root.

/// Which set each of some numbers belongs to.
#[derive(Debug, Default, Clone)]
pub(crate) struct Forest {
    parents: Vec<u32>,
}

impl Forest {
    /// `n` sets of one number each.
    pub(crate) fn reset(&mut self, n: usize) {
        self.parents.clear();
        self.parents.extend(0..n as u32);
    }

    /// Makes one set of those of `a` and `b`; in which order sets are joined does not matter.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b) as u32;
    }

    /// The least number of `i`'s set.
    pub(crate) fn root(&mut self, mut i: usize) -> usize {
        let parents = &mut self.parents;
        while parents[i] as usize != i {
            // Halves the way for the next time.
            parents[i] = parents[parents[i] as usize];
            i = parents[i] as usize;
        }
        i
    }
}
