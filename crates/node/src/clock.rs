//! ROS time: the system's, or `/clock`'s where `use_sim_time` is set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use r2r::builtin_interfaces::msg::Time;

use forecloud::message::Stamp;

/// The node's clock.
pub struct RosClock {
    clock: Arc<Mutex<r2r::Clock>>,
    is_simulated: Arc<AtomicBool>,
    /// The latest time of `/clock` that was seen.
    last: Option<Stamp>,
}

impl RosClock {
    /// The clock of `node`, which begins with the system's time.
    pub fn of(node: &r2r::Node) -> Self {
        Self { clock: node.get_ros_clock(), is_simulated: Arc::default(), last: None }
    }

    /// The same clock for another thread, which asks how old something is.
    pub fn ages(&self) -> Ages {
        Ages { clock: self.clock.clone(), is_simulated: self.is_simulated.clone() }
    }

    /// Follows `/clock` from now on, or the system's time.
    ///
    /// # Errors
    /// `/clock` could not be subscribed.
    pub fn use_sim_time(&mut self, node: &mut r2r::Node, wanted: bool) -> Result<(), String> {
        if wanted == self.is_simulated.load(Ordering::Relaxed) {
            return Ok(());
        }
        if wanted {
            let source = node.get_time_source();
            source.enable_sim_time(node).map_err(|e| format!("subscription to /clock: {e}"))?;
        } else {
            node.get_time_source().disable_sim_time();
        }
        self.is_simulated.store(wanted, Ordering::Relaxed);
        self.last = None;
        Ok(())
    }

    /// ROS time; 0 before the first message on `/clock`.
    pub fn now(&self) -> Time {
        let (sec, nanosec) = self.stamp().parts();
        Time { sec, nanosec }
    }

    /// ROS time, likewise.
    pub fn stamp(&self) -> Stamp {
        read(&self.clock)
    }

    /// From where to where `/clock` was set back since the last call, if by more than `jump_secs`.
    pub fn jumped_back(&mut self, jump_secs: f64) -> Option<(Stamp, Stamp)> {
        let now = self.stamp();
        let is_simulated = self.is_simulated.load(Ordering::Relaxed);
        let last = self.last.replace(now).filter(|_| is_simulated)?;
        (last.secs_since(now) > jump_secs).then_some((last, now))
    }
}

fn read(clock: &Mutex<r2r::Clock>) -> Stamp {
    let since_epoch =
        clock.lock().unwrap_or_else(PoisonError::into_inner).get_now().unwrap_or_default();
    Stamp::from_nanos(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
}

/// How old things are by the node's clock: where that stands still, as in a paused simulation, nothing
/// gets older.
#[derive(Clone)]
pub struct Ages {
    clock: Arc<Mutex<r2r::Clock>>,
    is_simulated: Arc<AtomicBool>,
}

/// When something happened.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// By the machine's clock, which nobody sets back.
    real: Instant,
    /// By `/clock`, where that counted.
    simulated: Option<Stamp>,
}

impl Ages {
    /// What happened at `real`, and was seen now.
    pub fn moment(&self, real: Instant) -> Moment {
        let is_simulated = self.is_simulated.load(Ordering::Relaxed);
        Moment { real, simulated: is_simulated.then(|| read(&self.clock)) }
    }

    /// Seconds since `then`.
    pub fn secs_since(&self, then: Moment) -> f64 {
        self.moment(Instant::now()).secs_since(then)
    }
}

impl Moment {
    fn secs_since(self, then: Self) -> f64 {
        match (self.simulated, then.simulated) {
            (Some(now), Some(then)) => now.secs_since(then).max(0.0),
            _ => self.real.saturating_duration_since(then.real).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_gets_older_while_simulated_time_stands_still() {
        let real = Instant::now();
        let later = real + Duration::from_secs(16);
        let at = |real, secs: Option<i32>| {
            let simulated = secs.map(|secs| Stamp::from_parts(secs, 0));
            Moment { real, simulated }
        };
        assert_eq!(at(later, Some(7)).secs_since(at(real, Some(7))), 0.0);
        assert_eq!(at(later, Some(9)).secs_since(at(real, Some(7))), 2.0);
        assert_eq!(at(later, Some(5)).secs_since(at(real, Some(7))), 0.0, "set back a little");
        assert_eq!(at(later, None).secs_since(at(real, None)), 16.0);
        assert_eq!(at(later, Some(9)).secs_since(at(real, None)), 16.0, "set while it runs");
    }
}
