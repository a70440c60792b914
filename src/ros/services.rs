//! `~/reset`, `~/pause`, and the ways to `~/pose_at`, `~/predict`, `~/evaluate` and `~/plan`.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use r2r::ServiceRequest;
use r2r::forecloud::srv::{Evaluate, PoseAt, Predict};
use r2r::std_srvs::srv::{SetBool, Trigger};

use super::intake::Intake;
use super::mailbox::Mailbox;
use super::plan_action::{PlanAction, only_words};
use super::planning::{Finding, Judging, Task, not_evaluated};
use super::queue::Tasks;
use super::service::{Service, respond};
use crate::message::Stamp;
use crate::vision::frames::Frame;

/// What who asks is told once the node ends.
pub const ENDING: &str = "the node is ending";

/// A request for roll-outs, and the steps that it gets where it asks for none.
pub struct Job {
    /// The request.
    pub request: ServiceRequest<Predict::Service>,
    /// When it came.
    pub asked: Instant,
    /// The node's parameter.
    pub horizon: usize,
}

/// The node's own services.
pub struct Services {
    handles: ServiceHandles,
    jobs: SyncSender<Job>,
    tasks: Tasks,
}

/// Where requests come.
pub struct ServiceHandles {
    reset: Service<Trigger::Service>,
    pause: Service<SetBool::Service>,
    predict: Service<Predict::Service>,
    evaluate: Service<Evaluate::Service>,
    pose_at: Service<PoseAt::Service>,
    plan: PlanAction,
}

impl Services {
    /// Offers the services, and `~/plan` as the action `plan`; `jobs` leads to the thread that rolls out,
    /// `tasks` to the one that plans.
    ///
    /// # Errors
    /// What rcl says, with the service.
    pub fn new(
        node: &mut r2r::Node,
        plan: &str,
        jobs: SyncSender<Job>,
        tasks: Tasks,
    ) -> anyhow::Result<Self> {
        let handles = ServiceHandles {
            reset: Service::new(node, "~/reset")?,
            pause: Service::new(node, "~/pause")?,
            predict: Service::new(node, "~/predict")?,
            evaluate: Service::new(node, "~/evaluate")?,
            pose_at: Service::new(node, "~/pose_at")?,
            plan: PlanAction::new(node, plan)?,
        };
        Ok(Self { handles, jobs, tasks })
    }

    /// Answers all requests that have come at ROS time `now`, or hands them on.
    pub fn serve(
        &mut self,
        intake: &mut Intake,
        mailbox: &Mailbox<Frame>,
        horizon: usize,
        now: Stamp,
    ) {
        let Self { handles, jobs, tasks } = self;
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
            mailbox.order(|orders| orders.paused = Some(paused));
            let message = match paused {
                true => "paused: frames come in, but nothing is predicted",
                false => "predicting",
            };
            tracing::info!("pause: {message}");
            SetBool::Response { success: true, message: message.to_owned() }
        });
        while let Some(request) = handles.pose_at.next() {
            mailbox.order(|orders| orders.poses.push(request));
        }
        let asked = Instant::now();
        while let Some(request) = handles.predict.next() {
            let refused = match jobs.try_send(Job { request, asked, horizon }) {
                Ok(()) => continue,
                Err(TrySendError::Full(job)) => {
                    (job, "busy with earlier requests: try again later")
                }
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

    /// Nothing is handed on any more.
    pub fn close(self) -> ServiceHandles {
        self.handles
    }
}

impl ServiceHandles {
    /// Ends the goals of `~/plan` as the node ends; whether there were any.
    pub fn end(&mut self) -> bool {
        self.plan.end(ENDING)
    }

    /// Answers all requests that have come after that, at ROS time `now`: nothing is begun any more. Whether
    /// there were any.
    pub fn refuse(&mut self, now: Stamp) -> bool {
        let mut n = 0;
        self.reset.serve(|_| {
            n += 1;
            Trigger::Response { success: false, message: ENDING.into() }
        });
        self.pause.serve(|_| {
            n += 1;
            SetBool::Response { success: false, message: ENDING.into() }
        });
        while let Some(request) = self.predict.next() {
            n += 1;
            respond("~/predict", request, refusal(ENDING));
        }
        while let Some(request) = self.evaluate.next() {
            n += 1;
            respond("~/evaluate", request, not_evaluated(ENDING));
        }
        n += self.plan.serve(now, |goal| goal.end(Err(only_words(ENDING))), |_| ());
        n > 0
    }
}

/// The answer to a request that can't be fulfilled.
pub fn refusal(reason: impl Into<String>) -> Predict::Response {
    Predict::Response { success: false, message: reason.into(), predictions: Vec::new() }
}
