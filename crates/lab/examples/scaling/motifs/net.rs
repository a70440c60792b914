//! Nets of two layers over a graph's nodes, their mean, and one number: forward and backward by hand.

use super::data::{Example, N_FEATURES, WALK_HOPS};
use super::gat::{self, Attended};
use clap::ValueEnum;
use forecloud::base::random::{draw, normal_pair};
use forecloud::engine::graph::WeightedGraph;
use forecloud::engine::ops::linear::{Mat, matmul};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud_lab::masks::Mask;
use forecloud_lab::masks::{Packed, Part};
use forecloud_lab::ops::grf_kernel_attention::{
    GrfKernel, GrfKernelSaved, Similarity, grf_kernel_attention_backward,
    grf_kernel_attention_forward,
};
use forecloud_lab::ops::masked_attention::{
    MaskedSaved, masked_attention_backward, masked_attention_forward, n_stretches,
};
use forecloud_lab::ops::softmax_attention as softmax;
use serde::Serialize;
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Attention under the random walk graph-nodes kernel: two heads of nine.
    Gkat,
    /// The same, walks drawn anew in each epoch (dynamic GKAT).
    GkatDynamic,
    /// The same attention without a mask.
    Unmasked,
    /// Graph convolution (Kipf and Welling 2017), width 32.
    Gcn,
    /// Spectral convolution (Defferrard et al. 2016), two Chebyshev polynomials, width 32.
    Sgc,
    /// Attention among neighbours (Veličković et al. 2018): two heads of nine.
    Gat,
    /// Linear attention under graph random features, an f for each head: two heads of nine.
    Grf,
    /// Softmax attention under the same features.
    GrfSoftmax,
    /// The same with f of any sign.
    GrfSigned,
    /// Softmax attention without a mask.
    Softmax,
}

impl Kind {
    /// Of attention under graph random features.
    fn similarity(self) -> Option<Similarity> {
        match self {
            Self::Grf => Some(Similarity::Linear),
            Self::GrfSoftmax | Self::GrfSigned => Some(Similarity::Softmax),
            _ => None,
        }
    }

    /// Whether queries and keys pass through the feature map.
    fn is_mapped(self) -> bool {
        matches!(self, Self::Gkat | Self::GkatDynamic | Self::Unmasked | Self::Grf)
    }

    /// f of a weight, and its derivative: both kinds begin alike.
    fn hop_weight(self, theta: f32) -> [f32; 2] {
        match self {
            Self::GrfSigned => [std::f32::consts::LN_2 + theta, 1.0],
            _ => [theta.exp().ln_1p(), 1.0 / (1.0 + (-theta).exp())],
        }
    }
}

/// y = x·W + b, weights from `at` on.
#[derive(Clone, Copy)]
struct Dense {
    at: usize,
    n_in: usize,
    n_out: usize,
}

impl Dense {
    fn end(self) -> usize {
        self.at + (self.n_in + 1) * self.n_out
    }

    fn bias(self) -> usize {
        self.end() - self.n_out
    }

    fn forward(self, weights: &[f32], x: &[f32]) -> Vec<f32> {
        let bias = &weights[self.bias()..self.end()];
        let mut y: Vec<f32> = bias.repeat(x.len() / self.n_in);
        let matrix = Mat::new(&weights[self.at..self.bias()], self.n_out);
        matmul(&mut y, self.n_out, Mat::new(x, self.n_in), matrix, true);
        y
    }

    /// Gradient of x; adds those of the weights.
    fn backward(self, weights: &[f32], x: &[f32], dy: &[f32], d_weights: &mut [f32]) -> Vec<f32> {
        let (x_rows, dy_rows) = (Mat::new(x, self.n_in), Mat::new(dy, self.n_out));
        matmul(&mut d_weights[self.at..self.bias()], self.n_out, x_rows.t(), dy_rows, true);
        for dy in dy.chunks_exact(self.n_out) {
            let bias = &mut d_weights[self.at + self.n_in * self.n_out..][..self.n_out];
            bias.iter_mut().zip(dy).for_each(|(b, d)| *b += d);
        }
        let mut dx = vec![0.0; x.len()];
        let matrix = Mat::new(&weights[self.at..self.bias()], self.n_out);
        matmul(&mut dx, self.n_in, dy_rows, matrix.t(), false);
        dx
    }
}

/// What a layer keeps for the way back.
struct Kept {
    /// Of the dense layer.
    input: Vec<f32>,
    /// What attention reads: `[φ(q) | φ(k) | v]`.
    rows: Vec<f32>,
    out: Vec<f32>,
    denominators: Vec<f32>,
    /// Of attention among neighbours, whose rows are what it hears.
    attended: Option<Attended>,
}

pub struct Net {
    kind: Kind,
    layers: [Dense; 2],
    head: Dense,
    heads: Heads,
}

/// φ = ELU + 1: positive.
fn feature(x: f32) -> f32 {
    if x > 0.0 { x + 1.0 } else { x.exp() }
}

/// φ' of what φ gave: φ itself below zero, where φ is below one.
fn slope(phi: f32) -> f32 {
    phi.min(1.0)
}

fn smooth(graph: &WeightedGraph, x: &[f32]) -> Vec<f32> {
    let width = x.len() / graph.len();
    let mut y = vec![0.0; x.len()];
    for (i, y) in y.chunks_exact_mut(width).enumerate() {
        for (&j, &w) in graph.neighbors(i).iter().zip(graph.weights(i)) {
            y.iter_mut().zip(&x[j as usize * width..][..width]).for_each(|(y, x)| *y += w * x);
        }
    }
    y
}

impl Net {
    pub fn new(kind: Kind) -> Self {
        let heads = Heads::new(18, 2);
        let (width, n_out) = match kind {
            Kind::Gcn | Kind::Sgc => (32, 32),
            Kind::Gat => (heads.width, heads.width),
            _ => (heads.width, heads.row_len()),
        };
        let n_filters = if kind == Kind::Sgc { 2 } else { 1 };
        let first = Dense { at: 0, n_in: n_filters * N_FEATURES, n_out };
        let second = Dense { at: first.end(), n_in: n_filters * width, n_out };
        let head = Dense { at: second.end(), n_in: width, n_out: 1 };
        Self { kind, layers: [first, second], head, heads }
    }

    /// Weights; behind those of the dense layers, layer by layer, what attention has besides.
    pub fn n_params(&self) -> usize {
        self.head.end() + 2 * self.n_own()
    }

    /// The mask's parameter of a layer, or the numbers that score.
    fn n_own(&self) -> usize {
        match self.kind {
            Kind::Gkat | Kind::GkatDynamic => 1,
            Kind::Gat => gat::n_params(self.heads),
            Kind::Grf | Kind::GrfSoftmax | Kind::GrfSigned => self.heads.n_heads * (WALK_HOPS + 1),
            Kind::Unmasked | Kind::Softmax | Kind::Gcn | Kind::Sgc => 0,
        }
    }

    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut weights = vec![0.0; self.n_params()];
        for dense in [self.layers[0], self.layers[1], self.head] {
            let scale = (2.0 / (dense.n_in + dense.n_out) as f32).sqrt();
            for (at, weight) in weights[dense.at..dense.bias()].iter_mut().enumerate() {
                *weight = scale * normal_pair(draw(seed, 1, (dense.at + at) as u64, 9))[0];
            }
        }
        if self.kind == Kind::Gat {
            let scale = (2.0 / (2 * self.heads.head_width() + 1) as f32).sqrt();
            for (at, weight) in weights[self.head.end()..].iter_mut().enumerate() {
                *weight = scale * normal_pair(draw(seed, 2, at as u64, 9))[0];
            }
        }
        weights
    }

    /// Where a layer's own numbers stand.
    fn own(&self, layer: usize) -> Range<usize> {
        let first = self.head.end() + layer * self.n_own();
        first..first + self.n_own()
    }

    fn with_mask<R>(&self, example: &Example, f: impl FnOnce(&dyn Mask) -> R) -> R {
        match self.kind {
            Kind::Gkat | Kind::GkatDynamic => f(&example.mask),
            _ => f(&Packed(vec![Part::Open(example.n)])),
        }
    }

    fn layer(&self, weights: &[f32], layer: usize, example: &Example, x: &[f32]) -> Kept {
        let dense = self.layers[layer];
        let none = Vec::new;
        if let Kind::Gcn | Kind::Sgc = self.kind {
            let input = self.filtered(example, x);
            let out = dense.forward(weights, &input);
            return Kept { input, rows: none(), out, denominators: none(), attended: None };
        }
        let mut rows = dense.forward(weights, x);
        if self.kind == Kind::Gat {
            let params = &weights[self.own(layer)];
            let mut attended = gat::forward(&example.smoothing, self.heads, params, &rows);
            let (input, out) = (x.to_vec(), std::mem::take(&mut attended.out));
            return Kept { input, rows, out, denominators: none(), attended: Some(attended) };
        }
        let (heads, n) = (self.heads, example.n);
        if self.kind.is_mapped() {
            for row in rows.chunks_exact_mut(heads.row_len()) {
                row[..2 * heads.features()].iter_mut().for_each(|x| *x = feature(*x));
            }
        }
        let (mut out, mut denominators) =
            (vec![0.0; n * heads.width], vec![0.0; n * heads.n_heads]);
        let params = &weights[self.own(layer)];
        if let Some(similarity) = self.kind.similarity() {
            let (f, loads) = (self.hop_weights(params), &example.loads);
            let of = GrfKernel { similarity, heads, loads, hop_weights: &f };
            grf_kernel_attention_forward(of, &rows, &mut out, &mut denominators);
            return Kept { input: x.to_vec(), rows, out, denominators, attended: None };
        }
        if self.kind == Kind::Softmax {
            let mut scratch = vec![0.0; softmax::SCRATCH_LEN];
            let totals = &mut denominators[..];
            softmax::softmax_attention_forward(0..n, &rows, heads, &mut out, totals, &mut scratch);
            return Kept { input: x.to_vec(), rows, out, denominators, attended: None };
        }
        self.with_mask(example, |mask| {
            masked_attention_forward(mask, params, &rows, heads, &mut out, &mut denominators);
        });
        Kept { input: x.to_vec(), rows, out, denominators, attended: None }
    }

    fn hop_weights(&self, params: &[f32]) -> Vec<f32> {
        params.iter().map(|&theta| self.kind.hop_weight(theta)[0]).collect()
    }

    /// What a convolution's dense layer reads: S x, or \[x, -S x\], the first two Chebyshev polynomials of L - I.
    fn filtered(&self, example: &Example, x: &[f32]) -> Vec<f32> {
        if self.kind == Kind::Gcn {
            return smooth(&example.smoothing, x);
        }
        let (width, smoothed) = (x.len() / example.n, smooth(&example.unlooped, x));
        let rows = x.chunks_exact(width).zip(smoothed.chunks_exact(width));
        rows.flat_map(|(x, s)| x.iter().copied().chain(s.iter().map(|s| -s))).collect()
    }

    /// Gradient of what was filtered. Both graphs are symmetric.
    fn filtered_back(&self, example: &Example, d: &[f32]) -> Vec<f32> {
        if self.kind == Kind::Gcn {
            return smooth(&example.smoothing, d);
        }
        let width = d.len() / example.n / 2;
        let half = |at: usize| -> Vec<f32> {
            d.chunks_exact(2 * width).flat_map(|d| d[at..at + width].iter().copied()).collect()
        };
        let (mut dx, of_smoothed) = (half(0), smooth(&example.unlooped, &half(width)));
        dx.iter_mut().zip(of_smoothed).for_each(|(d, s)| *d -= s);
        dx
    }

    /// Gradient of the layer's inputs; adds those of the weights.
    fn layer_back(
        &self,
        weights: &[f32],
        layer: usize,
        example: &Example,
        kept: &Kept,
        d_out: &[f32],
        d_weights: &mut [f32],
    ) -> Vec<f32> {
        let dense = self.layers[layer];
        if let Kind::Gcn | Kind::Sgc = self.kind {
            let d_input = dense.backward(weights, &kept.input, d_out, d_weights);
            return self.filtered_back(example, &d_input);
        }
        let (heads, params) = (self.heads, &weights[self.own(layer)]);
        if let Some(attended) = &kept.attended {
            let (of, own) = ((params, &kept.rows[..]), &mut d_weights[self.own(layer)]);
            let d_rows = gat::backward(&example.smoothing, heads, of, attended, d_out, own);
            return dense.backward(weights, &kept.input, &d_rows, d_weights);
        }
        let mut d_rows = vec![0.0; kept.rows.len()];
        if let Some(similarity) = self.kind.similarity() {
            let (f, loads) = (self.hop_weights(params), &example.loads);
            let of = GrfKernel { similarity, heads, loads, hop_weights: &f };
            let saved = GrfKernelSaved { rows: &kept.rows, log_sums: &kept.denominators };
            let (mut d_f, walks) = (vec![0.0; f.len()], &example.transposed);
            grf_kernel_attention_backward(of, walks, saved, d_out, &mut d_rows, &mut d_f);
            let own = d_weights[self.own(layer)].iter_mut().zip(params);
            for ((d, &theta), d_f) in own.zip(d_f) {
                *d += d_f as f32 * self.kind.hop_weight(theta)[1];
            }
            self.unmap(kept, &mut d_rows);
            return dense.backward(weights, &kept.input, &d_rows, d_weights);
        }
        if self.kind == Kind::Softmax {
            self.softmax_back(kept, d_out, &mut d_rows);
            return dense.backward(weights, &kept.input, &d_rows, d_weights);
        }
        let mut d_params = vec![0.0; n_stretches(heads) * params.len()];
        let saved =
            MaskedSaved { rows: &kept.rows, out: &kept.out, denominators: &kept.denominators };
        self.with_mask(example, |mask| {
            let (d_rows, d_params) = (&mut d_rows, &mut d_params);
            masked_attention_backward(mask, params, saved, heads, d_out, d_rows, d_params);
        });
        self.unmap(kept, &mut d_rows);
        for d in &mut d_weights[self.own(layer)] {
            *d += d_params.iter().sum::<f64>() as f32;
        }
        dense.backward(weights, &kept.input, &d_rows, d_weights)
    }

    /// From gradients of features to those of what the feature map was given.
    fn unmap(&self, kept: &Kept, d_rows: &mut [f32]) {
        if !self.kind.is_mapped() {
            return;
        }
        let heads = self.heads;
        let rows = kept.rows.chunks_exact(heads.row_len());
        for (row, d_row) in rows.zip(d_rows.chunks_exact_mut(heads.row_len())) {
            let features = row[..2 * heads.features()].iter().zip(d_row);
            features.for_each(|(phi, d)| *d *= slope(*phi));
        }
    }

    fn softmax_back(&self, kept: &Kept, d_out: &[f32], d_rows: &mut [f32]) {
        let (heads, d) = (self.heads, self.heads.width);
        let n = d_out.len() / d;
        let mut scratch = vec![0.0; softmax::SCRATCH_LEN];
        let (mut deltas, mut d_q) = (vec![0.0; n * heads.n_heads], vec![0.0; n * d]);
        softmax::softmax_attention_deltas(heads, &kept.out, d_out, &mut deltas);
        let (qkv, log_sums, deltas) = (&kept.rows[..], &kept.denominators[..], &deltas[..]);
        let saved = softmax::SoftmaxSaved { qkv, log_sums, d_out, deltas };
        softmax::softmax_attention_backward_key(0..n, saved, heads, d_rows, &mut scratch);
        softmax::softmax_attention_backward_query(0..n, saved, heads, &mut d_q, &mut scratch);
        for (row, d_q) in d_rows.chunks_exact_mut(3 * d).zip(d_q.chunks_exact(d)) {
            row[..d].copy_from_slice(d_q);
        }
    }

    /// Loss and whether the answer is right; adds the gradient to `d_weights`, if it is given.
    pub fn run(
        &self,
        weights: &[f32],
        example: &Example,
        d_weights: Option<&mut [f32]>,
    ) -> (f32, bool) {
        // Smooth, unlike ReLU: averages over all nodes pass a kink together, where differences tell nothing.
        let active = |x: &[f32]| -> Vec<f32> { x.iter().map(|&x| feature(x)).collect() };
        let first = self.layer(weights, 0, example, &example.features);
        let second = self.layer(weights, 1, example, &active(&first.out));
        let (hidden, width) = (active(&second.out), self.head.n_in);
        let share = 1.0 / example.n as f32;
        let mut mean = vec![0.0; width];
        for row in hidden.chunks_exact(width) {
            mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += share * x);
        }
        let logit = self.head.forward(weights, &mean)[0];
        let loss = logit.max(0.0) - logit * example.label + (-logit.abs()).exp().ln_1p();
        let is_right = (logit > 0.0) == (example.label > 0.5);
        let Some(d_weights) = d_weights else { return (loss, is_right) };
        let d_logit = 1.0 / (1.0 + (-logit).exp()) - example.label;
        let d_mean = self.head.backward(weights, &mean, &[d_logit], d_weights);
        let through = |out: &[f32], d: &dyn Fn(usize) -> f32| -> Vec<f32> {
            out.iter().enumerate().map(|(at, &x)| slope(feature(x)) * d(at)).collect()
        };
        let d_second = through(&second.out, &|at| share * d_mean[at % width]);
        let d_hidden = self.layer_back(weights, 1, example, &second, &d_second, d_weights);
        let d_first = through(&first.out, &|at| d_hidden[at]);
        self.layer_back(weights, 0, example, &first, &d_first, d_weights);
        (loss, is_right)
    }

    /// How far the gradient is from finite differences along seeded directions, relative to it: the
    /// largest of several.
    pub fn gradient_error(&self, example: &Example) -> f32 {
        let weights = self.initial(3);
        let mut gradient = vec![0.0; weights.len()];
        self.run(&weights, example, Some(&mut gradient));
        let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
        let errors = (0..9).map(|direction| {
            let along: Vec<f32> = (0..weights.len() as u64)
                .map(|i| normal_pair(draw(7, direction, i, 3))[0])
                .collect();
            let loss = |step: f32| {
                let moved: Vec<f32> =
                    weights.iter().zip(&along).map(|(w, a)| w + step * a).collect();
                self.run(&moved, example, None).0
            };
            let slope = (loss(2e-3) - loss(-2e-3)) / 4e-3;
            let want: f32 = gradient.iter().zip(&along).map(|(g, a)| g * a).sum();
            (slope - want).abs() / norm.max(1e-9)
        });
        errors.fold(0.0, f32::max)
    }
}
