//! Who waits for what a prediction started from.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::super::clock::{Ages, Moment};
use super::super::mailbox::{Answer, SnapshotRequest};
use super::super::rollouts::PATIENCE;
use forecloud::predict::predictor::Predictor;

/// How long predictions go on after somebody asked.
const INTEREST: Duration = Duration::from_secs(5);

/// Requests for snapshots, and how old the newest prediction is.
pub(super) struct Snapshots {
    /// Are answered with the next prediction.
    waiting: Vec<SnapshotRequest>,
    /// When somebody asked last.
    asked: Option<Instant>,
    ages: Ages,
    /// When the frame came that was predicted from last.
    predicted: Option<Moment>,
}

impl Snapshots {
    /// Nobody asked yet, and nothing was predicted; `ages` is by the node's clock.
    pub(super) fn new(ages: Ages) -> Self {
        Self { waiting: Vec::new(), asked: None, ages, predicted: None }
    }

    /// A frame that came at `arrived` was predicted from.
    pub(super) fn predicted(&mut self, arrived: Instant) {
        self.predicted = Some(self.ages.moment(arrived));
    }

    /// Whether somebody waits, or asked lately.
    pub(super) fn are_wanted(&self) -> bool {
        !self.waiting.is_empty() || self.asked.is_some_and(|at| at.elapsed() < INTEREST)
    }

    /// Somebody asks what was predicted: predictions go on for a while. How old the newest is (s); none before there
    /// is one.
    pub(super) fn note_interest(&mut self) -> Option<f64> {
        self.asked = Some(Instant::now());
        self.predicted.map(|then| self.ages.secs_since(then))
    }

    /// Answers a request with the newest prediction, or has it wait for the next one where that is old, or
    /// frames are let `pass`.
    pub(super) fn ask(&mut self, request: SnapshotRequest, predictor: &Predictor, passing: bool) {
        self.asked = Some(Instant::now());
        let age_secs = self.predicted.map_or(0.0, |then| self.ages.secs_since(then));
        let is_old = age_secs > PATIENCE.as_secs_f64();
        let reason = match predictor.snapshot() {
            Ok(snapshot) if !passing && !is_old => {
                send(&request, Answer::Snapshot(Box::new(snapshot)));
                return;
            }
            // What was predicted from an old frame is of a scene that may be another by now.
            Ok(_) if is_old => format!(
                "the last frame is {age_secs:.1} s old: do the cameras still send? /diagnostics says \
                 what is missing"
            ),
            Ok(_) => "no frame came".to_owned(),
            Err(error) => error.to_string(),
        };
        if send(&request, Answer::NotYet(reason)) {
            self.waiting.push(request);
        }
    }

    /// Answers those who wait, after a frame was predicted from, or with why it was not.
    pub(super) fn answer(&mut self, outcome: Result<(), String>, predictor: &Predictor) {
        if self.waiting.is_empty() {
            return;
        }
        match outcome.and_then(|()| predictor.snapshot().map_err(|e| e.to_string())) {
            Ok(snapshot) => {
                for request in self.waiting.drain(..) {
                    send(&request, Answer::Snapshot(Box::new(snapshot.clone())));
                }
            }
            Err(reason) => {
                self.waiting.retain(|request| send(request, Answer::NotYet(reason.clone())));
            }
        }
    }
}

/// Sends an answer; whether somebody still waits for it.
pub(super) fn send(request: &Sender<Answer>, answer: Answer) -> bool {
    request.send(answer).is_ok()
}
