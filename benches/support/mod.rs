//! What the benches share.

mod demo;

use std::time::Instant;

pub use demo::Demo;

/// Milliseconds that `f` takes.
pub fn time_ms<E>(f: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    f()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The middle one of `times_ms`.
pub fn median(mut times_ms: Vec<f64>) -> f64 {
    times_ms.sort_by(f64::total_cmp);
    times_ms[times_ms.len() / 2]
}
