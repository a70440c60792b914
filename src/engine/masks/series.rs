//! Power series of the graph: M = Σ_t f_t W^t, f_t = softplus(θ_t), t up to the model's hops (exact
//! M_α of GRF masking, section 3.2). The mask of the GRF attention with all walks, by products with
//! the graph alone: no row of it is ever made.

use super::products::{add_dot, add_scaled, product, product_transposed};
use super::{
    BackwardColumns, Mask, Nodes, Reads, StepMask, gradients_by_backward, sigmoid, softplus,
};
use crate::Result;
use crate::base::scratch::with_scratch;
use crate::engine::graph::WeightedGraph;

/// The graph of the step, and how far its walks go.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    graph: WeightedGraph,
}

impl Series {
    /// y = Σ_t f_t Pᵗ x by Horner's scheme, P what `product` multiplies by.
    fn horner(&self, params: &[f32], x: &[f32], y: &mut [f32], product: Product) {
        y.fill(0.0);
        with_scratch(x.len(), |next| {
            for (step, &theta) in params.iter().rev().enumerate() {
                if step > 0 {
                    product(&self.graph, y, next);
                    y.copy_from_slice(next);
                }
                add_scaled(y, softplus(theta), x);
            }
        });
    }
}

type Product = fn(&WeightedGraph, &[f32], &mut [f32]);

impl StepMask for Series {
    fn n_params(n_hops: usize) -> usize {
        n_hops + 1
    }

    fn reads() -> Reads {
        Reads::GRAPH
    }

    fn rebuild(&mut self, nodes: &Nodes<'_>) -> Result<()> {
        self.graph.clone_from(nodes.graph);
        Ok(())
    }
}

impl Mask for Series {
    fn n_nodes(&self) -> usize {
        self.graph.len()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.horner(params, x, y, product);
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.horner(params, x, y, product_transposed);
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        gradients_by_backward(self, params, [x, dy], d_params);
    }

    /// ∂f_t: dy·W^t x.
    fn backward(&self, params: &[f32], columns: BackwardColumns<'_>, d_params: &mut [f64]) {
        let BackwardColumns { x, dy, y, dx } = columns;
        self.apply_transposed(params, dy, dx);
        y.fill(0.0);
        with_scratch(2 * x.len(), |scratch| {
            let (power, next) = scratch.split_at_mut(x.len());
            power.copy_from_slice(x);
            for (t, (&theta, d)) in params.iter().zip(d_params).enumerate() {
                if t > 0 {
                    product(&self.graph, power, next);
                    power.copy_from_slice(next);
                }
                add_scaled(y, softplus(theta), power);
                let mut sum = 0.0;
                add_dot(power, dy, &mut sum);
                *d += sum * sigmoid(theta);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::masks::check::{assert_mask, dense_graph, identity, matmul, softplus64};

    #[test]
    fn the_series_is_the_dense_one() {
        assert_mask::<Series>(|nodes, params| {
            let (n, w) = (nodes.positions.len(), dense_graph(nodes.graph));
            let (mut mask, mut power) = (vec![0.0; n * n], identity(n));
            for &theta in params {
                mask.iter_mut().zip(&power).for_each(|(m, p)| *m += softplus64(theta) * p);
                power = matmul(&power, &w, n);
            }
            mask
        });
    }
}
