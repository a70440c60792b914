//! `~/reset`, `~/pause`, and the ways to `~/pose_at`, `~/predict`, `~/evaluate` and `~/plan`.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use r2r::ServiceRequest;
use r2r::forecloud::srv::{Evaluate, PoseAt, Predict};
use r2r::std_srvs::srv::{SetBool, Trigger};

use super::intake::Intake;
use super::mailbox::{Halt, Mailbox};
use super::plan_action::{PlanAction, only_words};
use super::planning::{Finding, Judging, Task, not_evaluated};
use super::pose_at;
use super::queue::Tasks;
use super::service::{Service, respond};
use forecloud::message::Stamp;
use forecloud::vision::frames::Frame;

/// What who asks is told once the node ends.
pub const ENDING: &str = "the node is ending";

/// Questions where objects will be that wait while a frame is worked on; further ones are refused.
const MAX_POSES: usize = 100;
/// What who asks is told where too many wait.
const BUSY: &str = "busy with earlier requests: try again later";

/// A request for roll-outs, and the steps that it gets where it asks for none.
pub struct Job {
    /// The request.
    pub request: ServiceRequest<Predict::Service>,
    /// When it came.
    pub asked: Instant,
    /// The node's parameter.
    pub horizon: usize,
}

/// The ways that requests take while the node is configured.
pub struct Services {
    jobs: SyncSender<Job>,
    tasks: Tasks,
    is_active: bool,
    is_paused: bool,
}

/// The node's own services: where requests come, as long as it lives.
pub struct ServiceHandles {
    reset: Service<Trigger::Service>,
    pause: Service<SetBool::Service>,
    predict: Service<Predict::Service>,
    evaluate: Service<Evaluate::Service>,
    pose_at: Service<PoseAt::Service>,
    plan: PlanAction,
}

impl Services {
    /// `jobs` leads to the thread that rolls out, `tasks` to the one that plans.
    pub fn new(jobs: SyncSender<Job>, tasks: Tasks) -> Self {
        Self { jobs, tasks, is_active: false, is_paused: false }
    }

    /// Answers all requests that have come at ROS time `now`, or hands them on.
    pub fn serve(
        &mut self,
        handles: &mut ServiceHandles,
        intake: &mut Intake,
        mailbox: &Mailbox<Frame>,
        horizon: usize,
        now: Stamp,
    ) {
        let Self { jobs, tasks, is_active, is_paused } = self;
        handles.reset.serve(|_| {
            let n_images = intake.reset();
            let message = format!(
                "discarded the history and {n_images} waiting images; kept calibrations, fixed \
                 transforms and the robot description"
            );
            tracing::info!("reset: {message}");
            Trigger::Response { success: true, message }
        });
        handles.pause.serve(|request| {
            let paused = request.data;
            *is_paused = paused;
            mailbox.order(|orders| orders.halt = Some(halt(*is_active, paused)));
            let message = match paused {
                true => "paused: frames come in, but nothing is predicted",
                false => "predicting",
            };
            tracing::info!("pause: {message}");
            SetBool::Response { success: true, message: message.to_owned() }
        });
        while let Some(request) = handles.pose_at.next() {
            let mut waits = Some(request);
            mailbox.order(|orders| {
                if orders.poses.len() < MAX_POSES {
                    orders.poses.extend(waits.take());
                }
            });
            if let Some(request) = waits {
                respond("~/pose_at", request, pose_at::refused(BUSY));
            }
        }
        let asked = Instant::now();
        while let Some(request) = handles.predict.next() {
            let refused = match jobs.try_send(Job { request, asked, horizon }) {
                Ok(()) => continue,
                Err(TrySendError::Full(job)) => (job, BUSY),
                Err(TrySendError::Disconnected(job)) => (job, ENDING),
            };
            let (Job { request, .. }, reason) = refused;
            respond("~/predict", request, refusal(reason));
        }
        while let Some(request) = handles.evaluate.next() {
            let task = Task::Judge(Judging { request, asked, horizon });
            if let Err((task, reason)) = tasks.give(task)
                && let Task::Judge(Judging { request, .. }) = *task
            {
                respond("~/evaluate", request, not_evaluated(reason));
            }
        }
        let find = |goal| {
            let task = Task::Find(Finding { goal, asked, horizon });
            if let Err((task, reason)) = tasks.give(task)
                && let Task::Find(Finding { goal, .. }) = *task
            {
                goal.end(Err(only_words(&reason)));
            }
        };
        handles.plan.serve(now, find, |n| tasks.withdraw(n));
        tasks.watch();
    }

    /// Whether frames are predicted from, unless that is paused.
    pub fn set_active(&mut self, is_active: bool, mailbox: &Mailbox<Frame>) {
        self.is_active = is_active;
        mailbox.order(|orders| orders.halt = Some(halt(is_active, self.is_paused)));
    }
}

fn halt(is_active: bool, is_paused: bool) -> Halt {
    match (is_active, is_paused) {
        (false, _) => Halt::Inactive,
        (true, true) => Halt::Paused,
        (true, false) => Halt::No,
    }
}

impl ServiceHandles {
    /// Offers the services, and `~/plan` as the action `plan`.
    ///
    /// # Errors
    /// What rcl says, with the service.
    pub fn new(node: &mut r2r::Node, plan: &str) -> anyhow::Result<Self> {
        Ok(Self {
            reset: Service::new(node, "~/reset")?,
            pause: Service::new(node, "~/pause")?,
            predict: Service::new(node, "~/predict")?,
            evaluate: Service::new(node, "~/evaluate")?,
            pose_at: Service::new(node, "~/pose_at")?,
            plan: PlanAction::new(node, plan)?,
        })
    }

    /// Ends the goals of `~/plan` as the node ends; whether there were any.
    pub fn end(&mut self) -> bool {
        self.plan.end(ENDING)
    }

    /// Answers all requests that have come, at ROS time `now`, by `why` nothing can be begun. Whether there were
    /// any.
    pub fn refuse(&mut self, now: Stamp, why: &str) -> bool {
        let mut n = 0;
        self.reset.serve(|_| {
            n += 1;
            Trigger::Response { success: false, message: why.into() }
        });
        self.pose_at.serve(|_| {
            n += 1;
            pose_at::refused(why)
        });
        self.pause.serve(|_| {
            n += 1;
            SetBool::Response { success: false, message: why.into() }
        });
        while let Some(request) = self.predict.next() {
            n += 1;
            respond("~/predict", request, refusal(why));
        }
        while let Some(request) = self.evaluate.next() {
            n += 1;
            respond("~/evaluate", request, not_evaluated(why));
        }
        n += self.plan.serve(now, |goal| goal.end(Err(only_words(why))), |_| ());
        n > 0
    }
}

/// The answer to a request that can't be fulfilled.
pub fn refusal(reason: impl Into<String>) -> Predict::Response {
    Predict::Response { success: false, message: reason.into(), predictions: Vec::new() }
}
