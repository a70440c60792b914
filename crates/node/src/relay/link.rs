//! The way to a controller: its action's services and topics, and whether it is there.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt;
use r2r::action_msgs::msg::GoalStatusArray;
use r2r::action_msgs::srv::CancelGoal;
use r2r::unique_identifier_msgs::msg::UUID;
use r2r::{Client, NativeMsg, Node, QosProfile, WrappedServiceTypeSupport as Service};

use super::super::action::{part, status_qos};
use super::super::service::Incoming;
use super::action::Relayed;

/// What will be answered.
pub type Pending<T> = Pin<Box<dyn Future<Output = r2r::Result<T>>>>;

/// Time between two looks at whether a controller's services are there.
const LOOK: Duration = Duration::from_millis(100);
/// Time without a successful look after which they are not.
const GONE: Duration = Duration::from_millis(500);

/// The answer of a request to send a goal.
pub type Accepted<T> = <<T as r2r::WrappedActionTypeSupport>::SendGoal as Service>::Response;
/// The answer of a request for a result.
pub type Ended<T> = <<T as r2r::WrappedActionTypeSupport>::GetResult as Service>::Response;

/// The answer, if it has come.
pub fn poll<T>(pending: &mut Pending<T>) -> Option<r2r::Result<T>> {
    pending.now_or_never()
}

/// A client of a controller's action.
pub struct Link<T: Relayed> {
    send_goal: Client<T::SendGoal>,
    cancel_goal: Client<CancelGoal::Service>,
    get_result: Client<T::GetResult>,
    /// Feedback, not decoded.
    pub feedback: Incoming<NativeMsg<T::FeedbackMessage>>,
    /// Statuses of its goals.
    pub status: Incoming<GoalStatusArray>,
    pulse: Pulse<Ended<T>>,
}

/// Whether a controller is there.
struct Pulse<R> {
    /// Looks at its services that have not succeeded yet.
    looks: Vec<Pending<()>>,
    looked: Option<Instant>,
    /// When all services were there last.
    there: Option<Instant>,
    ping: Option<Pending<R>>,
    pinged: Option<Instant>,
    /// When it answered last.
    heard: Instant,
    /// When the relay listened last.
    listened: Instant,
}

impl<T: Relayed> Link<T> {
    /// To the action of this name.
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut Node, action: &str) -> Result<Self> {
        let name = |what: &str| part(action, what);
        let qos = QosProfile::services_default;
        let [send, cancel, result] = ["send_goal", "cancel_goal", "get_result"].map(name);
        let [feedback, status] = ["feedback", "status"].map(name);
        let on = |topic: &str| format!("subscription to {topic}");
        Ok(Self {
            send_goal: node.create_client(&send, qos()).context(send)?,
            cancel_goal: node.create_client(&cancel, qos()).context(cancel)?,
            get_result: node.create_client(&result, qos()).context(result)?,
            feedback: Box::new(
                node.subscribe_native(&feedback, QosProfile::default())
                    .with_context(|| on(&feedback))?,
            ),
            status: Box::new(node.subscribe(&status, status_qos()).with_context(|| on(&status))?),
            pulse: Pulse {
                looks: Vec::new(),
                looked: None,
                there: None,
                ping: None,
                pinged: None,
                heard: Instant::now(),
                listened: Instant::now(),
            },
        })
    }

    /// Sends a goal.
    ///
    /// # Errors
    /// What rcl says.
    pub fn send_goal(&self, id: UUID, goal: T::Goal) -> r2r::Result<Pending<Accepted<T>>> {
        Ok(Box::pin(self.send_goal.request(&T::make_goal_request_msg(id, goal))?))
    }

    /// Asks for the result of a goal.
    ///
    /// # Errors
    /// What rcl says.
    pub fn get_result(&self, id: UUID) -> r2r::Result<Pending<Ended<T>>> {
        Ok(Box::pin(self.get_result.request(&T::make_result_request_msg(id))?))
    }

    /// Asks to cancel goals.
    ///
    /// # Errors
    /// What rcl says.
    pub fn cancel(
        &self,
        request: &CancelGoal::Request,
    ) -> r2r::Result<Pending<CancelGoal::Response>> {
        Ok(Box::pin(self.cancel_goal.request(request)?))
    }

    /// Whether the controller's services are there.
    pub fn is_there(&self, now: Instant) -> bool {
        self.pulse.there.is_some_and(|there| now.saturating_duration_since(there) < GONE)
    }

    /// Something came from the controller.
    pub fn heard(&mut self, now: Instant) {
        self.pulse.heard = now;
    }

    /// Time since something came from it.
    pub fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.pulse.heard)
    }

    /// Looks whether the services are there. To be called often.
    pub fn look(&mut self, now: Instant) {
        let pulse = &mut self.pulse;
        if pulse.looks.is_empty() {
            if pulse.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK) {
                return;
            }
            pulse.looked = Some(now);
            let looks = [
                Node::is_available(&self.send_goal).map(pending),
                Node::is_available(&self.cancel_goal).map(pending),
                Node::is_available(&self.get_result).map(pending),
            ];
            pulse.looks.extend(looks.into_iter().flatten());
            return;
        }
        let mut has_failed = false;
        pulse.looks.retain_mut(|look| {
            let found = poll(look);
            has_failed |= matches!(found, Some(Err(_)));
            found.is_none()
        });
        if has_failed {
            pulse.looks.clear();
        } else if pulse.looks.is_empty() {
            pulse.there = Some(now);
        }
    }

    /// Asks the controller something that it answers at once, and listens: for the result of a goal
    /// that nobody sent. A killed process seems to be there for 20 s, and a hung one for ever.
    pub fn ping(&mut self, now: Instant, timeout: Duration) {
        let pulse = &mut self.pulse;
        // A relay that was stopped itself has not heard anything, and that is nobody's fault.
        if now.saturating_duration_since(pulse.listened) > timeout / 5 {
            pulse.heard = now;
        }
        pulse.listened = now;
        match pulse.ping.as_mut().and_then(poll) {
            Some(Ok(_)) => (pulse.ping, pulse.heard) = (None, now),
            Some(Err(_)) => pulse.ping = None,
            None => {}
        }
        let due = |fraction| {
            pulse.pinged.is_none_or(|then| now.saturating_duration_since(then) > timeout / fraction)
        };
        if (pulse.ping.is_none() && due(5)) || due(2) {
            let nobody = UUID { uuid: vec![0; 16] };
            let request = self.get_result.request(&T::make_result_request_msg(nobody));
            pulse.pinged = Some(now);
            pulse.ping = request.ok().map(pending);
        }
    }
}

fn pending<T>(future: impl Future<Output = r2r::Result<T>> + 'static) -> Pending<T> {
    Box::pin(future)
}
