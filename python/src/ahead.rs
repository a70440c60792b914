//! What a prediction tells of contacts and of what the scene will occupy.

use forecloud::predict::contacts::ContactSettings;
use forecloud::predict::occupied::OccupiedSettings;
use forecloud::predict::predictor::Prediction;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::{arrays, work};

/// A prediction that is kept, to ask it.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Ahead {
    prediction: Prediction,
}

impl Ahead {
    /// A copy of `prediction`.
    pub fn of(prediction: &Prediction) -> Self {
        Self { prediction: prediction.clone() }
    }
}

/// Link, object, time (s), distance (m), place and probability.
type ContactOut = (String, Option<u64>, f32, f32, [f32; 3], f32);

#[pymethods]
impl Ahead {
    /// Whether there is a robot, how far is looked ahead (s), and the contacts.
    fn contacts(
        &self,
        py: Python<'_>,
        touch_m: f32,
        min_probability: f32,
    ) -> PyResult<(bool, f32, Vec<ContactOut>)> {
        let settings = ContactSettings { touch_m, min_probability };
        settings.validate().map_err(errors::of)?;
        let told = work::run(py, |_| self.prediction.contacts(&settings))?;
        let contacts = told
            .contacts
            .into_iter()
            .map(|c| (c.link, c.object, c.time_secs, c.min_distance_m, c.place, c.probability));
        Ok((told.has_robot, told.horizon_secs, contacts.collect()))
    }

    /// Points `[n, 3]`, times and sigmas `[n]` of what is occupied until a time (s).
    fn occupied<'py>(
        &self,
        py: Python<'py>,
        until_secs: f64,
        voxel_m: f32,
        padding_m: f32,
    ) -> PyResult<Bound<'py, PyDict>> {
        let settings = OccupiedSettings { voxel_m, padding_m };
        let points = work::run(py, |_| self.prediction.occupied(until_secs, &settings))?;
        let points = points.map_err(errors::of)?;
        let positions: Vec<[f32; 3]> = points.iter().map(|p| p.position).collect();
        let dict = PyDict::new(py);
        dict.set_item("positions", arrays::rows(py, &positions)?)?;
        dict.set_item("times", PyArray1::from_iter(py, points.iter().map(|p| p.time_secs)))?;
        dict.set_item("sigma", PyArray1::from_iter(py, points.iter().map(|p| p.sigma_m)))?;
        Ok(dict)
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Ahead>()
}
