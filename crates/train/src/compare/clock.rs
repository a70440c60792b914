//! CPU time of the current thread, and threads to measure it on.

use rustix::time::{ClockId, clock_gettime};

use forecloud::{Error, Result};

/// A clock that stands still while the thread waits or others have its core.
pub(super) struct ThreadClock(f64);

impl ThreadClock {
    pub(super) fn start() -> Self {
        Self(now_secs())
    }

    /// CPU seconds since the start; to be asked on the same thread.
    pub(super) fn secs(&self) -> f64 {
        now_secs() - self.0
    }
}

fn now_secs() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// A thread of its own, on which a run's parallel loops run in sequence: its clock is the run's.
pub(super) fn one_thread() -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| Error::Config {
        key: "jobs".into(),
        problem: format!("can't start a thread: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_and_sleep_does_not() {
        let clock = ThreadClock::start();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = clock.secs();
        let mut x = 1u64;
        while clock.secs() < 0.03 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(slept < 0.02, "{slept} s of CPU time asleep");
    }
}
