//! The action `~/plan`, made of its three services and two topics.
//!
//! As in the relay, not r2r's own action server: that of r2r 0.9.7 answers who asks for the result of a
//! goal that it does not know with freed memory or not at all, never frees a goal, lets an id be used
//! twice, and tells who cancels several goals at once that it refuses.

mod goals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context;
use r2r::action_msgs::msg::GoalStatusArray;
use r2r::action_msgs::srv::CancelGoal;
use r2r::builtin_interfaces::msg::Time;
use r2r::forecloud::action::Plan;
use r2r::{Publisher, QosProfile, ServiceRequest, WrappedActionTypeSupport as Action};

pub use self::goals::only_words;
use self::goals::{Cancelled, Ended, Goals, Ticket};
use super::action::{GoalId, goal_id, part, status_qos, uuid};
use super::service::{Service, respond};
use forecloud::message::Stamp;

/// As messages and logs name it, whatever it is remapped to.
const NAME: &str = "~/plan";

type SendGoal = <Plan::Action as Action>::SendGoal;
type GetResult = <Plan::Action as Action>::GetResult;
type Feedback = <Plan::Action as Action>::FeedbackMessage;

/// The action, for the thread that takes requests.
pub struct PlanAction {
    send_goal: Service<SendGoal>,
    cancel_goal: Service<CancelGoal::Service>,
    get_result: Service<GetResult>,
    feedback: Publisher<Feedback>,
    shared: Shared,
}

/// A goal that was accepted, for the thread that works on it.
pub struct PlanGoal {
    /// What is asked for.
    pub asked: Plan::Goal,
    id: GoalId,
    ticket: Ticket,
    feedback: Publisher<Feedback>,
    shared: Shared,
}

/// What both threads have a hand in.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

struct State {
    goals: Goals<ServiceRequest<GetResult>>,
    status: Publisher<GoalStatusArray>,
}

impl PlanAction {
    /// Offers the action as `name`.
    ///
    /// # Errors
    /// What rcl says, with the service or topic.
    pub fn new(node: &mut r2r::Node, name: &str) -> anyhow::Result<Self> {
        let [feedback, status] = ["feedback", "status"].map(|what| part(name, what));
        let state = State {
            goals: Goals::default(),
            status: node.create_publisher(&status, status_qos()).context(status)?,
        };
        Ok(Self {
            send_goal: Service::new(node, part(name, "send_goal"))?,
            cancel_goal: Service::new(node, part(name, "cancel_goal"))?,
            get_result: Service::new(node, part(name, "get_result"))?,
            feedback: node.create_publisher(&feedback, QosProfile::default()).context(feedback)?,
            shared: Shared(Arc::new(Mutex::new(state))),
        })
    }

    /// Answers all requests that have come at ROS time `now`, and tells how many; `begin` gets the goals,
    /// `withdraw` the number of those that it got and that end without being begun.
    pub fn serve(
        &mut self,
        now: Stamp,
        mut begin: impl FnMut(PlanGoal),
        mut withdraw: impl FnMut(usize),
    ) -> usize {
        let mut n = 0;
        while let Some(request) = self.send_goal.next() {
            n += 1;
            self.take(request, now).into_iter().for_each(&mut begin);
        }
        while let Some(request) = self.cancel_goal.next() {
            n += 1;
            let cancelled = self.shared.change(|goals| goals.cancel(&request.message));
            let Cancelled { answer, ended } = cancelled;
            respond(NAME, request, answer);
            withdraw(ended.len());
            ended.into_iter().for_each(answer_all);
        }
        if self.shared.lock().goals.are_overdue(Instant::now()) {
            let ended = self.shared.change(|goals| goals.end_overdue(Instant::now()));
            ended.into_iter().for_each(answer_all);
        }
        while let Some(request) = self.get_result.next() {
            n += 1;
            let id = Plan::Action::destructure_result_request_msg(request.message.clone());
            let answer = self.shared.lock().goals.ask(&goal_id(&id), request);
            answer.into_iter().for_each(answer_all);
        }
        n
    }

    /// Takes a goal. One that is rejected has no result, and so no words: what is wrong with a goal is told
    /// by its result.
    fn take(&mut self, request: ServiceRequest<SendGoal>, now: Stamp) -> Option<PlanGoal> {
        let (id, asked) = Plan::Action::destructure_goal_request_msg(request.message.clone());
        let id = goal_id(&id);
        let ticket = self.shared.change(|goals| goals.accept(id, now));
        if ticket.is_none() {
            tracing::warn!("{NAME}: rejected a goal: its id is in use");
        }
        let (sec, nanosec) = now.parts();
        let stamp = Time { sec, nanosec };
        let answer = Plan::Action::make_goal_response_msg(ticket.is_some(), stamp);
        let is_told = respond(NAME, request, answer);
        let ticket = ticket?;
        let (feedback, shared) = (self.feedback.clone(), self.shared.clone());
        let goal = PlanGoal { asked, id, ticket, feedback, shared };
        if is_told {
            return Some(goal);
        }
        // Its client waits in vain, or asks again with another id: nobody would take the plan.
        goal.end(Err(only_words("the client could not be sent the acceptance")));
        None
    }

    /// Ends all goals, aborted, for a reason; whether there were any.
    pub fn end(&mut self, reason: &str) -> bool {
        let ended = self.shared.change(|goals| goals.end_all(reason));
        let any = !ended.is_empty();
        ended.into_iter().for_each(answer_all);
        any
    }
}

impl PlanGoal {
    /// Whether it is to be worked on: not if it has ended since it came.
    pub fn begin(&self) -> bool {
        self.shared.change(|goals| goals.begin(self.ticket))
    }

    /// Whether work on it is to end.
    pub fn is_cancelled(&self) -> bool {
        self.shared.lock().goals.is_cancelled(self.ticket)
    }

    /// Tells threads whether work on it is to go on.
    pub fn is_wanted(&self) -> impl Fn() -> bool + Sync + use<> {
        let (shared, ticket) = (self.shared.clone(), self.ticket);
        move || !shared.lock().goals.is_cancelled(ticket)
    }

    /// Tells how far it is.
    pub fn send_feedback(&self, feedback: Plan::Feedback) {
        let message = Plan::Action::make_feedback_msg(uuid(&self.id), feedback);
        // A client that has gone is no reason to end.
        if let Err(error) = self.feedback.publish(&message) {
            tracing::debug!("{NAME}: could not send feedback: {error}");
        }
    }

    /// Ends it: with what was found, or why nothing was.
    pub fn end(self, outcome: Result<Plan::Result, Plan::Result>) {
        let ended = self.shared.change(|goals| goals.end(self.ticket, outcome));
        ended.into_iter().for_each(answer_all);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes goals, and tells of their statuses.
    fn change<T>(&self, change: impl FnOnce(&mut Goals<ServiceRequest<GetResult>>) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state.goals);
        // An error is logged by r2r.
        let _ = state.status.publish(&state.goals.statuses());
        changed
    }
}

/// Answers those who wait for a result.
fn answer_all(ended: Ended<ServiceRequest<GetResult>>) {
    let Ended { status, result, waiting } = ended;
    for request in waiting {
        let answer = Plan::Action::make_result_response_msg(status, result.clone());
        respond(NAME, request, answer);
    }
}
