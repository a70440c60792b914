//! Warnings that name a problem once, not a hundred times a second.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use forecloud::vision::frames::are_alike;

/// Time between two warnings that say the same of one cause.
const PERIOD: Duration = Duration::from_secs(5);
/// Different texts of one cause that are warned of in that time.
const MAX_TEXTS: usize = 4;

/// A text, but for its numbers: when it was warned of last, and how often it came up since.
struct Warned {
    text: String,
    last: Instant,
    repeats: u64,
}

/// What was warned of, by cause.
#[derive(Default)]
pub struct Problems {
    causes: HashMap<String, Vec<Warned>>,
}

impl Problems {
    /// Logs `message`, at most once in five seconds for each `cause`, unless it says something else than
    /// before.
    ///
    /// `cause` must come from a bounded set (a topic, a kind of error), never from a message.
    pub fn warn(&mut self, cause: &str, message: impl std::fmt::Display) {
        let text = message.to_string();
        if let Some(repeats) = self.due(cause, &text, Instant::now()) {
            match repeats {
                0 => tracing::warn!("{text}"),
                _ => tracing::warn!("{text} ({repeats} more of this since the last warning)"),
            }
        }
    }

    /// `None`: keep quiet. Otherwise the number of occurrences that were kept quiet.
    fn due(&mut self, cause: &str, text: &str, now: Instant) -> Option<u64> {
        let texts = self.causes.entry(cause.to_owned()).or_default();
        let is_recent = |warned: &Warned| now.duration_since(warned.last) < PERIOD;
        if let Some(known) = texts.iter_mut().find(|known| are_alike(&known.text, text)) {
            if is_recent(known) {
                known.repeats += 1;
                return None;
            }
            known.last = now;
            return Some(std::mem::take(&mut known.repeats));
        }
        texts.retain(is_recent);
        if texts.len() >= MAX_TEXTS {
            return None;
        }
        texts.push(Warned { text: text.to_owned(), last: now, repeats: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_per_cause_and_period() {
        let mut problems = Problems::default();
        let start = Instant::now();
        assert_eq!(problems.due("a", "x 1", start), Some(0));
        assert_eq!(problems.due("a", "x 2", start + PERIOD / 2), None);
        assert_eq!(problems.due("b", "x 1", start + PERIOD / 2), Some(0));
        assert_eq!(problems.due("a", "x 3", start + PERIOD), Some(1));
        assert_eq!(problems.due("a", "x 4", start + PERIOD * 3), Some(0));
    }

    #[test]
    fn another_text_of_one_cause_is_warned_of_at_once_but_not_any_number() {
        let mut problems = Problems::default();
        let start = Instant::now();
        assert_eq!(problems.due("images", "no message on /left", start), Some(0));
        assert_eq!(problems.due("images", "no message on /right", start), Some(0));
        assert_eq!(problems.due("images", "no message on /left", start), None);
        let n = (0..100).filter(|i| problems.due("images", &format!("'{i}'"), start).is_some());
        assert_eq!(n.count(), MAX_TEXTS - 2);
        assert_eq!(problems.due("images", "'new'", start + PERIOD), Some(0));
        assert!(problems.causes["images"].len() == 1, "old ones are forgotten");
    }
}
