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
/// How long a thread waits without any: longer than what one thread does alone.
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
/// its other threads awake meanwhile. It does not wait for these in the end: the processor may have been
/// taken from them.
pub(crate) fn awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
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
