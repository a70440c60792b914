//! The plans that have come, and which of them belong to a frame.

use crate::message::{JointTrajectory, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Plans that a frame carries: of those that have started, and of those that have not.
const MAX_PLANS: usize = 8;
/// Plans that are held: controllers stream at 100 Hz, and the images come late.
const MAX_HELD_PLANS: usize = 256;
/// Seconds after a frame within which a plan starts that the frame carries: the longest prediction.
pub const PLAN_AHEAD_SECS: f64 = 10.0;
/// Streams of plans may come out of their order by so much (seconds): a plan that starts that much earlier than
/// one that came before it takes its place.
const DISORDER_SECS: f64 = 0.05;

/// Plans, in the order of arrival; bounded.
#[derive(Debug, Default)]
pub(super) struct Plans(VecDeque<Arc<JointTrajectory>>);

impl Plans {
    /// Adds a plan; one with a stamp of zero starts `now`.
    ///
    /// A plan counts from its start on, whatever was announced for later before it came: controllers drop
    /// that.
    pub(super) fn push(&mut self, mut plan: JointTrajectory, now: Stamp) {
        if plan.header.stamp.nanos() == 0 {
            plan.header.stamp = now;
        }
        let start = plan.header.stamp;
        self.0.retain(|before| {
            let is_later = before.header.stamp.secs_since(start) > DISORDER_SECS;
            !(is_later && covers(&plan, before))
        });
        if self.0.len() == MAX_HELD_PLANS {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(plan));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The plans of a frame of `stamp`: those in force, and those that take their place while it is
    /// predicted.
    pub(super) fn at(&self, stamp: Stamp) -> Vec<Arc<JointTrajectory>> {
        let until = stamp.plus_secs(PLAN_AHEAD_SECS);
        let near = self.0.iter().filter(|plan| plan.header.stamp <= until);
        let mut plans: Vec<_> = near.cloned().collect();
        plans.sort_by_key(|plan| plan.header.stamp);
        let n_started = plans.partition_point(|plan| plan.header.stamp <= stamp);
        plans.truncate(n_started + MAX_PLANS);
        plans.split_off(n_started.saturating_sub(MAX_PLANS))
    }
}

/// Whether all joints of `before` are joints of `plan`; one that names none is about all.
fn covers(plan: &JointTrajectory, before: &JointTrajectory) -> bool {
    plan.joint_names.is_empty()
        || !before.joint_names.is_empty()
            && before.joint_names.iter().all(|name| plan.joint_names.contains(name))
}
