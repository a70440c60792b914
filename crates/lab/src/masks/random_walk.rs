//! Graph diffusion by the random walk's Laplacian: M = exp(-λ L D⁻¹), L = D - A of the graph taken both
//! ways (masked attention, section 4): a column is where a walker from j, who leaves at random times, is
//! after the time λ, so columns sum to one. L D⁻¹ = D^½ (I - S) D^-½, so M is the symmetric diffusion
//! ([`super::diffusion`]) between two scalings, and wrong by at most its bound times √(d_max / d_min).

use super::diffusion::Diffusion;
use super::{BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward};
use forecloud::Result;
use forecloud::base::scratch::with_scratch;

/// The symmetric diffusion, and √d of each node (1 of nodes without edges).
#[derive(Debug, Clone, Default)]
pub(super) struct RandomWalk {
    symmetric: Diffusion,
    roots: Vec<f32>,
}

impl RandomWalk {
    /// to = D^½ x, or D^-½ x.
    fn scale(&self, inverse: bool, x: &[f32], to: &mut [f32]) {
        let width = (x.len() / self.roots.len().max(1)).max(1);
        let rows = x.chunks_exact(width).zip(to.chunks_exact_mut(width));
        for ((x, to), &root) in rows.zip(&self.roots) {
            let scale = if inverse { 1.0 / root } else { root };
            to.iter_mut().zip(x).for_each(|(to, x)| *to = scale * x);
        }
    }

    fn product(&self, params: &[f32], transposed: bool, x: &[f32], y: &mut [f32]) {
        with_scratch(x.len(), |scaled| {
            self.scale(!transposed, x, scaled);
            self.symmetric.apply(params, scaled, y);
            scaled.copy_from_slice(y);
            self.scale(transposed, scaled, y);
        });
    }
}

impl StepMask for RandomWalk {
    fn n_params(n_hops: usize) -> usize {
        Diffusion::n_params(n_hops)
    }

    fn reads() -> Reads {
        Reads::GRAPH
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.symmetric.rebuild(nodes)?;
        self.roots.clear();
        self.roots.resize(nodes.graph.len(), 0.0);
        for i in 0..nodes.graph.len() {
            for (&j, &w) in nodes.graph.neighbors(i).iter().zip(nodes.graph.weights(i)) {
                self.roots[i] += 0.5 * w;
                self.roots[j as usize] += 0.5 * w;
            }
        }
        let root = |d: f32| if d > 0.0 { d.sqrt() } else { 1.0 };
        self.roots.iter_mut().for_each(|d| *d = root(*d));
        Ok(())
    }
}

impl Mask for RandomWalk {
    fn n_nodes(&self) -> usize {
        self.roots.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, false, x, y);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(params, true, x, y);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        with_scratch(2 * x.len(), |scratch| {
            let (of_x, of_dy) = scratch.split_at_mut(x.len());
            self.scale(true, x, of_x);
            self.scale(false, dy, of_dy);
            let scaled = BackwardColumns { x: of_x, dy: of_dy, y: &mut *y, dx: &mut *dx };
            self.symmetric.backward(params, scaled, d_params);
            of_x.copy_from_slice(y);
            of_dy.copy_from_slice(dx);
            self.scale(false, of_x, y);
            self.scale(true, of_dy, dx);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_mask, dense_graph, identity, matmul, softplus64};
    use super::*;

    #[test]
    fn the_random_walks_diffusion_is_the_dense_one() {
        assert_mask::<RandomWalk>(|nodes, params| {
            let (n, w) = (nodes.positions.len(), dense_graph(nodes.graph));
            let a = |i: usize, j: usize| (w[i * n + j] + w[j * n + i]) / 2.0;
            let degree = |j: usize| (0..n).map(|i| a(i, j)).sum::<f64>();
            let entry = |at: usize| match (at / n, at % n) {
                (_, j) if degree(j) == 0.0 => 0.0,
                (i, j) => f64::from(u8::from(i == j)) - a(i, j) / degree(j),
            };
            let generator: Vec<f64> = (0..n * n).map(entry).collect();
            let lambda = softplus64(params[0]) / std::f64::consts::LN_2;
            let (mut heat, mut term) = (identity(n), identity(n));
            for t in 1..80 {
                let next = matmul(&term, &generator, n);
                term = next.iter().map(|x| -lambda * x / f64::from(t)).collect();
                heat.iter_mut().zip(&term).for_each(|(h, t)| *h += t);
            }
            heat
        });
    }
}
