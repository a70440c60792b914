//! `~/reset`, `~/pause`, and the door to `~/predict`.

use std::sync::mpsc::{SyncSender, TrySendError};

use r2r::ServiceRequest;
use r2r::forecloud::srv::Predict;
use r2r::std_srvs::srv::{SetBool, Trigger};

use super::intake::Intake;
use super::mailbox::Mailbox;
use super::service::{Service, respond};
use crate::frames::Frame;

/// A request for roll-outs, and the steps that it gets where it asks for none.
pub struct Job {
    /// The request.
    pub request: ServiceRequest<Predict::Service>,
    /// The node's parameter.
    pub horizon: usize,
}

/// The node's own services.
pub struct Services {
    reset: Service<Trigger::Service>,
    pause: Service<SetBool::Service>,
    predict: Service<Predict::Service>,
    jobs: SyncSender<Job>,
}

impl Services {
    /// Offers the services; `jobs` leads to the thread that rolls out.
    ///
    /// # Errors
    /// What rcl says, with the service.
    pub fn new(node: &mut r2r::Node, jobs: SyncSender<Job>) -> anyhow::Result<Self> {
        Ok(Self {
            reset: Service::new(node, "reset")?,
            pause: Service::new(node, "pause")?,
            predict: Service::new(node, "predict")?,
            jobs,
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
        while let Some(request) = self.predict.next() {
            let refused = match self.jobs.try_send(Job { request, horizon }) {
                Ok(()) => continue,
                Err(TrySendError::Full(job)) => {
                    (job, "busy with earlier requests: ask again later")
                }
                Err(TrySendError::Disconnected(job)) => (job, "the node is ending"),
            };
            let (Job { request, .. }, reason) = refused;
            respond("predict", request, refusal(reason));
        }
    }
}

/// The answer to a request that can't be fulfilled.
pub fn refusal(reason: impl Into<String>) -> Predict::Response {
    Predict::Response { success: false, message: reason.into(), predictions: Vec::new() }
}
