//! Candidate plans: what they would cost, held against a goal, and finding one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forecloud::engine::backend::Device;
use forecloud::message::JointTrajectory;
use forecloud::planner::candidates::{Candidate, Snapshot};
use forecloud::planner::costs::{Goal as Inner, Mask, PlanCost, parse_goal, read_goal};
use forecloud::planner::{PlanSettings, Planned, Planner};
use numpy::{PyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{self, raise};
use crate::frame::{PlanIn, plan, plan_out};
use crate::{arrays, work};

/// What is to be reached.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Goal {
    pub inner: Inner,
}

#[pymethods]
impl Goal {
    /// `text`: as a goal's file, in JSON; `mask`: `[height, width]`, of a goal that selects pixels.
    #[new]
    fn new(text: &str, mask: Option<PyReadonlyArrayDyn<'_, bool>>) -> PyResult<Self> {
        let mask = mask.map(|mask| {
            let pixels = arrays::slice("mask", &mask, [-1, -1])?.to_vec();
            let side = |axis: usize| u32::try_from(mask.as_array().shape()[axis]);
            let (Ok(width), Ok(height)) = (side(1), side(0)) else {
                return Err(arrays::input("mask: it has too many pixels".to_owned()));
            };
            Ok(([width, height], pixels))
        });
        let (size, pixels) = mask.transpose()?.unwrap_or_default();
        let mask = |_: &Path, camera| Ok(Mask { camera, size, pixels });
        Ok(Self { inner: parse_goal(text, "goal", mask).map_err(errors::of)? })
    }

    /// From a YAML file.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        Ok(Self { inner: read_goal(&path).map_err(errors::of)? })
    }
}

/// A planner of the process that made it: a fork takes no threads with it.
pub struct Held {
    pid: u32,
    n_threads: usize,
    device: Device,
    planner: Planner,
}

/// The planner that is held, or a new one where it is not of this process, or of another device or other
/// threads than are asked for.
pub fn planner(held: &mut Option<Held>, device: Device) -> PyResult<&mut Planner> {
    let (pid, n_threads) = (std::process::id(), work::n_threads()?);
    let is_asked_for =
        |held: &Held| (held.pid, held.n_threads, held.device) == (pid, n_threads, device);
    if !held.as_ref().is_some_and(is_asked_for) {
        let planner = Planner::on(device, n_threads).map_err(errors::of)?;
        // What was forked waits for threads that are not in this process.
        if let Some(old) = held.replace(Held { pid, n_threads, device, planner })
            && old.pid != pid
        {
            std::mem::forget(old);
        }
    }
    let planner = held.as_mut().map(|held| &mut held.planner);
    planner.ok_or_else(|| raise(errors::Kind::Internal, "no planner was made"))
}

/// A plan as the library takes it; errors name its number.
pub fn trajectory(i: usize, given: PlanIn) -> PyResult<JointTrajectory> {
    plan(&format!("plan {i}"), given).map(Arc::unwrap_or_clone)
}

/// What each of `plans` costs, as a dictionary of columns and what is known of the goal.
pub fn evaluate<'py>(
    py: Python<'py>,
    planner: &mut Planner,
    snapshot: &Snapshot,
    goal: &Goal,
    plans: Vec<PlanIn>,
    (n_steps, n_particles): (usize, usize),
) -> PyResult<Bound<'py, PyDict>> {
    let candidates = plans.into_iter().enumerate().map(|(i, given)| {
        let plan = trajectory(i, given)?;
        PyResult::Ok(Candidate { plan, n_steps })
    });
    let candidates = candidates.collect::<PyResult<Vec<_>>>()?;
    let (costs, judge, n_particles) = work::run(py, move |stop| {
        let (snapshot, judge) = snapshot.for_plans(&goal.inner, n_particles)?;
        let goes_on = || !stop.load(Ordering::Relaxed);
        let costs = planner.candidates().evaluate(&snapshot, &judge, &candidates, goes_on)?;
        // Of those that Ctrl-C left out nobody hears.
        let costs: Vec<PlanCost> =
            costs.into_iter().map(|cost| cost.unwrap_or(PlanCost::UNKNOWN)).collect();
        Ok((costs, judge, snapshot.n_particles()))
    })?
    .map_err(errors::of)?;
    let dict = PyDict::new(py);
    dict.set_item("columns", columns(py, &costs)?)?;
    dict.set_item("stamp_ns", snapshot.stamp().nanos())?;
    dict.set_item("n_particles", n_particles)?;
    dict.set_item("n_target", judge.target().len())?;
    dict.set_item("reach_now", judge.reach_now())?;
    dict.set_item("is_reached", judge.is_reached())?;
    Ok(dict)
}

/// What the planner finds.
pub fn find<'py>(
    py: Python<'py>,
    planner: &mut Planner,
    snapshot: &Snapshot,
    goal: &Goal,
    settings: &PlanSettings,
) -> PyResult<Bound<'py, PyDict>> {
    let planned: Planned = work::run(py, move |stop| {
        planner.plan(snapshot, &goal.inner, settings, |_| !stop.load(Ordering::Relaxed))
    })?
    .map_err(errors::of)?;
    let dict = PyDict::new(py);
    dict.set_item("success", planned.success)?;
    dict.set_item("message", planned.message)?;
    // It starts at the frame.
    let mut trajectory = planned.plan;
    trajectory.header.stamp = snapshot.stamp();
    dict.set_item("plan", plan_out(&trajectory))?;
    dict.set_item("costs", columns(py, &[planned.cost, planned.idle])?)?;
    dict.set_item("n_steps", planned.n_steps)?;
    dict.set_item("n_plans", planned.n_plans)?;
    dict.set_item("planning_secs", planned.elapsed.as_secs_f64())?;
    Ok(dict)
}

/// Settings of the planner, named as in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SettingsIn {
    budget: Option<f64>,
    max_plans: usize,
    steps: usize,
    joints: Vec<String>,
    tools: Vec<String>,
    seed: u64,
    particles: usize,
}

impl SettingsIn {
    pub fn into_settings(self) -> PyResult<PlanSettings> {
        let budget = self.budget.map(|secs| PlanSettings::budget_of(secs).map_err(errors::of));
        Ok(PlanSettings {
            budget: budget.transpose()?,
            max_plans: self.max_plans,
            n_steps: self.steps,
            joint_names: self.joints,
            tool_links: self.tools,
            seed: self.seed,
            n_particles: self.particles,
        })
    }
}

/// Costs as columns, named as the tool's `--json` names them.
fn columns<'py>(py: Python<'py>, costs: &[PlanCost]) -> PyResult<Bound<'py, PyDict>> {
    type Term = fn(&PlanCost) -> f64;
    let terms: [(&str, Term); 10] = [
        ("cost", |c| c.cost),
        ("cost_90", |c| c.cost_90),
        ("reach", |c| c.reach),
        ("keep_out", |c| c.keep_out),
        ("leave", |c| c.leave),
        ("clearance", |c| c.clearance),
        ("reach_sigma", |c| c.reach_sigma),
        ("success_probability", |c| c.success_probability),
        ("length", |c| c.length),
        ("smoothness", |c| c.smoothness),
    ];
    let dict = PyDict::new(py);
    for (name, term) in terms {
        dict.set_item(name, PyArray1::from_iter(py, costs.iter().map(term)))?;
    }
    Ok(dict)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Goal>()
}
