//! Finds a plan that reaches a goal: plans are drawn, what the robot can't do is thrown away, what is left
//! is rolled out and judged by its cost, and the next ones are drawn near the best: the cross-entropy
//! method (Rubinstein 1999), each kind of motion apart.
//!
//! Nothing is sent to the robot. The same seed, frame and number of plans give the same plan, on any
//! number of threads.

pub mod candidates;
mod check;
pub mod costs;
mod draw;
mod motion;
mod path;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::engine::backend::Device;
use crate::message::JointTrajectory;
use crate::planner::candidates::{Candidate, Candidates, PLAN_PARTICLES, Snapshot};
use crate::planner::costs::{Goal, Judge, PlanCost};
use crate::predict::config::PredictorConfig;
use crate::robot::kinematics::Robot;
use crate::{Error, Result};
use check::Surroundings;
use draw::{Kind, Sampler};
use motion::Situation;
use path::Path;

/// What the planner is given besides goal and frame.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSettings {
    /// Longest time that it takes; `None` for as long as `max_plans` take.
    pub budget: Option<Duration>,
    /// Plans that are rolled out at most; 0 for no such limit.
    pub max_plans: usize,
    /// Longest plan, in steps of the model.
    pub n_steps: usize,
    /// Joints that may move; all if empty.
    pub joint_names: Vec<String>,
    /// Links that may touch what is to be moved; those at the ends of arms if empty.
    pub tool_links: Vec<String>,
    /// Seed of all draws.
    pub seed: u64,
    /// Particles of the roll-outs; 0 for all of the frame's.
    pub n_particles: usize,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self {
            budget: Some(Duration::from_secs(2)),
            max_plans: 0,
            n_steps: 30,
            joint_names: Vec::new(),
            tool_links: Vec::new(),
            seed: 0,
            n_particles: PLAN_PARTICLES,
        }
    }
}

impl PlanSettings {
    /// A budget of `secs`.
    ///
    /// # Errors
    /// [`Error::Config`] for less than nothing, more than a day, and what is no number.
    pub fn budget_of(secs: f64) -> Result<Duration> {
        match (0.0..=MAX_BUDGET_SECS).contains(&secs) {
            true => Ok(Duration::from_secs_f64(secs)),
            false => Err(Error::Config {
                key: "budget".into(),
                problem: format!("{secs} s is not in 0..={MAX_BUDGET_SECS}"),
            }),
        }
    }

    /// Checks the names of joints and links against a robot, before there is a frame of it.
    ///
    /// # Errors
    /// [`Error::Config`] names one that the robot lacks.
    pub fn check_names(&self, robot: &Robot) -> Result<()> {
        motion::joints_of(robot, &self.joint_names)?;
        tools::links_of(robot, &self.tool_links).map(drop)
    }

    fn check(&self) -> Result<()> {
        let horizon = self.n_steps;
        PredictorConfig { horizon, ..PredictorConfig::default() }.validate()?;
        match self.budget {
            Some(budget) => Self::budget_of(budget.as_secs_f64()).map(|_| ()),
            None if self.max_plans > 0 => Ok(()),
            None => {
                let problem = "0 without a budget would never end: give one of the two".into();
                Err(Error::Config { key: "max_plans".into(), problem })
            }
        }
    }
}

/// How far the planner has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The best so far.
    pub best: PlanCost,
    /// Plans rolled out.
    pub n_plans: usize,
    /// Time taken.
    pub elapsed: Duration,
}

/// What the planner found.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Whether the plan is worth executing: it costs less than standing still, by more than the standard
    /// deviation of what `reach` adds to its cost.
    pub success: bool,
    /// What was found, or why nothing was.
    pub message: String,
    /// The best plan; standing still where there is no better one.
    pub plan: JointTrajectory,
    /// What it costs.
    pub cost: PlanCost,
    /// Steps over which it was.
    pub n_steps: usize,
    /// What standing still costs, over as many steps as a plan may have.
    pub idle: PlanCost,
    /// Plans rolled out.
    pub n_plans: usize,
    /// Time taken.
    pub elapsed: Duration,
}

/// Longest budget: a day (s).
const MAX_BUDGET_SECS: f64 = 86_400.0;
/// Plans rolled out before the next ones are drawn.
const GENERATION: usize = 16;
/// Of each kind, the best that the next ones are drawn near to.
const N_ELITES: usize = 4;
/// Draws for a generation at most: what can't be done costs little to find out.
const MAX_DRAWS: usize = 256;
/// Draws that are looked at side by side.
const AT_ONCE: usize = 32;
/// Generations in a row of which nothing could be done, after which no more are drawn.
const MAX_EMPTY: usize = 4;

/// A plan with what it was drawn from.
#[derive(Debug, Clone)]
struct Drawn {
    kind: Kind,
    numbers: Vec<f64>,
    candidate: Candidate,
}

/// The planner; keeps its threads and buffers from one goal to the next.
pub struct Planner {
    candidates: Candidates,
}

impl Planner {
    /// With `n_threads` threads; 0 takes one per CPU.
    ///
    /// # Errors
    /// [`Error::Config`] if they can't be started.
    pub fn new(n_threads: usize) -> Result<Self> {
        Self::on(Device::Cpu, n_threads)
    }

    /// As [`Planner::new`], with `device` for the roll-outs: see [`Candidates::on`].
    ///
    /// # Errors
    /// As there.
    pub fn on(device: Device, n_threads: usize) -> Result<Self> {
        Ok(Self { candidates: Candidates::on(device, n_threads)? })
    }

    /// What plans are rolled out on: see [`Candidates::device`].
    pub fn device(&self) -> String {
        self.candidates.device()
    }

    /// What rolls out.
    pub fn candidates(&mut self) -> &mut Candidates {
        &mut self.candidates
    }

    /// Finds a plan from `snapshot` on. `goes_on` is told the best so far after each generation; once it
    /// is false, the best so far is returned.
    ///
    /// # Errors
    /// [`Error::Goal`] for a goal that plans can't be judged by, [`Error::Plan`] without a robot,
    /// [`Error::Config`] for joints or links that it lacks, and settings that make no sense. That no plan is
    /// good enough is no error: see [`Planned::success`].
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        goal: &Goal,
        settings: &PlanSettings,
        goes_on: impl FnMut(&Progress) -> bool,
    ) -> Result<Planned> {
        self.plan_while(snapshot, goal, settings, goes_on, || true)
    }

    /// As [`Planner::plan`], and ends with the roll-out under way once `is_wanted` is false; threads ask.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn plan_while(
        &mut self,
        snapshot: &Snapshot,
        goal: &Goal,
        settings: &PlanSettings,
        mut goes_on: impl FnMut(&Progress) -> bool,
        is_wanted: impl Fn() -> bool + Sync,
    ) -> Result<Planned> {
        let start = Instant::now();
        settings.check()?;
        let mut robot = Robot::clone(snapshot.robot()?);
        snapshot.robot_forecast.mount(&mut robot)?;
        // Judged by all particles that there are, before they are thinned out.
        let whole = snapshot.judge(goal)?;
        let (thin, judge) = snapshot.for_plans(goal, settings.n_particles)?;
        let situation = Situation::new(snapshot, &whole, settings)?;
        let mut search = Search {
            robot: &robot,
            snapshot: &thin,
            judge: &judge,
            settings,
            surroundings: Surroundings::new(snapshot, &whole, &situation),
            situation,
            refused: BTreeMap::new(),
            ranked: Vec::new(),
            n_plans: 0,
            idle: PlanCost::UNKNOWN,
            is_reached: whole.is_reached(),
            start,
        };
        search.stand(&mut self.candidates)?;
        search.run(&mut self.candidates, &mut goes_on, &is_wanted)?;
        Ok(search.end(&whole))
    }
}

/// A search under way.
struct Search<'a> {
    /// Placed as its mount is now.
    robot: &'a Robot,
    snapshot: &'a Snapshot,
    judge: &'a Judge,
    settings: &'a PlanSettings,
    situation: Situation,
    surroundings: Surroundings,
    /// Why draws were thrown away, and how many.
    refused: BTreeMap<&'static str, usize>,
    /// All that were rolled out, the best first.
    ranked: Vec<(PlanCost, Drawn)>,
    n_plans: usize,
    /// What standing still costs.
    idle: PlanCost,
    is_reached: bool,
    start: Instant,
}

impl Search<'_> {
    /// What standing still costs: always a candidate.
    fn stand(&mut self, candidates: &mut Candidates) -> Result<()> {
        let plan = Path::stand(self.situation.joints()).trajectory(&self.situation);
        let idle = [Candidate { plan, n_steps: self.settings.n_steps }];
        let costs = candidates.evaluate(self.snapshot, self.judge, &idle, || true)?;
        self.idle = costs.into_iter().flatten().next().unwrap_or(PlanCost::UNKNOWN);
        Ok(())
    }

    fn run(
        &mut self,
        candidates: &mut Candidates,
        goes_on: &mut impl FnMut(&Progress) -> bool,
        is_wanted: &(impl Fn() -> bool + Sync),
    ) -> Result<()> {
        let mut sampler = Sampler::new(self.settings.seed, &self.situation);
        let end = self.settings.budget.map(|budget| self.start + budget);
        // What takes so long is not begun when less is left.
        let is_time_for = |needed| end.is_none_or(|end| Instant::now() + needed < end);
        let mut best = self.idle;
        let mut n_empty = 0;
        if self.is_reached {
            return Ok(());
        }
        while n_empty < MAX_EMPTY && is_wanted() {
            // Some are tried in any case.
            let is_first = self.n_plans == 0;
            let needed = if is_first { Duration::ZERO } else { candidates.slowest() };
            if !is_time_for(needed) {
                break;
            }
            let left = match self.settings.max_plans {
                0 => usize::MAX,
                most => most.saturating_sub(self.n_plans),
            };
            let wanted = left.min(GENERATION);
            if wanted == 0 {
                break;
            }
            // As long as the round before took, the next one may, and a roll-out is to follow.
            let draws_on = |took| is_time_for(needed + took) && is_wanted();
            let drawn = self.draw(&mut sampler, wanted, candidates.threads(), draws_on);
            if self.n_plans > 0 && !is_time_for(needed) {
                break;
            }
            n_empty = if drawn.is_empty() { n_empty + 1 } else { 0 };
            let to_roll: Vec<Candidate> = drawn.iter().map(|d| d.candidate.clone()).collect();
            let costs = match to_roll.is_empty() {
                true => Vec::new(),
                false => {
                    let goes_on = || is_time_for(needed) && is_wanted();
                    candidates.evaluate(self.snapshot, self.judge, &to_roll, goes_on)?
                }
            };
            for (drawn, cost) in drawn.into_iter().zip(costs) {
                let Some(cost) = cost else { continue };
                self.n_plans += 1;
                if cost.cost < best.cost {
                    best = cost;
                }
                let place = self.ranked.partition_point(|(other, _)| other.cost <= cost.cost);
                self.ranked.insert(place, (cost, drawn));
            }
            sampler.learn(self.ranked.iter().map(|(_, drawn)| (drawn.kind, &drawn.numbers[..])));
            let elapsed = self.start.elapsed();
            if !goes_on(&Progress { best, n_plans: self.n_plans, elapsed }) {
                break;
            }
        }
        Ok(())
    }

    /// Up to `n` plans that the robot can do; fewer once `goes_on`, told how long a round of draws took, is
    /// false.
    fn draw(
        &mut self,
        sampler: &mut Sampler,
        n: usize,
        threads: &rayon::ThreadPool,
        goes_on: impl Fn(Duration) -> bool,
    ) -> Vec<Drawn> {
        let mut found = Vec::new();
        let mut n_drawn = 0;
        while found.len() < n && n_drawn < MAX_DRAWS {
            let start = Instant::now();
            let draws: Vec<(Kind, Vec<f64>)> = (0..AT_ONCE).map(|_| sampler.draw()).collect();
            n_drawn += draws.len();
            let this = &*self;
            let looked: Vec<std::result::Result<Drawn, &'static str>> = threads.install(|| {
                let robot = || Robot::clone(this.robot);
                let look = |robot: &mut Robot, (kind, numbers)| this.look(robot, kind, numbers);
                draws.into_par_iter().map_init(robot, look).collect()
            });
            for looked in looked {
                match looked {
                    Ok(drawn) if found.len() < n => found.push(drawn),
                    Ok(_) => {}
                    Err(why) => *self.refused.entry(why).or_default() += 1,
                }
            }
            if !goes_on(start.elapsed()) {
                break;
            }
        }
        found
    }

    /// The plan of a draw, or why it can't be done.
    fn look(
        &self,
        robot: &mut Robot,
        kind: Kind,
        numbers: Vec<f64>,
    ) -> std::result::Result<Drawn, &'static str> {
        let path = self.situation.path(robot, kind, &numbers)?;
        let candidate = self.situation.candidate(&path, self.settings.n_steps)?;
        self.surroundings.check(robot, &path)?;
        Ok(Drawn { kind, numbers, candidate })
    }

    /// The best, against standing still.
    fn end(self, whole: &Judge) -> Planned {
        let best = self.ranked.first().filter(|(cost, _)| cost.cost < self.idle.cost);
        let cost = best.map_or(self.idle, |(cost, _)| *cost);
        let gain = self.idle.cost - cost.cost;
        let unsure = unsure(whole.goal(), &cost);
        let success = best.is_some() && gain > unsure;
        let (idle_mm, best_mm) = (self.idle.reach * 1e3, cost.reach * 1e3);
        let message = if whole.is_reached() {
            format!(
                "the goal is reached already: the target is {:.1} mm off, the tolerance is {:.1} mm",
                whole.reach_now() * 1e3,
                whole.goal().tolerance * 1e3
            )
        } else if success {
            format!(
                "the best of {} plans leaves the target {best_mm:.1} mm off, standing still \
                 {idle_mm:.1} mm",
                self.n_plans
            )
        } else {
            self.why_not(gain, unsure)
        };
        let (plan, n_steps) = match best {
            Some((_, drawn)) => (drawn.candidate.plan.clone(), drawn.candidate.n_steps),
            None => {
                let still = Path::stand(self.situation.joints());
                (still.trajectory(&self.situation), self.settings.n_steps)
            }
        };
        Planned {
            success,
            message,
            plan,
            cost,
            n_steps,
            idle: self.idle,
            n_plans: self.n_plans,
            elapsed: self.start.elapsed(),
        }
    }

    fn why_not(&self, gain: f64, unsure: f64) -> String {
        let refused: Vec<String> =
            self.refused.iter().map(|(why, n)| format!("{n} {why}")).collect();
        let refused = match refused.is_empty() {
            true => String::new(),
            false => format!("; drawn and thrown away: {}", refused.join(", ")),
        };
        if let (0, true, Some(budget)) =
            (self.n_plans, self.refused.is_empty(), self.settings.budget)
        {
            return format!(
                "no plan is good enough: the budget of {} s was over before the first was drawn. Remedy: \
                 more time",
                budget.as_secs_f64()
            );
        }
        if self.n_plans == 0 {
            return format!(
                "no plan is good enough: none that the robot can do was found{refused}. Remedy: more \
                 steps (n_steps) or time, other tool_links, or a target within reach"
            );
        }
        format!(
            "no plan is good enough: the best of {} costs {:.4} less than standing still, and is \
             unsure by {:.4}{refused}. Remedy: more time, another seed, or more steps",
            self.n_plans,
            gain.max(0.0),
            unsure
        )
    }
}

/// What a plan must gain over standing still to be worth executing: the standard deviation of what `reach`
/// adds to its cost. Its 90 % interval would refuse most of what can only help.
fn unsure(goal: &Goal, cost: &PlanCost) -> f64 {
    goal.reach_weight * cost.reach_sigma
}
