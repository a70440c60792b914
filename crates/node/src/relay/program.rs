//! The program `forecloud_plan_relay`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use r2r::control_msgs::action::{FollowJointTrajectory, GripperCommand};
use r2r::sensor_msgs::msg::JointState;
use r2r::std_msgs::msg::Float64;
use r2r::trajectory_msgs::msg::JointTrajectory as TrajectoryMsg;
use r2r::{Publisher, QosProfile};

use super::super::service::{Incoming, next};
use super::action::Measured;
use super::controller::{Controller, Names, Relay, World};
use super::parameters::{self, Config, ControllerConfig, Kind};
use crate::arguments::Arguments;
use crate::clock::RosClock;
use crate::node::{FAREWELL, SPIN, create_node, given_parameters, watch_signals};
use crate::problems::Problems;
use crate::rosout::{self, Rosout};
use crate::trajectory::trajectory_message;
use forecloud::message::Stamp;
use forecloud::robot::relay::Planner;

/// Name of the node, unless it is remapped.
const NAME: &str = "forecloud_plan_relay";

/// Runs the relay until SIGINT, SIGTERM or SIGHUP.
///
/// Fails, and logs why, if ROS arguments or parameters are wrong. At its end the goals go on: the
/// controllers have them.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let records = rosout::start_log(&arguments, NAME);
    let prepared = watch_signals().and_then(|stop| Ok((stop, create_node(NAME)?)));
    let served = prepared.and_then(|(stop, mut node)| {
        let rosout = match arguments.without_rosout {
            true => None,
            false => Some(Rosout::new(&mut node, records)?),
        };
        serve(&mut node, rosout.as_ref(), &stop)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(node: &mut r2r::Node, rosout: Option<&Rosout>, stop: &AtomicBool) -> Result<()> {
    let config = parameters::configure(&given_parameters(node)).context("parameters")?;
    let mut program = Program::new(node, &config)?;
    while !stop.load(Ordering::Relaxed) {
        node.spin_once(SPIN);
        program.work();
        rosout.iter().for_each(|rosout| rosout.publish());
    }
    program.end();
    tracing::info!("{} ends", node.fully_qualified_name()?);
    rosout.iter().for_each(|rosout| rosout.publish());
    // What was published last is sent again where it was lost, as long as this process is there.
    let end = Instant::now() + FAREWELL;
    while Instant::now() < end {
        node.spin_once(SPIN);
    }
    Ok(())
}

struct Program {
    clock: RosClock,
    controllers: Vec<Box<dyn Controller>>,
    planner: Planner,
    measured: Measured,
    joint_states: Incoming<JointState>,
    speed: Option<Incoming<Float64>>,
    full_speed: f64,
    plans: Publisher<TrajectoryMsg>,
    problems: Problems,
}

impl Program {
    fn new(node: &mut r2r::Node, config: &Config) -> Result<Self> {
        let mut clock = RosClock::of(node);
        clock.use_sim_time(node, config.use_sim_time).map_err(anyhow::Error::msg)?;
        let sensor = || QosProfile::sensor_data().keep_last(100);
        let joint_states = node.subscribe("joint_states", sensor()).context("joint_states")?;
        let speed = match config.speed_scaling_topic.as_str() {
            "" => None,
            topic => Some(Box::new(
                node.subscribe(topic, sensor())
                    .with_context(|| format!("`speed_scaling_topic`: {}", topic.escape_debug()))?,
            ) as Incoming<Float64>),
        };
        let plans = node
            .create_publisher("planned_joints", QosProfile::default())
            .context("planned_joints")?;
        let mut controllers: Vec<Box<dyn Controller>> = Vec::new();
        for (index, controller) in config.controllers.iter().enumerate() {
            let ControllerConfig { action, offered, kind } = controller.clone();
            tracing::info!("passing goals of {offered} on to {action}");
            let names = Names { index, action, offered, timeout: config.timeout };
            controllers.push(match kind {
                Kind::Trajectory => {
                    Box::new(Relay::<FollowJointTrajectory::Action>::new(node, names, ())?)
                }
                Kind::Gripper(fingers) => {
                    Box::new(Relay::<GripperCommand::Action>::new(node, names, fingers)?)
                }
            });
        }
        Ok(Self {
            clock,
            controllers,
            planner: Planner::default(),
            measured: Measured::default(),
            joint_states: Box::new(joint_states),
            speed,
            full_speed: config.full_speed,
            plans,
            problems: Problems::default(),
        })
    }

    /// Passes on what has come, and publishes the plan that is due.
    fn work(&mut self) {
        let stamp = self.clock.stamp();
        while let Some(state) = next(&mut self.joint_states) {
            self.measured.take(state);
        }
        while let Some(Float64 { data }) = self.speed.as_mut().and_then(next) {
            if !self.planner.set_speed(data / self.full_speed, stamp) {
                self.problems.warn(
                    "speed",
                    format!(
                        "ignoring a speed scaling of {data}: `full_speed` is {}, and at most ten \
                         times as much is plausible",
                        self.full_speed
                    ),
                );
            }
        }
        let Self { controllers, planner, measured, .. } = self;
        let mut world = World { stamp, now: Instant::now(), planner, measured };
        for controller in controllers {
            controller.serve(&mut world);
        }
        self.publish(stamp);
    }

    /// Nobody says any more what is executed.
    fn end(&mut self) {
        let stamp = self.clock.stamp();
        self.planner.end_all(stamp);
        self.publish(stamp);
    }

    fn publish(&mut self, stamp: Stamp) {
        if let Some(plan) = self.planner.due(stamp)
            && let Err(error) = self.plans.publish(&trajectory_message(&plan))
        {
            self.problems.warn("plan", format!("planned_joints: {error}"));
        }
    }
}
