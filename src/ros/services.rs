//! `~/reset`, `~/pause`, and the doors to `~/predict`, `~/evaluate` and `~/plan`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use anyhow::anyhow;
use futures::{FutureExt, Stream, StreamExt};
use r2r::forecloud::action::Plan;
use r2r::forecloud::srv::{Evaluate, Predict};
use r2r::std_srvs::srv::{SetBool, Trigger};
use r2r::{ActionServerCancelRequest, ActionServerGoalRequest, ServiceRequest};

use super::intake::Intake;
use super::mailbox::Mailbox;
use super::planning::{Finding, Judging, Task, not_evaluated};
use super::queue::Tasks;
use super::service::{Service, respond};
use crate::frames::Frame;

/// A request for roll-outs, and the steps that it gets where it asks for none.
pub struct Job {
    /// The request.
    pub request: ServiceRequest<Predict::Service>,
    /// When it came.
    pub asked: Instant,
    /// The node's parameter.
    pub horizon: usize,
}

/// A goal of `~/plan` that has not ended, and how its client asks to stop.
struct Active {
    cancels: Box<dyn Stream<Item = ActionServerCancelRequest> + Unpin>,
    cancelled: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

/// The node's own services.
pub struct Services {
    reset: Service<Trigger::Service>,
    pause: Service<SetBool::Service>,
    predict: Service<Predict::Service>,
    jobs: SyncSender<Job>,
    evaluate: Service<Evaluate::Service>,
    plan: Box<dyn Stream<Item = ActionServerGoalRequest<Plan::Action>> + Unpin>,
    active: Vec<Active>,
    tasks: Tasks,
}

impl Services {
    /// Offers the services; `jobs` leads to the thread that rolls out, `tasks` to the one that plans.
    ///
    /// # Errors
    /// What rcl says, with the service.
    pub fn new(node: &mut r2r::Node, jobs: SyncSender<Job>, tasks: Tasks) -> anyhow::Result<Self> {
        let plan = node.create_action_server::<Plan::Action>("~/plan");
        let plan = plan.map_err(|error| anyhow!("action ~/plan: {error}"))?;
        Ok(Self {
            reset: Service::new(node, "reset")?,
            pause: Service::new(node, "pause")?,
            predict: Service::new(node, "predict")?,
            jobs,
            evaluate: Service::new(node, "evaluate")?,
            plan: Box::new(plan),
            active: Vec::new(),
            tasks,
        })
    }

    /// Answers all requests that have come, or hands them on.
    pub fn serve(&mut self, intake: &mut Intake, mailbox: &Mailbox<Frame>, horizon: usize) {
        self.reset.serve(|_| {
            let n_images = intake.reset();
            let message = format!(
                "forgot the history and {n_images} images that waited; calibrations, fixed \
                 transforms and the robot description are kept"
            );
            tracing::info!("reset: {message}");
            Trigger::Response { success: true, message }
        });
        self.pause.serve(|request| {
            let paused = request.data;
            mailbox.order(|orders| orders.paused = Some(paused));
            let message = match paused {
                true => "paused: frames are taken, and none is predicted from",
                false => "predicting",
            };
            tracing::info!("pause: {message}");
            SetBool::Response { success: true, message: message.to_owned() }
        });
        let asked = Instant::now();
        while let Some(request) = self.predict.next() {
            let refused = match self.jobs.try_send(Job { request, asked, horizon }) {
                Ok(()) => continue,
                Err(TrySendError::Full(job)) => {
                    (job, "busy with earlier requests: ask again later")
                }
                Err(TrySendError::Disconnected(job)) => (job, "the node is ending"),
            };
            let (Job { request, .. }, reason) = refused;
            respond("predict", request, refusal(reason));
        }
        while let Some(request) = self.evaluate.next() {
            let task = Task::Judge(Judging { request, asked, horizon });
            if let Err((task, reason)) = self.tasks.give(task)
                && let Task::Judge(Judging { request, .. }) = *task
            {
                respond("evaluate", request, not_evaluated(reason));
            }
        }
        self.serve_plan(asked, horizon);
        self.tasks.watch();
    }

    /// Takes the goals of `~/plan` and the requests to cancel them.
    fn serve_plan(&mut self, asked: Instant, horizon: usize) {
        while let Some(Some(request)) = self.plan.next().now_or_never() {
            // Accepted first: a goal that is rejected has no result, and so no words.
            let (goal, cancels) = match request.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("~/plan: a goal was not accepted: {error}");
                    continue;
                }
            };
            let cancelled = Arc::new(AtomicBool::new(false));
            let ended = Arc::new(AtomicBool::new(false));
            let finding = Finding {
                goal,
                asked,
                cancelled: cancelled.clone(),
                ended: ended.clone(),
                horizon,
            };
            match self.tasks.give(Task::Find(finding)) {
                Ok(()) => self.active.push(Active { cancels: Box::new(cancels), cancelled, ended }),
                Err((task, reason)) => {
                    if let Task::Find(Finding { mut goal, .. }) = *task {
                        let result = Plan::Result { message: reason, ..Plan::Result::default() };
                        if let Err(error) = goal.abort(result) {
                            tracing::warn!("~/plan: the result was not sent: {error}");
                        }
                    }
                }
            }
        }
        self.active.retain_mut(|active| {
            while let Some(Some(request)) = active.cancels.next().now_or_never() {
                if active.ended.load(Ordering::Acquire) {
                    request.reject();
                } else {
                    active.cancelled.store(true, Ordering::Release);
                    request.accept();
                }
            }
            !active.ended.load(Ordering::Acquire)
        });
    }
}

/// The answer to a request that can't be fulfilled.
pub fn refusal(reason: impl Into<String>) -> Predict::Response {
    Predict::Response { success: false, message: reason.into(), predictions: Vec::new() }
}
