//! ROS time: the system's, or `/clock`'s where `use_sim_time` is set.

use std::sync::{Arc, Mutex, PoisonError};

use r2r::builtin_interfaces::msg::Time;

use crate::message::Stamp;

/// The node's clock.
pub struct RosClock {
    clock: Arc<Mutex<r2r::Clock>>,
    is_simulated: bool,
    /// The latest time of `/clock` that was seen.
    last: Option<Stamp>,
}

impl RosClock {
    /// The clock of `node`, which begins with the system's time.
    pub fn of(node: &r2r::Node) -> Self {
        Self { clock: node.get_ros_clock(), is_simulated: false, last: None }
    }

    /// Follows `/clock` from now on, or the system's time.
    ///
    /// # Errors
    /// `/clock` could not be subscribed.
    pub fn use_sim_time(&mut self, node: &mut r2r::Node, wanted: bool) -> Result<(), String> {
        if wanted == self.is_simulated {
            return Ok(());
        }
        if wanted {
            let source = node.get_time_source();
            source.enable_sim_time(node).map_err(|e| format!("subscription to /clock: {e}"))?;
        } else {
            node.get_time_source().disable_sim_time();
        }
        self.is_simulated = wanted;
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
        self.read()
    }

    /// From where to where `/clock` was set back since the last call, if by more than `jump_secs`.
    pub fn jumped_back(&mut self, jump_secs: f64) -> Option<(Stamp, Stamp)> {
        let now = self.read();
        let last = self.last.replace(now).filter(|_| self.is_simulated)?;
        (last.secs_since(now) > jump_secs).then_some((last, now))
    }

    fn read(&self) -> Stamp {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let since_epoch = clock.get_now().unwrap_or_default();
        Stamp::from_nanos(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
    }
}
