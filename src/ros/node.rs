//! The node: parameters, subscriptions, the spinning thread, a clean end.

use std::collections::BTreeMap;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::{FutureExt, Stream, StreamExt};
use r2r::QosProfile;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::intake::Intake;
use super::mailbox::Mailbox;
use super::parameters::{self, NodeConfig};
use super::publish::Outputs;
use super::worker::Worker;
use crate::frames::{Frames, Role, TopicSpec, Topics};
use crate::model::Model;
use crate::predictor::Predictor;

/// Longest wait for a message: how soon a signal is seen.
const SPIN: Duration = Duration::from_millis(20);

type Messages = Box<dyn Stream<Item = Vec<u8>> + Unpin>;

/// Runs the node until SIGINT or SIGTERM.
///
/// # Errors
/// ROS arguments or parameters that are wrong, or a model that cannot be used.
pub fn run() -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the process at once, should the clean end hang.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("signal handlers")?;
    }

    let mut node = create_node()?;
    let config: NodeConfig = parameters::configure(&given_parameters(&node))?;
    let frames = config.frames()?;
    let predictor = create_predictor(&config)?;
    let outputs = Outputs::new(&mut node, &predictor, &config.world_frame)?;
    let mut subscriptions = subscribe(&mut node, &frames.topics)?;
    let name = node.fully_qualified_name()?;
    tracing::info!("{name} waits for messages on {}", required(&frames.topics).join(", "));

    let mailbox = Mailbox::default();
    let required = required(&frames.topics);
    let mut intake = Intake::new(Frames::new(frames), required, &mailbox);
    let worker = Worker::new(predictor, config.world_frame, outputs);
    std::thread::scope(|scope| {
        // The scope waits for the worker also where this thread panics.
        let close = mailbox.close_on_drop();
        let worker = std::thread::Builder::new()
            .name("predict".into())
            .spawn_scoped(scope, || worker.run(&mailbox))
            .context("predicting thread")?;
        while !stop.load(Ordering::Relaxed) && !worker.is_finished() {
            // A spin takes at most one message of each topic, so r2r's short queues never overflow.
            node.spin_once(SPIN);
            for (topic, messages) in &mut subscriptions {
                while let Some(Some(bytes)) = messages.next().now_or_never() {
                    intake.take(topic, &bytes);
                }
            }
            intake.watch_silence();
        }
        drop(close);
        worker.join().map_err(|_| anyhow!("the predicting thread panicked: see above"))
    })?;
    tracing::info!("{name} ends");
    Ok(())
}

/// Creates the node from the process's ROS arguments.
fn create_node() -> anyhow::Result<r2r::Node> {
    // r2r panics on ROS arguments that rcl refuses; what rcl says is the message.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let context = panic::catch_unwind(r2r::Context::create);
    panic::set_hook(hook);
    let context = context.map_err(|cause| {
        let said = cause.downcast_ref::<String>().map_or("no reason given", String::as_str);
        anyhow!("ROS arguments or parameter file: {said}")
    })?;
    r2r::Node::create(context.context("ROS context")?, "forecloud", "").context("ROS node")
}

/// Loads the model and starts the predictor's threads.
fn create_predictor(config: &NodeConfig) -> anyhow::Result<Predictor> {
    let (path, settings) = (config.model()?, config.predictor()?);
    let model = Model::load(&path)?;
    tracing::info!("model {} ({})", path.display(), model.hash);
    let predictor = Predictor::new(model, settings).context("parameters")?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(config.threads)
        .thread_name(|i| format!("predict {i}"))
        .build_global()
        .context("threads of the predictor")?;
    Ok(predictor)
}

fn given_parameters(node: &r2r::Node) -> BTreeMap<String, r2r::ParameterValue> {
    let parameters = node.params.lock().expect("no thread panicked with the parameters locked");
    parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone())).collect()
}

/// The topics without which there is no frame.
fn required(topics: &Topics) -> Vec<String> {
    let specs = topics.specs().into_iter();
    specs.filter(|spec| spec.required).map(|spec| spec.name).collect()
}

/// Subscribes to the serialized messages of all topics, with the topic as the configuration has it.
fn subscribe(node: &mut r2r::Node, topics: &Topics) -> anyhow::Result<Vec<(String, Messages)>> {
    let subscribe = |TopicSpec { name, message_type, role, .. }| {
        let qos = match role {
            // Best effort also matches reliable publishers (the other way it does not), and a lost
            // image or joint state is made up for by the next one. It loses large messages where
            // the publisher has no shared memory segment for them:
            // config/fastdds_large_clouds.xml gives it one.
            Role::Images => QosProfile::sensor_data(),
            Role::States => QosProfile::sensor_data().keep_last(100),
            // What was sent before the node started.
            Role::Latched => QosProfile::default().keep_last(100).reliable().transient_local(),
        };
        let messages = node
            .subscribe_raw(&name, message_type, qos)
            .map_err(|error| anyhow!("subscription to {name} ({message_type}): {error}"))?;
        Ok((name, Box::new(messages) as Messages))
    };
    topics.specs().into_iter().map(subscribe).collect()
}
