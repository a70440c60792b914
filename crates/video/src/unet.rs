//! The U-Net that gives each pixel of a picture its features (Ronneberger et al. 2015), small: three
//! sizes, two convolutions at each on the way down and on the way up, joined by skips.

use forecloud::engine::model::interlacer::Affine;
use forecloud::engine::ops::conv2d::{
    Size, conv2d_backward_input, conv2d_backward_weights, conv2d_forward,
};
use forecloud::engine::ops::relu::relu_backward;
use forecloud::engine::ops::resample2d::{
    double_backward, double_forward, halve_backward, halve_forward, put_channels, take_channels,
};

/// Convolutions of the network; all but the last end in a ReLU.
pub(super) const N_CONVOLUTIONS: usize = 10;

/// The network with its weights.
#[derive(Clone, Copy)]
pub(super) struct Unet<'a> {
    /// Channels at full, half and quarter size.
    pub channels: [usize; 3],
    pub convolutions: &'a [Affine; N_CONVOLUTIONS],
    /// All weights of the layout.
    pub weights: &'a [f32],
}

/// A picture's features, and what the backward pass needs.
pub(super) struct UnetEncoded {
    size: Size,
    /// Inputs of each stage, `[pixels, channels]`.
    inputs: Vec<Vec<f32>>,
    /// Outputs of each convolution.
    outputs: Vec<Vec<f32>>,
}

impl UnetEncoded {
    /// Where the features of the pixel (column, row) stand among the rows of [`Self::features`]: lines
    /// are a little longer than the picture's where its width is no multiple of four.
    pub fn row_of(&self, [u, v]: [u32; 2]) -> usize {
        v as usize * self.size.width + u as usize
    }

    /// Features of all pixels, `[n_rows, n_features]`.
    pub fn features(&self) -> &[f32] {
        &self.outputs[N_CONVOLUTIONS - 1]
    }
}

impl Unet<'_> {
    /// Features of a picture of `size` (width, height, at least 1): red, green, blue, 0 to 1, row by row.
    pub fn encode(&self, size: [u32; 2], picture: &[[f32; 3]]) -> UnetEncoded {
        let [width, height] = size.map(|n| n as usize);
        let full = Size { width: width.next_multiple_of(4), height: height.next_multiple_of(4) };
        let (half, quarter) = (full.half(), full.half().half());
        let [narrow, middle, wide] = self.channels;
        let mut x = vec![0.0; 3 * full.n_pixels()];
        for (to, from) in x.chunks_exact_mut(3 * full.width).zip(picture.chunks_exact(width)) {
            // About zero, as what the convolutions take to lie around the picture.
            to.iter_mut().zip(from.as_flattened()).for_each(|(to, from)| *to = from - 0.5);
        }
        let mut encoded = UnetEncoded { size: full, inputs: Vec::new(), outputs: Vec::new() };
        self.stage(full, x, &mut encoded);
        let x = halved(full, &encoded.outputs[1]);
        self.stage(half, x, &mut encoded);
        let x = halved(half, &encoded.outputs[3]);
        self.stage(quarter, x, &mut encoded);
        let x = joined(half, (&encoded.outputs[5], wide), (&encoded.outputs[3], middle));
        self.stage(half, x, &mut encoded);
        let x = joined(full, (&encoded.outputs[7], middle), (&encoded.outputs[1], narrow));
        self.stage(full, x, &mut encoded);
        encoded
    }

    /// d_weights += gradients, from those of the features; the picture has none.
    pub fn backward(&self, encoded: &UnetEncoded, d_features: &[f32], d_weights: &mut [f32]) {
        let full = encoded.size;
        let (half, quarter) = (full.half(), full.half().half());
        let [narrow, middle, wide] = self.channels;
        let mut back = |stage, size, dy| self.stage_back(stage, size, encoded, dy, d_weights);
        let (dy, mut d_full) = parted(full, &back(4, full, d_features.to_vec()), middle, narrow);
        let (dy, mut d_half) = parted(half, &back(3, half, dy), wide, middle);
        halve_backward(half, &back(2, quarter, dy), &mut d_half);
        halve_backward(full, &back(1, half, d_half), &mut d_full);
        back(0, full, d_full);
    }

    /// Two convolutions, one after the other.
    fn stage(&self, size: Size, input: Vec<f32>, encoded: &mut UnetEncoded) {
        let outputs = &mut encoded.outputs;
        let first = self.convolve(outputs.len(), size, &input);
        outputs.push(first);
        let second = self.convolve(outputs.len(), size, &outputs[outputs.len() - 1]);
        outputs.push(second);
        encoded.inputs.push(input);
    }

    fn convolve(&self, index: usize, size: Size, x: &[f32]) -> Vec<f32> {
        let tensors = self.convolutions[index];
        let (weight, bias) = (tensors.weight.of(self.weights), tensors.bias.of(self.weights));
        let mut y = vec![0.0; size.n_pixels() * bias.len()];
        conv2d_forward(size, x, weight, bias, index + 1 < N_CONVOLUTIONS, &mut y);
        y
    }

    /// Gradient of the stage's input from that of its output; the first one's input has none.
    fn stage_back(
        &self,
        stage: usize,
        size: Size,
        encoded: &UnetEncoded,
        dy: Vec<f32>,
        d_weights: &mut [f32],
    ) -> Vec<f32> {
        let UnetEncoded { inputs, outputs, .. } = encoded;
        let mut back = |index: usize, x: &[f32], mut dy: Vec<f32>, wants_input: bool| {
            if index + 1 < N_CONVOLUTIONS {
                relu_backward(&outputs[index], &mut dy);
            }
            let tensors = self.convolutions[index];
            let (d_weight, d_bias) = tensors.weight.pair_mut(tensors.bias, d_weights);
            conv2d_backward_weights(size, x, &dy, d_weight, d_bias);
            if !wants_input {
                return Vec::new();
            }
            let mut dx = vec![0.0; x.len()];
            let (weight, n_out) = (tensors.weight.of(self.weights), d_bias.len());
            conv2d_backward_input(size, &dy, weight, n_out, &mut dx);
            dx
        };
        let dx = back(2 * stage + 1, &outputs[2 * stage], dy, true);
        back(2 * stage, &inputs[stage], dx, stage > 0)
    }
}

/// At half the size.
fn halved(size: Size, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len() / 4];
    halve_forward(size, x, &mut y);
    y
}

/// What comes from below, at twice its size, and beside it what was kept at `size`; with the numbers
/// of their channels.
fn joined(size: Size, (below, n): (&[f32], usize), (kept, n_kept): (&[f32], usize)) -> Vec<f32> {
    let n_all = n + n_kept;
    let mut y = vec![0.0; size.n_pixels() * n_all];
    double_forward(size, below, (&mut y, 0, n_all));
    put_channels(kept, n_kept, (&mut y, n, n_all));
    y
}

/// Gradients of the two parts of [`joined`].
fn parted(size: Size, dy: &[f32], n: usize, n_kept: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut below, mut kept) =
        (vec![0.0; size.half().n_pixels() * n], vec![0.0; size.n_pixels() * n_kept]);
    double_backward(size, (dy, 0, n + n_kept), &mut below);
    take_channels((dy, n, n + n_kept), n_kept, &mut kept);
    (below, kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::*;
    use crate::weights::EncoderLayout;
    use crate::{VideoConfig, VideoLayout};

    #[test]
    fn features_and_gradients_equal_pytorch() {
        let golden = Golden::read("video_encoder");
        let channels = golden.setting("channels");
        let config = VideoConfig { n_features: 5, channels, ..VideoConfig::default() };
        let layout = VideoLayout::new(config).unwrap();
        let mut weights = vec![0.0; layout.n_params()];
        let of_encoder = |name: &str| name.starts_with("encoder.");
        for tensor in layout.tensors.iter().filter(|tensor| of_encoder(&tensor.name)) {
            tensor.span.of_mut(&mut weights).copy_from_slice(&golden.f32(&tensor.name));
        }
        // No multiples of four: the network sees zeros where the picture ends.
        let size = golden.setting("size");
        let EncoderLayout::Unet(convolutions) = &layout.encoder else { panic!("the U-Net") };
        let encoder = Unet { channels, convolutions, weights: &weights };
        let encoded = encoder.encode(size, &golden.vectors("picture"));
        assert_close(encoded.features(), &golden.f64("features"), 2e-5);
        assert_eq!(encoded.row_of([1, 2]), 2 * size[0].next_multiple_of(4) as usize + 1);
        let mut gradient = vec![0.0; weights.len()];
        encoder.backward(&encoded, &golden.f32("d_features"), &mut gradient);
        for tensor in layout.tensors.iter().filter(|tensor| of_encoder(&tensor.name)) {
            let want = golden.f64(&format!("grad.{}", tensor.name));
            assert_close_of(&tensor.name, tensor.span.of(&gradient), &want, 5e-5);
        }
    }
}
