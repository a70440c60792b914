//! Says by itself that predictions are late: a thread of its own, by the steady clock.
//!
//! It waits for nothing but the time and new predictions, so it goes on where the predictor or the node's other
//! threads hang.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use r2r::forecloud::msg::Contacts as ContactsMsg;

use super::{Publishers, Told};

/// How often it is said again, while it lasts, that nothing is known.
const AGAIN: Duration = Duration::from_millis(100);

/// What the predicting thread leaves, and until when it holds.
#[derive(Default)]
struct Slot {
    /// Not yet published.
    new: Option<(Told, Instant)>,
    invalid: bool,
    closed: bool,
}

/// The predicting thread's way to the watchdog.
#[derive(Default)]
pub struct Watchdog {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Watchdog {
    /// Starts the thread.
    pub(super) fn start(publishers: Publishers) -> anyhow::Result<(Arc<Self>, JoinHandle<()>)> {
        let watchdog = Arc::new(Self::default());
        let watched = watchdog.clone();
        let watch = move || watched.run(&publishers);
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(watch)
            .map_err(|error| anyhow::anyhow!("thread of the watchdog: {error}"))?;
        Ok((watchdog, thread))
    }

    /// Leaves what holds until `until`.
    pub(super) fn tell(&self, told: Told, until: Instant) {
        self.change(|slot| slot.new = Some((told, until)));
    }

    /// What was told holds no more.
    pub(super) fn invalidate(&self) {
        self.change(|slot| (slot.new, slot.invalid) = (None, true));
    }

    /// Ends the thread, which says a last time that nothing is known.
    pub(super) fn close(&self) {
        self.change(|slot| slot.closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Slot)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, publishers: &Publishers) {
        let mut watch = Watch::default();
        loop {
            let (told, closed) = self.wait(&mut watch);
            // Published unlocked: who publishes late keeps nobody.
            if let Err(error) = publishers.publish(&told) {
                tracing::debug!("speed scale: {error}");
            }
            if closed {
                return;
            }
        }
    }

    /// Waits until there is something to publish.
    fn wait(&self, watch: &mut Watch) -> (Told, bool) {
        let mut slot = self.lock();
        loop {
            let now = Instant::now();
            let invalid = std::mem::take(&mut slot.invalid) || slot.closed;
            if let Some(told) = watch.look(slot.new.take(), invalid, now) {
                return (told, slot.closed);
            }
            let due = watch.due(now);
            slot = self.changed.wait_timeout(slot, due).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// When what is to be said.
#[derive(Default)]
struct Watch {
    /// Until when what was said last holds; none once it was said that nothing is known.
    until: Option<Instant>,
    /// When that was said.
    said: Option<Instant>,
    /// What was said of contacts last.
    last: Option<ContactsMsg>,
}

impl Watch {
    /// What is to be said at `now`, if anything, where `new` came.
    fn look(&mut self, new: Option<(Told, Instant)>, invalid: bool, now: Instant) -> Option<Told> {
        if let Some((told, until)) = new.filter(|_| !invalid) {
            self.last.clone_from(&told.contacts);
            if until > now {
                (self.until, self.said) = (Some(until), None);
                return Some(told);
            }
            // It was late before it came here.
            self.until = Some(now);
        }
        let is_over = invalid || self.until.is_some_and(|until| until <= now);
        let is_again = self.said.is_some_and(|said| now.saturating_duration_since(said) >= AGAIN);
        if self.until.is_some() && !is_over {
            return None;
        }
        let is_first = self.said.is_none();
        if !(is_over || is_again || is_first) {
            return None;
        }
        let ends = self.until.take().is_some();
        self.said = Some(now);
        // That contacts are not known is said once; that the robot is to stand, again and again.
        let stale = self.last.clone().filter(|_| ends).map(super::messages::stale);
        Some(Told { scale: 0.0, contacts: stale })
    }

    /// How long to wait for the next time that something is to be said.
    fn due(&self, now: Instant) -> Duration {
        let at = self.until.or_else(|| self.said.map(|said| said + AGAIN));
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(scale: f64) -> Told {
        Told { scale, contacts: Some(ContactsMsg::default()) }
    }

    #[test]
    fn it_is_0_at_first_when_late_and_again_and_again() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut watch = Watch::default();
        let mut look = |new: Option<(f64, u64)>, invalid: bool, ms: u64| {
            let new = new.map(|(scale, until)| (told(scale), at(until)));
            watch
                .look(new, invalid, at(ms))
                .map(|told| (told.scale, told.contacts.map(|c| c.state)))
        };
        let stale = Some(ContactsMsg::STALE as u8);
        assert_eq!(look(None, false, 0), Some((0.0, None)), "before the first prediction");
        assert_eq!(look(None, false, 50), None);
        assert_eq!(look(None, false, 100), Some((0.0, None)));
        assert_eq!(look(Some((0.7, 500)), false, 200), Some((0.7, Some(0))));
        assert_eq!(look(None, false, 499), None);
        assert_eq!(look(None, false, 500), Some((0.0, stale)), "its time is over");
        assert_eq!(look(None, false, 601), Some((0.0, None)));
        assert_eq!(look(Some((0.9, 700)), false, 650), Some((0.9, Some(0))));
        assert_eq!(look(None, true, 660), Some((0.0, stale)), "forgotten");
        assert_eq!(look(Some((0.9, 700)), false, 701), Some((0.0, stale)), "late when it came");
        assert_eq!(look(Some((0.9, 900)), true, 800).map(|told| told.0), Some(0.0));
    }

    #[test]
    fn it_wakes_when_something_is_due() {
        let now = Instant::now();
        let mut watch = Watch::default();
        assert_eq!(watch.due(now), Duration::ZERO);
        watch.look(None, false, now);
        assert_eq!(watch.due(now), AGAIN);
        watch.look(Some((told(1.0), now + Duration::from_secs(3))), false, now);
        assert_eq!(watch.due(now), Duration::from_secs(3));
    }
}
