//! What was said of one cause in the last seconds.

use std::time::Duration;

use super::WINDOW;
use forecloud::vision::frames::are_alike;

/// Different texts of one cause that are kept.
const MAX_SAID: usize = 4;

/// Texts that differ in more than numbers, the first of each; with the time when one like it was
/// said last.
#[derive(Debug, Clone, Default)]
pub struct Said(Vec<(String, Duration)>);

impl Said {
    /// Takes a text. Those that were not said in the last seconds go, unless `holds` says that they
    /// still hold.
    pub fn add(&mut self, now: Duration, text: &str, holds: impl Fn(&str) -> bool) {
        self.0.retain(|(known, last)| *last + WINDOW >= now || holds(known));
        let is_full = self.0.len() >= MAX_SAID;
        match self.0.iter_mut().find(|(known, _)| are_alike(known, text)) {
            Some((_, last)) => *last = now,
            None if !is_full => self.0.push((text.to_owned(), now)),
            None => {}
        }
    }

    /// All that was said, in the order in which it came up.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.0.iter().map(|(text, _)| text.as_str()).collect();
        texts.join("; then: ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_what_is_alike_stays_as_long_as_it_is_said() {
        let at = Duration::from_secs;
        let mut said = Said::default();
        for i in 0..10 {
            said.add(at(i), &format!("frame {i}: K is 0"), |_| false);
        }
        said.add(at(10), "no calibration", |_| false);
        assert_eq!(said.text(), "frame 0: K is 0; then: no calibration");
        // The first was said last at 9 s.
        said.add(at(15), "no calibration", |_| false);
        assert_eq!(said.text(), "no calibration");
        said.add(at(100), "camera 'b' is silent", |text| text.contains("calibration"));
        assert_eq!(said.text(), "no calibration; then: camera 'b' is silent");
        (0..100).for_each(|i| said.add(at(100), &format!("'{i}'"), |_| true));
        assert_eq!(said.0.len(), MAX_SAID);
    }
}
