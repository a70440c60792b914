//! Long recordings cut into stretches, where there are too few recordings to hold some out.

use forecloud::message::Stamp;

use super::episode::{Episode, Sample};
use super::skipped::Skipped;

/// Recordings below which they are cut.
pub(super) const FEW: usize = 10;
/// Length of a stretch (s).
pub(super) const STRETCH_SECS: f64 = 20.0;

impl Episode {
    /// Its stretches, in order, numbered from 1; itself if it is no longer than one and a half. A rest
    /// shorter than half a stretch belongs to the one before. No window reaches over a cut.
    pub(super) fn cut(mut self, stretch_secs: f64) -> Vec<Self> {
        let samples = std::mem::take(&mut self.samples);
        let mut pieces = pieces(samples, stretch_secs);
        if pieces.len() < 2 {
            self.samples = pieces.pop().unwrap_or_default();
            return vec![self];
        }
        let skipped = std::mem::take(&mut self.skipped);
        let stretches = pieces.into_iter().zip(1..).map(|(samples, stretch)| Self {
            path: self.path.clone(),
            kinds: self.kinds.clone(),
            robot: self.robot.clone(),
            rig: self.rig.clone(),
            label_file: self.label_file.clone(),
            samples,
            stretch,
            // What was skipped of the whole is told once.
            skipped: if stretch == 1 { skipped.clone() } else { Skipped::default() },
            ..self
        });
        stretches.collect()
    }

    /// Its file name, and which stretch of the recording it is.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().display();
        match self.stretch {
            0 => name.to_string(),
            stretch => format!("{name} (stretch {stretch})"),
        }
    }
}

/// Samples in pieces of this length; time that is set back begins a new one.
fn pieces(samples: Vec<Sample>, secs: f64) -> Vec<Vec<Sample>> {
    let length = |piece: &[Sample]| match piece {
        [first, .., last] => last.stamp.secs_since(first.stamp),
        _ => 0.0,
    };
    let mut pieces: Vec<Vec<Sample>> = Vec::new();
    let mut last = Stamp::default();
    for sample in samples {
        let goes_on = sample.stamp.secs_since(last) >= 0.0;
        last = sample.stamp;
        match pieces.last_mut().filter(|piece| {
            goes_on && piece.first().is_none_or(|first| last.secs_since(first.stamp) < secs)
        }) {
            Some(piece) => piece.push(sample),
            None => pieces.push(vec![sample]),
        }
    }
    if pieces.len() > 1 && pieces.last().is_some_and(|piece| length(piece) < secs / 2.0) {
        let rest = pieces.pop().unwrap_or_default();
        // A rest from before time was set back stays apart from what it is not a part of.
        match pieces.last_mut() {
            Some(piece) if follows(piece, &rest) => piece.extend(rest),
            _ => pieces.push(rest),
        }
    }
    pieces
}

fn follows(piece: &[Sample], rest: &[Sample]) -> bool {
    piece.last().zip(rest.first()).is_some_and(|(a, b)| b.stamp.secs_since(a.stamp) >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(secs: impl Iterator<Item = f64>) -> Vec<Sample> {
        let stamp = |secs: f64| Stamp::from_nanos((1e9 * secs).round() as i64);
        secs.map(|secs| {
            let mut sample = Sample::default();
            sample.stamp = stamp(secs);
            sample
        })
        .collect()
    }

    fn lengths(secs: impl Iterator<Item = f64>) -> Vec<usize> {
        pieces(samples(secs), 20.0).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_recording_falls_into_stretches_and_nothing_is_lost() {
        let at = |n: u32| (0..n).map(|i| 0.1 * f64::from(i));
        assert_eq!(lengths(at(150)), [150]);
        assert_eq!(lengths(at(250)), [250], "a short rest belongs to the one before");
        assert_eq!(lengths(at(350)), [200, 150]);
        assert_eq!(lengths(at(1000)), [200; 5]);
        assert_eq!(lengths(at(0)), [0usize; 0]);
        assert_eq!(lengths(at(250).chain(at(30))), [200, 50, 30], "time was set back");
    }
}
