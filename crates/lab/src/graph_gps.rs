//! A layer of GraphGPS with k-MIP attention, as the paper of k-MIP attention has it (figure 1; Rampášek et al.
//! 2022): GatedGCN with edge features beside global attention, their sum through an MLP. Forward only: models of
//! dynamics have k-MIP attention and message passing one after the other, as layers that learn; this is what the
//! paper's theorems speak of, and what they are tested on.

use rayon::prelude::*;

use super::ops::k_mip_attention::{BLOCK, k_mip_attention_forward};
use forecloud::base::random::{draw, normal_pair};
use forecloud::base::simd::dot;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::{Error, Result};

/// A matrix `[out, in]` by rows.
#[derive(Debug, Clone)]
struct Matrix {
    rows: Vec<f32>,
    n_in: usize,
}

impl Matrix {
    /// Normal numbers of variance 1 / `n_in`.
    fn seeded(n_out: usize, n_in: usize, seed: u64, stream: u64) -> Self {
        let scale = 1.0 / (n_in.max(1) as f32).sqrt();
        let entry = |at| scale * normal_pair(draw(seed, 0, at as u64, stream))[0];
        Self { rows: (0..n_out * n_in).map(entry).collect(), n_in }
    }

    /// Of each row of `x` `[n, in]`, `[n, out]`.
    fn of(&self, x: &[f32]) -> Vec<f32> {
        let rows = || self.rows.chunks_exact(self.n_in);
        x.par_chunks_exact(self.n_in)
            .flat_map_iter(|x| rows().map(move |row| dot(row, x)))
            .collect()
    }
}

/// Weights of a layer; nodes and edges have `width` features.
#[derive(Debug, Clone)]
pub struct GraphGps {
    heads: Heads,
    top_k: usize,
    /// A, B, D and E of GatedGCN, on nodes.
    of_nodes: [Matrix; 4],
    /// C, on edges.
    of_edges: Matrix,
    /// q, k and v together, and what follows attention.
    qkv: Matrix,
    out: Matrix,
    mlp: [Matrix; 2],
}

impl GraphGps {
    /// A layer of seeded random weights; `n_heads` divides `width`.
    ///
    /// # Errors
    /// [`Error::Config`] unless it does, and for a `top_k` of 0.
    pub fn seeded(width: usize, n_heads: usize, top_k: usize, seed: u64) -> Result<Self> {
        if n_heads == 0 || width == 0 || !width.is_multiple_of(n_heads) || top_k == 0 {
            let problem = format!(
                "{n_heads} heads, which must divide the width {width}, and {top_k} keys, at least 1"
            );
            return Err(Error::Config { key: "n_heads, top_k".into(), problem });
        }
        let matrix = |stream, n_out, n_in| Matrix::seeded(n_out, n_in, seed, stream);
        Ok(Self {
            heads: Heads::new(width, n_heads),
            top_k,
            of_nodes: [0, 1, 2, 3].map(|stream| matrix(stream, width, width)),
            of_edges: matrix(4, width, width),
            qkv: matrix(5, 3 * width, width),
            out: matrix(6, width, width),
            mlp: [matrix(7, 2 * width, width), matrix(8, width, 2 * width)],
        })
    }

    /// New features of nodes `x` `[n, width]` and edges `e` `[edges, width]`, which are in the order of the
    /// graph's rows; edge (i, j) is what i hears of j. Weights of edges are not read.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are features of as many nodes and edges.
    pub fn forward(&self, graph: &WeightedGraph, x: &[f32], e: &[f32]) -> Result<[Vec<f32>; 2]> {
        let (n, d) = (graph.len(), self.heads.width);
        let n_edges: usize = (0..n).map(|i| graph.neighbors(i).len()).sum();
        for (what, expected, got) in
            [("features of nodes", n * d, x.len()), ("features of edges", n_edges * d, e.len())]
        {
            if expected != got {
                return Err(Error::Shape { what, expected, got });
            }
        }
        let (local, edges) = self.gated_gcn(graph, x, e);
        let global = self.attention(x);
        // The parallel sum of figure 1, each branch with its residual.
        let mut sum: Vec<f32> =
            local.iter().zip(&global).zip(x).map(|((l, g), x)| (x + l) + (x + g)).collect();
        normalize(&mut sum, d);
        let [first, second] = &self.mlp;
        let mut inside = first.of(&sum);
        relu(&mut inside);
        let mut nodes = second.of(&inside);
        nodes.iter_mut().zip(&sum).for_each(|(y, x)| *y += x);
        normalize(&mut nodes, d);
        Ok([nodes, edges])
    }

    /// GatedGCN (Bresson and Laurent 2017): ê_ij = C e_ij + D x_i + E x_j, x̂_i = A x_i + Σ_j η_ij B x_j,
    /// η_ij = σ(ê_ij) / Σ_j' σ(ê_ij'). Nodes without their residual, edges with theirs.
    fn gated_gcn(&self, graph: &WeightedGraph, x: &[f32], e: &[f32]) -> (Vec<f32>, Vec<f32>) {
        const EPSILON: f32 = 1e-6;
        let d = self.heads.width;
        let [own, of_others, to, from] = self.of_nodes.each_ref().map(|matrix| matrix.of(x));
        let (mut nodes, mut gates) = (own, self.of_edges.of(e));
        let mut rows = gates.chunks_exact_mut(d);
        let (mut sums, mut totals) = (vec![0.0; d], vec![0.0; d]);
        for (i, node) in nodes.chunks_exact_mut(d).enumerate() {
            sums.fill(0.0);
            totals.fill(EPSILON);
            for (&j, gate) in graph.neighbors(i).iter().zip(&mut rows) {
                let j = j as usize * d;
                for c in 0..d {
                    gate[c] += to[i * d + c] + from[j + c];
                    let open = 1.0 / (1.0 + (-gate[c]).exp());
                    sums[c] += open * of_others[j + c];
                    totals[c] += open;
                }
            }
            (0..d).for_each(|c| node[c] += sums[c] / totals[c]);
        }
        for rows in [&mut nodes, &mut gates] {
            normalize(rows, d);
            relu(rows);
        }
        gates.iter_mut().zip(e).for_each(|(gate, e)| *gate += e);
        (nodes, gates)
    }

    /// k-MIP attention among all nodes; to all of them where there are fewer than `top_k`.
    fn attention(&self, x: &[f32]) -> Vec<f32> {
        let (d, n_heads) = (self.heads.width, self.heads.n_heads);
        let (n, qkv) = (x.len() / d, self.qkv.of(x));
        let top_k = self.top_k.min(n);
        let mut out = vec![0.0; n * d];
        out.par_chunks_mut(BLOCK * d).enumerate().for_each(|(block, out)| {
            let rows = block * BLOCK..((block + 1) * BLOCK).min(n);
            let mut log_sums = vec![0.0; rows.len() * n_heads];
            let mut chosen = vec![0; rows.len() * n_heads * top_k];
            k_mip_attention_forward(rows, &qkv, self.heads, out, &mut log_sums, &mut chosen);
        });
        self.out.of(&out)
    }
}

fn relu(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = x.max(0.0));
}

/// Layer normalisation of each row, without weights.
fn normalize(x: &mut [f32], width: usize) {
    for row in x.chunks_exact_mut(width) {
        let mean = row.iter().sum::<f32>() / width as f32;
        row.iter_mut().for_each(|x| *x -= mean);
        let scale = 1.0 / (dot(row, row) / width as f32 + 1e-5).sqrt();
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

#[cfg(test)]
mod tests;
