//! A block of the vision transformer, LayerNorms before its parts: linear attention under a mask, ReLU
//! before queries and keys, then two dense layers, each added to the tokens.

use forecloud::engine::model::Span;
use forecloud::engine::model::interlacer::Affine;
use forecloud::engine::ops::feature_map::{FeatureMap, feature_map_backward};
use forecloud::engine::ops::layer_norm::{
    Saved, layer_norm_backward, layer_norm_forward, layer_norm_output,
};
use forecloud::engine::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_forward_add, linear_relu_forward,
};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::ops::relu::relu_backward;
use forecloud_lab::masks::Mask;
use forecloud_lab::ops::masked_attention::{
    MaskedSaved, masked_attention_backward, masked_attention_forward, n_stretches,
};

/// Tensors of a block.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// LayerNorm before the attention.
    pub norm: Affine,
    /// Projection to `[q | k | v]`, `[d, 3d]`.
    pub qkv: Affine,
    /// Projection back, `[d, d]`.
    pub out: Affine,
    /// Parameters of the mask, where it has some.
    pub mask: Option<Span>,
    /// LayerNorm before the dense layers.
    pub mlp_norm: Affine,
    /// To the hidden layer.
    pub up: Affine,
    /// And back.
    pub down: Affine,
}

/// LayerNorm's output, and what its backward pass needs.
pub(super) struct Normed {
    normalized: Vec<f32>,
    inverse_deviation: Vec<f32>,
}

/// What the backward pass needs.
pub(super) struct BlockSaved {
    norm: Normed,
    rows: Vec<f32>,
    attended: Vec<f32>,
    denominators: Vec<f32>,
    mlp_norm: Normed,
    hidden: Vec<f32>,
}

/// LayerNorm of rows `x`, and its output.
pub(super) fn norm(norm: Affine, weights: &[f32], x: &[f32]) -> (Normed, Vec<f32>) {
    let (weight, bias) = (norm.weight.of(weights), norm.bias.of(weights));
    let n = x.len() / weight.len();
    let mut saved = Normed { normalized: vec![0.0; x.len()], inverse_deviation: vec![0.0; n] };
    let mut y = vec![0.0; x.len()];
    let into = Saved {
        normalized: &mut saved.normalized,
        inverse_deviation: &mut saved.inverse_deviation,
    };
    layer_norm_forward(x, weight, bias, &mut y, Some(into));
    (saved, y)
}

impl Normed {
    /// The output, again.
    pub fn output(&self, norm: Affine, weights: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; self.normalized.len()];
        let (weight, bias) = (norm.weight.of(weights), norm.bias.of(weights));
        layer_norm_output(&self.normalized, weight, bias, &mut y);
        y
    }

    /// dx += gradient of the input.
    pub fn backward(
        &self,
        norm: Affine,
        weights: &[f32],
        mut dy: Vec<f32>,
        dx: &mut [f32],
        d_weights: &mut [f32],
    ) {
        let (d_weight, d_bias) = norm.weight.pair_mut(norm.bias, d_weights);
        let (weight, saved) =
            (norm.weight.of(weights), (&self.normalized, &self.inverse_deviation));
        layer_norm_backward(&mut dy, saved.0, saved.1, weight, dx, d_weight, d_bias);
    }
}

/// Gradient of the input of a dense layer from that of its output; those of its weights are added.
pub(super) fn dense_back(
    dense: Affine,
    weights: &[f32],
    x: &[f32],
    dy: &[f32],
    d_weights: &mut [f32],
) -> Vec<f32> {
    let (d_weight, d_bias) = dense.weight.pair_mut(dense.bias, d_weights);
    linear_backward_weights(x, dy, d_weight, d_bias);
    let mut dx = vec![0.0; x.len()];
    linear_backward_input(dy, dense.weight.of(weights), d_bias.len(), &mut dx);
    dx
}

impl Block {
    fn params<'a>(&self, weights: &'a [f32]) -> &'a [f32] {
        self.mask.map_or(&[], |span| span.of(weights))
    }

    /// x += attention, then x += dense layers; `x` `[tokens, d]`, the nodes of `mask`.
    pub(super) fn forward(
        &self,
        weights: &[f32],
        heads: Heads,
        mask: &dyn Mask,
        x: &mut [f32],
    ) -> BlockSaved {
        let of = |span: Span| span.of(weights);
        let (d, n) = (heads.width, x.len() / heads.width);
        let (saved_norm, y) = norm(self.norm, weights, x);
        let mut rows = vec![0.0; n * heads.row_len()];
        linear_relu_forward(&y, of(self.qkv.weight), of(self.qkv.bias), 2 * d, &mut rows);
        let (mut attended, mut denominators) = (vec![0.0; n * d], vec![0.0; n * heads.n_heads]);
        let params = self.params(weights);
        masked_attention_forward(mask, params, &rows, heads, &mut attended, &mut denominators);
        linear_forward_add(&attended, of(self.out.weight), of(self.out.bias), x);
        let (mlp_norm, y) = norm(self.mlp_norm, weights, x);
        let wide = of(self.up.bias).len();
        let mut hidden = vec![0.0; n * wide];
        linear_relu_forward(&y, of(self.up.weight), of(self.up.bias), wide, &mut hidden);
        linear_forward_add(&hidden, of(self.down.weight), of(self.down.bias), x);
        BlockSaved { norm: saved_norm, rows, attended, denominators, mlp_norm, hidden }
    }

    /// Gradient of the input in place of that of the output, `dx`; d_weights += gradients.
    pub(super) fn backward(
        &self,
        weights: &[f32],
        heads: Heads,
        mask: &dyn Mask,
        saved: &BlockSaved,
        dx: &mut [f32],
        d_weights: &mut [f32],
    ) {
        let mut d_hidden = dense_back(self.down, weights, &saved.hidden, dx, d_weights);
        relu_backward(&saved.hidden, &mut d_hidden);
        let y = saved.mlp_norm.output(self.mlp_norm, weights);
        let dy = dense_back(self.up, weights, &y, &d_hidden, d_weights);
        saved.mlp_norm.backward(self.mlp_norm, weights, dy, dx, d_weights);

        let d_attended = dense_back(self.out, weights, &saved.attended, dx, d_weights);
        let (params, mut d_rows) = (self.params(weights), vec![0.0; saved.rows.len()]);
        let mut d_params = vec![0.0; n_stretches(heads) * params.len()];
        let BlockSaved { rows, attended: out, denominators, .. } = saved;
        let forward = MaskedSaved { rows, out, denominators };
        masked_attention_backward(
            mask,
            params,
            forward,
            heads,
            &d_attended,
            &mut d_rows,
            &mut d_params,
        );
        if let Some(span) = self.mask {
            let mut sums = vec![0.0; params.len()];
            for stretch in d_params.chunks_exact(params.len()) {
                sums.iter_mut().zip(stretch).for_each(|(sum, d)| *sum += d);
            }
            let into = span.of_mut(d_weights).iter_mut();
            into.zip(sums).for_each(|(d, sum): (_, f64)| *d += sum as f32);
        }
        let (len, mapped) = (heads.row_len(), 2 * heads.features());
        feature_map_backward(FeatureMap::Relu, rows, len, &mut d_rows, len, mapped);
        let y = saved.norm.output(self.norm, weights);
        let dy = dense_back(self.qkv, weights, &y, &d_rows, d_weights);
        saved.norm.backward(self.norm, weights, dy, dx, d_weights);
    }
}
