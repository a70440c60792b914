//! The Laplacian of an undirected graph, by its products with columns.

use nalgebra::DMatrix;

use forecloud::base::simd::{axpy, vectorized};
use forecloud::engine::graph::WeightedGraph;
use forecloud::{Error, Result};

/// L = D - W `[n, n]` of a weighted undirected graph; weights are conductances (1 / resistance).
#[derive(Debug, Clone, Default)]
pub struct Laplacian {
    graph: WeightedGraph,
    degrees: Vec<f32>,
    /// Connected component of each node, from 0.
    components: Vec<u32>,
    component_sizes: Vec<u32>,
}

impl Laplacian {
    /// Laplacian of (W + Wᵀ) / 2; loops have no part in it.
    ///
    /// # Errors
    /// [`Error::Config`] for negative weights, [`Error::NonFinite`] for others that are no numbers.
    pub fn new(graph: &WeightedGraph) -> Result<Self> {
        let mut edges = Vec::new();
        for i in 0..graph.len() {
            for (&j, &weight) in graph.neighbors(i).iter().zip(graph.weights(i)) {
                if weight < 0.0 {
                    let problem = format!("the weight {weight} of an edge is negative");
                    return Err(Error::Config { key: "graph".into(), problem });
                }
                if j as usize != i && weight != 0.0 {
                    edges.push((i as u32, j, 0.5 * weight));
                }
            }
        }
        let graph = WeightedGraph::from_edges(graph.len(), &edges, false)?;
        let degrees = (0..graph.len()).map(|i| graph.weights(i).iter().sum()).collect();
        let (components, component_sizes) = components(&graph);
        Ok(Self { graph, degrees, components, component_sizes })
    }

    /// Number of nodes n.
    pub fn len(&self) -> usize {
        self.graph.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.graph.is_empty()
    }

    /// Number of connected components: the dimension of L's null space.
    pub fn n_components(&self) -> usize {
        self.component_sizes.len()
    }

    /// Whether there is a way from `i` to `j`.
    pub fn are_joined(&self, i: usize, j: usize) -> bool {
        self.components[i] == self.components[j]
    }

    /// Edges, the lower node first, with their weights.
    pub fn edges(&self) -> Vec<(u32, u32, f32)> {
        let of = |i: usize| {
            let edges = self.graph.neighbors(i).iter().zip(self.graph.weights(i));
            edges.filter(move |edge| *edge.0 as usize > i).map(move |(&j, &w)| (i as u32, j, w))
        };
        (0..self.len()).flat_map(of).collect()
    }

    /// y = L x of columns `[n, width]`.
    pub fn apply(&self, x: &[f32], y: &mut [f32]) {
        product(&self.graph, &self.degrees, x, y);
    }

    /// Largest weighted degree: λ_max is above it, and at most twice it.
    pub fn largest_degree(&self) -> f32 {
        self.degrees.iter().copied().fold(0.0, f32::max)
    }

    /// 2 · the largest degree, at least λ_max (Gershgorin); rounded up, since f32 sums may be short.
    pub fn lambda_bound(&self) -> f32 {
        2.0 * self.largest_degree() * (1.0 + 1e-5)
    }

    /// Step δ = 1 / [`Self::lambda_bound`], safe in Lemmas 1, 2 and 4; 1 for graphs without edges.
    pub fn step(&self) -> f32 {
        let bound = self.lambda_bound();
        if bound > 0.0 { 1.0 / bound } else { 1.0 }
    }

    /// Checks that a step δ is above 0 and at most 1 / the largest degree, which is below λ_max: with larger
    /// ones the lemmas' assumption is broken, and descent may diverge (up to it, it never does).
    pub(super) fn check_step(&self, delta: f32) -> Result<()> {
        let largest = self.largest_degree();
        if delta > 0.0 && delta.is_finite() && delta * largest <= 1.0 + 1e-5 {
            return Ok(());
        }
        let problem = format!(
            "{delta} is not above 0 and at most {}, 1 / the largest degree; {} is safe",
            1.0 / largest,
            self.step()
        );
        Err(Error::Config { key: "delta".into(), problem })
    }

    /// Takes each column's mean on each component from it: the projection Î onto the span of L.
    pub fn center(&self, x: &mut [f32]) {
        let width = x.len() / self.len().max(1);
        let mut means = vec![0.0f64; width * self.n_components()];
        for (x, &c) in x.chunks_exact(width.max(1)).zip(&self.components) {
            let share = 1.0 / f64::from(self.component_sizes[c as usize]);
            let means = &mut means[c as usize * width..][..width];
            means.iter_mut().zip(x).for_each(|(mean, &x)| *mean += share * f64::from(x));
        }
        for (x, &c) in x.chunks_exact_mut(width.max(1)).zip(&self.components) {
            let means = &means[c as usize * width..][..width];
            x.iter_mut().zip(means).for_each(|(x, &mean)| *x -= mean as f32);
        }
    }

    /// L in f64, `[n, n]`.
    pub fn dense(&self) -> DMatrix<f64> {
        let mut dense = DMatrix::zeros(self.len(), self.len());
        for i in 0..self.len() {
            for (&j, &w) in self.graph.neighbors(i).iter().zip(self.graph.weights(i)) {
                dense[(i, j as usize)] -= f64::from(w);
                dense[(i, i)] += f64::from(w);
            }
        }
        dense
    }

    /// The projection Î in f64, `[n, n]`.
    pub fn dense_projection(&self) -> DMatrix<f64> {
        DMatrix::from_fn(self.len(), self.len(), |i, j| {
            let same = self.components[i] == self.components[j];
            let mean = 1.0 / f64::from(self.component_sizes[self.components[i] as usize]);
            f64::from(u8::from(i == j)) - if same { mean } else { 0.0 }
        })
    }

    /// Checks that `columns` are `[n, width]`.
    pub(super) fn check(&self, columns: &[f32]) -> Result<()> {
        let (n, got) = (self.len(), columns.len());
        let expected = got.checked_div(n).unwrap_or(0) * n;
        let what = "columns on the graph's nodes";
        if expected == got { Ok(()) } else { Err(Error::Shape { what, expected, got }) }
    }
}

/// Component of each node, and nodes of each component.
fn components(graph: &WeightedGraph) -> (Vec<u32>, Vec<u32>) {
    let (mut of, mut sizes) = (vec![u32::MAX; graph.len()], Vec::new());
    let mut open = Vec::new();
    for first in 0..graph.len() {
        if of[first] != u32::MAX {
            continue;
        }
        let (component, mut size) = (sizes.len() as u32, 0);
        of[first] = component;
        open.push(first);
        while let Some(i) = open.pop() {
            size += 1;
            for &j in graph.neighbors(i) {
                if of[j as usize] == u32::MAX {
                    of[j as usize] = component;
                    open.push(j as usize);
                }
            }
        }
        sizes.push(size);
    }
    (of, sizes)
}

vectorized! {
/// y = (D - W) x.
fn product(graph: &'a WeightedGraph, degrees: &'a [f32], x: &'a [f32], y: &'a mut [f32]) {
    let width = x.len() / graph.len().max(1);
    for (i, y) in y.chunks_exact_mut(width.max(1)).enumerate() {
        y.fill(0.0);
        axpy(y, degrees[i], &x[i * width..][..width]);
        for (&j, &w) in graph.neighbors(i).iter().zip(graph.weights(i)) {
            axpy(y, -w, &x[j as usize * width..][..width]);
        }
    }
}
}
