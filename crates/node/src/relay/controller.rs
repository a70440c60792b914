//! One controller behind the relay: what a client asks is passed on, what the controller says is
//! passed back, and the planner learns of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use r2r::action_msgs::msg::GoalStatusArray;
use r2r::action_msgs::srv::CancelGoal;
use r2r::builtin_interfaces::msg::Time;
use r2r::{Publisher, QosProfile, ServiceRequest, WrappedServiceTypeSupport};

use super::super::action::{goal_id, part, status_qos, uuid};
use super::super::service::{Service, next};
use super::action::{Measured, Relayed};
use super::goals::{Goals, Stage, respond};
use super::link::{Ended, Link, Pending, poll};
use super::steps::{Step, UNKNOWN, forgotten, next_step};
use forecloud::message::Stamp;
use forecloud::robot::relay::{GoalId, Planner};

/// Requests that the controller has not answered, at most.
const MAX_PENDING: usize = 64;

/// What all controllers share.
pub struct World<'a> {
    /// ROS time.
    pub stamp: Stamp,
    /// The machine's.
    pub now: Instant,
    /// What is executed.
    pub planner: &'a mut Planner,
    /// Where the joints are.
    pub measured: &'a Measured,
}

/// A controller of any kind.
pub trait Controller {
    /// Passes on what has come.
    fn serve(&mut self, world: &mut World);
}

/// Names of a controller's action, and how long it may be silent.
pub struct Names {
    /// Its number.
    pub index: usize,
    /// The controller's action.
    pub action: String,
    /// What it is offered as.
    pub offered: String,
    /// Longest silence.
    pub timeout: Duration,
}

/// One controller, and the action that stands for it.
pub struct Relay<T: Relayed> {
    names: Names,
    about: T::About,
    link: Link<T>,
    send_goal: Service<T::SendGoal>,
    cancel_goal: Service<CancelGoal::Service>,
    get_result: Service<T::GetResult>,
    feedback: Publisher<T::FeedbackMessage>,
    status: Publisher<GoalStatusArray>,
    goals: Goals<T>,
    cancels: Vec<Asked<CancelGoal::Service, CancelGoal::Response>>,
    results: Vec<Asked<T::GetResult, Ended<T>>>,
    /// The controller's last statuses.
    statuses: GoalStatusArray,
}

/// A request that the controller is to answer.
type Asked<S, R> = (ServiceRequest<S>, Pending<R>, Instant);

impl<T: Relayed> Relay<T> {
    /// Offers the action.
    ///
    /// # Errors
    /// What rcl says, with the name.
    pub fn new(node: &mut r2r::Node, names: Names, about: T::About) -> Result<Self> {
        let link = Link::new(node, &names.action)?;
        let name = |what: &str| part(&names.offered, what);
        let [feedback, status] = ["feedback", "status"].map(name);
        Ok(Self {
            link,
            send_goal: Service::new(node, name("send_goal"))?,
            cancel_goal: Service::new(node, name("cancel_goal"))?,
            get_result: Service::new(node, name("get_result"))?,
            feedback: node.create_publisher(&feedback, QosProfile::default()).context(feedback)?,
            status: node.create_publisher(&status, status_qos()).context(status)?,
            names,
            about,
            goals: Goals::default(),
            cancels: Vec::new(),
            results: Vec::new(),
            statuses: GoalStatusArray::default(),
        })
    }

    /// Takes a goal, or refuses it.
    fn take(&mut self, request: ServiceRequest<T::SendGoal>, world: &World) {
        let (id, goal) = T::destructure_goal_request_msg(request.message.clone());
        let id = goal_id(&id);
        let name = &self.names.offered;
        if self.goals.get_mut(&id).is_some() || !self.goals.make_room() {
            tracing::warn!("{name}: goal rejected: its id is in use, or too many goals are active");
            respond(request, T::make_goal_response_msg(false, Time::default()));
            return;
        }
        match T::motion(&goal, &self.about, world.measured) {
            Ok(motion) => {
                if motion.is_none() {
                    tracing::warn!(
                        "{name}: passing on a goal that lacks positions in some points; \
                         predictions don't use it"
                    );
                }
                self.goals.push(id, Stage::Waiting(request, motion), world.now);
            }
            // Accepted first: a goal that is rejected has no result, and so no words.
            Err(problem) => {
                self.goals.push(id, Stage::Waiting(request, None), world.now);
                let words = format!("{problem}. The goal was not passed on");
                self.fail(&id, &words, world.stamp);
            }
        }
    }

    /// Ends a goal on the relay's own account.
    fn fail(&mut self, id: &GoalId, words: &str, stamp: Stamp) {
        let Some(goal) = self.goals.get_mut(id) else { return };
        tracing::warn!("{}: goal aborted: {words}", self.names.offered);
        let waits = match &goal.stage {
            Stage::Waiting(request, _) | Stage::Sent(request, ..) => Some(request.clone()),
            _ => None,
        };
        if let Some(request) = waits {
            let (sec, nanosec) = stamp.parts();
            respond(request, T::make_goal_response_msg(true, Time { sec, nanosec }));
        }
        goal.abort(words);
        self.publish_status();
    }

    fn publish_status(&self) {
        // An error is logged by r2r.
        let _ = self.status.publish(&self.goals.corrected(self.statuses.clone()));
    }

    /// Each goal a stage further, if it is time.
    fn go_on(&mut self, world: &mut World) {
        let is_there = self.link.is_there(world.now);
        let mut dead: Vec<(GoalId, Option<String>)> = Vec::new();
        let mut rejected: Vec<GoalId> = Vec::new();
        for goal in self.goals.iter_mut() {
            match next_step(goal, &mut self.link, is_there, &self.names, world) {
                Step::Stay => {}
                Step::Dead => dead.push((goal.id, None)),
                Step::Forgotten => dead.push((goal.id, Some(forgotten(&self.names.action)))),
                Step::Rejected => rejected.push(goal.id),
            }
        }
        self.goals.retain(|goal| !rejected.contains(&goal.id));
        for (id, words) in dead {
            let words = words.unwrap_or_else(|| self.silence(is_there));
            self.give_up(&id, &words, world);
        }
    }

    /// What it means that the controller does not answer, and what to do.
    fn silence(&self, is_there: bool) -> String {
        let action = &self.names.action;
        let secs = self.names.timeout.as_secs_f64();
        match is_there {
            false => format!(
                "no action server {action} was found for {secs} s. Remedy: start or activate the \
                 controller (ros2 control list_controllers), or correct `controllers` of the plan \
                 relay"
            ),
            true => format!(
                "{action} has not answered for {secs} s. Remedy: look at the controller's log; if it \
                 is only slow, raise controller_timeout_secs of the plan relay"
            ),
        }
    }

    /// Aborts a goal that its controller says nothing of any more.
    fn give_up(&mut self, id: &GoalId, words: &str, world: &mut World) {
        world.planner.end(id, world.stamp);
        self.fail(id, words, world.stamp);
        // Should it come back to life, it must not go on with what its client counts as ended.
        let mut request = CancelGoal::Request::default();
        request.goal_info.goal_id = uuid(id);
        let _ = self.link.cancel(&request);
    }

    /// Passes on requests to cancel, and the answers.
    fn serve_cancels(&mut self, world: &mut World) {
        while let Some(request) = self.cancel_goal.next() {
            let is_possible = self.link.is_there(world.now) && self.cancels.len() < MAX_PENDING;
            match is_possible.then(|| self.link.cancel(&request.message)) {
                Some(Ok(answer)) => self.cancels.push((request, answer, world.now)),
                _ => respond(request, not_cancelled()),
            }
        }
        let late = self.names.timeout;
        for (request, answer) in answered_or_late(&mut self.cancels, world.now, late) {
            if let Some(answer) = &answer {
                self.link.heard(world.now);
                for info in &answer.goals_canceling {
                    world.planner.end(&goal_id(&info.goal_id), world.stamp);
                }
            }
            respond(request, answer.unwrap_or_else(not_cancelled));
        }
    }

    /// Answers requests for results: of goals that the relay does not know, the controller does.
    fn serve_results(&mut self, world: &World) {
        while let Some(request) = self.get_result.next() {
            let id = T::destructure_result_request_msg(request.message.clone());
            if let Some(goal) = self.goals.get_mut(&goal_id(&id)) {
                goal.ask(request);
                continue;
            }
            let is_possible = self.link.is_there(world.now) && self.results.len() < MAX_PENDING;
            match is_possible.then(|| self.link.get_result(id)) {
                Some(Ok(answer)) => self.results.push((request, answer, world.now)),
                _ => respond(request, unknown_goal::<T>()),
            }
        }
        // A goal of another client of the controller may run for long: no hurry.
        let late = Duration::from_secs(3600);
        for (request, answer) in answered_or_late(&mut self.results, world.now, late) {
            respond(request, answer.unwrap_or_else(unknown_goal::<T>));
        }
    }

    fn pass_back(&mut self, now: Instant) {
        while let Some(mut feedback) = next(&mut self.link.feedback) {
            self.link.heard(now);
            // Errors are logged by r2r.
            let _ = self.feedback.publish_native(&mut feedback);
        }
        let mut is_new = false;
        while let Some(statuses) = next(&mut self.link.status) {
            (self.statuses, is_new) = (statuses, true);
        }
        if is_new {
            self.link.heard(now);
            self.publish_status();
        }
    }
}

impl<T: Relayed> Controller for Relay<T> {
    fn serve(&mut self, world: &mut World) {
        self.link.look(world.now);
        while let Some(request) = self.send_goal.next() {
            self.take(request, world);
        }
        if self.goals.any_running() {
            self.link.ping(world.now, self.names.timeout);
        }
        self.go_on(world);
        self.serve_cancels(world);
        self.serve_results(world);
        self.pass_back(world.now);
    }
}

/// Takes out the requests that were answered, and those (`None`) that have waited too long.
fn answered_or_late<S: WrappedServiceTypeSupport, R>(
    asked: &mut Vec<Asked<S, R>>,
    now: Instant,
    timeout: Duration,
) -> Vec<(ServiceRequest<S>, Option<R>)> {
    let mut done = Vec::new();
    asked.retain_mut(|(request, answer, since)| {
        let answer = poll(answer);
        let is_late = now.saturating_duration_since(*since) > timeout;
        let is_done = answer.is_some() || is_late;
        if is_done {
            done.push((request.clone(), answer.and_then(Result::ok)));
        }
        !is_done
    });
    done
}

fn not_cancelled() -> CancelGoal::Response {
    let return_code = CancelGoal::Response::ERROR_REJECTED as i8;
    CancelGoal::Response { return_code, ..CancelGoal::Response::default() }
}

fn unknown_goal<T: Relayed>() -> Ended<T> {
    T::make_result_response_msg(UNKNOWN, T::Result::default())
}
