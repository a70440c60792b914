//! Graph attention (Veličković et al. 2018): a node hears its neighbours and itself, by the softmax of scores
//! LeakyReLU(a·h_i + b·h_j), head by head.

use forecloud::base::simd::dot;
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::ops::linear_attention::Heads;

const LEAK: f32 = 0.2;

/// Numbers that score: a and b of each head, side by side.
pub fn n_params(heads: Heads) -> usize {
    2 * heads.width
}

/// What a forward pass leaves: of each edge and head its weight, and whether its score leaked.
pub struct Attended {
    weights: Vec<(f32, f32)>,
    /// `[n, width]`.
    pub out: Vec<f32>,
}

/// Attention among `h` `[n, width]` along the graph's edges, which have loops.
pub fn forward(graph: &WeightedGraph, heads: Heads, params: &[f32], h: &[f32]) -> Attended {
    let (d, dh) = (heads.width, heads.head_width());
    let (a, b) = params.split_at(d);
    let (mut weights, mut out) = (Vec::new(), vec![0.0; h.len()]);
    for (i, out) in out.chunks_exact_mut(d).enumerate() {
        for head in (0..d).step_by(dh) {
            let part = |of: &[f32], j: usize| dot(&of[head..head + dh], &h[j * d + head..][..dh]);
            let own = part(a, i);
            let first = weights.len();
            for &j in graph.neighbors(i) {
                let score = own + part(b, j as usize);
                let slope = if score > 0.0 { 1.0 } else { LEAK };
                weights.push((slope * score, slope));
            }
            let heard = &mut weights[first..];
            let highest = heard.iter().fold(f32::MIN, |highest, of| highest.max(of.0));
            heard.iter_mut().for_each(|of| of.0 = (of.0 - highest).exp());
            let total: f32 = heard.iter().map(|of| of.0).sum();
            for (of, &j) in heard.iter_mut().zip(graph.neighbors(i)) {
                of.0 /= total;
                let value = &h[j as usize * d + head..][..dh];
                out[head..head + dh].iter_mut().zip(value).for_each(|(o, v)| *o += of.0 * v);
            }
        }
    }
    Attended { weights, out }
}

/// Gradient of `h` from that of the outputs; adds those of the numbers that score.
pub fn backward(
    graph: &WeightedGraph,
    heads: Heads,
    (params, h): (&[f32], &[f32]),
    attended: &Attended,
    d_out: &[f32],
    d_params: &mut [f32],
) -> Vec<f32> {
    let (d, dh) = (heads.width, heads.head_width());
    let ((a, b), (d_a, d_b)) = (params.split_at(d), d_params.split_at_mut(d));
    let (mut d_h, mut weights) = (vec![0.0; h.len()], attended.weights.as_slice());
    for i in 0..graph.len() {
        let neighbors = graph.neighbors(i);
        for head in (0..d).step_by(dh) {
            let (heard, rest) = weights.split_at(neighbors.len());
            weights = rest;
            let at = |j: usize| j * d + head..j * d + head + dh;
            let of_weight = |j: u32| dot(&d_out[at(i)], &h[at(j as usize)]);
            let mean: f32 = heard.iter().zip(neighbors).map(|(of, &j)| of.0 * of_weight(j)).sum();
            for (&(weight, slope), &j) in heard.iter().zip(neighbors) {
                let d_score = slope * weight * (of_weight(j) - mean);
                let j = j as usize;
                for c in 0..dh {
                    d_a[head + c] += d_score * h[i * d + head + c];
                    d_b[head + c] += d_score * h[j * d + head + c];
                    d_h[i * d + head + c] += d_score * a[head + c];
                    d_h[j * d + head + c] +=
                        d_score * b[head + c] + weight * d_out[i * d + head + c];
                }
            }
        }
    }
    d_h
}
