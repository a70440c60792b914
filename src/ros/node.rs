//! The node: parameters, subscriptions, the spinning thread, a clean end.

use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use futures::{FutureExt, Stream, StreamExt};

use super::arguments::Arguments;
use super::clock::RosClock;
use super::diagnostics::Monitor;
use super::health::{About, Health};
use super::intake::Intake;
use super::mailbox::{Mailbox, Refusal, Settings};
use super::parameter_services::ParameterServices;
use super::parameters::{self, NodeConfig};
use super::planning::{Planning, Task};
use super::publish::{Origin, Outputs};
use super::qos::{self, TopicWatch};
use super::queue::{Load, Tasks};
use super::rollouts::{MAX_WAITING, Rollouts};
use super::rosout::{self, Records};
use super::services::{Job, Services};
use super::static_tf::StaticTf;
use super::worker::Worker;
use crate::base::end_signal::EndSignal;
use crate::engine::model::{Model, ModelConfig};
use crate::predict::predictor::Predictor;
use crate::robot::kinematics::{MeshSearch, RobotMode};
use crate::vision::frames::{Frame, Frames, FramesConfig, TopicSpec};

/// Longest wait for a message: how soon a signal is seen.
pub(super) const SPIN: Duration = Duration::from_millis(20);
/// How long the node stays, after its last work, for those that it answers.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);
/// How long it stays at most for threads that work on requests: far less than what ends a process that does
/// not end by itself (5 s in ros2 launch).
const PATIENCE: Duration = Duration::from_secs(2);

/// Name of the node, unless it is remapped.
const NAME: &str = "forecloud";

type Messages = Box<dyn Stream<Item = Vec<u8>> + Unpin>;

/// Runs the node until SIGINT, SIGTERM or SIGHUP.
///
/// Fails, and logs why, if ROS arguments or parameters are wrong or a model cannot be used.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let records = rosout::start_log(&arguments, NAME);
    let monitored = prepare(&arguments, records).map_err(|error| tracing::error!("{error:#}"));
    let Ok((mut node, mut monitor, stop)) = monitored else {
        return ExitCode::FAILURE;
    };
    match serve(&mut node, &mut monitor, &arguments, &stop) {
        Ok(()) => {
            monitor.publish_last_log();
            ExitCode::SUCCESS
        }
        Err(error) => {
            monitor.farewell(&error, &stop);
            ExitCode::FAILURE
        }
    }
}

/// Creates the node and what it reports with; what is returned last becomes true on a signal.
fn prepare(
    arguments: &Arguments,
    records: Records,
) -> anyhow::Result<(r2r::Node, Monitor, Arc<AtomicBool>)> {
    crate::base::instruction_set::InstructionSet::from_environment()?;
    let stop = watch_signals()?;
    let mut node = create_node(NAME)?;
    let monitor = Monitor::new(&mut node, (!arguments.without_rosout).then_some(records))?;
    Ok((node, monitor, stop))
}

/// What becomes true with the first SIGINT, SIGTERM or SIGHUP.
pub(super) fn watch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    Ok(EndSignal::register().context("signal handlers")?.flag())
}

/// Sets everything up, and works until `stop`.
fn serve(
    node: &mut r2r::Node,
    monitor: &mut Monitor,
    arguments: &Arguments,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let config = parameters::configure(&given_parameters(node))?;
    let frames = config.frames(&node.namespace()?).context("parameters")?;
    let predictor = create_predictor(&config)?;
    let model = predictor.model().config;
    let origin = Origin::new(predictor.model(), &config.world_frame);
    let outputs = Outputs::new(node, origin.clone(), &config)?;
    let topics = TopicWatch::new(node, arguments, frames.specs())?;
    let health = Arc::new(Health::new(about(&config, &predictor)?, topics.topics()));
    let mut clock = RosClock::of(node);
    clock.use_sim_time(node, config.use_sim_time).map_err(anyhow::Error::msg)?;
    let mailbox = Arc::new(Mailbox::default());
    let plan = arguments.topic("~/plan", &node.name()?, &node.namespace()?);
    let ending = Arc::new(AtomicBool::default());
    let (requests, jobs, tasks) =
        RequestWork::new(&predictor, &config, &mailbox, origin, &plan, &ending)?;
    let services = Services::new(node, &plan, jobs, tasks)?;
    let (to_intake, refusals) = mpsc::channel();
    let worker =
        Worker::new(predictor, &config, outputs, Arc::clone(&health), clock.ages(), to_intake);
    let links = Links { monitor, topics, health: &health, mailbox: &mailbox, refusals };
    let mut spinner = Spinner::new(node, clock, config, frames, model, services, links)?;

    let threads = requests.start()?;
    std::thread::scope(|scope| {
        // The scope waits for the worker also where this thread panics.
        let close = mailbox.close_on_drop();
        let worker = std::thread::Builder::new()
            .name("predict".into())
            .spawn_scoped(scope, || worker.run(&mailbox))
            .context("predicting thread")?;
        while !stop.load(Ordering::Relaxed) && !worker.is_finished() {
            spinner.spin_once();
        }
        ending.store(true, Ordering::Relaxed);
        drop(close);
        spinner.end(&threads);
        worker.join().map_err(|_| anyhow!("the predicting thread panicked: see above"))
    })?;
    tracing::info!("{} ends", node.fully_qualified_name()?);
    Ok(())
}

/// What is worked on beside the live predictions, on two threads.
struct RequestWork {
    rollouts: Rollouts,
    jobs: Receiver<Job>,
    planning: Planning,
    tasks: Receiver<Task>,
    load: Arc<Load>,
    model: Arc<Model>,
}

impl RequestWork {
    /// The work, which asks for snapshots by `mailbox`, and the ways to it: roll-outs of plans, then plans that
    /// are judged or found. `plan` is the name of the action; once `ending`, nothing is begun any more.
    fn new(
        predictor: &Predictor,
        config: &NodeConfig,
        mailbox: &Arc<Mailbox<Frame>>,
        origin: Origin,
        plan: &str,
        ending: &Arc<AtomicBool>,
    ) -> anyhow::Result<(Self, SyncSender<Job>, Tasks)> {
        let (n_threads, device) = (config.plan_threads, predictor.config().device);
        let rollouts = Rollouts::new(mailbox.clone(), origin.clone(), n_threads, ending.clone())?;
        let planning = Planning::new(mailbox.clone(), origin, device, n_threads, ending.clone())?;
        let (to_rollouts, jobs) = mpsc::sync_channel(MAX_WAITING);
        let (to_planning, tasks) = mpsc::channel();
        let (model, load) = (predictor.shared_model().clone(), Arc::new(Load::default()));
        let to_planning = Tasks::new(to_planning, load.clone(), plan.to_owned());
        Ok((Self { rollouts, jobs, planning, tasks, load, model }, to_rollouts, to_planning))
    }

    /// Starts the threads; they end once no request can come any more.
    fn start(self) -> anyhow::Result<[JoinHandle<()>; 2]> {
        let Self { rollouts, jobs, planning, tasks, load, model } = self;
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let rollouts = thread("plan")
            .spawn(move || rollouts.run(jobs))
            .context("thread of the candidate plans")?;
        let planning = thread("planner")
            .spawn(move || planning.run(&model, tasks, &load))
            .context("thread of the planner")?;
        Ok([rollouts, planning])
    }
}

/// What the spinning thread shares with others.
struct Links<'a> {
    monitor: &'a mut Monitor,
    topics: TopicWatch,
    health: &'a Health,
    mailbox: &'a Mailbox<Frame>,
    /// Robot descriptions that the predicting thread can't use.
    refusals: Receiver<Refusal>,
}

/// All that the spinning thread works with.
struct Spinner<'a> {
    node: &'a mut r2r::Node,
    clock: RosClock,
    model: ModelConfig,
    subscriptions: Vec<(String, Messages)>,
    intake: Intake<'a>,
    services: Services,
    parameters: ParameterServices,
    static_tf: StaticTf,
    links: Links<'a>,
}

impl<'a> Spinner<'a> {
    /// Subscribes all topics, and offers the services of the parameters.
    fn new(
        node: &'a mut r2r::Node,
        clock: RosClock,
        config: NodeConfig,
        frames: FramesConfig,
        model: ModelConfig,
        services: Services,
        links: Links<'a>,
    ) -> anyhow::Result<Self> {
        let parameters = ParameterServices::new(node, config, clock.now())?;
        let wanted = frames.specs();
        let subscriptions = subscribe(node, &wanted)?;
        let (name, required) = (node.fully_qualified_name()?, required(&wanted));
        tracing::info!("{name} waits for messages on {}", required.join(", "));
        let mut frames = Frames::new(frames);
        for topic in links.topics.topics() {
            frames.set_topic_name(&topic.key, &topic.name);
        }
        let intake = Intake::new(frames, links.mailbox, links.health);
        let static_tf = StaticTf::default();
        Ok(Self {
            node,
            clock,
            model,
            subscriptions,
            intake,
            services,
            parameters,
            static_tf,
            links,
        })
    }

    /// Answers who waits for a plan, and who asks until the node has gone. It stays until the threads that work
    /// on requests, `workers`, have refused them, but for no long roll-out; then a moment where there was
    /// somebody, as what is published last is sent again where it was lost.
    fn end(self, workers: &[JoinHandle<()>]) {
        let Self { node, clock, services, .. } = self;
        let mut handles = services.close();
        let start = Instant::now();
        let (mut answered, mut worked) = (handles.end(), start);
        loop {
            let works = workers.iter().any(|worker| !worker.is_finished());
            node.spin_once(SPIN);
            answered |= handles.refuse(clock.stamp());
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

    /// Takes the messages and requests that have come, or waits a moment for one.
    fn spin_once(&mut self) {
        // A spin takes at most one message of each topic, so r2r's short queues never overflow.
        self.node.spin_once(SPIN);
        let Self { node, clock, model, intake, parameters, links, .. } = self;
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
        self.services.serve(intake, links.mailbox, parameters.config().horizon, clock.stamp());
        parameters.serve(|changed| {
            let (frames, settings) = read(changed, model, node).map_err(|e| format!("{e:#}"))?;
            clock.use_sim_time(node, changed.use_sim_time)?;
            intake.set_config(frames);
            links.mailbox.order(|orders| orders.settings = Some(settings));
            Ok(clock.now())
        });
        links.monitor.tick(node, &mut links.topics, links.health, clock.now());
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

/// Creates a node from the process's ROS arguments; `name` unless they give it another.
pub(super) fn create_node(name: &str) -> anyhow::Result<r2r::Node> {
    // r2r panics on ROS arguments that rcl refuses; what rcl says is the message.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let context = panic::catch_unwind(r2r::Context::create);
    panic::set_hook(hook);
    let context = context.map_err(|cause| {
        let said = cause.downcast_ref::<String>().map_or("no reason given", String::as_str);
        anyhow!("ROS arguments or parameter file: {said}")
    })?;
    r2r::Node::create(context.context("ROS context")?, name, "").context("ROS node")
}

/// Loads the model and starts the predictor's threads.
fn create_predictor(config: &NodeConfig) -> anyhow::Result<Predictor> {
    let path = config.model()?;
    let model = Model::load(&path)?;
    let settings = config.predictor(&model.config).context("parameters")?;
    tracing::info!("model {} ({})", path.display(), model.hash);
    // Before the predictor: to try a GPU, it works on these threads.
    rayon::ThreadPoolBuilder::new()
        .num_threads(config.threads)
        .thread_name(|i| format!("predict {i}"))
        .build_global()
        .context("threads of the predictor")?;
    let mut predictor = Predictor::new(model, settings).context("parameters")?;
    predictor.set_meshes(MeshSearch::new(&config.mesh_paths));
    tracing::info!("device: {}", predictor.backend().describe());
    Ok(predictor)
}

/// The parameters that were given at the start.
pub(super) fn given_parameters(node: &r2r::Node) -> BTreeMap<String, r2r::ParameterValue> {
    let parameters = node.params.lock().expect("no thread panicked with the parameters locked");
    parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone())).collect()
}

/// What the diagnostics say of the node's settings.
fn about(config: &NodeConfig, predictor: &Predictor) -> anyhow::Result<About> {
    let model = predictor.model();
    Ok(About {
        world_frame: config.world_frame.clone(),
        model_file: config.model()?.display().to_string(),
        model_hash: model.hash.clone(),
        step_secs: model.config.step_secs,
        robot: match model.config.n_kinematic {
            0 => RobotMode::None,
            _ => config.robot_mode()?,
        },
    })
}

/// The topics without which there is no frame.
fn required(topics: &[TopicSpec]) -> Vec<&str> {
    topics.iter().filter(|topic| topic.required).map(|topic| topic.name.as_str()).collect()
}

/// Subscribes to the serialized messages of all topics, with the topic as the configuration has it.
fn subscribe(
    node: &mut r2r::Node,
    wanted: &[TopicSpec],
) -> anyhow::Result<Vec<(String, Messages)>> {
    let subscribe = |TopicSpec { name, message_type, role, .. }: &TopicSpec| {
        let messages = node
            .subscribe_raw(name, message_type, qos::profile(*role))
            .map_err(|error| anyhow!("subscription to {name} ({message_type}): {error}"))?;
        Ok((name.clone(), Box::new(messages) as Messages))
    };
    wanted.iter().map(subscribe).collect()
}
