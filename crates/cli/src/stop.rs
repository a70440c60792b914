//! Signals that ask for an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The signal that asked for an end.
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on.
    pub fn register() -> std::io::Result<Self> {
        let (stop, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process at once, should the checkpoint hang.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&again))?;
            signal_hook::flag::register(signal, Arc::clone(&again))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)?;
        }
        Ok(Self(stop))
    }

    /// The signal that came.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed) as i32).filter(|&signal| signal != 0)
    }
}
