//! Signals that ask the process for an end: Ctrl-C (INT), TERM, and HUP where a terminal goes.

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::whole_file::remove_passing;

/// Signals within this time are one: a terminal, `timeout` and `ros2 launch` send them to a process and
/// again to its group.
const ONE: Duration = Duration::from_secs(1);

/// Whether somebody ends the process after a signal.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// From now on, a signal that ends the process removes its unfinished files first
/// ([`super::whole_file::Unfinished`]), unless an [`EndSignal`] is registered: then the process ends by itself.
///
/// # Errors
/// Those of the system: no handler, or no thread.
pub fn clean_up_on_signals() -> Result<()> {
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal));
    let mut signals = Signals::new(heeded)?;
    let listen = move || {
        for signal in signals.forever() {
            if !IS_AWAITED.load(Ordering::Relaxed) {
                remove_passing(|| {
                    // It can't fail for these three.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                });
            }
        }
    };
    std::thread::Builder::new().name("clean-up".into()).spawn(listen)?;
    Ok(())
}

/// The signal that asked for an end.
pub struct EndSignal {
    signal: Arc<AtomicUsize>,
    is_sent: Arc<AtomicBool>,
}

impl EndSignal {
    /// Listens from now on. A signal a second after the first one ends the process at once with exit
    /// code 1, should the clean end hang.
    ///
    /// # Errors
    /// Those of the system: no handler, or no thread.
    pub fn register() -> Result<Self> {
        // `nohup` has a process ignore HUP.
        let hup = Some(SIGHUP).filter(|&hup| !is_ignored(hup));
        let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hup))?;
        let (signal, is_sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (to_signal, to_is_sent) = (signal.clone(), is_sent.clone());
        let listen = move || {
            let mut first = None;
            for number in signals.forever() {
                if first.get_or_insert_with(Instant::now).elapsed() > ONE {
                    remove_passing(|| signal_hook::low_level::exit(1));
                }
                let number = number.unsigned_abs() as usize;
                // The first one counts.
                let _ = to_signal.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
                to_is_sent.store(true, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen)?;
        IS_AWAITED.store(true, Ordering::Relaxed);
        Ok(Self { signal, is_sent })
    }

    /// The signal that came.
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }

    /// Becomes true with the first one.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.is_sent.clone()
    }
}

/// Whether who started the process has it ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
