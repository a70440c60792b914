//! The spinning thread: takes messages and requests, and answers.

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::anyhow;
use futures::{FutureExt, Stream, StreamExt};

use super::{FAREWELL, Managed, PATIENCE, SPIN};
use crate::health::Health;
use crate::intake::Intake;
use crate::lifecycle::Transition;
use crate::mailbox::{Mailbox, Refusal, Settings};
use crate::parameters::{NodeConfig, Scope};
use crate::qos::{self, TopicWatch};
use crate::services::{ENDING, Services};
use crate::static_tf::StaticTf;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::frames::{Frame, Frames, FramesConfig, TopicSpec};

type Messages = Box<dyn Stream<Item = Vec<u8>> + Unpin>;
/// Messages by topic.
pub(super) type Subscriptions = Vec<(String, Messages)>;

/// What the spinning thread shares with others.
pub(super) struct Links<'a> {
    pub topics: TopicWatch,
    pub health: &'a Health,
    pub mailbox: &'a Mailbox<Frame>,
    /// Robot descriptions that the predicting thread can't use.
    pub refusals: Receiver<Refusal>,
}

/// All that the spinning thread works with.
pub(super) struct Spinner<'a, 'b> {
    managed: &'a mut Managed<'b>,
    model: ModelConfig,
    subscriptions: Subscriptions,
    intake: Intake<'a>,
    services: Services,
    static_tf: StaticTf,
    links: Links<'a>,
}

impl<'a, 'b> Spinner<'a, 'b> {
    /// Takes messages of the topics of `frames`, which are subscribed to.
    pub(super) fn new(
        managed: &'a mut Managed<'b>,
        (frames, subscriptions): (FramesConfig, Subscriptions),
        model: ModelConfig,
        services: Services,
        links: Links<'a>,
    ) -> anyhow::Result<Self> {
        let wanted = frames.specs();
        let (name, required) = (managed.node.fully_qualified_name()?, required(&wanted));
        tracing::info!("{name} waits for messages on {}", required.join(", "));
        let mut frames = Frames::new(frames);
        for topic in links.topics.topics() {
            frames.set_topic_name(&topic.key, &topic.name);
        }
        let intake = Intake::new(frames, links.mailbox, links.health);
        let static_tf = StaticTf::default();
        Ok(Self { managed, model, subscriptions, intake, services, static_tf, links })
    }

    /// All is there: tells who asked for it, and goes on by itself where nobody did.
    pub(super) fn is_configured(&mut self) {
        let Managed { clock, lifecycle, .. } = &mut *self.managed;
        let goes_on = !lifecycle.is_asked();
        lifecycle.finish(Ok(()), clock.stamp());
        self.services.set_active(false, self.links.mailbox);
        if goes_on {
            lifecycle.begin(Transition::Activate, clock.stamp());
            self.make(Transition::Activate);
        }
    }

    /// Makes a transition; whether all is to be given up for it.
    fn make(&mut self, transition: Transition) -> bool {
        let Managed { clock, lifecycle, .. } = &mut *self.managed;
        match transition {
            Transition::Activate | Transition::Deactivate => {
                let is_active = transition == Transition::Activate;
                self.services.set_active(is_active, self.links.mailbox);
                lifecycle.finish(Ok(()), clock.stamp());
                false
            }
            Transition::Configure | Transition::Cleanup | Transition::Shutdown => true,
        }
    }

    /// Answers who waits for a plan, and who asks until the node has gone. It stays until the threads that work
    /// on requests, `workers`, have refused them, but for no long roll-out; then a moment where there was
    /// somebody, as what is published last is sent again where it was lost.
    pub(super) fn end(self, workers: &[JoinHandle<()>]) {
        let Self { managed, services, static_tf, .. } = self;
        let Managed { node, clock, handles, .. } = managed;
        drop(services); // nothing is handed on any more
        static_tf.end(node);
        let start = Instant::now();
        let (mut answered, mut worked) = (handles.end(), start);
        loop {
            let works = workers.iter().any(|worker| !worker.is_finished());
            node.spin_once(SPIN);
            answered |= handles.refuse(clock.stamp(), ENDING);
            if works {
                (answered, worked) = (true, Instant::now());
            }
            // From its work on, not from the last answer: who asks again and again does not keep it.
            let stays = answered && worked.elapsed() < FAREWELL;
            if !stays || start.elapsed() > PATIENCE {
                return;
            }
        }
    }

    /// Takes the messages and requests that have come, or waits a moment for one; whether all is to be given
    /// up.
    pub(super) fn spin_once(&mut self) -> bool {
        let Self { managed, model, intake, links, .. } = self;
        let Managed { node, monitor, clock, parameters, lifecycle, handles } = &mut **managed;
        // A spin takes at most one message of each topic, so r2r's short queues never overflow.
        node.spin_once(SPIN);
        if let Some((from, to)) = clock.jumped_back(parameters.config().time_jump_secs) {
            intake.time_jumped(from, to);
        }
        intake.take_refusals(&links.refusals);
        for (topic, messages) in &mut self.subscriptions {
            while let Some(Some(bytes)) = messages.next().now_or_never() {
                intake.take(topic, bytes);
            }
        }
        intake.pass_time();
        let told = match (intake.take_leveled(), intake.is_leveled_withdrawn()) {
            (Some(transform), _) => self.static_tf.publish(node, &transform),
            (None, true) => self.static_tf.withdraw(),
            (None, false) => Ok(()),
        };
        if let Err(error) = told {
            tracing::error!("{error:#}: other nodes don't know where the camera is");
        }
        let horizon = parameters.config().horizon;
        self.services.serve(handles, intake, links.mailbox, horizon, clock.stamp());
        parameters.serve(Scope::AnyTime, |changed| {
            let (frames, settings) = read(changed, model, node).map_err(|e| format!("{e:#}"))?;
            clock.use_sim_time(node, changed.use_sim_time)?;
            intake.set_config(frames);
            links.mailbox.order(|orders| orders.settings = Some(settings));
            Ok(clock.now())
        });
        monitor.tick(node, &mut links.topics, links.health, clock.now());
        lifecycle.serve(clock.stamp()).is_some_and(|transition| self.make(transition))
    }
}

/// What changed parameters mean to the two threads.
fn read(
    config: &NodeConfig,
    model: &ModelConfig,
    node: &r2r::Node,
) -> anyhow::Result<(FramesConfig, Settings)> {
    let predictor = config.predictor(model)?;
    let idle_without_subscribers = config.idle_without_subscribers;
    let frames = config.frames(&node.namespace()?)?;
    Ok((frames, Settings { predictor, idle_without_subscribers }))
}

/// The topics without which there is no frame.
fn required(topics: &[TopicSpec]) -> Vec<&str> {
    topics.iter().filter(|topic| topic.required).map(|topic| topic.name.as_str()).collect()
}

/// Subscribes to the serialized messages of all topics, with the topic as the configuration has it.
pub(super) fn subscribe(
    node: &mut r2r::Node,
    wanted: &[TopicSpec],
) -> anyhow::Result<Subscriptions> {
    let subscribe = |TopicSpec { name, message_type, role, .. }: &TopicSpec| {
        let messages = node
            .subscribe_raw(name, message_type, qos::profile(*role))
            .map_err(|error| anyhow!("subscription to {name} ({message_type}): {error}"))?;
        Ok((name.clone(), Box::new(messages) as Messages))
    };
    wanted.iter().map(subscribe).collect()
}
