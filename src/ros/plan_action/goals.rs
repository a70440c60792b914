//! The goals of the action, from when they are accepted until they are forgotten.

use std::collections::VecDeque;

use r2r::action_msgs::msg::{GoalInfo, GoalStatus, GoalStatusArray};
use r2r::action_msgs::srv::CancelGoal;
use r2r::builtin_interfaces::msg::Time;
use r2r::forecloud::action::Plan;

use super::super::action::{GoalId, goal_id, uuid};
use crate::message::Stamp;

/// Goals that have ended and are remembered, with their results, at most.
const MAX_ENDED: usize = 64;
/// Requests for the result of one goal that wait at most.
const MAX_ASKED: usize = 16;

/// Where a goal stands: `action_msgs/msg/GoalStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Accepted,
    Executing,
    Canceling,
    Succeeded,
    Canceled,
    Aborted,
}

struct Goal<R> {
    id: GoalId,
    accepted: Stamp,
    status: Status,
    /// Of a goal that has ended.
    result: Plan::Result,
    /// Who waits for it.
    waiting: Vec<R>,
}

/// The goals in the order in which they came; `R` is a request for a result.
pub struct Goals<R>(VecDeque<Goal<R>>);

/// A result, and who gets it.
#[derive(Debug)]
pub struct Ended<R> {
    /// Of the goal, as the message has it.
    pub status: i8,
    /// What was found, or why nothing was.
    pub result: Plan::Result,
    /// Who asked for it.
    pub waiting: Vec<R>,
}

impl<R> Default for Goals<R> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<R> Goals<R> {
    /// Takes a goal at ROS time `now`; not if its id is known already.
    pub fn accept(&mut self, id: GoalId, now: Stamp) -> bool {
        if self.find(&id).is_some() {
            return false;
        }
        let is_ended = |goal: &Goal<R>| goal.status.is_ended();
        if self.0.iter().filter(|goal| is_ended(goal)).count() >= MAX_ENDED {
            let oldest = self.0.iter().position(is_ended);
            oldest.and_then(|i| self.0.remove(i));
        }
        let result = Plan::Result::default();
        let status = Status::Accepted;
        self.0.push_back(Goal { id, accepted: now, status, result, waiting: Vec::new() });
        true
    }

    /// Work on a goal begins; not if it has ended since it came.
    pub fn begin(&mut self, id: &GoalId) -> bool {
        let goal = self.find(id).filter(|goal| goal.status == Status::Accepted);
        goal.map(|goal| goal.status = Status::Executing).is_some()
    }

    /// Whether somebody has asked to cancel it.
    pub fn is_cancelled(&self, id: &GoalId) -> bool {
        let is_cancelled =
            |goal: &Goal<R>| matches!(goal.status, Status::Canceling | Status::Canceled);
        self.0.iter().any(|goal| goal.id == *id && is_cancelled(goal))
    }

    /// A goal ends: with what was found, or why nothing was.
    pub fn end(&mut self, id: &GoalId, outcome: Result<Plan::Result, Plan::Result>) -> Ended<R> {
        let goal = self.find(id).filter(|goal| !goal.status.is_ended());
        goal.map_or_else(Ended::unknown, |goal| {
            let status = match (goal.status, &outcome) {
                (Status::Canceling, _) => Status::Canceled,
                (_, Ok(_)) => Status::Succeeded,
                (_, Err(_)) => Status::Aborted,
            };
            let (Ok(result) | Err(result)) = outcome;
            goal.end(status, result)
        })
    }

    /// Cancels the goals that a request means (`action_msgs/srv/CancelGoal`): one by its id, all until a
    /// stamp, or all. Those that wait end at once.
    pub fn cancel(
        &mut self,
        request: &CancelGoal::Request,
    ) -> (CancelGoal::Response, Vec<Ended<R>>) {
        let GoalInfo { goal_id: id, stamp } = &request.goal_info;
        let (id, until) = (goal_id(id), Stamp::from_parts(stamp.sec, stamp.nanosec));
        let (names_one, names_time) = (id != [0; 16], until != Stamp::default());
        let code = match self.find(&id) {
            _ if !names_one || names_time => CancelGoal::Response::ERROR_NONE as i8,
            None => CancelGoal::Response::ERROR_UNKNOWN_GOAL_ID as i8,
            Some(goal) if goal.status.is_ended() => {
                CancelGoal::Response::ERROR_GOAL_TERMINATED as i8
            }
            Some(_) => CancelGoal::Response::ERROR_NONE as i8,
        };
        let is_meant = |goal: &Goal<R>| match (names_one, names_time) {
            (false, false) => true,
            (true, false) => goal.id == id,
            (_, true) => goal.id == id || goal.accepted <= until,
        };
        let meant = self.0.iter_mut().filter(|goal| !goal.status.is_ended() && is_meant(goal));
        let mut answer = CancelGoal::Response { return_code: code, ..Default::default() };
        let mut ended = Vec::new();
        for goal in meant {
            answer.goals_canceling.push(goal.info());
            if goal.status == Status::Accepted {
                let message = "cancelled before it was begun".to_owned();
                let result = Plan::Result { message, ..Plan::Result::default() };
                ended.push(goal.end(Status::Canceled, result));
            } else {
                goal.status = Status::Canceling;
            }
        }
        (answer, ended)
    }

    /// Asks for the result of a goal; `None` while the goal goes on: the request waits for its end.
    pub fn ask(&mut self, id: &GoalId, request: R) -> Option<Ended<R>> {
        let Some(goal) = self.find(id) else {
            let message = format!(
                "no goal of this id is known: it was never accepted, or {MAX_ENDED} others have \
                 ended since"
            );
            return Some(Ended::refused(message, request));
        };
        if goal.status.is_ended() {
            let (status, result) = (goal.status.code(), goal.result.clone());
            return Some(Ended { status, result, waiting: vec![request] });
        }
        if goal.waiting.len() >= MAX_ASKED {
            let message = format!("{MAX_ASKED} requests for this result wait already");
            return Some(Ended::refused(message, request));
        }
        goal.waiting.push(request);
        None
    }

    /// Where all goals stand.
    pub fn statuses(&self) -> GoalStatusArray {
        let status =
            |goal: &Goal<R>| GoalStatus { goal_info: goal.info(), status: goal.status.code() };
        GoalStatusArray { status_list: self.0.iter().map(status).collect() }
    }

    fn find(&mut self, id: &GoalId) -> Option<&mut Goal<R>> {
        self.0.iter_mut().find(|goal| goal.id == *id)
    }
}

impl<R> Goal<R> {
    fn info(&self) -> GoalInfo {
        let (sec, nanosec) = self.accepted.parts();
        GoalInfo { goal_id: uuid(&self.id), stamp: Time { sec, nanosec } }
    }

    fn end(&mut self, status: Status, result: Plan::Result) -> Ended<R> {
        (self.status, self.result) = (status, result.clone());
        Ended { status: status.code(), result, waiting: std::mem::take(&mut self.waiting) }
    }
}

impl<R> Ended<R> {
    /// Of a goal that nobody waits for.
    fn unknown() -> Self {
        let status = GoalStatus::STATUS_UNKNOWN as i8;
        Self { status, result: Plan::Result::default(), waiting: Vec::new() }
    }

    /// An answer that is no result.
    fn refused(message: String, request: R) -> Self {
        let result = Plan::Result { message, ..Plan::Result::default() };
        Self { result, waiting: vec![request], ..Self::unknown() }
    }
}

impl Status {
    fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Canceled | Self::Aborted)
    }

    fn code(self) -> i8 {
        match self {
            Self::Accepted => GoalStatus::STATUS_ACCEPTED as i8,
            Self::Executing => GoalStatus::STATUS_EXECUTING as i8,
            Self::Canceling => GoalStatus::STATUS_CANCELING as i8,
            Self::Succeeded => GoalStatus::STATUS_SUCCEEDED as i8,
            Self::Canceled => GoalStatus::STATUS_CANCELED as i8,
            Self::Aborted => GoalStatus::STATUS_ABORTED as i8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> GoalId {
        [number; 16]
    }

    fn at(secs: i32) -> Stamp {
        Stamp::from_parts(secs, 0)
    }

    /// What cancels the goal `number` (0: none by its id), and those until `secs` (0: none).
    fn request(number: u8, secs: i32) -> CancelGoal::Request {
        let stamp = Time { sec: secs, nanosec: 0 };
        CancelGoal::Request { goal_info: GoalInfo { goal_id: uuid(&id(number)), stamp } }
    }

    fn cancelled(answer: &CancelGoal::Response) -> Vec<u8> {
        answer.goals_canceling.iter().map(|info| info.goal_id.uuid[0]).collect()
    }

    fn codes(goals: &Goals<u32>) -> Vec<i8> {
        goals.statuses().status_list.iter().map(|status| status.status).collect()
    }

    fn found(message: &str) -> Plan::Result {
        Plan::Result { message: message.to_owned(), ..Plan::Result::default() }
    }

    /// Goals 1 to 5, accepted at seconds 1 to 5: ended, worked on, and three that wait.
    fn five() -> Goals<u32> {
        let mut goals = Goals::default();
        (1..=5).for_each(|i| assert!(goals.accept(id(i), at(i.into()))));
        assert!(goals.begin(&id(1)) && goals.begin(&id(2)));
        goals.end(&id(1), Ok(found("a")));
        goals
    }

    #[test]
    fn results_go_to_those_who_asked_before_and_after_the_end() {
        let mut goals = Goals::default();
        assert!(goals.accept(id(1), at(1)) && goals.begin(&id(1)));
        assert!(goals.ask(&id(1), 7).is_none());
        let ended = goals.end(&id(1), Ok(found("a")));
        assert_eq!((ended.waiting, ended.result.message.as_str()), (vec![7], "a"));
        assert_eq!(ended.status, Status::Succeeded.code());
        let Some(again) = goals.ask(&id(1), 8) else { panic!("it has ended") };
        assert_eq!((again.waiting, again.result.message.as_str()), (vec![8], "a"));
        assert_eq!(again.status, Status::Succeeded.code());
        let Some(unknown) = goals.ask(&id(2), 9) else { panic!("nobody sent it") };
        assert_eq!((unknown.status, unknown.waiting), (0, vec![9]));
        assert!(unknown.result.message.starts_with("no goal of this id"));
    }

    #[test]
    fn requests_for_one_result_have_a_limit_and_all_are_answered() {
        let mut goals = Goals::default();
        goals.accept(id(1), at(1));
        assert!((0..16).all(|i| goals.ask(&id(1), i).is_none()));
        let Some(refused) = goals.ask(&id(1), 16) else { panic!("too many") };
        assert_eq!((refused.status, refused.waiting), (0, vec![16]));
        goals.begin(&id(1));
        let ended = goals.end(&id(1), Err(found("why")));
        assert_eq!(ended.waiting, (0..16).collect::<Vec<u32>>());
        assert_eq!(ended.status, Status::Aborted.code());
    }

    #[test]
    fn an_id_is_taken_once() {
        let mut goals = five();
        assert!((1..=5).all(|i| !goals.accept(id(i), at(9))));
        assert_eq!(codes(&goals), [4, 2, 1, 1, 1]);
    }

    #[test]
    fn goals_are_cancelled_by_id_by_time_or_all() {
        let none = CancelGoal::Response::ERROR_NONE as i8;
        let terminated = CancelGoal::Response::ERROR_GOAL_TERMINATED as i8;
        let unknown = CancelGoal::Response::ERROR_UNKNOWN_GOAL_ID as i8;
        for (number, secs, code, meant) in [
            (0, 0, none, vec![2, 3, 4, 5]),
            (2, 0, none, vec![2]),
            (4, 0, none, vec![4]),
            (1, 0, terminated, vec![]),
            (9, 0, unknown, vec![]),
            (0, 3, none, vec![2, 3]),
            (5, 3, none, vec![2, 3, 5]),
            (9, 3, none, vec![2, 3]),
            (1, 1, none, vec![]),
        ] {
            let (answer, ended) = five().cancel(&request(number, secs));
            assert_eq!((answer.return_code, cancelled(&answer)), (code, meant.clone()));
            // The one that is worked on ends by itself.
            assert_eq!(ended.len(), meant.iter().filter(|&&i| i != 2).count());
        }
    }

    #[test]
    fn a_cancelled_goal_ends_cancelled_whatever_came_of_it() {
        let mut goals = five();
        goals.ask(&id(3), 30);
        let (_, ended) = goals.cancel(&request(0, 0));
        assert_eq!(ended[0].waiting, [30]);
        assert_eq!(ended[0].result.message, "cancelled before it was begun");
        assert_eq!(codes(&goals), [4, 3, 5, 5, 5]);
        assert!(!goals.begin(&id(3)), "it is not worked on any more");
        assert!(goals.is_cancelled(&id(2)) && !goals.is_cancelled(&id(1)));
        // Once more is no mistake: two may have asked.
        assert_eq!(cancelled(&goals.cancel(&request(2, 0)).0), [2]);
        let ended = goals.end(&id(2), Ok(found("the best so far")));
        assert_eq!(ended.status, Status::Canceled.code());
        assert_eq!(codes(&goals), [4, 5, 5, 5, 5]);
        assert!(cancelled(&goals.cancel(&request(0, 0)).0).is_empty());
    }

    #[test]
    fn ended_goals_are_forgotten_the_oldest_first_and_live_ones_never() {
        let mut goals = Goals::<u32>::default();
        goals.accept(id(255), at(0));
        for i in 0..100 {
            assert!(goals.accept(id(100 + i), at(1)) && goals.begin(&id(100 + i)));
            goals.end(&id(100 + i), Ok(found("")));
        }
        assert_eq!(goals.0.len(), 1 + MAX_ENDED);
        assert_eq!(goals.0[0].id, id(255));
        assert_eq!(goals.0[1].id, id(200 - MAX_ENDED as u8));
        assert!(goals.accept(id(100), at(2)), "nobody knows it any more");
    }
}
