//! Warnings that name a problem once, not a hundred times a second.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time between two warnings of one cause.
const PERIOD: Duration = Duration::from_secs(5);

/// When each cause was warned of last, and how often it came up since.
#[derive(Default)]
pub struct Problems {
    causes: HashMap<String, (Instant, u64)>,
}

impl Problems {
    /// Logs `message`, at most once in five seconds for each `cause`.
    ///
    /// `cause` must come from a bounded set (a topic, a kind of error), never from a message.
    pub fn warn(&mut self, cause: &str, message: impl std::fmt::Display) {
        if let Some(repeats) = self.due(cause, Instant::now()) {
            match repeats {
                0 => tracing::warn!("{message}"),
                _ => tracing::warn!("{message} ({repeats} more of this since the last warning)"),
            }
        }
    }

    /// `None`: keep quiet. Otherwise the number of occurrences that were kept quiet.
    fn due(&mut self, cause: &str, now: Instant) -> Option<u64> {
        match self.causes.get_mut(cause) {
            Some((last, repeats)) if now.duration_since(*last) < PERIOD => {
                *repeats += 1;
                None
            }
            Some(entry) => Some(std::mem::replace(entry, (now, 0)).1),
            None => {
                self.causes.insert(cause.to_owned(), (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_per_cause_and_period() {
        let mut problems = Problems::default();
        let start = Instant::now();
        assert_eq!(problems.due("a", start), Some(0));
        assert_eq!(problems.due("a", start + PERIOD / 2), None);
        assert_eq!(problems.due("b", start + PERIOD / 2), Some(0));
        assert_eq!(problems.due("a", start + PERIOD), Some(1));
        assert_eq!(problems.due("a", start + PERIOD * 3), Some(0));
    }
}
