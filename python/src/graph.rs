//! Graphs, walks on them, graph random features, and masks.

use std::sync::atomic::{AtomicBool, Ordering};

use forecloud::engine::graph::loads::Loads;
use forecloud::engine::graph::walks::{WalkConfig, WalkSampler, WalkSeed};
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use forecloud_lab::masks::{Mask as Dyn, MaskKind, Nodes};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;

use crate::arrays::{self, input};
use crate::errors::{self, Kind, raise};
use crate::work;

type Floats<'py> = PyReadonlyArrayDyn<'py, f32>;
type Counts<'py> = PyReadonlyArrayDyn<'py, u32>;

/// Visits that one call returns at most.
const MAX_VISITS: usize = 1 << 28;
/// Nodes and neighbours of a node at most.
const MAX_EDGES: usize = 1 << 28;

/// A directed graph with weighted edges; never changes.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Graph {
    inner: WeightedGraph,
}

/// Merged walks of all nodes: starts of rows, nodes, loads.
type Rows<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pymethods]
impl Graph {
    /// Of edges.
    #[staticmethod]
    fn of_edges(
        py: Python<'_>,
        n: usize,
        from: Counts<'_>,
        to: Counts<'_>,
        weights: Floats<'_>,
        is_directed: bool,
    ) -> PyResult<Self> {
        let from = arrays::slice("from", &from, [-1])?;
        let shape = [from.len() as isize];
        let (to, weights) =
            (arrays::slice("to", &to, shape)?, arrays::slice("weights", &weights, shape)?);
        if n > MAX_EDGES || from.len() > MAX_EDGES {
            return Err(input(format!("a graph has at most {MAX_EDGES} nodes and edges")));
        }
        let ends = from.iter().zip(to).zip(weights);
        let edges: Vec<(u32, u32, f32)> = ends.map(|((&i, &j), &w)| (i, j, w)).collect();
        let inner = work::run(py, |_| WeightedGraph::from_edges(n, &edges, is_directed))?;
        Ok(Self { inner: inner.map_err(errors::of)? })
    }

    /// Of the k nearest neighbours of points.
    #[staticmethod]
    fn of_points(
        py: Python<'_>,
        positions: Floats<'_>,
        k: usize,
        bandwidth_m: Option<f32>,
    ) -> PyResult<Self> {
        let positions = arrays::points("positions", &positions)?;
        let weights = bandwidth_m
            .map_or(EdgeWeights::Uniform, |bandwidth_m| EdgeWeights::Distance { bandwidth_m });
        weights.validate().map_err(errors::of)?;
        if k == 0 || positions.len().saturating_mul(k) > MAX_EDGES {
            let n = positions.len();
            return Err(input(format!(
                "k: {k} neighbours of {n} points; at least 1, and {MAX_EDGES} edges at most"
            )));
        }
        let inner = work::run(py, |_| {
            let mut knn = KnnGraph::default();
            knn.rebuild(&positions, k)?;
            let mut graph = WeightedGraph::default();
            graph.rebuild(&knn, &positions, weights);
            Ok(graph)
        })?;
        Ok(Self { inner: inner.map_err(errors::of)? })
    }

    /// Of the pixels of a depth image.
    #[staticmethod]
    fn of_depth(py: Python<'_>, depth: Floats<'_>, max_step_m: f32) -> PyResult<Self> {
        let pixels = arrays::slice("depth", &depth, [-1, -1])?;
        let width = numpy::PyUntypedArrayMethods::shape(&*depth)[1];
        let inner = work::run(py, |_| WeightedGraph::of_depth(pixels, width, max_step_m))?;
        Ok(Self { inner: inner.map_err(errors::of)? })
    }

    /// Normalised by the degrees.
    fn normalized(&self, scale: f32) -> PyResult<Self> {
        if !scale.is_finite() {
            return Err(input(format!("scale: {scale} is not finite")));
        }
        Ok(Self { inner: self.inner.clone().normalized(scale) })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// Starts of rows `[n + 1]`, neighbours and weights.
    fn rows<'py>(&self, py: Python<'py>) -> Rows<'py> {
        let (mut starts, mut neighbors, mut weights) = (vec![0u64], Vec::new(), Vec::new());
        for i in 0..self.inner.len() {
            neighbors.extend_from_slice(self.inner.neighbors(i));
            weights.extend_from_slice(self.inner.weights(i));
            starts.push(neighbors.len() as u64);
        }
        let array = |starts| PyArray1::from_vec(py, starts).into_any();
        let neighbors = PyArray1::from_vec(py, neighbors).into_any();
        (array(starts), neighbors, PyArray1::from_vec(py, weights).into_any())
    }

    /// Every visit of sampled walks: root, node, hop, load.
    fn walks<'py>(
        &self,
        py: Python<'py>,
        settings: &str,
        seed: (u64, i64),
    ) -> PyResult<[Bound<'py, PyAny>; 4]> {
        let config = walk_config(settings)?;
        let most = config.n_walks.saturating_mul(config.halting.max_hops().saturating_add(1));
        if most.saturating_mul(self.inner.len()) > MAX_VISITS {
            return Err(input(format!(
                "walks: more than {MAX_VISITS} visits; take fewer walks, hops or nodes"
            )));
        }
        let (seed, graph) = (walk_seed(seed), &self.inner);
        let (mut roots, mut nodes) = (Vec::<u32>::new(), Vec::<u32>::new());
        let (mut hops, mut loads) = (Vec::<u32>::new(), Vec::<f64>::new());
        work::run(py, |stop| {
            let mut sampler = WalkSampler::default();
            for root in until(stop, graph.len()) {
                sampler.sample(graph, root, &config, seed, |node, hop, load| {
                    roots.push(root as u32);
                    nodes.push(node);
                    hops.push(hop as u32);
                    loads.push(load);
                });
            }
        })?;
        let counts = |counts| PyArray1::from_vec(py, counts).into_any();
        let loads = PyArray1::from_vec(py, loads).into_any();
        Ok([counts(roots), counts(nodes), counts(hops), loads])
    }

    /// Loads of graph random features: of all walks of `n_hops`, or of sampled ones.
    fn loads<'py>(
        &self,
        py: Python<'py>,
        n_hops: usize,
        settings: Option<&str>,
        seed: (u64, i64),
    ) -> PyResult<Rows<'py>> {
        let config = settings.map(walk_config).transpose()?;
        let graph = &self.inner;
        let loads = work::run(py, |_| {
            let mut loads = Loads::default();
            match &config {
                Some(config) => loads.rebuild_sampled(graph, config, walk_seed(seed))?,
                None => loads.rebuild(graph, n_hops)?,
            }
            Ok(loads)
        })?;
        let loads = loads.map_err(errors::of)?;
        let (mut starts, mut nodes, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for i in 0..loads.len() {
            let row = loads.row(i);
            nodes.extend_from_slice(row.nodes);
            values.extend_from_slice(row.loads);
            starts.push(nodes.len() as u64);
        }
        let shape = [nodes.len(), loads.n_hops() + 1];
        let starts = PyArray1::from_vec(py, starts).into_any();
        let nodes = PyArray1::from_vec(py, nodes).into_any();
        Ok((starts, nodes, PyArray1::from_vec(py, values).reshape(shape)?.into_any()))
    }
}

/// A matrix over the nodes of a graph, known by its products.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Mask {
    inner: Box<dyn Dyn>,
    n_params: usize,
}

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
        if positions.len() != graph.inner.len() {
            let (n, got) = (graph.inner.len(), positions.len());
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
        let seed = walk_seed(seed);
        let (graph, positions) = (&graph.inner, &positions[..]);
        let nodes = Nodes { positions, graph, n_hops, walks, cell_m, seed };
        let inner = work::run(py, |_| kind.over(&nodes))?.map_err(errors::of)?;
        Ok(Self { inner, n_params: kind.n_params(n_hops) })
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
        let (x, params) = (
            arrays::slice("x", &x, [n as isize, -1])?,
            arrays::slice("params", &params, [self.n_params as isize])?,
        );
        if !params.iter().all(|param| param.is_finite()) {
            return Err(input("params: not finite".into()));
        }
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

/// Names of the masks and what each is.
#[pyfunction]
fn masks() -> Vec<(&'static str, &'static str)> {
    MaskKind::all().into_iter().map(|kind| (kind.name(), kind.about())).collect()
}

/// Numbers below `n`, until a signal comes.
fn until(stop: &AtomicBool, n: usize) -> impl Iterator<Item = usize> {
    (0..n).take_while(|_| !stop.load(Ordering::Relaxed))
}

fn walk_config(settings: &str) -> PyResult<WalkConfig> {
    let config: WalkConfig = serde_json::from_str(settings)
        .map_err(|error| raise(Kind::Config, format!("walks: {error}")))?;
    config.validate().map_err(errors::of)?;
    Ok(config)
}

fn walk_seed((seed, stamp_ns): (u64, i64)) -> WalkSeed {
    WalkSeed { seed, stamp_ns }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Graph>()?;
    module.add_class::<Mask>()?;
    module.add_function(wrap_pyfunction!(masks, module)?)
}
