//! The node: its life from state to state, what it consists of, a clean end.

mod spinner;

use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::arguments::Arguments;
use super::clock::RosClock;
use super::diagnostics::Monitor;
use super::health::{About, Health};
use super::lifecycle::{Lifecycle, Transition};
use super::mailbox::Mailbox;
use super::parameter_services::ParameterServices;
use super::parameters::{self, NodeConfig, Scope};
use super::planning::{Planning, Task};
use super::publish::{Origin, Outputs};
use super::qos::TopicWatch;
use super::queue::{Load, Tasks};
use super::rollouts::{MAX_WAITING, Rollouts};
use super::rosout::{self, Records};
use super::services::{Job, ServiceHandles, Services};
use super::worker::Worker;
use forecloud::base::end_signal::EndSignal;
use forecloud::base::instruction_set::InstructionSet;
use forecloud::engine::model::Model;
use forecloud::predict::predictor::Predictor;
use forecloud::robot::kinematics::{MeshSearch, RobotMode};
use forecloud::vision::frames::Frame;
use spinner::{Links, Spinner, subscribe};

/// Longest wait for a message: how soon a signal is seen.
pub(super) const SPIN: Duration = Duration::from_millis(20);
/// How long the node stays, after its last work, for those that it answers.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);
/// How long it stays at most for threads that work on requests: far less than what ends a process that does
/// not end by itself (5 s in ros2 launch).
const PATIENCE: Duration = Duration::from_secs(2);

/// Name of the node, unless it is remapped.
const NAME: &str = "forecloud";

/// Runs the node until SIGINT, SIGTERM or SIGHUP.
///
/// Fails, and logs why, if ROS arguments or parameters are wrong or a model cannot be used.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let records = rosout::start_log(&arguments, NAME);
    let prepared = prepare(&arguments, records).map_err(|error| tracing::error!("{error:#}"));
    let Ok((mut node, mut monitor, stop)) = prepared else {
        return ExitCode::FAILURE;
    };
    match be_managed(&mut node, &mut monitor, &arguments, &stop) {
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
    InstructionSet::from_environment()?;
    let stop = watch_signals()?;
    let mut node = create_node(NAME)?;
    let monitor = Monitor::new(&mut node, (!arguments.without_rosout).then_some(records))?;
    Ok((node, monitor, stop))
}

/// What becomes true with the first SIGINT, SIGTERM or SIGHUP.
pub(super) fn watch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    Ok(EndSignal::register().context("signal handlers")?.flag())
}

/// Goes through the states until `stop`.
fn be_managed(
    node: &mut r2r::Node,
    monitor: &mut Monitor,
    arguments: &Arguments,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let config = parameters::configure(&given_parameters(node))?;
    let mut starts = config.autostart;
    let mut clock = RosClock::of(node);
    clock.use_sim_time(node, config.use_sim_time).map_err(anyhow::Error::msg)?;
    let parameters = ParameterServices::new(node, config, clock.now())?;
    let plan = arguments.topic("~/plan", &node.name()?, &node.namespace()?);
    let handles = ServiceHandles::new(node, &plan)?;
    let lifecycle = Lifecycle::new(node)?;
    let mut managed = Managed { node, monitor, clock, parameters, lifecycle, handles };
    if starts {
        managed.lifecycle.begin(Transition::Configure, managed.clock.stamp());
    }
    while starts || managed.wait(stop) {
        starts = false;
        let outcome = serve(&mut managed, arguments, &plan, stop);
        let Managed { clock, lifecycle, .. } = &mut managed;
        match outcome {
            Ok(()) => lifecycle.finish(Ok(()), clock.stamp()),
            // Who asked is told, and may try again.
            Err(error) if lifecycle.is_asked() => {
                lifecycle.finish(Err(&format!("{error:#}")), clock.stamp());
            }
            Err(error) => return Err(error),
        }
    }
    tracing::info!("{} ends", managed.node.fully_qualified_name()?);
    Ok(())
}

/// A node, and what it has in all of its states.
struct Managed<'a> {
    node: &'a mut r2r::Node,
    monitor: &'a mut Monitor,
    clock: RosClock,
    parameters: ParameterServices,
    lifecycle: Lifecycle,
    handles: ServiceHandles,
}

impl Managed<'_> {
    /// Waits, unconfigured or finalized, until somebody asks to configure; false on `stop`.
    fn wait(&mut self, stop: &AtomicBool) -> bool {
        let Self { node, monitor, clock, parameters, lifecycle, handles } = self;
        while !stop.load(Ordering::Relaxed) {
            node.spin_once(SPIN);
            parameters.serve(Scope::All, |changed| {
                clock.use_sim_time(node, changed.use_sim_time)?;
                Ok(clock.now())
            });
            match lifecycle.serve(clock.stamp()) {
                Some(Transition::Configure) => return true,
                // A shutdown: nothing is there to give up.
                Some(_) => lifecycle.finish(Ok(()), clock.stamp()),
                None => {}
            }
            handles.refuse(clock.stamp(), &format!("the node is {}", lifecycle.state().label()));
            monitor.tick_unconfigured(lifecycle.state(), clock.now());
        }
        false
    }
}

/// Sets everything up, and works until `stop` or a transition for which all of it is given up. `plan` is the name
/// of the action.
fn serve(
    managed: &mut Managed,
    arguments: &Arguments,
    plan: &str,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let Managed { node, parameters, .. } = managed;
    let config = parameters.config().clone();
    let frames = config.frames(&node.namespace()?).context("parameters")?;
    let predictor = create_predictor(&config)?;
    let model = predictor.model().config;
    let origin = Origin::new(predictor.model(), &config.world_frame);
    // Before the publishers: a name that can't be used leaves none of them behind.
    let subscriptions = subscribe(node, &frames.specs())?;
    let topics = TopicWatch::new(node, arguments, frames.specs())?;
    let outputs = Outputs::new(node, origin.clone(), &config)?;
    let health = Arc::new(Health::new(about(&config, &predictor)?, topics.topics()));
    let mailbox = Arc::new(Mailbox::default());
    let ending = Arc::new(AtomicBool::default());
    let (requests, jobs, tasks) =
        RequestWork::new(&predictor, &config, &mailbox, origin, plan, &ending)?;
    let services = Services::new(jobs, tasks);
    let (to_intake, refusals) = mpsc::channel();
    let ages = managed.clock.ages();
    let worker = Worker::new(predictor, &config, outputs, Arc::clone(&health), ages, to_intake);
    let links = Links { topics, health: &health, mailbox: &mailbox, refusals };
    let mut spinner = Spinner::new(managed, (frames, subscriptions), model, services, links)?;
    spinner.is_configured();

    let threads = requests.start()?;
    std::thread::scope(|scope| {
        // The scope waits for the worker also where this thread panics.
        let close = mailbox.close_on_drop();
        let worker = std::thread::Builder::new()
            .name("predict".into())
            .spawn_scoped(scope, || worker.run(&mailbox))
            .context("predicting thread")?;
        let mut is_left = false;
        while !is_left && !stop.load(Ordering::Relaxed) && !worker.is_finished() {
            is_left = spinner.spin_once();
        }
        ending.store(true, Ordering::Relaxed);
        drop(close);
        spinner.end(&threads);
        worker.join().map_err(|_| anyhow!("the predicting thread panicked: see above"))
    })?
    .end(managed.node);
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
    set_threads(config.threads)?;
    let mut predictor = Predictor::new(model, settings).context("parameters")?;
    predictor.set_meshes(MeshSearch::new(&config.mesh_paths));
    tracing::info!("device: {}", predictor.backend().describe());
    Ok(predictor)
}

/// Starts the predictor's threads: once in a process, which keeps them.
fn set_threads(n: usize) -> anyhow::Result<()> {
    static STARTED: OnceLock<usize> = OnceLock::new();
    match STARTED.get() {
        Some(&started) if started == n => Ok(()),
        Some(started) => Err(anyhow!(
            "parameters: `threads` is {started} for as long as this process lives. Remedy: restart it to have {n}"
        )),
        None => {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .thread_name(|i| format!("predict {i}"))
                .build_global()
                .context("threads of the predictor")?;
            STARTED.get_or_init(|| n);
            Ok(())
        }
    }
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
