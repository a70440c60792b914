//! Threads that stay awake while a prediction is made.
//!
//! A prediction is some thirty loops side by side, with a little in between that one thread does.
//! Rayon's threads sleep after some microseconds without work, and to wake one takes 40 to 80
//! microseconds on a virtual machine: for each loop, as long as a small one takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads that wait for work at most, beside the one that hands it out: what waits takes power.
const MOST: usize = 3;
/// How long a thread waits without any before it goes: longer than what one thread does alone between two
/// loops on the CPU, and not as long as a GPU's part of a prediction.
const PATIENCE: Duration = Duration::from_millis(2);
/// Looks for work between two offers of the processor to others.
const LOOKS: usize = 32;

/// Says that it is over, also where the work panics.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` in the pool that this thread is of (else in the global one), and keeps up to three of
/// its other threads awake meanwhile, each as long as there is work for it. It does not wait for these in
/// the end: the processor may have been taken from them. Not for works side by side in one pool: a thread
/// that waits within one may be kept by the other.
pub fn keep_workers_hot<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    keep_hot_by(attend, work)
}

fn keep_hot_by<R: Send>(
    attend: impl Fn(&AtomicBool) + Send + Sync + 'static,
    work: impl FnOnce() -> R + Send,
) -> R {
    rayon::scope(|_| {
        let over = Over(Arc::default());
        let (me, n) = (rayon::current_thread_index().unwrap_or(0), rayon::current_num_threads());
        if n > 1 {
            let is_over = over.0.clone();
            rayon::spawn_broadcast(move |context| {
                // One's own turn, 0, may come while one waits for the others.
                if (1..=MOST).contains(&((context.index() + n - me) % n)) {
                    attend(&is_over);
                }
            });
        }
        work()
    })
}

/// Does what work there is, until all of it is over or none comes.
fn attend(is_over: &AtomicBool) {
    let mut idle_since = None;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..LOOKS {
            if rayon::yield_now() == Some(rayon::Yield::Executed) {
                idle_since = None;
            }
            std::hint::spin_loop();
        }
        if idle_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    use rayon::prelude::*;

    use super::*;

    /// Loops side by side.
    fn work() -> u64 {
        let of_loop = |_| (0..64u64).into_par_iter().map(|i| i.min(63)).sum::<u64>();
        (0..20).map(of_loop).sum()
    }

    #[test]
    fn up_to_three_other_threads_attend_until_it_is_over() {
        for n in [1, 2, 3, 9] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            let (came, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let wait_for = |count: &AtomicUsize, wanted: usize| {
                let start = Instant::now();
                while count.load(Ordering::SeqCst) != wanted {
                    assert!(start.elapsed() < Duration::from_secs(60), "{n} threads: {wanted}");
                    std::thread::yield_now();
                }
            };
            let attend = {
                let (came, gone) = (came.clone(), gone.clone());
                move |is_over: &AtomicBool| {
                    came.fetch_add(1, Ordering::SeqCst);
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    gone.fetch_add(1, Ordering::SeqCst);
                }
            };
            let wanted = MOST.min(n - 1);
            pool.install(|| keep_hot_by(attend, || wait_for(&came, wanted)));
            wait_for(&gone, wanted);
        }
    }

    #[test]
    fn work_is_done_as_without_in_a_pool_and_from_outside_of_one() {
        for n in [1, 2, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            for _ in 0..3 {
                assert_eq!(pool.install(|| keep_workers_hot(work)), 20 * 64 * 63 / 2);
            }
            // A prediction within another one's loops.
            let sums: u64 = pool.install(|| {
                keep_workers_hot(|| (0..4).into_par_iter().map(|_| keep_workers_hot(work)).sum())
            });
            assert_eq!(4 * 20 * 64 * 63 / 2, sums);
        }
        assert!(keep_workers_hot(|| rayon::current_thread_index().is_some()));
    }

    #[test]
    fn who_attends_goes_when_all_is_over_or_nothing_comes() {
        let is_over = AtomicBool::new(true);
        attend(&is_over);
        is_over.store(false, Ordering::Relaxed);
        let start = Instant::now();
        attend(&is_over);
        assert!(start.elapsed() > PATIENCE);
    }

    #[test]
    fn a_panic_goes_on_and_lets_the_others_go() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let fails = || pool.install(|| keep_workers_hot(|| panic!("on purpose")));
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        assert_eq!(pool.install(|| keep_workers_hot(work)), 20 * 64 * 63 / 2);
    }
}
