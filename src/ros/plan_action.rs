//! The action `~/plan`, made of its three services and two topics.
//!
//! As in the relay, not r2r's own action server: that of r2r 0.9.7 never answers who asks for the
//! result of a goal that it does not know, nor frees a goal, lets an id be used twice, and answers
//! requests to cancel all goals with a refusal.

mod goals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use r2r::action_msgs::msg::GoalStatusArray;
use r2r::action_msgs::srv::CancelGoal;
use r2r::builtin_interfaces::msg::Time;
use r2r::forecloud::action::Plan;
use r2r::{Publisher, QosProfile, ServiceRequest, WrappedActionTypeSupport as Action};

use self::goals::{Ended, Goals};
use super::action::{GoalId, goal_id, part, status_qos, uuid};
use super::service::{Service, respond};
use crate::message::Stamp;

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
    shared: Shared,
}

/// A goal that was accepted, for the thread that works on it.
pub struct PlanGoal {
    /// What is asked for.
    pub asked: Plan::Goal,
    id: GoalId,
    shared: Shared,
}

/// What both threads have a hand in.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

struct State {
    goals: Goals<ServiceRequest<GetResult>>,
    feedback: Publisher<Feedback>,
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
            feedback: node.create_publisher(&feedback, QosProfile::default()).context(feedback)?,
            status: node.create_publisher(&status, status_qos()).context(status)?,
        };
        Ok(Self {
            send_goal: Service::new(node, part(name, "send_goal"))?,
            cancel_goal: Service::new(node, part(name, "cancel_goal"))?,
            get_result: Service::new(node, part(name, "get_result"))?,
            shared: Shared(Arc::new(Mutex::new(state))),
        })
    }

    /// Answers all requests that have come at ROS time `now`; `begin` gets the goals.
    pub fn serve(&mut self, now: Stamp, mut begin: impl FnMut(PlanGoal)) {
        while let Some(request) = self.send_goal.next() {
            let (id, asked) = Plan::Action::destructure_goal_request_msg(request.message.clone());
            let id = goal_id(&id);
            // A goal that is rejected has no result, and so no words: what is wrong with it is told
            // by its result.
            let is_new = self.shared.change(|goals| goals.accept(id, now));
            if !is_new {
                tracing::warn!("{NAME}: a goal was rejected: its id is that of another one");
            }
            let (sec, nanosec) = now.parts();
            let stamp = Time { sec, nanosec };
            respond(NAME, request, Plan::Action::make_goal_response_msg(is_new, stamp));
            if is_new {
                begin(PlanGoal { asked, id, shared: self.shared.clone() });
            }
        }
        while let Some(request) = self.cancel_goal.next() {
            let (answer, ended) = self.shared.change(|goals| goals.cancel(&request.message));
            respond(NAME, request, answer);
            ended.into_iter().for_each(answer_all);
        }
        while let Some(request) = self.get_result.next() {
            let id = Plan::Action::destructure_result_request_msg(request.message.clone());
            let answer = self.shared.lock().goals.ask(&goal_id(&id), request);
            answer.into_iter().for_each(answer_all);
        }
    }
}

impl PlanGoal {
    /// Whether it is to be worked on: not if it has been cancelled since it came.
    pub fn begin(&self) -> bool {
        self.shared.change(|goals| goals.begin(&self.id))
    }

    /// Whether somebody has asked to cancel it.
    pub fn is_cancelled(&self) -> bool {
        self.shared.lock().goals.is_cancelled(&self.id)
    }

    /// Tells how far it is.
    pub fn tell(&self, feedback: Plan::Feedback) {
        let message = Plan::Action::make_feedback_msg(uuid(&self.id), feedback);
        // A client that has gone is no reason to end.
        if let Err(error) = self.shared.lock().feedback.publish(&message) {
            tracing::debug!("{NAME}: feedback was not sent: {error}");
        }
    }

    /// Ends it: with what was found, or why nothing was.
    pub fn end(self, outcome: Result<Plan::Result, Plan::Result>) {
        answer_all(self.shared.change(|goals| goals.end(&self.id, outcome)));
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
