//! The goals of the action, from when they are accepted until they are forgotten.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use r2r::action_msgs::msg::{GoalInfo, GoalStatus, GoalStatusArray};
use r2r::action_msgs::srv::CancelGoal;
use r2r::builtin_interfaces::msg::Time;
use r2r::forecloud::action::Plan;

use super::super::action::{GoalId, goal_id, uuid};
use forecloud::message::Stamp;

/// What the thread that works on a goal knows it by: ids are clients', and may come again once they are
/// forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// Goals that have ended and are remembered, with their results, at most.
const MAX_ENDED: usize = 64;
/// How long work on a cancelled goal may go on to tell the best so far: its client waits no longer.
const GRACE: Duration = Duration::from_millis(200);
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
    ticket: Ticket,
    accepted: Stamp,
    status: Status,
    /// Whether work on it has begun.
    is_begun: bool,
    /// When it was cancelled, while work on it goes on.
    cancelled: Option<Instant>,
    /// Of a goal that has ended.
    result: Plan::Result,
    /// Who waits for it.
    waiting: Vec<R>,
}

/// The goals in the order in which they came; `R` is a request for a result.
pub struct Goals<R> {
    goals: VecDeque<Goal<R>>,
    n_accepted: u64,
}

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
        Self { goals: VecDeque::new(), n_accepted: 0 }
    }
}

/// What becomes of a request to cancel.
pub struct Cancelled<R> {
    /// The answer.
    pub answer: CancelGoal::Response,
    /// The goals that have ended by it: those that were not begun.
    pub ended: Vec<Ended<R>>,
}

impl<R> Goals<R> {
    /// Takes a goal at ROS time `now`; not if its id is known already.
    pub fn accept(&mut self, id: GoalId, now: Stamp) -> Option<Ticket> {
        if self.goal_with_id(&id).is_some() {
            return None;
        }
        self.forget();
        let ticket = Ticket(self.n_accepted);
        self.n_accepted += 1;
        self.goals.push_back(Goal {
            id,
            ticket,
            accepted: now,
            status: Status::Accepted,
            is_begun: false,
            cancelled: None,
            result: Plan::Result::default(),
            waiting: Vec::new(),
        });
        Some(ticket)
    }

    /// Forgets the oldest of too many that have ended, first those that never were begun: a client that
    /// asks a busy node again and again costs nobody a result.
    fn forget(&mut self) {
        let n_ended = self.goals.iter().filter(|goal| goal.status.is_ended()).count();
        for _ in MAX_ENDED..=n_ended {
            let ended = |is_begun| {
                move |goal: &Goal<R>| goal.status.is_ended() && goal.is_begun == is_begun
            };
            let mut goals = self.goals.iter();
            let oldest = goals.position(ended(false));
            let oldest = oldest.or_else(|| self.goals.iter().position(ended(true)));
            oldest.and_then(|i| self.goals.remove(i));
        }
    }

    /// Work on a goal begins; not if it has ended since it came.
    pub fn begin(&mut self, ticket: Ticket) -> bool {
        let goal = self.goal_with_ticket(ticket).filter(|goal| goal.status == Status::Accepted);
        goal.map(|goal| (goal.status, goal.is_begun) = (Status::Executing, true)).is_some()
    }

    /// Whether nobody wants its result any more: somebody has asked to cancel it, or it has been ended.
    pub fn is_cancelled(&self, ticket: Ticket) -> bool {
        let goal = self.goals.iter().find(|goal| goal.ticket == ticket);
        goal.is_none_or(|goal| goal.status == Status::Canceling || goal.status.is_ended())
    }

    /// A goal ends: with what was found, or why nothing was. Nothing happens to one that has ended.
    pub fn end(
        &mut self,
        ticket: Ticket,
        outcome: Result<Plan::Result, Plan::Result>,
    ) -> Option<Ended<R>> {
        let goal = self.goal_with_ticket(ticket).filter(|goal| !goal.status.is_ended())?;
        let status = match (goal.status, &outcome) {
            (Status::Canceling, _) => Status::Canceled,
            (_, Ok(_)) => Status::Succeeded,
            (_, Err(_)) => Status::Aborted,
        };
        let (Ok(result) | Err(result)) = outcome;
        Some(goal.end(status, result))
    }

    /// Ends all that go on, aborted, for a reason.
    pub fn end_all(&mut self, reason: &str) -> Vec<Ended<R>> {
        let live = self.goals.iter_mut().filter(|goal| !goal.status.is_ended());
        live.map(|goal| goal.end(Status::Aborted, only_words(reason))).collect()
    }

    /// Cancels the goals that a request means (`action_msgs/srv/CancelGoal`): one by its id, all until a
    /// stamp, or all. Those that wait end at once. Unlike with `rcl`, those that are being cancelled are
    /// named once more: two who ask have both been heard.
    pub fn cancel(&mut self, request: &CancelGoal::Request) -> Cancelled<R> {
        let GoalInfo { goal_id: id, stamp } = &request.goal_info;
        let (id, until) = (goal_id(id), Stamp::from_parts(stamp.sec, stamp.nanosec));
        let (names_one, names_time) = (id != [0; 16], until != Stamp::default());
        let code = match self.goal_with_id(&id) {
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
        let mut answer = CancelGoal::Response { return_code: code, ..Default::default() };
        let mut ended = Vec::new();
        let live = self.goals.iter_mut().filter(|goal| !goal.status.is_ended());
        for goal in live.filter(|goal| is_meant(goal)) {
            answer.goals_canceling.push(goal.info());
            if goal.status == Status::Accepted {
                let result = only_words("cancelled before it started");
                ended.push(goal.end(Status::Canceled, result));
            } else {
                goal.status = Status::Canceling;
                goal.cancelled.get_or_insert_with(Instant::now);
            }
        }
        Cancelled { answer, ended }
    }

    /// Whether work on a cancelled goal goes on for too long at `now`.
    pub fn are_overdue(&self, now: Instant) -> bool {
        self.goals.iter().any(|goal| goal.is_overdue(now))
    }

    /// Ends cancelled goals that work goes on for too long on: what comes of it is nobody's.
    pub fn end_overdue(&mut self, now: Instant) -> Vec<Ended<R>> {
        let overdue = self.goals.iter_mut().filter(|goal| goal.is_overdue(now));
        overdue.map(|goal| goal.end(Status::Canceled, only_words("cancelled"))).collect()
    }

    /// Asks for the result of a goal: who is answered now. While the goal goes on, that is nobody, and
    /// the request waits for its end; of too many, the one that has waited longest is sent away: its
    /// client is the likeliest to have gone.
    pub fn ask(&mut self, id: &GoalId, request: R) -> Option<Ended<R>> {
        let unknown = GoalStatus::STATUS_UNKNOWN as i8;
        let Some(goal) = self.goal_with_id(id) else {
            let words = format!(
                "no goal has this id: it was never accepted, or {MAX_ENDED} others have ended \
                 since"
            );
            let result = only_words(&words);
            return Some(Ended { status: unknown, result, waiting: vec![request] });
        };
        if goal.status.is_ended() {
            let (status, result) = (goal.status.code(), goal.result.clone());
            return Some(Ended { status, result, waiting: vec![request] });
        }
        goal.waiting.push(request);
        (goal.waiting.len() > MAX_ASKED).then(|| {
            let words = format!("dropped, because {MAX_ASKED} later requests wait for this result");
            let result = only_words(&words);
            Ended { status: unknown, result, waiting: vec![goal.waiting.remove(0)] }
        })
    }

    /// Where all goals stand.
    pub fn statuses(&self) -> GoalStatusArray {
        let status =
            |goal: &Goal<R>| GoalStatus { goal_info: goal.info(), status: goal.status.code() };
        GoalStatusArray { status_list: self.goals.iter().map(status).collect() }
    }

    fn goal_with_id(&mut self, id: &GoalId) -> Option<&mut Goal<R>> {
        self.goals.iter_mut().find(|goal| goal.id == *id)
    }

    fn goal_with_ticket(&mut self, ticket: Ticket) -> Option<&mut Goal<R>> {
        self.goals.iter_mut().find(|goal| goal.ticket == ticket)
    }
}

impl<R> Goal<R> {
    fn info(&self) -> GoalInfo {
        let (sec, nanosec) = self.accepted.parts();
        GoalInfo { goal_id: uuid(&self.id), stamp: Time { sec, nanosec } }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let since = self.cancelled.filter(|_| self.status == Status::Canceling);
        since.is_some_and(|since| now.saturating_duration_since(since) >= GRACE)
    }

    fn end(&mut self, status: Status, result: Plan::Result) -> Ended<R> {
        (self.status, self.result) = (status, result.clone());
        Ended { status: status.code(), result, waiting: std::mem::take(&mut self.waiting) }
    }
}

/// A result that is none, with the reason.
pub fn only_words(reason: &str) -> Plan::Result {
    Plan::Result { message: reason.to_owned(), ..Plan::Result::default() }
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
        only_words(message)
    }

    /// Goals 1 to 5, accepted at seconds 1 to 5: ended, worked on, and three that wait.
    fn five() -> (Goals<u32>, Vec<Ticket>) {
        let mut goals = Goals::default();
        let tickets: Vec<Ticket> =
            (1..=5).map(|i| goals.accept(id(i), at(i.into())).unwrap()).collect();
        assert!(goals.begin(tickets[0]) && goals.begin(tickets[1]));
        goals.end(tickets[0], Ok(found("a")));
        (goals, tickets)
    }

    #[test]
    fn results_go_to_those_who_asked_before_and_after_the_end() {
        let mut goals = Goals::default();
        let ticket = goals.accept(id(1), at(1)).unwrap();
        assert!(goals.begin(ticket) && goals.ask(&id(1), 7).is_none());
        let ended = goals.end(ticket, Ok(found("a"))).unwrap();
        assert_eq!((ended.waiting, ended.result.message.as_str()), (vec![7], "a"));
        assert_eq!(ended.status, Status::Succeeded.code());
        let again = goals.ask(&id(1), 8).unwrap();
        assert_eq!((again.waiting, again.result.message.as_str()), (vec![8], "a"));
        assert_eq!(again.status, Status::Succeeded.code());
        let unknown = goals.ask(&id(2), 9).unwrap();
        assert_eq!((unknown.status, unknown.waiting), (0, vec![9]));
        assert!(unknown.result.message.starts_with("no goal has this id"));
    }

    #[test]
    fn requests_for_one_result_have_a_limit_and_all_are_answered() {
        let mut goals = Goals::default();
        let ticket = goals.accept(id(1), at(1)).unwrap();
        assert!((0..16).all(|i| goals.ask(&id(1), i).is_none()));
        let refused = goals.ask(&id(1), 16).unwrap();
        assert_eq!((refused.status, refused.waiting), (0, vec![0]), "the oldest");
        goals.begin(ticket);
        let ended = goals.end(ticket, Err(found("why"))).unwrap();
        assert_eq!(ended.waiting, (1..=16).collect::<Vec<u32>>());
        assert_eq!(ended.status, Status::Aborted.code());
        assert!(goals.end(ticket, Ok(found("once more"))).is_none());
    }

    #[test]
    fn an_id_is_taken_once() {
        let (mut goals, _) = five();
        assert!((1..=5).all(|i| goals.accept(id(i), at(9)).is_none()));
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
            let Cancelled { answer, ended } = five().0.cancel(&request(number, secs));
            assert_eq!((answer.return_code, cancelled(&answer)), (code, meant.clone()));
            // The one that is worked on ends by itself.
            assert_eq!(ended.len(), meant.iter().filter(|&&i| i != 2).count());
        }
    }

    #[test]
    fn a_cancelled_goal_ends_cancelled_whatever_came_of_it() {
        let (mut goals, tickets) = five();
        goals.ask(&id(3), 30);
        let ended = goals.cancel(&request(0, 0)).ended;
        assert_eq!(ended[0].waiting, [30]);
        assert_eq!(ended[0].result.message, "cancelled before it started");
        assert_eq!(codes(&goals), [4, 3, 5, 5, 5]);
        assert!(!goals.begin(tickets[2]), "it is not worked on any more");
        assert!(goals.is_cancelled(tickets[1]));
        // Once more is no mistake: two may have asked.
        assert_eq!(cancelled(&goals.cancel(&request(2, 0)).answer), [2]);
        let ended = goals.end(tickets[1], Ok(found("the best so far"))).unwrap();
        assert_eq!(ended.status, Status::Canceled.code());
        assert_eq!(codes(&goals), [4, 5, 5, 5, 5]);
        assert!(cancelled(&goals.cancel(&request(0, 0)).answer).is_empty());
    }

    #[test]
    fn a_cancelled_goal_does_not_wait_for_long_work() {
        let (mut goals, tickets) = five();
        goals.ask(&id(2), 20);
        let start = Instant::now();
        assert!(!goals.are_overdue(start + 2 * GRACE), "nobody has cancelled it");
        goals.cancel(&request(2, 0));
        assert!(!goals.are_overdue(start) && goals.end_overdue(start).is_empty());
        let later = start + Duration::from_secs(60);
        assert!(goals.are_overdue(later));
        let ended = goals.end_overdue(later).pop().unwrap();
        assert_eq!((ended.status, ended.waiting), (Status::Canceled.code(), vec![20]));
        assert_eq!(ended.result.message, "cancelled");
        assert!(!goals.are_overdue(later));
        assert!(goals.end(tickets[1], Ok(found("too late"))).is_none());
    }

    #[test]
    fn the_node_that_ends_answers_all_and_nothing_is_worked_on_any_more() {
        let (mut goals, tickets) = five();
        goals.ask(&id(2), 20);
        assert!(!goals.is_cancelled(tickets[1]));
        let ended = goals.end_all("the node is ending");
        assert_eq!((ended.len(), ended[0].waiting.as_slice()), (4, &[20][..]));
        assert_eq!(codes(&goals), [4, 6, 6, 6, 6]);
        assert!(goals.is_cancelled(tickets[1]) && !goals.begin(tickets[2]));
        assert!(goals.end(tickets[1], Ok(found("too late"))).is_none());
    }

    #[test]
    fn ended_goals_are_forgotten_the_oldest_first_and_live_ones_never() {
        let mut goals = Goals::<u32>::default();
        goals.accept(id(255), at(0));
        for i in 0..100 {
            let ticket = goals.accept(id(100 + i), at(1)).unwrap();
            assert!(goals.begin(ticket));
            goals.end(ticket, Ok(found("")));
        }
        assert_eq!(goals.goals.len(), 1 + MAX_ENDED);
        assert_eq!(goals.goals[0].id, id(255));
        assert_eq!(goals.goals[1].id, id(200 - MAX_ENDED as u8));
        // Those that were not begun go first, however many end at once.
        (0..80).for_each(|i| assert!(goals.accept(id(1 + i), at(2)).is_some()));
        goals.cancel(&request(0, 0));
        let ticket = goals.accept(id(100), at(3)).unwrap();
        assert_eq!(goals.goals.len(), MAX_ENDED, "this one, and one fewer that ended");
        assert!((137..200).all(|i| goals.goal_with_id(&id(i)).is_some()));
        assert_eq!(ticket, Ticket(181), "its id came before, and it is another goal");
    }
}
