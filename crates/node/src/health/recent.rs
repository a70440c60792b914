//! Events of the last seconds.

use std::time::Duration;

/// How long an event counts: a problem that does not come again is forgotten after that.
pub const WINDOW: Duration = Duration::from_secs(5);

const N_SECONDS: usize = WINDOW.as_secs() as usize + 1;

/// Numbers of events, by the second: the one at hand and the [`WINDOW`] before it.
///
/// `now` is the time since some start; it may not go back.
#[derive(Debug, Clone, Default)]
pub struct Recent {
    counts: [u64; N_SECONDS],
    /// The second that was counted last.
    second: u64,
    total: u64,
}

impl Recent {
    /// Counts `n` events.
    pub fn add(&mut self, now: Duration, n: u64) {
        self.forget_until(now.as_secs());
        self.counts[self.second as usize % N_SECONDS] += n;
        self.total += n;
    }

    /// Events of the last seconds.
    pub fn sum(&self, now: Duration) -> u64 {
        let oldest = now.as_secs().saturating_sub(WINDOW.as_secs());
        let first = self.second.saturating_sub(WINDOW.as_secs()).max(oldest);
        (first..=self.second).map(|second| self.counts[second as usize % N_SECONDS]).sum()
    }

    /// Events a second, over the last seconds that are over.
    pub fn rate_hz(&self, now: Duration) -> f64 {
        let running = self.counts[self.second as usize % N_SECONDS];
        let n = self.sum(now) - if self.second == now.as_secs() { running } else { 0 };
        n as f64 / WINDOW.as_secs_f64()
    }

    /// Events since the start.
    pub fn total(&self) -> u64 {
        self.total
    }

    fn forget_until(&mut self, second: u64) {
        let passed = second.saturating_sub(self.second).min(N_SECONDS as u64);
        self.second = self.second.max(second);
        for i in 0..passed {
            self.counts[(self.second - i) as usize % N_SECONDS] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_for_five_seconds() {
        let at = Duration::from_secs_f64;
        let mut recent = Recent::default();
        assert_eq!(recent.sum(at(3.0)), 0);
        recent.add(at(0.2), 1);
        recent.add(at(2.9), 2);
        recent.add(at(4.0), 3);
        for (secs, sum) in [(4.0, 6), (5.9, 6), (6.0, 5), (7.9, 5), (8.0, 3), (9.9, 3), (10.0, 0)] {
            assert_eq!(recent.sum(at(secs)), sum, "{secs} s");
        }
        recent.add(at(100.0), 4);
        assert_eq!((recent.sum(at(100.5)), recent.sum(at(1e6))), (4, 0));
        assert_eq!(recent.total(), 10);
        for (secs, rate) in [(100.9, 0.0), (101.0, 0.8), (105.9, 0.8), (106.0, 0.0)] {
            assert_eq!(recent.rate_hz(at(secs)), rate, "{secs} s");
        }
    }
}
