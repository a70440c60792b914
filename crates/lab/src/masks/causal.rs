//! Causal mask: M_ij = 1 where j is not later than i, 0 otherwise (masked attention, section 3.1). Sums
//! from the first time on, and from the last one back: O(N) after the nodes are sorted by time.

use super::Mask;
use forecloud::base::simd::axpy;

/// The mask over nodes with times; nodes of one time hear each other.
#[derive(Debug, Clone)]
pub struct Causal {
    /// Nodes by time.
    order: Vec<u32>,
    /// Where each time ends in `order`.
    ends: Vec<u32>,
}

impl Causal {
    /// The mask over nodes at `times` (s); it has no parameters.
    pub fn new(times: &[f32]) -> Self {
        let time = |&i: &u32| times[i as usize];
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let groups = order.chunk_by(|a, b| time(a) == time(b));
        let ends = groups.scan(0, |end, group| {
            *end += group.len() as u32;
            Some(*end)
        });
        let ends = ends.collect();
        Self { order, ends }
    }

    /// Sums over the times so far, in the order that is given.
    fn sums<'a>(&'a self, times: impl Iterator<Item = &'a [u32]>, x: &[f32], y: &mut [f32]) {
        let width = x.len() / self.order.len().max(1);
        let mut before: Option<&[u32]> = None;
        for group in times {
            let (&first, others) = group.split_first().unwrap_or((&0, &[]));
            let row = |i: u32| i as usize * width..(i as usize + 1) * width;
            match before.and_then(<[u32]>::first) {
                Some(&last) => y.copy_within(row(last), row(first).start),
                None => y[row(first)].fill(0.0),
            }
            group.iter().for_each(|&i| axpy(&mut y[row(first)], 1.0, &x[row(i)]));
            others.iter().for_each(|&i| y.copy_within(row(first), row(i).start));
            before = Some(group);
        }
    }

    fn times(&self) -> impl DoubleEndedIterator<Item = &[u32]> {
        (0..self.ends.len()).map(|at| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.order[start as usize..self.ends[at] as usize]
        })
    }
}

impl Mask for Causal {
    fn n_nodes(&self) -> usize {
        self.order.len()
    }

    fn apply(&self, _: &[f32], x: &[f32], y: &mut [f32]) {
        self.sums(self.times(), x, y);
    }

    fn apply_transposed(&self, _: &[f32], x: &[f32], y: &mut [f32]) {
        self.sums(self.times().rev(), x, y);
    }

    fn gradients(&self, _: &[f32], _: &[f32], _: &[f32], _: &mut [f64]) {}
}

#[cfg(test)]
mod tests {
    use super::super::check::assert_products;
    use super::*;

    #[test]
    fn the_causal_mask_is_the_dense_one() {
        for times in
            [&[0.0f32, 0.1, 0.2, 0.3][..], &[3.0, 1.0, 2.0, 1.0, 3.0, -1.0, 1.0], &[5.0], &[]]
        {
            let n = times.len();
            assert_products(&format!("{times:?}"), &Causal::new(times), 0, 1e-6, |_| {
                (0..n * n).map(|at| f64::from(u8::from(times[at / n] >= times[at % n]))).collect()
            });
        }
    }
}
