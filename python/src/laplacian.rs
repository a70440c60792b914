//! Solvers of a graph's Laplacian.

use forecloud_lab::solver::{self, Laplacian as Inner, PositionalConfig};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{self, input};
use crate::errors;
use crate::graph::{Counts, Floats, Graph};
use crate::work;

/// Layers, iterations and columns of a call at most: more than any graph needs.
const MAX_LAYERS: usize = 1 << 20;
/// Numbers of columns at most (1 GiB).
const MAX_NUMBERS: usize = 1 << 28;

/// L = D - W of a graph taken both ways.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Laplacian {
    inner: Inner,
}

impl Laplacian {
    /// Columns of the nodes and how many they are, for so many layers.
    fn columns<'a>(
        &self,
        what: &str,
        x: &'a Floats<'_>,
        n_layers: usize,
    ) -> PyResult<(&'a [f32], usize)> {
        let columns = arrays::finite(what, x, [self.inner.len() as isize, -1])?;
        if n_layers > MAX_LAYERS {
            return Err(input(format!("n_layers: {n_layers} is not in 0..={MAX_LAYERS}")));
        }
        Ok((columns, x.shape()[1]))
    }

    fn array<'py>(
        &self,
        py: Python<'py>,
        x: Vec<f32>,
        width: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyArray1::from_vec(py, x).reshape([self.inner.len(), width])?.into_any())
    }

    /// A matrix `[n, n]`, which is symmetric.
    fn matrix<'py>(&self, py: Python<'py>, matrix: &[f64]) -> PyResult<Bound<'py, PyAny>> {
        let n = self.inner.len();
        Ok(PyArray1::from_slice(py, matrix).reshape([n, n])?.into_any())
    }
}

#[pymethods]
impl Laplacian {
    #[new]
    fn new(py: Python<'_>, graph: &Graph) -> PyResult<Self> {
        let inner = work::run(py, |_| Inner::new(&graph.inner))?.map_err(errors::of)?;
        Ok(Self { inner })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    #[getter]
    fn n_components(&self) -> usize {
        self.inner.n_components()
    }

    #[getter]
    fn lambda_bound(&self) -> f32 {
        self.inner.lambda_bound()
    }

    #[getter]
    fn step(&self) -> f32 {
        self.inner.step()
    }

    /// L x.
    fn apply<'py>(&self, py: Python<'py>, x: Floats<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (x, width) = self.columns("x", &x, 0)?;
        let y = work::run(py, |_| {
            let mut y = vec![0.0; x.len()];
            self.inner.apply(x, &mut y);
            y
        })?;
        self.array(py, y, width)
    }

    /// Without the mean on each component.
    fn center<'py>(&self, py: Python<'py>, x: Floats<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (x, width) = self.columns("x", &x, 0)?;
        let mut x = x.to_vec();
        self.inner.center(&mut x);
        self.array(py, x, width)
    }

    /// Lemma 1.
    fn electric_flow<'py>(
        &self,
        py: Python<'py>,
        demands: Floats<'py>,
        n_layers: usize,
        delta: f32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (demands, width) = self.columns("demands", &demands, n_layers)?;
        let of = &self.inner;
        let flow = work::run(py, |_| solver::electric_flow(of, demands, n_layers, delta))?;
        self.array(py, flow.map_err(errors::of)?, width)
    }

    /// Lemma 2.
    fn resistive_embedding<'py>(
        &self,
        py: Python<'py>,
        demands: Floats<'py>,
        n_layers: usize,
        delta: f32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (demands, width) = self.columns("demands", &demands, n_layers)?;
        let of = &self.inner;
        let rows = work::run(py, |_| solver::resistive_embedding(of, demands, n_layers, delta))?;
        self.array(py, rows.map_err(errors::of)?, width)
    }

    /// Lemma 3.
    fn heat_kernel<'py>(
        &self,
        py: Python<'py>,
        demands: Floats<'py>,
        s: f32,
        n_layers: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        /// Of s times the largest degree, which is below s λ_max: by then no digit of the series is right.
        const MOST: f32 = 16.0;
        let (demands, width) = self.columns("demands", &demands, n_layers)?;
        let reach = s * self.inner.largest_degree();
        if !(s >= 0.0 && reach <= MOST) {
            let most = MOST / self.inner.largest_degree();
            return Err(input(format!(
                "s: {s} is not in 0..={most}, where the series has digits that are right; take \
                 fast_heat_kernel, or several times a shorter s"
            )));
        }
        let of = &self.inner;
        let heat = work::run(py, |_| solver::heat_kernel(of, demands, s, n_layers))?;
        self.array(py, heat.map_err(errors::of)?, width)
    }

    /// Lemma 4.
    fn fast_electric_flow<'py>(
        &self,
        py: Python<'py>,
        n_layers: usize,
        delta: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of = &self.inner;
        let inverse = work::run(py, |_| solver::fast_electric_flow(of, n_layers, delta))?;
        self.matrix(py, inverse.map_err(errors::of)?.as_slice())
    }

    /// Lemma 5.
    fn fast_heat_kernel<'py>(
        &self,
        py: Python<'py>,
        s: f64,
        n_layers: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of = &self.inner;
        let heat = work::run(py, |_| solver::fast_heat_kernel(of, s, n_layers))?;
        self.matrix(py, heat.map_err(errors::of)?.as_slice())
    }

    /// All effective resistances.
    fn effective_resistance<'py>(
        &self,
        py: Python<'py>,
        n_layers: usize,
        delta: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let of = &self.inner;
        let all = work::run(py, |_| solver::effective_resistance(of, n_layers, delta))?;
        self.matrix(py, all.map_err(errors::of)?.as_slice())
    }

    /// Those of pairs.
    fn effective_resistance_between<'py>(
        &self,
        py: Python<'py>,
        from: Counts<'py>,
        to: Counts<'py>,
        n_layers: usize,
        delta: f32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let from = arrays::slice("sources", &from, [-1])?;
        let to = arrays::slice("targets", &to, [from.len() as isize])?;
        if from.len().saturating_mul(self.inner.len()) > MAX_NUMBERS || n_layers > MAX_LAYERS {
            return Err(input(format!(
                "sources, n_layers: {} pairs of {} nodes, {n_layers} layers; at most {MAX_NUMBERS} pairs \
                 times nodes, and {MAX_LAYERS} layers",
                from.len(),
                self.inner.len()
            )));
        }
        let pairs: Vec<(u32, u32)> = from.iter().copied().zip(to.iter().copied()).collect();
        let of = &self.inner;
        let some =
            work::run(py, |_| solver::effective_resistance_between(of, &pairs, n_layers, delta))?;
        Ok(PyArray1::from_vec(py, some.map_err(errors::of)?).into_any())
    }

    /// Lemma 6, or Corollary 7.
    fn eigenvectors<'py>(
        &self,
        py: Python<'py>,
        start: Floats<'py>,
        n_iterations: usize,
        is_top: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (start, width) = self.columns("start", &start, n_iterations)?;
        let of = &self.inner;
        let found = work::run(py, |_| match is_top {
            true => solver::top_eigenvectors(of, start, n_iterations),
            false => solver::bottom_eigenvectors(of, start, n_iterations, of.lambda_bound()),
        })?;
        self.array(py, found.map_err(errors::of)?, width)
    }

    /// Features of the nodes.
    fn positional_encoding<'py>(
        &self,
        py: Python<'py>,
        n_demands: usize,
        scales: Vec<f32>,
        n_layers: usize,
        n_eigenvectors: usize,
        n_iterations: usize,
        seed: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let width = n_demands.saturating_mul(scales.len()).saturating_add(n_eigenvectors);
        if width.saturating_mul(self.inner.len()) > MAX_NUMBERS
            || width > MAX_LAYERS
            || n_layers.max(n_iterations) > MAX_LAYERS
        {
            return Err(input(format!(
                "n_demands, scales, n_eigenvectors: {width} features of {} nodes; at most {MAX_NUMBERS} \
                 numbers, and {MAX_LAYERS} layers and iterations",
                self.inner.len()
            )));
        }
        if let Some(scale) = scales.iter().find(|scale| !(0.0..=5.0).contains(*scale)) {
            return Err(input(format!("scales: {scale} is not in 0..=5")));
        }
        let config =
            PositionalConfig { n_demands, scales, n_layers, n_eigenvectors, n_iterations, seed };
        let of = &self.inner;
        let features = work::run(py, |_| solver::positional_encoding(of, &config))?;
        self.array(py, features.map_err(errors::of)?, width)
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Laplacian>()
}
