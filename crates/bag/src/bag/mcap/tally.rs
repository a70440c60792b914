//! What is counted: messages by channel, against those that the file counts itself, and bytes that
//! are passed over.

use super::summary::Statistics;
use std::collections::HashMap;

/// Topics that are named.
const MAX_NAMED: usize = 6;

/// Numbers of messages by channel.
#[derive(Default)]
pub(super) struct Tally {
    by_channel: HashMap<u16, u64>,
    /// Those of the present block.
    in_block: HashMap<u16, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, channel: u16) {
        *self.in_block.entry(channel).or_default() += 1;
    }

    /// The present block is done with; its messages count if they are kept.
    pub(super) fn end_block(&mut self, keep: bool) {
        for (channel, n) in self.in_block.drain() {
            if keep {
                *self.by_channel.entry(channel).or_default() += n;
            }
        }
    }

    /// How `statistics` differ from what was counted, if they do; `topic`: the name of a channel's.
    pub(super) fn compare(
        &self,
        statistics: &Statistics,
        topic: impl Fn(u16) -> String,
    ) -> Option<String> {
        let promised = statistics.n_messages;
        let got: u64 = self.by_channel.values().sum();
        let mut differing: Vec<(String, u64, u64)> = statistics
            .by_channel
            .iter()
            .map(|(channel, n)| (*channel, self.by_channel.get(channel).copied().unwrap_or(0), *n))
            .filter(|(_, got, promised)| got != promised)
            .map(|(channel, got, promised)| (topic(channel), got, promised))
            .collect();
        if got == promised && differing.is_empty() {
            return None;
        }
        differing.sort();
        let mut text = format!("it counts {promised} messages itself, {got} were read");
        if let Some(missing) = promised.checked_sub(got).filter(|missing| *missing > 0) {
            text += &format!(": {missing} are lost");
        }
        let named = differing.iter().take(MAX_NAMED);
        let named: Vec<String> =
            named.map(|(topic, got, promised)| format!("{topic} {got} of {promised}")).collect();
        if !named.is_empty() {
            text += &format!(" ({}", named.join(", "));
            if let n @ 1.. = differing.len() - named.len() {
                text += &format!(", and {n} more topics");
            }
            text += ")";
        }
        Some(text)
    }
}

/// Bytes that are no records of messages.
#[derive(Default)]
pub(super) struct Passed {
    pub(super) first: u64,
    pub(super) n: u64,
    pub(super) n_bytes: u64,
}

impl Passed {
    pub(super) fn add(&mut self, offset: u64, n_bytes: u64) {
        if self.n == 0 {
            self.first = offset;
        }
        self.n += 1;
        self.n_bytes += n_bytes;
    }
}
