//! Predictions of frame after frame.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};

use forecloud::engine::backend::Device;
use forecloud::message::Stamp;
use forecloud::planner::candidates::Snapshot;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::objects::Object;
use forecloud::predict::predictor::{Prediction, Predictor as Inner};
use forecloud::robot::kinematics::MeshSearch;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ahead::Ahead;
use crate::errors::{self, Kind, raise};
use crate::frame::{Frame, PlanIn};
use crate::model::{Model, json};
use crate::plans::{self, Goal, Held, SettingsIn};
use crate::{arrays, work};

/// Predicts frame after frame.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Predictor {
    inner: Mutex<Inner>,
    planner: Mutex<Option<Held>>,
    step_secs: f64,
    pid: u32,
}

/// A prediction on its way to Python: all of it is copied while other threads of the interpreter run.
struct Told {
    stamp_ns: i64,
    history_stamp_ns: i64,
    held_against_ns: Option<i64>,
    seed: u64,
    is_cut: bool,
    support_m: Option<f32>,
    timings_ms: [f64; 2],
    positions: Vec<[f32; 3]>,
    colors: Vec<[f32; 3]>,
    sources: Vec<u32>,
    n_steps: usize,
    displacements: Vec<f32>,
    sigmas: [Vec<f32>; 2],
    situations: Vec<u8>,
    ahead: Ahead,
    object_of: Vec<u64>,
    kinds: Vec<u8>,
    objects_since_ns: i64,
    objects: Vec<Object>,
}

impl Told {
    fn new(prediction: &Prediction) -> Self {
        let flat = |level| prediction.told_sigmas(level).concat();
        let steps = &prediction.displacements;
        let n = prediction.particles.len();
        let mut displacements = Vec::with_capacity(steps.len() * 3 * n);
        steps.iter().for_each(|step| displacements.extend_from_slice(step.as_flattened()));
        Self {
            stamp_ns: prediction.stamp.nanos(),
            history_stamp_ns: prediction.history_stamp.nanos(),
            held_against_ns: prediction.held_against.map(Stamp::nanos),
            seed: prediction.seed,
            is_cut: prediction.is_cut,
            support_m: prediction.particles.support_m,
            timings_ms: [prediction.timings.particles_ms, prediction.timings.predict_ms],
            positions: prediction.particles.positions.clone(),
            colors: prediction.particles.colors.clone(),
            sources: prediction.particles.sources.clone(),
            n_steps: steps.len(),
            displacements,
            sigmas: [flat(0), flat(1)],
            situations: prediction.situations.iter().map(|&situation| situation as u8).collect(),
            ahead: Ahead::of(prediction),
            object_of: prediction.objects.number_of.clone(),
            kinds: prediction.objects.kinds.iter().map(|&kind| kind as u8).collect(),
            objects_since_ns: prediction.objects.since.nanos(),
            objects: prediction.objects(),
        }
    }

    fn into_dict(self, py: Python<'_>, step_secs: f64) -> PyResult<Bound<'_, PyDict>> {
        let (n, n_steps) = (self.positions.len(), self.n_steps);
        let dict = PyDict::new(py);
        dict.set_item("stamp_ns", self.stamp_ns)?;
        dict.set_item("history_stamp_ns", self.history_stamp_ns)?;
        dict.set_item("held_against_ns", self.held_against_ns)?;
        dict.set_item("step_secs", step_secs)?;
        dict.set_item("seed", self.seed)?;
        dict.set_item("is_cut", self.is_cut)?;
        dict.set_item("support_m", self.support_m)?;
        dict.set_item("timings_ms", self.timings_ms)?;
        dict.set_item("positions", arrays::rows(py, &self.positions)?)?;
        dict.set_item("colors", arrays::rows(py, &self.colors)?)?;
        dict.set_item("sources", PyArray1::from_vec(py, self.sources))?;
        let displacements = PyArray1::from_vec(py, self.displacements);
        dict.set_item("displacements", displacements.reshape([n_steps, n, 3])?)?;
        for (name, sigmas) in ["sigma", "sigma_90"].into_iter().zip(self.sigmas) {
            let is_told = n > 0 && sigmas.len() == n_steps * n;
            let sigmas = is_told.then(|| PyArray1::from_vec(py, sigmas).reshape([n_steps, n]));
            dict.set_item(name, sigmas.transpose()?)?;
        }
        dict.set_item("situations", PyArray1::from_vec(py, self.situations))?;
        dict.set_item("_ahead", Py::new(py, self.ahead)?)?;
        dict.set_item("object_of", PyArray1::from_vec(py, self.object_of))?;
        dict.set_item("kinds", PyArray1::from_vec(py, self.kinds))?;
        dict.set_item("objects_since_ns", self.objects_since_ns)?;
        let objects = self.objects.iter().map(|object| object_dict(py, object));
        dict.set_item("_objects", objects.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }
}

/// An object as keyword arguments of `forecloud.Object`.
fn object_dict<'py>(py: Python<'py>, object: &Object) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", object.followed.number)?;
    dict.set_item("kind", object.kind.name())?;
    dict.set_item("n_particles", object.n_particles)?;
    dict.set_item("since_ns", object.followed.since.nanos())?;
    dict.set_item("last_seen_ns", object.last_seen.nanos())?;
    dict.set_item("size", PyArray1::from_slice(py, &object.size))?;
    let mut poses = Vec::with_capacity(7 * object.path.len());
    for at in &object.path {
        poses.extend_from_slice(at.pose.translation.vector.as_slice());
        poses.extend_from_slice(at.pose.rotation.coords.as_slice());
    }
    let n = object.path.len();
    dict.set_item("poses", PyArray1::from_vec(py, poses).reshape([n, 7])?)?;
    let variances: Vec<f64> = object.path.iter().flat_map(|at| at.variances).flatten().collect();
    let is_told = variances.len() == 6 * n;
    let variances = is_told.then(|| PyArray1::from_vec(py, variances).reshape([n, 6]));
    dict.set_item("variances", variances.transpose()?)?;
    Ok(dict)
}

#[pymethods]
impl Predictor {
    #[new]
    fn new(py: Python<'_>, model: &Model, settings: &str) -> PyResult<Self> {
        let config = config(settings)?;
        let model = model.inner.clone();
        let step_secs = model.config.step_secs;
        let inner = work::run(py, |_| Inner::new(model, config))?.map_err(errors::of)?;
        let (inner, planner) = (Mutex::new(inner), Mutex::new(None));
        Ok(Self { inner, planner, step_secs, pid: std::process::id() })
    }

    /// All settings, as JSON.
    #[getter]
    fn config(&self) -> PyResult<String> {
        json(self.lock()?.config())
    }

    /// What it runs on, in words.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.lock()?.backend().describe())
    }

    fn set_robot(
        &self,
        py: Python<'_>,
        urdf: &str,
        world_frame: &str,
        mesh_folders: Vec<PathBuf>,
        beside: Option<PathBuf>,
    ) -> PyResult<Vec<String>> {
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        let warnings = work::run(py, move |_| {
            let meshes = MeshSearch::new(&mesh_folders);
            inner.set_meshes(beside.map_or(meshes.clone(), |bag| meshes.beside(&bag)));
            inner.set_robot(urdf, world_frame).map(<[String]>::to_vec)
        })?;
        warnings.map_err(errors::of)
    }

    fn set_config(&self, py: Python<'_>, settings: &str) -> PyResult<()> {
        let config = config(settings)?;
        let mut inner = self.lock()?;
        let inner = &mut *inner;
        work::run(py, move |_| inner.set_config(config))?.map_err(errors::of)
    }

    fn forget(&self) -> PyResult<usize> {
        Ok(self.lock()?.forget())
    }

    /// The prediction as a dictionary; none without history.
    fn step<'py>(&self, py: Python<'py>, frame: &Frame) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut inner = self.lock()?;
        let (inner, frame) = (&mut *inner, &*frame.inner);
        let told = work::run(py, move |_| inner.step(frame).map(|told| told.map(Told::new)))?;
        let told = told.map_err(errors::of)?;
        told.map(|told| told.into_dict(py, self.step_secs)).transpose()
    }

    /// What plans would cost from the newest frame on.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        goal: &Goal,
        plans: Vec<PlanIn>,
        n_steps: usize,
        n_particles: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (snapshot, device) = self.start()?;
        let mut held = free(&self.planner)?;
        let planner = plans::planner(&mut held, device)?;
        plans::evaluate(py, planner, &snapshot, goal, plans, (n_steps, n_particles))
    }

    /// A plan that reaches a goal from the newest frame on.
    fn plan<'py>(
        &self,
        py: Python<'py>,
        goal: &Goal,
        settings: SettingsIn,
    ) -> PyResult<Bound<'py, PyDict>> {
        let settings = settings.into_settings()?;
        let (snapshot, device) = self.start()?;
        let mut held = free(&self.planner)?;
        plans::find(py, plans::planner(&mut held, device)?, &snapshot, goal, &settings)
    }

    /// The prediction from the newest frame on, if the robot follows a plan.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        plan: PlanIn,
        n_steps: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let plan = plans::trajectory(0, plan)?;
        let (snapshot, device) = self.start()?;
        let mut held = free(&self.planner)?;
        let candidates = plans::planner(&mut held, device)?.candidates();
        let told = work::run(py, move |_| {
            candidates.predict(&snapshot, plan, n_steps).map(|told| Told::new(&told))
        })?;
        told.map_err(errors::of)?.into_dict(py, self.step_secs)
    }

    fn keep(&self, frame: &Frame) -> PyResult<()> {
        self.lock()?.keep(frame.inner.as_ref().clone());
        Ok(())
    }
}

impl Predictor {
    fn lock(&self) -> PyResult<MutexGuard<'_, Inner>> {
        let inner = free(&self.inner)?;
        if self.pid != std::process::id() && inner.backend().name() != Device::Cpu.to_string() {
            return Err(raise(
                Kind::Fork,
                "a GPU does not follow into a forked process: make the predictor after the fork, take \
                 multiprocessing's 'spawn', or device='cpu'",
            ));
        }
        Ok(inner)
    }

    /// What plans start from, and what they are rolled out on.
    fn start(&self) -> PyResult<(Snapshot, Device)> {
        let inner = self.lock()?;
        Ok((inner.snapshot().map_err(errors::of)?, inner.config().device))
    }
}

/// What no other thread is at work with.
fn free<T>(mutex: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(inner) => Ok(inner),
        Err(TryLockError::WouldBlock) => Err(raise(
            Kind::State,
            "this predictor is at work in another thread: give each thread its own (they may share a \
             model)",
        )),
        Err(TryLockError::Poisoned(inner)) => Ok(inner.into_inner()),
    }
}

/// Settings from JSON; what is not there is as by default.
fn config(settings: &str) -> PyResult<PredictorConfig> {
    serde_json::from_str(settings)
        .map_err(|error| raise(Kind::Config, format!("settings of the predictor: {error}")))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Predictor>()
}
