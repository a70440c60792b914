//! Measured joint positions over time.

use crate::message::{JointState, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Samples of one publisher that are kept.
const MAX_SAMPLES: usize = 2048;
/// Publishers (sets of joint names) that are kept.
const MAX_GROUPS: usize = 16;
/// Seconds after which a publisher that fell silent is forgotten.
const SILENCE_SECS: f64 = 5.0;

/// Positions of all joints at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Joints {
    /// Names of the joints.
    pub names: Arc<[String]>,
    /// One per name: radians or metres.
    pub positions: Vec<f64>,
}

/// The joint states of the last seconds; arm and gripper may publish apart.
#[derive(Debug, Default)]
pub(super) struct JointHistory {
    groups: Vec<Group>,
}

/// The states of one set of joints, ascending in time.
#[derive(Debug)]
struct Group {
    names: Arc<[String]>,
    samples: VecDeque<(Stamp, Vec<f64>)>,
}

impl JointHistory {
    /// Adds a state; one without positions, or not newer than the last one, changes nothing.
    pub(super) fn push(&mut self, state: JointState) {
        if state.positions.is_empty() {
            return;
        }
        let stamp = state.header.stamp;
        let known = self.groups.iter().position(|group| *group.names == *state.names);
        let i = known.unwrap_or_else(|| self.add_group(&state.names));
        let samples = &mut self.groups[i].samples;
        if samples.back().is_none_or(|(last, _)| *last < stamp) {
            samples.push_back((stamp, state.positions));
        }
        if samples.len() > MAX_SAMPLES {
            samples.pop_front();
        }
        self.groups.retain(|group| {
            group.samples.back().is_some_and(|(last, _)| stamp.secs_since(*last) < SILENCE_SECS)
        });
    }

    /// A new set of joints takes the place of those that it shares a joint with.
    fn add_group(&mut self, names: &[String]) -> usize {
        self.groups.retain(|group| !group.names.iter().any(|name| names.contains(name)));
        if self.groups.len() == MAX_GROUPS {
            self.groups.remove(0);
        }
        self.groups.push(Group { names: names.into(), samples: VecDeque::new() });
        self.groups.len() - 1
    }

    /// Whether no publisher is left at `stamp`.
    pub(super) fn is_silent(&self, stamp: Stamp) -> bool {
        let newest = self.groups.iter().filter_map(|group| group.samples.back());
        newest.map(|(at, _)| stamp.secs_since(*at)).all(|secs| secs > SILENCE_SECS)
    }

    /// Positions at `stamp`, interpolated; `slack_secs` allows the nearest sample beyond the ends.
    ///
    /// The error says what is missing.
    pub(super) fn at(&self, stamp: Stamp, slack_secs: f64) -> Result<Joints, String> {
        let Some((first, more)) = self.groups.split_first() else {
            return Err("no joint state has come".into());
        };
        let mut positions = first.at(stamp, slack_secs)?;
        if more.is_empty() {
            return Ok(Joints { names: first.names.clone(), positions });
        }
        for group in more {
            positions.extend(group.at(stamp, slack_secs)?);
        }
        let names = self.groups.iter().flat_map(|group| group.names.iter().cloned()).collect();
        Ok(Joints { names, positions })
    }
}

impl Group {
    fn at(&self, stamp: Stamp, slack_secs: f64) -> Result<Vec<f64>, String> {
        let after = self.samples.partition_point(|(at, _)| *at < stamp);
        let before = after.checked_sub(1).and_then(|i| self.samples.get(i));
        match (before, self.samples.get(after)) {
            (_, Some((at, exact))) if *at == stamp => Ok(exact.clone()),
            (Some((start, a)), Some((end, b))) => {
                let t = stamp.secs_since(*start) / end.secs_since(*start);
                Ok(a.iter().zip(b).map(|(a, b)| a + t * (b - a)).collect())
            }
            (Some((at, nearest)), None) | (None, Some((at, nearest))) => {
                let gap_secs = stamp.secs_since(*at);
                if gap_secs.abs() <= slack_secs {
                    return Ok(nearest.clone());
                }
                let joint = self.names.first().map_or("", String::as_str);
                let side = if gap_secs > 0.0 { "newest" } else { "oldest" };
                Err(format!(
                    "the {side} state of joint '{joint}' is at {at} s, wanted at {stamp} s"
                ))
            }
            (None, None) => Err("no joint state has come".into()),
        }
    }
}
