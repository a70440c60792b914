//! The thread that judges plans and finds them, one request after the other, beside the live
//! predictions. Nothing is sent to the robot: who asks executes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use r2r::ServiceRequest;
use r2r::forecloud::action::Plan;
use r2r::forecloud::msg::PlanCost as CostMsg;
use r2r::forecloud::srv::Evaluate;

use super::goal::goal;
use super::mailbox::Mailbox;
use super::plan_action::{PlanGoal, only_words};
use super::publish::Origin;
use super::queue::Load;
use super::rollouts::Snapshots;
use super::service::respond;
use super::services::ENDING;
use super::text::bounded;
use super::trajectory::{read_trajectory, trajectory_message};
use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::planner::candidates::{Candidate, PLAN_PARTICLES};
use forecloud::planner::costs::PlanCost;
use forecloud::planner::{PlanSettings, Planner};
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::frames::Frame;

/// Plans of one request.
const MAX_PLANS: usize = 256;
/// Longest budget (s), and what ends a request without one: its client may have died.
const MAX_SECS: f64 = 600.0;

/// A request to judge plans.
pub struct Judging {
    /// The request.
    pub request: ServiceRequest<Evaluate::Service>,
    /// When it came.
    pub asked: Instant,
    /// The steps that it gets where it asks for none.
    pub horizon: usize,
}

/// A request to find one.
pub struct Finding {
    /// The goal of the action.
    pub goal: PlanGoal,
    /// When it came.
    pub asked: Instant,
    /// The steps that it gets where it asks for none.
    pub horizon: usize,
}

/// What the thread works on.
pub enum Task {
    /// Judge plans.
    Judge(Judging),
    /// Find one.
    Find(Finding),
}

/// Works on requests until none can come any more.
pub struct Planning {
    snapshots: Snapshots,
    origin: Origin,
    planner: Planner,
    /// What the log said last that plans are rolled out on.
    device: String,
    stop: Arc<AtomicBool>,
}

impl Planning {
    /// With `n_threads` threads and `device` for the roll-outs. From `stop` on, plans are not judged any
    /// more.
    ///
    /// # Errors
    /// They can't be started.
    pub fn new(
        mailbox: Arc<Mailbox<Frame>>,
        origin: Origin,
        device: Device,
        n_threads: usize,
        stop: Arc<AtomicBool>,
    ) -> forecloud::Result<Self> {
        let planner = Planner::on(device, n_threads)?;
        let device = planner.device();
        Ok(Self { snapshots: Snapshots::new(mailbox), origin, planner, device, stop })
    }

    /// Works on `tasks` for predictions by `model`, and keeps `load`.
    pub fn run(mut self, model: &Arc<Model>, tasks: Receiver<Task>, load: &Load) {
        // Not in the time of the first request. What is wrong is told to each request as well.
        let opened = catch_unwind(AssertUnwindSafe(|| self.planner.candidates().open(model)));
        match opened {
            Ok(Ok(())) => self.log_device(),
            Ok(Err(error)) => tracing::warn!("can't roll out plans: {error}"),
            Err(_) => tracing::warn!("opening a device for plans panicked"),
        }
        for task in tasks {
            match task {
                Task::Judge(judging) => {
                    load.begin("~/evaluate", judging.request.message.budget_secs);
                    self.judge(judging);
                }
                Task::Find(finding) => {
                    // One that has ended since it came does not count as waiting any more.
                    if !finding.goal.begin() {
                        continue;
                    }
                    load.begin("~/plan", finding.goal.asked.budget_secs);
                    self.find(finding);
                }
            }
            load.end();
            self.log_device();
        }
    }

    /// Logs what plans are rolled out on where that has changed.
    fn log_device(&mut self) {
        let device = self.planner.device();
        if device != self.device {
            match self.device.starts_with("cuda") {
                true => tracing::warn!("rolling out plans on: {device}"),
                false => tracing::info!("rolling out plans on: {device}"),
            }
            self.device = device;
        }
    }

    fn judge(&mut self, Judging { request, asked, horizon }: Judging) {
        // Goals come from outside: whatever they do, the node goes on.
        let answer = || self.evaluate(&request.message, asked, horizon);
        let response = match catch_unwind(AssertUnwindSafe(answer)) {
            Ok(outcome) => outcome.unwrap_or_else(|told| not_evaluated(bounded(&told))),
            Err(_) => not_evaluated("the evaluation panicked: see the node's log"),
        };
        if !response.success {
            tracing::warn!("~/evaluate refused: {}", response.message);
        }
        respond("~/evaluate", request, response);
    }

    fn evaluate(
        &mut self,
        request: &Evaluate::Request,
        asked: Instant,
        horizon: usize,
    ) -> Result<Evaluate::Response, String> {
        let start = Instant::now();
        let n_plans = request.plans.len();
        if !(1..=MAX_PLANS).contains(&n_plans) {
            return Err(format!("{n_plans} plans: send 1 to {MAX_PLANS}"));
        }
        let n_steps = steps(request.n_steps, horizon)?;
        let budget = budget("budget_secs", request.budget_secs)?;
        let words = |error: forecloud::Error| error.to_string();
        let goal = goal(&request.goal).map_err(words)?;
        let snapshot = self.snapshots.take(asked)?;
        let (thin, judge) = snapshot.for_plans(&goal, PLAN_PARTICLES).map_err(words)?;
        let plans =
            request.plans.iter().map(|plan| Candidate { plan: read_trajectory(plan), n_steps });
        let plans: Vec<Candidate> = plans.collect();
        let goes_on = || !self.stop.load(Ordering::Relaxed);
        let in_time = || start.elapsed() < budget && goes_on();
        let candidates = self.planner.candidates();
        let costs = candidates.evaluate(&thin, &judge, &plans, in_time).map_err(words)?;
        if !goes_on() {
            return Err(ENDING.into());
        }
        let n_evaluated = costs.iter().flatten().count();
        let costs: Vec<PlanCost> =
            costs.into_iter().map(|cost| cost.unwrap_or(PlanCost::UNKNOWN)).collect();
        let best = (0..n_plans).min_by(|&a, &b| costs[a].cost.total_cmp(&costs[b].cost));
        let best = best.unwrap_or(0);
        let mut prediction = Vec::new();
        if request.want_prediction {
            let plan = plans[best].plan.clone();
            let rolled = candidates.predict(&snapshot, plan, n_steps).map_err(words)?;
            prediction.push(self.origin.message(&rolled));
        }
        let reached = match judge.is_reached() {
            true => "; the goal is already reached",
            false => "",
        };
        let message = format!(
            "evaluated {n_evaluated} of {n_plans} plans, {n_steps} steps from {} s; the target has {} \
             particles and is {:.4} m from the goal{reached}",
            snapshot.stamp(),
            judge.target().len(),
            judge.reach_now()
        );
        Ok(Evaluate::Response {
            success: true,
            message,
            costs: costs.iter().map(cost_message).collect(),
            best: best as u32,
            n_evaluated: n_evaluated as u32,
            prediction,
        })
    }

    fn find(&mut self, Finding { goal, asked, horizon }: Finding) {
        let work = || self.plan(&goal, asked, horizon);
        let outcome = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(outcome) => outcome,
            Err(_) => Err("planning panicked: see the node's log".into()),
        };
        let found = outcome.unwrap_or_else(|problem| {
            let message = bounded(&problem);
            tracing::warn!("~/plan refused: {message}");
            only_words(&message)
        });
        // Without a plan that is worth executing the goal was not reached: the result says why.
        goal.end(match found.success {
            true => Ok(found),
            false => Err(found),
        });
    }

    fn plan(
        &mut self,
        handle: &PlanGoal,
        came: Instant,
        horizon: usize,
    ) -> Result<Plan::Result, String> {
        let asked = &handle.asked;
        let words = |error: forecloud::Error| error.to_string();
        let budget = budget("budget_secs", asked.budget_secs)?;
        let goal = goal(&asked.goal).map_err(words)?;
        if asked.budget_secs == 0.0 && asked.max_plans == 0 {
            return Err("budget_secs and max_plans are both 0: planning would never end".into());
        }
        let settings = PlanSettings {
            budget: Some(budget),
            max_plans: asked.max_plans as usize,
            n_steps: steps(asked.n_steps, horizon)?,
            joint_names: asked.joint_names.clone(),
            tool_links: asked.tool_links.clone(),
            seed: asked.seed,
            ..PlanSettings::default()
        };
        let snapshot = self.snapshots.take(came)?;
        let goes_on = |progress: &forecloud::planner::Progress| {
            handle.send_feedback(Plan::Feedback {
                best: cost_message(&progress.best),
                n_plans: progress.n_plans as u32,
                elapsed_secs: progress.elapsed.as_secs_f64(),
            });
            !handle.is_cancelled()
        };
        let is_wanted = handle.is_wanted();
        let planned = self.planner.plan_while(&snapshot, &goal, &settings, goes_on, is_wanted);
        let planned = planned.map_err(words)?;
        let cancelled = match handle.is_cancelled() {
            true => "cancelled; the best so far: ",
            false => "",
        };
        Ok(Plan::Result {
            success: planned.success,
            message: format!("{cancelled}{}", planned.message),
            plan: trajectory_message(&planned.plan),
            cost: cost_message(&planned.cost),
            idle: cost_message(&planned.idle),
            n_plans: planned.n_plans as u32,
            planning_secs: planned.elapsed.as_secs_f64(),
        })
    }
}

fn steps(asked: u32, horizon: usize) -> Result<usize, String> {
    let n_steps = if asked == 0 { horizon } else { asked as usize };
    match PredictorConfig::HORIZON.contains(&n_steps) {
        true => Ok(n_steps),
        false => Err(not_a_horizon(n_steps)),
    }
}

/// Why a request for so many steps is refused.
pub fn not_a_horizon(n_steps: usize) -> String {
    let most = PredictorConfig::HORIZON.end();
    format!("n_steps is {n_steps}: ask for 1 to {most}, or 0 for the parameter `horizon`")
}

/// A time to end; the longest for 0.
fn budget(name: &str, secs: f64) -> Result<Duration, String> {
    if !(0.0..=MAX_SECS).contains(&secs) {
        return Err(format!("{name} is {secs} s: ask for 0 to {MAX_SECS} s"));
    }
    Ok(Duration::from_secs_f64(if secs > 0.0 { secs } else { MAX_SECS }))
}

/// The answer to a request that can't be fulfilled.
pub fn not_evaluated(reason: impl Into<String>) -> Evaluate::Response {
    Evaluate::Response { message: reason.into(), ..Evaluate::Response::default() }
}

fn cost_message(cost: &PlanCost) -> CostMsg {
    let &PlanCost {
        cost,
        cost_90,
        reach,
        keep_out,
        leave,
        clearance,
        reach_sigma,
        success_probability,
        length,
        smoothness,
    } = cost;
    CostMsg {
        cost,
        cost_90,
        reach,
        keep_out,
        leave,
        clearance,
        reach_sigma,
        success_probability,
        length,
        smoothness,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_worked_on_for_ever() {
        assert_eq!(budget("budget_secs", 0.0), Ok(Duration::from_secs(600)));
        assert_eq!(budget("budget_secs", -0.0), Ok(Duration::from_secs(600)));
        assert_eq!(budget("budget_secs", 0.5), Ok(Duration::from_millis(500)));
        for secs in [-1.0, 600.1, f64::NAN, f64::INFINITY] {
            assert!(
                budget("budget_secs", secs).is_err_and(|told| told.ends_with("ask for 0 to 600 s"))
            );
        }
    }
}
