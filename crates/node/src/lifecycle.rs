//! The lifecycle of a managed node (design.ros2.org, "Managed nodes"): its states, the transitions between
//! them, and the services by which a manager drives it. By hand, as r2r has none.

use r2r::lifecycle_msgs::msg::{
    State as StateMsg, Transition as TransitionMsg, TransitionDescription, TransitionEvent,
};
use r2r::lifecycle_msgs::srv::{
    ChangeState, GetAvailableStates, GetAvailableTransitions, GetState,
};
use r2r::{Publisher, QosProfile, ServiceRequest};

use super::service::{Service, respond};
use crate::text::quoted;
use forecloud::message::Stamp;

const CHANGE: &str = "~/change_state";

/// A state that a node stays in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No model is loaded, and nothing is subscribed to; all parameters may be set.
    Unconfigured,
    /// All is there, and nothing is predicted.
    Inactive,
    /// Predictions are made.
    Active,
    /// The end: only the process is left.
    Finalized,
}

/// A way from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Load the model, subscribe, offer services.
    Configure,
    /// Back to the start.
    Cleanup,
    /// Predict.
    Activate,
    /// Predict no more.
    Deactivate,
    /// Give everything up, for good.
    Shutdown,
}

impl State {
    const ALL: [Self; 4] = [Self::Unconfigured, Self::Inactive, Self::Active, Self::Finalized];

    /// As `lifecycle_msgs/msg/State` numbers them.
    fn id(self) -> u8 {
        self as u8 + 1
    }

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unconfigured => "unconfigured",
            Self::Inactive => "inactive",
            Self::Active => "active",
            Self::Finalized => "finalized",
        }
    }

    fn message(self) -> StateMsg {
        StateMsg { id: self.id(), label: self.label().to_owned() }
    }

    /// The transitions that lead on from here.
    fn transitions(self) -> impl Iterator<Item = Transition> {
        Transition::ALL.into_iter().filter(move |transition| transition.leads_to(self).is_some())
    }
}

impl Transition {
    const ALL: [Self; 5] =
        [Self::Configure, Self::Cleanup, Self::Activate, Self::Deactivate, Self::Shutdown];

    /// Where it leads from a state; none where it can't be made.
    fn leads_to(self, from: State) -> Option<State> {
        match (self, from) {
            (Self::Configure, State::Unconfigured) | (Self::Deactivate, State::Active) => {
                Some(State::Inactive)
            }
            (Self::Cleanup, State::Inactive) => Some(State::Unconfigured),
            (Self::Activate, State::Inactive) => Some(State::Active),
            (Self::Shutdown, from) if from != State::Finalized => Some(State::Finalized),
            _ => None,
        }
    }

    /// As `lifecycle_msgs/msg/Transition` numbers them: there is a shutdown for each state.
    fn id(self, from: State) -> u8 {
        match self {
            Self::Configure => 1,
            Self::Cleanup => 2,
            Self::Activate => 3,
            Self::Deactivate => 4,
            Self::Shutdown => 4 + from.id(),
        }
    }

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Cleanup => "cleanup",
            Self::Activate => "activate",
            Self::Deactivate => "deactivate",
            Self::Shutdown => "shutdown",
        }
    }

    /// The state that it takes a node through.
    fn through(self) -> StateMsg {
        let (id, label) = match self {
            Self::Configure => (10, "configuring"),
            Self::Cleanup => (11, "cleaningup"),
            Self::Shutdown => (12, "shuttingdown"),
            Self::Activate => (13, "activating"),
            Self::Deactivate => (14, "deactivating"),
        };
        StateMsg { id, label: label.to_owned() }
    }

    /// What ends it, as `lifecycle_msgs/msg/Transition` numbers that.
    fn end(self, is_success: bool) -> TransitionMsg {
        let tens: u8 = match self {
            Self::Configure => 1,
            Self::Cleanup => 2,
            Self::Activate => 3,
            Self::Deactivate => 4,
            Self::Shutdown => 5,
        };
        let label = if is_success { "transition_success" } else { "transition_failure" };
        TransitionMsg { id: 10 * tens + u8::from(!is_success), label: label.to_owned() }
    }

    fn message(self, from: State) -> TransitionMsg {
        TransitionMsg { id: self.id(from), label: self.label().to_owned() }
    }

    /// As told: from where to where.
    fn description(self, from: State) -> TransitionDescription {
        TransitionDescription {
            transition: self.message(from),
            start_state: from.message(),
            goal_state: self.through(),
        }
    }

    /// The transition that is asked for in a state: by its name where that is given, else by its number.
    ///
    /// # Errors
    /// That there is none, with those that there are.
    fn wanted(asked: &TransitionMsg, from: State) -> Result<Self, String> {
        let is_meant = |transition: &Self| match asked.label.as_str() {
            "" => transition.id(from) == asked.id,
            label => transition.label() == label,
        };
        from.transitions().find(is_meant).ok_or_else(|| {
            let asked = match asked.label.as_str() {
                "" => format!("transition {}", asked.id),
                label => format!("`{}`", quoted(label)),
            };
            let known: Vec<_> = from.transitions().map(Self::label).collect();
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            format!("{asked} can't be made while the node is {}: {known} can", from.label())
        })
    }
}

/// The node's state, and the services and the topic that tell of it and change it.
pub struct Lifecycle {
    state: State,
    /// The transition under way, and who asked for it; nobody where the node makes it by itself.
    under_way: Option<(Transition, Option<ServiceRequest<ChangeState::Service>>)>,
    change: Service<ChangeState::Service>,
    get: Service<GetState::Service>,
    states: Service<GetAvailableStates::Service>,
    transitions: Service<GetAvailableTransitions::Service>,
    graph: Service<GetAvailableTransitions::Service>,
    events: Publisher<TransitionEvent>,
}

impl Lifecycle {
    /// Offers the services of a node that is not configured.
    ///
    /// # Errors
    /// What rcl says, with the service or topic.
    pub fn new(node: &mut r2r::Node) -> anyhow::Result<Self> {
        let qos = QosProfile::default().keep_last(10).reliable();
        let events = node
            .create_publisher("~/transition_event", qos)
            .map_err(|error| anyhow::anyhow!("publisher of ~/transition_event: {error}"))?;
        Ok(Self {
            state: State::Unconfigured,
            under_way: None,
            change: Service::new(node, CHANGE)?,
            get: Service::new(node, "~/get_state")?,
            states: Service::new(node, "~/get_available_states")?,
            transitions: Service::new(node, "~/get_available_transitions")?,
            graph: Service::new(node, "~/get_transition_graph")?,
            events,
        })
    }

    /// The state that the node is in, or comes from.
    pub fn state(&self) -> State {
        self.state
    }

    /// Answers all questions that have come, at ROS time `now`; returns the transition that somebody asked for:
    /// make it, then [`Lifecycle::finish`].
    pub fn serve(&mut self, now: Stamp) -> Option<Transition> {
        let state = self.state;
        self.get.serve(|_| GetState::Response { current_state: state.message() });
        self.states.serve(|_| GetAvailableStates::Response { available_states: all_states() });
        self.transitions.serve(|_| {
            let from_here = state.transitions().map(|transition| transition.description(state));
            GetAvailableTransitions::Response { available_transitions: from_here.collect() }
        });
        self.graph.serve(|_| {
            let of = |from: State| from.transitions().map(move |t| t.description(from));
            let all = State::ALL.into_iter().flat_map(of);
            GetAvailableTransitions::Response { available_transitions: all.collect() }
        });
        while let Some(request) = self.change.next() {
            match Transition::wanted(&request.message.transition, state) {
                Ok(transition) => {
                    self.start(transition, Some(request), now);
                    return Some(transition);
                }
                Err(why) => {
                    tracing::warn!("{CHANGE}: {why}");
                    respond(CHANGE, request, ChangeState::Response { success: false });
                }
            }
        }
        None
    }

    /// Begins a transition that nobody asked for.
    pub fn begin(&mut self, transition: Transition, now: Stamp) {
        self.start(transition, None, now);
    }

    fn start(
        &mut self,
        transition: Transition,
        request: Option<ServiceRequest<ChangeState::Service>>,
        now: Stamp,
    ) {
        let from = self.state;
        self.publish(transition.message(from), from.message(), transition.through(), now);
        self.under_way = Some((transition, request));
    }

    /// The transition under way is made, or was not, and why; tells who asked for it. Nothing if there is none.
    pub fn finish(&mut self, outcome: Result<(), &str>, now: Stamp) {
        let Some((transition, request)) = self.under_way.take() else { return };
        let success = outcome.is_ok();
        if let Some(state) = transition.leads_to(self.state).filter(|_| success) {
            self.state = state;
        }
        let state = self.state;
        match outcome {
            Ok(()) => tracing::info!("{}: {}", transition.label(), state.label()),
            Err(why) => tracing::error!("{}: {why}; still {}", transition.label(), state.label()),
        }
        self.publish(transition.end(success), transition.through(), state.message(), now);
        if let Some(request) = request {
            respond(CHANGE, request, ChangeState::Response { success });
        }
    }

    /// Whether a transition is under way that somebody asked for, who is told how it ends.
    pub fn is_asked(&self) -> bool {
        self.under_way.as_ref().is_some_and(|(_, request)| request.is_some())
    }

    fn publish(&self, transition: TransitionMsg, from: StateMsg, to: StateMsg, now: Stamp) {
        let event = TransitionEvent {
            timestamp: now.nanos().max(0) as u64,
            transition,
            start_state: from,
            goal_state: to,
        };
        if let Err(error) = self.events.publish(&event) {
            tracing::warn!("~/transition_event could not be published: {error}");
        }
    }
}

/// All states, those on the way as well.
fn all_states() -> Vec<StateMsg> {
    let unknown = StateMsg { id: 0, label: "unknown".to_owned() };
    let mut through: Vec<_> = Transition::ALL.into_iter().map(Transition::through).collect();
    through.push(StateMsg { id: 15, label: "errorprocessing".to_owned() });
    through.sort_by_key(|state| state.id);
    std::iter::once(unknown).chain(State::ALL.map(State::message)).chain(through).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(id: u8, label: &str, from: State) -> Result<Transition, String> {
        Transition::wanted(&TransitionMsg { id, label: label.to_owned() }, from)
    }

    #[test]
    fn states_and_transitions_have_the_numbers_of_lifecycle_msgs() {
        let ids: Vec<u8> = all_states().iter().map(|state| state.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15]);
        assert_eq!(State::Unconfigured.id(), StateMsg::PRIMARY_STATE_UNCONFIGURED as u8);
        assert_eq!(State::Finalized.id(), StateMsg::PRIMARY_STATE_FINALIZED as u8);
        assert_eq!(
            [State::Unconfigured, State::Inactive, State::Active]
                .map(|s| Transition::Shutdown.id(s)),
            [
                TransitionMsg::TRANSITION_UNCONFIGURED_SHUTDOWN as u8,
                TransitionMsg::TRANSITION_INACTIVE_SHUTDOWN as u8,
                TransitionMsg::TRANSITION_ACTIVE_SHUTDOWN as u8
            ]
        );
        assert_eq!(
            Transition::Deactivate.end(false).id,
            TransitionMsg::TRANSITION_ON_DEACTIVATE_FAILURE as u8
        );
    }

    #[test]
    fn transitions_are_found_by_name_or_number_and_only_from_where_they_start() {
        assert_eq!(wanted(1, "", State::Unconfigured), Ok(Transition::Configure));
        assert_eq!(wanted(0, "shutdown", State::Active), Ok(Transition::Shutdown));
        assert_eq!(wanted(6, "", State::Inactive), Ok(Transition::Shutdown));
        // A name counts more than a number, as in rclcpp.
        assert_eq!(wanted(1, "cleanup", State::Inactive), Ok(Transition::Cleanup));
        let why = wanted(3, "", State::Unconfigured).unwrap_err();
        assert_eq!(
            why,
            "transition 3 can't be made while the node is unconfigured: configure, shutdown can"
        );
        assert!(wanted(7, "", State::Inactive).is_err(), "the shutdown of another state");
        let why = wanted(0, "no\nsuch", State::Finalized).unwrap_err();
        assert_eq!(why, "`no\\nsuch` can't be made while the node is finalized: nothing can");
        assert_eq!(Transition::Cleanup.leads_to(State::Active), None);
    }
}
