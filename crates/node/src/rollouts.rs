//! The thread that rolls out candidate plans, one request after the other, beside the live
//! predictions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use r2r::forecloud::srv::Predict;

use super::mailbox::{Answer, Mailbox};
use super::planning::not_a_horizon;
use super::publish::Origin;
use super::service::respond;
use super::services::{ENDING, Job, refusal};
use super::text::bounded;
use super::trajectory::read_trajectory;
use forecloud::planner::candidates::{Candidates, Snapshot};
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::frames::Frame;

/// Requests that wait while one is rolled out; further ones are refused.
pub const MAX_WAITING: usize = 2;
/// Plans of one request.
const MAX_PLANS: usize = 64;
/// Displacements in one answer: 48 MiB.
const MAX_DISPLACEMENTS: usize = 1 << 22;
/// How long a frame may take to come where none was predicted lately, and how old the last one may be.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Answers requests until none can come any more.
pub struct Rollouts {
    snapshots: Snapshots,
    origin: Origin,
    candidates: Candidates,
    stop: Arc<AtomicBool>,
}

impl Rollouts {
    /// With `n_threads` threads for the roll-outs themselves. From `stop` on, plans are refused.
    ///
    /// # Errors
    /// They can't be started.
    pub fn new(
        mailbox: Arc<Mailbox<Frame>>,
        origin: Origin,
        n_threads: usize,
        stop: Arc<AtomicBool>,
    ) -> forecloud::Result<Self> {
        Ok(Self {
            stop,
            snapshots: Snapshots::new(mailbox),
            origin,
            candidates: Candidates::new(n_threads)?,
        })
    }

    /// Answers `jobs`.
    pub fn run(mut self, jobs: Receiver<Job>) {
        for Job { request, asked, horizon } in jobs {
            // Plans come from outside: whatever they do, the node goes on.
            let answer = || self.answer(&request.message, asked, horizon);
            let answer = catch_unwind(AssertUnwindSafe(answer));
            let response = match answer {
                Ok(outcome) => outcome.unwrap_or_else(|told| refusal(bounded(&told))),
                Err(_) => refusal("the roll-out panicked: see the node's log"),
            };
            if !response.success {
                tracing::warn!("~/predict refused: {}", response.message);
            }
            respond("~/predict", request, response);
        }
    }

    fn answer(
        &mut self,
        request: &Predict::Request,
        asked: Instant,
        horizon: usize,
    ) -> Result<Predict::Response, String> {
        let n_plans = request.plans.len();
        if !(1..=MAX_PLANS).contains(&n_plans) {
            return Err(format!("{n_plans} plans: send 1 to {MAX_PLANS}"));
        }
        let n_steps = if request.n_steps == 0 { horizon } else { request.n_steps as usize };
        if !PredictorConfig::HORIZON.contains(&n_steps) {
            return Err(not_a_horizon(n_steps));
        }
        let snapshot = self.snapshots.take(asked)?;
        let n_particles = snapshot.n_particles();
        if n_plans * n_steps * n_particles > MAX_DISPLACEMENTS {
            return Err(format!(
                "{n_plans} plans of {n_steps} steps with {n_particles} particles exceed \
                 {MAX_DISPLACEMENTS} displacements: ask for fewer plans or steps"
            ));
        }
        let mut predictions = Vec::with_capacity(n_plans);
        for (i, plan) in request.plans.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ENDING.into());
            }
            let outcome = self.candidates.predict(&snapshot, read_trajectory(plan), n_steps);
            let prediction = outcome.map_err(|error| format!("plan {i}: {error}"))?;
            predictions.push(self.origin.message(&prediction));
        }
        let message =
            format!("rolled out {n_plans} plans, {n_steps} steps from {} s", snapshot.stamp());
        Ok(Predict::Response { success: true, message, predictions })
    }
}

/// What the requests of one thread start from.
pub struct Snapshots {
    mailbox: Arc<Mailbox<Frame>>,
    /// When a frame was last waited for in vain until, and what was said then.
    missed: Option<(Instant, String)>,
}

impl Snapshots {
    /// Of the frames in `mailbox`.
    pub fn new(mailbox: Arc<Mailbox<Frame>>) -> Self {
        Self { mailbox, missed: None }
    }

    /// What the newest prediction started from; where predicting was idle, the next one.
    ///
    /// # Errors
    /// Why there is none. `asked` is when the request came: one wait in vain serves all that came
    /// before its end.
    pub fn take(&mut self, asked: Instant) -> Result<Box<Snapshot>, String> {
        if let Some((_, why)) = self.missed.as_ref().filter(|(until, _)| asked < *until) {
            return Err(why.clone());
        }
        let (request, answers) = mpsc::channel();
        self.mailbox.order(|orders| orders.snapshots.push(request));
        let deadline = Instant::now() + PATIENCE;
        let mut reason = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left) {
                Ok(Answer::Snapshot(snapshot)) => return Ok(snapshot),
                Ok(Answer::NotYet(why)) => reason = Some(why),
                Ok(Answer::Refused(why)) => return Err(why),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let why = reason.unwrap_or_else(|| "the predictor is busy".into());
                    let waited_secs = PATIENCE.as_secs();
                    let told = format!("no frame was predicted in {waited_secs} s: {why}");
                    self.missed = Some((Instant::now(), told.clone()));
                    return Err(told);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(ENDING.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_in_vain_serves_all_that_came_before_its_end() {
        let mut snapshots = Snapshots::new(Arc::default());
        let asked = Instant::now();
        let told = snapshots.take(asked).err().unwrap();
        assert!(asked.elapsed() >= PATIENCE && told.contains("the predictor is busy"), "{told}");
        let again = Instant::now();
        for _ in 0..10 {
            assert_eq!(snapshots.take(asked).err(), Some(told.clone()));
        }
        assert!(again.elapsed() < PATIENCE);
        snapshots.take(Instant::now()).err().unwrap();
        assert!(again.elapsed() >= PATIENCE, "what comes later waits");
    }
}
