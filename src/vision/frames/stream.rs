//! One stream of stamped items: what waits for partners, and the stamps of what came.

use crate::message::{Image, Stamp};
use std::collections::VecDeque;

/// Stamps that are remembered at least.
const MIN_RECENT: usize = 32;

/// What has a stamp and consists of images.
pub(super) trait Stamped {
    fn stamp(&self) -> Stamp;
    /// What the counts count.
    fn n_images(&self) -> u64;
}

impl Stamped for Image {
    fn stamp(&self) -> Stamp {
        self.header.stamp
    }

    fn n_images(&self) -> u64 {
        1
    }
}

/// Items of one source, ascending; bounded.
pub(super) struct Stream<T> {
    waiting: VecDeque<T>,
    max_waiting: usize,
    /// Ascending: also of what no longer waits.
    recent: VecDeque<Recent>,
}

struct Recent {
    stamp: Stamp,
    /// Whether the item became part of something.
    used: bool,
}

/// What a stream has for a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearest {
    /// The waiting item of this index, whatever comes later.
    At(usize),
    /// It depends on what comes next.
    Wait,
    /// Nothing, whatever comes later.
    Nothing,
}

impl<T: Stamped> Stream<T> {
    pub(super) fn new(max_waiting: usize) -> Self {
        let max_waiting = max_waiting.max(1);
        Self { waiting: VecDeque::new(), max_waiting, recent: VecDeque::new() }
    }

    /// Adds an item; the item that must go for it, oldest first. Refuses a stamp that is known.
    pub(super) fn push(&mut self, item: T) -> Result<Option<T>, T> {
        let stamp = item.stamp();
        let at = self.recent.partition_point(|recent| recent.stamp < stamp);
        if self.recent.get(at).is_some_and(|recent| recent.stamp == stamp) {
            return Err(item);
        }
        self.recent.insert(at, Recent { stamp, used: false });
        if self.recent.len() > MIN_RECENT.max(2 * self.max_waiting) {
            self.recent.pop_front();
        }
        let at = self.waiting.partition_point(|other| other.stamp() < stamp);
        self.waiting.insert(at, item);
        Ok(if self.waiting.len() > self.max_waiting { self.waiting.pop_front() } else { None })
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter()
    }

    /// Takes out the oldest item if its stamp is below `until`.
    pub(super) fn pop_before(&mut self, until: Stamp) -> Option<T> {
        self.waiting.front().is_some_and(|item| item.stamp() < until).then_some(())?;
        self.waiting.pop_front()
    }

    /// Takes out an item to become part of something.
    pub(super) fn take(&mut self, index: usize) -> Option<T> {
        let item = self.waiting.remove(index)?;
        let at = self.recent.partition_point(|recent| recent.stamp < item.stamp());
        if let Some(recent) = self.recent.get_mut(at)
            && recent.stamp == item.stamp()
        {
            recent.used = true;
        }
        Some(item)
    }

    /// Takes out an item that becomes part of nothing.
    pub(super) fn discard(&mut self, index: usize) -> Option<T> {
        self.waiting.remove(index)
    }

    /// Forgets all, stamps too.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
        self.waiting.clear();
    }

    /// The waiting item nearest to `stamp`, within `tolerance` (ns).
    ///
    /// The answer follows from the stream's stamps alone, however far the stream has come: a
    /// nearest item before `stamp` is final without its successor if that, one more period on,
    /// would not be nearer. `finished`: nothing more will come.
    pub(super) fn nearest(&self, stamp: Stamp, tolerance: u64, finished: bool) -> Nearest {
        let after = self.waiting.partition_point(|item| item.stamp() <= stamp);
        let distance = |i: usize| self.waiting[i].stamp().abs_diff(stamp);
        let near = |i: &usize| distance(*i) <= tolerance;
        let before = after.checked_sub(1).filter(near);
        if let Some(i) = before
            && (distance(i) == 0
                || self.gap(self.waiting[i].stamp()).is_some_and(|gap| gap >= 2 * distance(i)))
        {
            return Nearest::At(i);
        }
        if after == self.waiting.len() && !finished {
            return Nearest::Wait;
        }
        let after = (after < self.waiting.len()).then_some(after).filter(near);
        let nearest = [before, after].into_iter().flatten().min_by_key(|&i| distance(i));
        nearest.map_or(Nearest::Nothing, Nearest::At)
    }

    /// Nanoseconds between the item of `stamp` and the one before it.
    pub(super) fn gap(&self, stamp: Stamp) -> Option<u64> {
        self.last_before(stamp).map(|before| stamp.abs_diff(before))
    }

    /// The newest stamp below `stamp` that is remembered.
    pub(super) fn last_before(&self, stamp: Stamp) -> Option<Stamp> {
        let at = self.recent.partition_point(|recent| recent.stamp < stamp);
        at.checked_sub(1).map(|i| self.recent[i].stamp)
    }

    /// The newest stamp.
    pub(super) fn newest(&self) -> Option<Stamp> {
        self.recent.back().map(|recent| recent.stamp)
    }

    /// Whether older stamps than those that are remembered may have come.
    pub(super) fn has_forgotten(&self) -> bool {
        self.recent.len() >= MIN_RECENT.max(2 * self.max_waiting)
    }

    /// Median nanoseconds between items; `None` with fewer than `n_min` items.
    pub(super) fn period(&self, n_min: usize) -> Option<u64> {
        let pairs = self.recent.iter().zip(self.recent.iter().skip(1));
        let mut gaps: Vec<u64> = pairs.map(|(a, b)| b.stamp.abs_diff(a.stamp)).collect();
        let is_known = !gaps.is_empty() && self.recent.len() >= n_min;
        // Of two gaps the smaller one: the other may be a silence.
        let middle = gaps.len().saturating_sub(1) / 2;
        is_known.then(|| *gaps.select_nth_unstable(middle).1)
    }

    /// Nanoseconds from `stamp` to the nearest item that came and was not used.
    pub(super) fn unused_distance(&self, stamp: Stamp) -> Option<u64> {
        let unused = self.recent.iter().filter(|recent| !recent.used);
        unused.map(|recent| recent.stamp.abs_diff(stamp)).min()
    }

    /// Whether the item after the one of `stamp`, one more period on, would be nearer to `other`.
    pub(super) fn next_is_nearer(&self, stamp: Stamp, other: Stamp) -> bool {
        other > stamp
            && self.gap(stamp).is_some_and(|gap| {
                let next = Stamp::from_nanos(stamp.nanos().saturating_add_unsigned(gap));
                next.abs_diff(other) < other.abs_diff(stamp)
            })
    }

    /// Whether this stream's rate is why an item of `stamp` of another one was left over: its own
    /// item before went into a pair or set, and none was due near `stamp`.
    ///
    /// Not so where this stream lost an item: one was due there by its period.
    pub(super) fn explains(&self, stamp: Stamp, tolerance: u64) -> bool {
        let after = self.recent.partition_point(|recent| recent.stamp <= stamp);
        let next = self.recent.get(after);
        let Some(last) = after.checked_sub(1).and_then(|i| self.recent.get(i)) else {
            // From before the start.
            return next.is_some() && !self.has_forgotten();
        };
        let Some(period) = self.period(2).filter(|&period| period > 0) else {
            return last.used;
        };
        let steps = |nanos: u64| (nanos + period / 2) / period;
        let n_missing =
            next.map_or(u64::MAX, |next| steps(next.stamp.abs_diff(last.stamp)).saturating_sub(1));
        let since = stamp.abs_diff(last.stamp);
        let step = steps(since);
        let was_due = (1..=n_missing).contains(&step)
            && since.abs_diff(step.saturating_mul(period)) <= tolerance;
        last.used && !was_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(i64);

    impl Stamped for Item {
        fn stamp(&self) -> Stamp {
            Stamp::from_nanos(self.0)
        }

        fn n_images(&self) -> u64 {
            1
        }
    }

    fn stream(stamps: &[i64]) -> Stream<Item> {
        let mut stream = Stream::new(8);
        stamps.iter().for_each(|&stamp| assert!(stream.push(Item(stamp)).is_ok()));
        stream
    }

    fn nearest(stream: &Stream<Item>, stamp: i64, tolerance: u64) -> Nearest {
        stream.nearest(Stamp::from_nanos(stamp), tolerance, false)
    }

    #[test]
    fn the_nearest_item_does_not_depend_on_how_far_the_stream_has_come() {
        use Nearest::{At, Nothing, Wait};
        // Items each 100 ns, tolerance 60: before, on and after the item of 200.
        for (stamp, now, later) in [
            (200, At(1), At(1)),
            (249, At(1), At(1)),
            (251, Wait, At(2)),
            (261, Wait, At(2)),
            (340, Wait, At(2)),
        ] {
            assert_eq!(nearest(&stream(&[100, 200]), stamp, 60), now, "{stamp}");
            assert_eq!(nearest(&stream(&[100, 200, 300]), stamp, 60), later, "{stamp}");
        }
        assert_eq!(nearest(&stream(&[100, 200, 300]), 250, 10), Nothing);
        // Of the first item no period is known.
        assert_eq!(nearest(&stream(&[200]), 210, 60), Wait);
        assert_eq!(stream(&[200]).nearest(Stamp::from_nanos(210), 60, true), At(0));
        assert_eq!(stream(&[200]).nearest(Stamp::from_nanos(270), 60, true), Nothing);
    }

    #[test]
    fn memory_is_bounded_and_a_stamp_comes_once() {
        let mut stream = stream(&[]);
        let lost = (0..100).filter(|&i| matches!(stream.push(Item(i)), Ok(Some(_)))).count();
        assert_eq!((lost, stream.waiting.len(), stream.recent.len()), (92, 8, MIN_RECENT));
        assert!(stream.push(Item(99)).is_err() && stream.push(Item(80)).is_err());
    }

    #[test]
    fn a_slower_stream_explains_what_it_leaves_over_and_a_lost_item_does_not() {
        let explains = |stream: &Stream<Item>, stamp| stream.explains(Stamp::from_nanos(stamp), 20);
        let mut slow = stream(&[0, 100, 200, 300, 500]);
        assert!(!explains(&slow, 150), "the item before was not used");
        for _ in 0..4 {
            slow.take(0);
        }
        assert!(explains(&slow, 133) && explains(&slow, 266));
        // 400 was lost.
        assert!(explains(&slow, 350) && !explains(&slow, 390) && explains(&slow, 450));
        assert!(explains(&slow, -50), "from before the start");
        assert!(!explains(&slow, 600), "not used");
        slow.take(0);
        assert!(explains(&slow, 550) && !explains(&slow, 600) && !explains(&slow, 690));
        assert!(!explains(&stream(&[]), 0));
    }
}
