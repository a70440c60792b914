//! The goals of one controller that went through the relay, and what was asked of them.

use std::collections::VecDeque;
use std::time::Instant;

use r2r::action_msgs::msg::{GoalInfo, GoalStatus, GoalStatusArray};
use r2r::{ServiceRequest, WrappedActionTypeSupport as Action};

use super::super::action::uuid;
use super::action::Relayed;
use super::link::{Accepted, Ended, Pending};
use forecloud::message::JointTrajectory;
use forecloud::robot::relay::GoalId;

/// Goals of a controller that are remembered at most.
const MAX_GOALS: usize = 64;
/// Requests for the result of one goal that wait at most.
const MAX_ASKED: usize = 16;

/// How far a goal has come.
pub enum Stage<T: Relayed> {
    /// The controller is not there (yet).
    Waiting(ServiceRequest<T::SendGoal>, Option<JointTrajectory>),
    /// It has the goal, and has not said whether it takes it.
    Sent(ServiceRequest<T::SendGoal>, Option<JointTrajectory>, Pending<Accepted<T>>),
    /// It executes the goal. The result was asked for at the start, and again at the given time: a
    /// controller that was started anew since does not know the goal, and says so.
    Running(Pending<Ended<T>>, Option<Pending<Ended<T>>>, Instant),
    /// It ended; what the result is.
    Done(Ended<T>),
}

/// One goal.
pub struct Goal<T: Relayed> {
    /// Its UUID.
    pub id: GoalId,
    /// When it came, or went to the controller.
    pub since: Instant,
    /// How far it has come.
    pub stage: Stage<T>,
    /// Whether the relay ended it, and the controller's status of it does not count.
    pub is_ours: bool,
    asked: Vec<ServiceRequest<T::GetResult>>,
}

/// The goals in the order in which they came.
pub struct Goals<T: Relayed>(VecDeque<Goal<T>>);

impl<T: Relayed> Default for Goals<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Relayed> Goals<T> {
    /// Makes room for one more: the oldest one that is done is forgotten. Whether there is room.
    pub fn make_room(&mut self) -> bool {
        if self.0.len() >= MAX_GOALS {
            let oldest = self.0.iter().position(|goal| matches!(goal.stage, Stage::Done(_)));
            oldest.and_then(|i| self.0.remove(i));
        }
        self.0.len() < MAX_GOALS
    }

    /// Adds a goal.
    pub fn push(&mut self, id: GoalId, stage: Stage<T>, now: Instant) {
        self.0.push_back(Goal { id, since: now, stage, is_ours: false, asked: Vec::new() });
    }

    /// A goal by its UUID.
    pub fn get_mut(&mut self, id: &GoalId) -> Option<&mut Goal<T>> {
        self.0.iter_mut().find(|goal| goal.id == *id)
    }

    /// All goals.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Goal<T>> {
        self.0.iter_mut()
    }

    /// Whether a controller executes one.
    pub fn any_running(&self) -> bool {
        self.0.iter().any(|goal| matches!(goal.stage, Stage::Running(..)))
    }

    /// Forgets goals.
    pub fn retain(&mut self, keep: impl FnMut(&Goal<T>) -> bool) {
        self.0.retain(keep);
    }

    /// A controller's statuses with those of the goals that the relay ended.
    pub fn corrected(&self, mut theirs: GoalStatusArray) -> GoalStatusArray {
        for goal in self.0.iter().filter(|goal| goal.is_ours) {
            let status = GoalStatus {
                goal_info: GoalInfo { goal_id: uuid(&goal.id), ..GoalInfo::default() },
                status: GoalStatus::STATUS_ABORTED as i8,
            };
            let list = &mut theirs.status_list;
            match list.iter_mut().find(|s| s.goal_info.goal_id == status.goal_info.goal_id) {
                Some(told) => told.status = status.status,
                None => list.push(status),
            }
        }
        theirs
    }
}

impl<T: Relayed> Goal<T> {
    /// Answers a request for the result, now or when it is known.
    pub fn ask(&mut self, request: ServiceRequest<T::GetResult>) {
        match &self.stage {
            Stage::Done(result) => respond(request, result.clone()),
            // The oldest has waited longest for nothing: its client asks again, or has gone.
            _ if self.asked.len() == MAX_ASKED => self.asked[0] = request,
            _ => self.asked.push(request),
        }
    }

    /// Ends with a result, and answers those who asked for it.
    pub fn finish(&mut self, result: Ended<T>) {
        for request in self.asked.drain(..) {
            respond(request, result.clone());
        }
        self.stage = Stage::Done(result);
    }

    /// Ends because the relay says so: aborted, for a reason.
    pub fn abort(&mut self, words: &str) {
        let aborted = GoalStatus::STATUS_ABORTED as i8;
        self.is_ours = true;
        self.finish(<T as Action>::make_result_response_msg(aborted, T::failure(words)));
    }
}

/// Sends an answer; a client that has gone is no reason to end.
pub fn respond<S>(request: ServiceRequest<S>, response: S::Response)
where
    S: r2r::WrappedServiceTypeSupport + 'static,
{
    if let Err(error) = request.respond(response) {
        tracing::warn!("could not send an answer: {error}");
    }
}
