//! The status of the rig: whether robot and cameras are where they are said to be.

use super::{Level, Status};
use crate::health::Facts;
use forecloud::predict::rig::Verdict;

impl Facts {
    /// Whether the robot is where the cameras see it, and the cameras where each other do.
    pub(super) fn rig(&self) -> Status {
        let mut status = Status::new("rig");
        let Some(items) = &self.rig else {
            return status.or_summary(|| "not looked at yet: it takes predictions for 5 s".into());
        };
        for item in items {
            // Predictions come, but they are wrong.
            if item.verdict != Verdict::Ok {
                status.add(Level::Warn, item.line());
            }
            for (name, value) in &item.values {
                status.value(format!("{}: {name}", item.what), format!("{value:.3}"));
            }
        }
        let summary = items.first().map(|item| format!("{}: {}", item.what, item.evidence));
        status.or_summary(|| summary.unwrap_or_else(|| "there is nothing to compare".into()))
    }
}
