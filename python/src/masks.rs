//! Masks: those by name over graphs, and those of grids, times, trees and scenes.

use std::sync::Arc;

use forecloud::engine::graph::WeightedGraph;
use forecloud_lab::masks::{
    Causal, Factorised, GridHeat, LowRank, Mask as Dyn, MaskKind, Nodes, Packed, Part,
    StochasticPositions, Toeplitz, Tree,
};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{self, input};
use crate::errors;
use crate::graph::{Counts, Floats, Graph, walk_config, walk_seed};
use crate::work;

/// Nodes of a mask that is made of others, at most.
const MAX_NODES: usize = 1 << 31;

/// A matrix over nodes, known by its products.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Mask {
    pub inner: Arc<dyn Dyn>,
    pub n_params: usize,
}

/// A part of packed scenes: its mask, or a number of nodes and whether they hear each other.
type Piece = (Option<Py<Mask>>, usize, bool);

#[pymethods]
impl Mask {
    #[new]
    #[pyo3(signature = (name, graph, positions, n_hops, walks, cell_m, seed))]
    fn new(
        py: Python<'_>,
        name: &str,
        graph: &Graph,
        positions: Floats<'_>,
        n_hops: usize,
        walks: Option<&str>,
        cell_m: f32,
        seed: (u64, i64),
    ) -> PyResult<Self> {
        let Some(kind) = MaskKind::from_name(name) else {
            let names: Vec<&str> = MaskKind::all().iter().map(|kind| kind.name()).collect();
            return Err(input(format!("mask '{name}': there are {}", names.join(", "))));
        };
        let positions = arrays::points("positions", &positions)?;
        let graph: &WeightedGraph = &graph.inner;
        if positions.len() != graph.len() {
            let (n, got) = (graph.len(), positions.len());
            return Err(input(format!("positions: expected {n} rows, one a node, got {got}")));
        }
        if n_hops > 64 || !(cell_m > 0.0 && cell_m.is_finite()) {
            return Err(input(format!(
                "n_hops: {n_hops} is not in 0..=64, or cell_m: {cell_m} m is not above 0"
            )));
        }
        let walks = walks.map(walk_config).transpose()?;
        if let Some(walks) = &walks {
            walks.validate().map_err(errors::of)?;
        }
        let (seed, positions) = (walk_seed(seed), &positions[..]);
        let nodes = Nodes { positions, graph, n_hops, walks, cell_m, seed };
        let inner = work::run(py, |_| kind.over(&nodes))?.map_err(errors::of)?;
        Ok(Self { inner: inner.into(), n_params: kind.n_params(n_hops) })
    }

    /// Over a grid, a number for each offset.
    #[staticmethod]
    fn toeplitz(py: Python<'_>, shape: Vec<usize>, reach: Vec<usize>) -> PyResult<Self> {
        let mask = work::run(py, |_| Toeplitz::new(&shape, &reach))?;
        let mask = mask.map_err(|error| input(format!("shape, reach: {error}")))?;
        Ok(Self { n_params: mask.n_params(), inner: Arc::new(mask) })
    }

    /// Heat on a grid.
    #[staticmethod]
    fn grid_heat(shape: Vec<usize>) -> PyResult<Self> {
        let mask = GridHeat::new(&shape).map_err(|error| input(format!("shape: {error}")))?;
        Ok(Self { inner: Arc::new(mask), n_params: 1 })
    }

    /// Who is not later.
    #[staticmethod]
    fn causal(py: Python<'_>, times: Floats<'_>) -> PyResult<Self> {
        let times = arrays::finite("times", &times, [-1])?;
        let mask = work::run(py, |_| Causal::new(times))?;
        Ok(Self { inner: Arc::new(mask), n_params: 0 })
    }

    /// Along a forest, a number for each distance.
    #[staticmethod]
    fn tree(
        py: Python<'_>,
        n: usize,
        from: Counts<'_>,
        to: Counts<'_>,
        n_distances: usize,
    ) -> PyResult<Self> {
        let from = arrays::slice("sources", &from, [-1])?;
        let to = arrays::slice("targets", &to, [from.len() as isize])?;
        const MOST: usize = 1 << 24;
        if n > MOST || n_distances > MOST {
            return Err(input(format!(
                "n, n_distances: {n} nodes and {n_distances} distances; at most {MOST} of each"
            )));
        }
        let edges: Vec<(u32, u32)> = from.iter().copied().zip(to.iter().copied()).collect();
        let mask = work::run(py, |_| Tree::new(n, &edges, n_distances))?;
        let mask = mask.map_err(|error| input(format!("sources, targets: {error}")))?;
        Ok(Self { n_params: mask.n_params(), inner: Arc::new(mask) })
    }

    /// Of two factors.
    #[staticmethod]
    fn low_rank(left: Floats<'_>, right: Floats<'_>) -> PyResult<Self> {
        let of_left = arrays::slice("left", &left, [-1, -1])?;
        let (n, rank) = (left.shape()[0], left.shape()[1]);
        let of_right = arrays::slice("right", &right, [n as isize, rank as isize])?;
        let mask = LowRank::new(n, of_left.to_vec(), of_right.to_vec());
        let mask = mask.map_err(|error| input(format!("left, right: {error}")))?;
        Ok(Self { inner: Arc::new(mask), n_params: 0 })
    }

    /// Of random features of waves.
    #[staticmethod]
    fn stochastic_positions(
        positions: Floats<'_>,
        frequencies: Floats<'_>,
        n_draws: usize,
        seed: u64,
    ) -> PyResult<Self> {
        let of_positions = arrays::finite("positions", &positions, [-1, -1])?;
        let n_axes = positions.shape()[1];
        let of_waves = arrays::finite("frequencies", &frequencies, [-1, n_axes as isize])?;
        let mask = StochasticPositions::new(of_positions, of_waves, n_axes, n_draws, seed);
        let mask =
            mask.map_err(|error| input(format!("positions, frequencies, n_draws: {error}")))?;
        Ok(Self { n_params: mask.n_params(), inner: Arc::new(mask) })
    }

    /// Scenes one after the other.
    #[staticmethod]
    fn packed(parts: Vec<Piece>) -> PyResult<Self> {
        let (mut n_params, mut n_nodes) = (None, 0usize);
        let mut packed = Vec::with_capacity(parts.len());
        for (at, (mask, n, is_open)) in parts.into_iter().enumerate() {
            n_nodes = n_nodes.saturating_add(mask.as_ref().map_or(n, |m| m.get().inner.n_nodes()));
            if n_nodes > MAX_NODES {
                return Err(input(format!("parts: more than {MAX_NODES} nodes up to part {at}")));
            }
            let Some(mask) = mask else {
                packed.push(if is_open { Part::Open(n) } else { Part::Padding(n) });
                continue;
            };
            let mask = mask.get();
            let others = *n_params.get_or_insert(mask.n_params);
            if others != mask.n_params {
                return Err(input(format!(
                    "parts: part {at} has {} parameters, those before it {others}; all share them",
                    mask.n_params
                )));
            }
            packed.push(Part::Scene(Box::new(Arc::clone(&mask.inner))));
        }
        Ok(Self { inner: Arc::new(Packed(packed)), n_params: n_params.unwrap_or(0) })
    }

    /// The Kronecker product of two.
    #[staticmethod]
    fn product(outer: &Mask, inner: &Mask) -> PyResult<Self> {
        let n_nodes = outer.inner.n_nodes().saturating_mul(inner.inner.n_nodes());
        if n_nodes > MAX_NODES {
            return Err(input(format!("outer, inner: {n_nodes} nodes; at most {MAX_NODES}")));
        }
        let (n_outer_params, n_params) = (outer.n_params, outer.n_params + inner.n_params);
        let (outer, inner) = (Arc::clone(&outer.inner), Arc::clone(&inner.inner));
        Ok(Self { inner: Arc::new(Factorised { outer, inner, n_outer_params }), n_params })
    }

    #[getter]
    fn n_params(&self) -> usize {
        self.n_params
    }

    fn __len__(&self) -> usize {
        self.inner.n_nodes()
    }

    /// M x, or Mᵀ x.
    fn apply<'py>(
        &self,
        py: Python<'py>,
        x: Floats<'py>,
        params: Floats<'py>,
        is_transposed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let n = self.inner.n_nodes();
        let x = arrays::slice("x", &x, [n as isize, -1])?;
        let params = self.checked(&params)?;
        let y = work::run(py, |_| {
            let mut y = vec![0.0; x.len()];
            match is_transposed {
                true => self.inner.apply_transposed(params, x, &mut y),
                false => self.inner.apply(params, x, &mut y),
            }
            y
        })?;
        let width = x.len().checked_div(n).unwrap_or(0);
        Ok(PyArray1::from_vec(py, y).reshape([n, width])?.into_any())
    }
}

impl Mask {
    /// Its parameters, as many as it has.
    pub fn checked<'a>(&self, params: &'a Floats<'_>) -> PyResult<&'a [f32]> {
        let params = arrays::slice("params", params, [self.n_params as isize])?;
        if !params.iter().all(|param| param.is_finite()) {
            return Err(input("params: not finite".into()));
        }
        Ok(params)
    }
}

/// Names of the masks and what each is.
#[pyfunction]
fn masks() -> Vec<(&'static str, &'static str)> {
    MaskKind::all().into_iter().map(|kind| (kind.name(), kind.about())).collect()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mask>()?;
    module.add_function(wrap_pyfunction!(masks, module)?)
}
