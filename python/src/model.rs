//! Models.

use std::path::PathBuf;
use std::sync::Arc;

use forecloud::engine::model::Model as Loaded;
use pyo3::prelude::*;

use crate::errors::{self, Kind, raise};
use crate::work;

/// A model, loaded once and shared by predictors.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Model {
    pub inner: Arc<Loaded>,
}

#[pymethods]
impl Model {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let model = work::run(py, |_| Loaded::load(&path))?.map_err(errors::of)?;
        Ok(Self { inner: Arc::new(model) })
    }

    /// Hash of its file.
    #[getter]
    fn hash(&self) -> &str {
        &self.inner.hash
    }

    /// Its settings, as JSON.
    #[getter]
    fn config(&self) -> PyResult<String> {
        json(&self.inner.config)
    }
}

/// As JSON.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| raise(Kind::Internal, error.to_string()))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Model>()
}
