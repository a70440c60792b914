//! The smoothing S = D^-½ A D^-½ of a step's graph, taken both ways, A = (W + Wᵀ)/2, and series of it in
//! Chebyshev polynomials: what functions of the normalised Laplacian L = I - S are made of. Nodes without
//! edges keep to themselves.

use super::Nodes;
use super::products::{add_dot, add_scaled, product};
use forecloud::Result;
use forecloud::base::scratch::with_scratch;
use forecloud::engine::graph::WeightedGraph;

/// Largest error of a series, relative to the columns' length, before rounding.
pub(super) const TOLERANCE: f64 = 1e-6;
/// Most terms of a series.
pub(super) const MAX_TERMS: usize = 96;

/// S of the step's graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Smoothing {
    graph: WeightedGraph,
    edges: Vec<(u32, u32, f32)>,
}

impl Smoothing {
    /// Makes S of `nodes`, in memory that it has.
    pub fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        let n = nodes.graph.len();
        self.edges.clear();
        for i in 0..n {
            let edges = nodes.graph.neighbors(i).iter().zip(nodes.graph.weights(i));
            self.edges.extend(edges.map(|(&j, &w)| (i as u32, j, 0.5 * w)));
        }
        let both = WeightedGraph::from_edges(n, &self.edges, false)?;
        self.graph = both.normalized(1.0);
        Ok(())
    }

    /// Makes S = I - (D - A) / d of `nodes`, d the largest degree of A, or only A / d; gives d. Its eigenvalues,
    /// too, lie in [-1, 1], and d (I - S) is D - A, or dI - A.
    pub fn rebuild_plain(&mut self, nodes: &Nodes<'_>, with_degrees: bool) -> Result<f64> {
        let n = nodes.graph.len();
        let mut degrees = vec![0.0f64; n];
        self.edges.clear();
        for i in 0..n {
            for (&j, &w) in nodes.graph.neighbors(i).iter().zip(nodes.graph.weights(i)) {
                self.edges.extend([(i as u32, j, 0.5 * w), (j, i as u32, 0.5 * w)]);
                degrees[i] += 0.5 * f64::from(w);
                degrees[j as usize] += 0.5 * f64::from(w);
            }
        }
        let largest = degrees.iter().copied().fold(0.0, f64::max);
        let scale = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        self.edges.iter_mut().for_each(|edge| edge.2 = (f64::from(edge.2) * scale) as f32);
        // A loop at each node, if only of 0: none is one that keeps to itself.
        let own = |degree: f64| if with_degrees { (1.0 - degree * scale) as f32 } else { 0.0 };
        self.edges.extend((0u32..).zip(&degrees).map(|(i, &degree)| (i, i, own(degree))));
        self.graph = WeightedGraph::from_edges(n, &self.edges, true)?;
        Ok(largest)
    }

    pub fn len(&self) -> usize {
        self.graph.len()
    }

    /// y = Σ_t c_t T_t(S) x of coefficients that sum to one. S has its eigenvalues in [-1, 1], so where
    /// all are positive, what is left out is wrong by at most what it sums to, in the 2-norm.
    pub fn expand(&self, coefficients: &[f64], x: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        with_scratch(3 * x.len(), |scratch| {
            let (mut before, rest) = scratch.split_at_mut(x.len());
            let (mut here, mut next) = rest.split_at_mut(x.len());
            here.copy_from_slice(x);
            for (t, &c) in coefficients.iter().enumerate() {
                if t > 0 {
                    // T_1 = S, T_(t+1) = 2 S T_t - T_(t-1).
                    product(&self.graph, here, next);
                    if t > 1 {
                        next.iter_mut().zip(&*before).for_each(|(n, b)| *n = 2.0 * *n - b);
                    }
                    (before, here, next) = (here, next, before);
                }
                add_scaled(y, c as f32, here);
            }
        });
        // Nodes without edges: S has a row of zeros there, L is to have one.
        let width = x.len() / self.len().max(1);
        for i in (0..self.len()).filter(|&i| self.graph.neighbors(i).is_empty()) {
            y[i * width..][..width].copy_from_slice(&x[i * width..][..width]);
        }
    }

    /// a·L b of columns.
    pub fn laplacian_between(&self, a: &[f32], b: &[f32]) -> f64 {
        let width = b.len() / self.len().max(1);
        let mut sum = 0.0;
        with_scratch(b.len(), |smooth| {
            product(&self.graph, b, smooth);
            for i in (0..self.len()).filter(|&i| !self.graph.neighbors(i).is_empty()) {
                let at = i * width..(i + 1) * width;
                let mut smoothed = 0.0;
                add_dot(&b[at.clone()], &a[at.clone()], &mut sum);
                add_dot(&smooth[at.clone()], &a[at], &mut smoothed);
                sum -= smoothed;
            }
        });
        sum
    }
}
