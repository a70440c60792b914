//! A share of a training on several machines, for `forecloud/_cluster_train.py`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forecloud_cli::TrainWorker as Worker;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Kind, of, raise};

/// One process of a run of `forecloud train`: it has all recordings, and takes every step. Texts are JSON,
/// gradients floats of 4 bytes, little-endian.
#[pyclass(module = "forecloud._native")]
struct TrainWorker(Mutex<Worker>);

impl TrainWorker {
    fn held(&self) -> MutexGuard<'_, Worker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TrainWorker {
    /// Reads the recordings as `forecloud train ARGUMENTS` does.
    #[new]
    fn new(py: Python<'_>, arguments: Vec<String>) -> PyResult<Self> {
        let worker = py.detach(|| Worker::open(&arguments)).map_err(describe)?;
        Ok(Self(Mutex::new(worker)))
    }

    /// What the run is.
    fn describe(&self, py: Python<'_>) -> String {
        py.detach(|| self.held().describe())
    }

    /// Computes windows `start` to `end` of the next step; what each gave.
    fn compute(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<String> {
        py.detach(|| self.held().compute(start..end)).map_err(describe)
    }

    /// The sum of gradients `total`, or of none, with those computed last.
    fn add<'p>(&self, py: Python<'p>, total: Option<&[u8]>) -> PyResult<Bound<'p, PyBytes>> {
        let sum = py.detach(|| self.held().add(total)).map_err(describe)?;
        Ok(PyBytes::new(py, &sum))
    }

    /// Ends the step with the sum of all gradients and what all windows gave; what the step came to.
    fn apply(&self, py: Python<'_>, total: &[u8], losses: &str) -> PyResult<String> {
        py.detach(|| self.held().apply(total, losses)).map_err(describe)
    }

    /// A hash of the state.
    fn fingerprint(&self, py: Python<'_>) -> String {
        py.detach(|| self.held().fingerprint())
    }

    /// Steps taken.
    fn step(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.held().step())
    }

    /// A line of the log.
    fn validate(&self, py: Python<'_>, report: &str) -> PyResult<String> {
        py.detach(|| self.held().validate(report)).map_err(describe)
    }

    /// Writes model and checkpoint.
    fn save(&self, py: Python<'_>, model: PathBuf, checkpoint: PathBuf) -> PyResult<()> {
        py.detach(|| self.held().save(&model, &checkpoint)).map_err(describe)
    }

    /// Goes on from a checkpoint.
    fn resume(&self, py: Python<'_>, checkpoint: PathBuf) -> PyResult<()> {
        py.detach(|| self.held().resume(&checkpoint)).map_err(describe)
    }
}

/// The exception of what the tool would say.
fn describe(error: forecloud_cli::Failure) -> PyErr {
    match error.downcast::<forecloud::Error>() {
        Ok(error) => of(error),
        Err(error) => raise(Kind::Config, format!("{error:#}")),
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TrainWorker>()
}
