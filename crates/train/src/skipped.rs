//! Frames of recordings that training can't use, and why.

use forecloud::vision::frames::FrameCounts;

/// Frames that are in no window, or that no window starts at, by cause; over all recordings of a
/// data set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Skipped {
    /// What became of the messages, frames that were never complete among them.
    pub messages: FrameCounts,
    /// Frames at whose time the truth lacks poses.
    pub without_poses: u64,
    /// Frames without body ids of the size of their depth images.
    pub without_ids: u64,
    /// Frames whose images, joints or plan can't be used.
    pub unusable: u64,
    /// Usable frames without another one step before: the first ones, and those after a gap.
    pub without_before: u64,
    /// Usable frames that other cameras saw than those of one step before.
    pub other_cameras: u64,
    /// Usable frames without another one step after: the last ones, and those before a gap.
    pub without_after: u64,
    /// Where something was skipped first that a whole recording would have, and why.
    pub first: Option<String>,
}

impl Skipped {
    /// Takes those of another recording.
    pub(super) fn merge(&mut self, other: Self) {
        self.messages += other.messages;
        for (sum, n) in [
            (&mut self.without_poses, other.without_poses),
            (&mut self.without_ids, other.without_ids),
            (&mut self.unusable, other.unusable),
            (&mut self.without_before, other.without_before),
            (&mut self.other_cameras, other.other_cameras),
            (&mut self.without_after, other.without_after),
        ] {
            *sum += n;
        }
        self.first = self.first.take().or(other.first);
    }

    /// What was lost of one recording that a whole one would have, in a line; none if nothing was.
    pub(super) fn summary(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let losses: Vec<String> = self.frames().map(|(n, what)| format!("{what}: {n}")).collect();
        Some(format!("{}; the first: {first}", losses.join(", ")))
    }

    /// What is in no window, in words, with its number; nothing that did not happen.
    pub fn frames(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let own = [
            (self.without_poses, "frames without true poses"),
            (self.without_ids, "frames without true body ids"),
            (self.unusable, "frames that can't be used"),
        ];
        self.messages.losses().chain(own.into_iter().filter(|(n, _)| *n > 0))
    }

    /// The frames that no window starts at, in words, with their number; as above.
    pub fn starts(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let all = [
            (self.without_before, "without a frame one step before"),
            (self.other_cameras, "seen by other cameras than one step before"),
            (self.without_after, "without a frame one step after"),
        ];
        all.into_iter().filter(|(n, _)| *n > 0)
    }
}
