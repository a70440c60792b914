//! Long work: on threads of our own, with the interpreter free for others, ended by Ctrl-C, and with
//! panics made into exceptions.
//!
//! Threads do not live on in a forked process. Each process has a pool of its own for that, made when it
//! first works: what was opened before the fork works on after it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use forecloud::base::instruction_set::InstructionSet;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::{self, Kind, raise};

/// How often signals are looked for.
pub const LOOK: Duration = Duration::from_millis(50);

struct Pool {
    pid: u32,
    n_threads: usize,
    threads: ThreadPool,
}

/// The pool of the process that made it. A pointer and no lock: a lock may be held by a thread that a
/// forked process does not have.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
/// Threads that were asked for; 0: as many as rayon takes.
static N_THREADS: AtomicUsize = AtomicUsize::new(0);

fn pool() -> PyResult<&'static Pool> {
    let (pid, n_threads) = (std::process::id(), N_THREADS.load(Ordering::Acquire));
    loop {
        let held = POOL.load(Ordering::Acquire);
        // SAFETY: either null or of `Box::into_raw` below, and never freed once it was stored.
        if let Some(pool) = unsafe { held.as_ref() }
            && (pool.pid, pool.n_threads) == (pid, n_threads)
        {
            return Ok(pool);
        }
        // Said once, before any work is done by others than were asked for.
        InstructionSet::from_environment().map_err(errors::of)?;
        let threads = ThreadPoolBuilder::new().num_threads(n_threads).build();
        let threads =
            threads.map_err(|e| raise(Kind::Internal, format!("cannot start threads: {e}")))?;
        let made = Box::into_raw(Box::new(Pool { pid, n_threads, threads }));
        if POOL.compare_exchange(held, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `made` is of `Box::into_raw` and was stored nowhere.
            drop(unsafe { Box::from_raw(made) });
        }
        // What was there is left: others may still work on it, or its threads are not in this process.
    }
}

/// Works on the pool while other threads of the interpreter run.
///
/// `work` may look at the flag, which a signal sets, to end early. The exception of a signal's handler
/// (KeyboardInterrupt) is raised once the work has ended.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce(&AtomicBool) -> T + Send) -> PyResult<T> {
    let pool = pool()?;
    let stop = AtomicBool::new(false);
    let mut signal = Ok(());
    let done = py.detach(|| {
        let (sender, receiver) = sync_channel(1);
        pool.threads.in_place_scope(|scope| {
            let stop = &stop;
            scope.spawn(move |_| {
                let _ = sender.send(catch_unwind(AssertUnwindSafe(|| work(stop))));
            });
            loop {
                match receiver.recv_timeout(LOOK) {
                    Ok(done) => return Some(done),
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) if signal.is_ok() => {
                        signal = Python::attach(|py| py.check_signals());
                        stop.store(signal.is_err(), Ordering::Relaxed);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        })
    });
    signal?;
    match done {
        Some(Ok(done)) => Ok(done),
        Some(Err(panic)) => Err(internal(&*panic)),
        None => Err(raise(Kind::Internal, "the work ended without a result")),
    }
}

/// The exception of a panic.
pub fn internal(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no words");
    raise(
        Kind::Internal,
        format!("a fault of Forecloud, please report it with what led to it: {text}"),
    )
}

/// Takes so many threads from now on; 0 takes as many as there are cores.
#[pyfunction]
fn set_threads(n_threads: usize) -> PyResult<usize> {
    const MOST: usize = 1024;
    if n_threads > MOST {
        return Err(raise(
            Kind::Config,
            format!("set_threads: {n_threads} is not in 0..={MOST} (0: all cores)"),
        ));
    }
    N_THREADS.store(n_threads, Ordering::Release);
    Ok(pool()?.threads.current_num_threads())
}

/// Threads that work is done on.
#[pyfunction]
pub fn n_threads() -> PyResult<usize> {
    Ok(pool()?.threads.current_num_threads())
}

/// For tests: works until `secs` are over or a signal comes; panics if asked to.
#[pyfunction]
fn _wait(py: Python<'_>, secs: f64, panics: bool) -> PyResult<()> {
    let until = std::time::Instant::now() + Duration::from_secs_f64(secs.clamp(0.0, 3600.0));
    run(py, |stop| {
        assert!(!panics, "asked to");
        while std::time::Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(set_threads, module)?)?;
    module.add_function(wrap_pyfunction!(n_threads, module)?)?;
    module.add_function(wrap_pyfunction!(_wait, module)?)
}
