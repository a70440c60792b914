//! Graphs, walks on them, graph random features, and masks.

use std::sync::atomic::{AtomicBool, Ordering};

use forecloud::engine::graph::loads::Loads;
use forecloud::engine::graph::walks::{WalkConfig, WalkSampler, WalkSeed};
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;

use crate::arrays::{self, input};
use crate::errors::{self, Kind, raise};
use crate::work;

pub type Floats<'py> = PyReadonlyArrayDyn<'py, f32>;
pub type Counts<'py> = PyReadonlyArrayDyn<'py, u32>;

/// Visits that one call returns at most.
const MAX_VISITS: usize = 1 << 28;
/// Nodes and neighbours of a node at most.
const MAX_EDGES: usize = 1 << 28;

/// A directed graph with weighted edges; never changes.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Graph {
    pub inner: WeightedGraph,
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

/// Numbers below `n`, until a signal comes.
fn until(stop: &AtomicBool, n: usize) -> impl Iterator<Item = usize> {
    (0..n).take_while(|_| !stop.load(Ordering::Relaxed))
}

pub fn walk_config(settings: &str) -> PyResult<WalkConfig> {
    let config: WalkConfig = serde_json::from_str(settings)
        .map_err(|error| raise(Kind::Config, format!("walks: {error}")))?;
    config.validate().map_err(errors::of)?;
    Ok(config)
}

pub fn walk_seed((seed, stamp_ns): (u64, i64)) -> WalkSeed {
    WalkSeed { seed, stamp_ns }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Graph>()
}
