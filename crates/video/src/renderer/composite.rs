//! Densities and colours along a ray, added up (Mildenhall et al. 2020), before solid white.

use super::{N_OUT, RayGradient, Rendered};

/// Colour of what lies behind all (HD-VPD: white).
const BACKGROUND: f32 = 1.0;

/// One place of a ray: what it takes of the light, and its colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shade {
    /// Optical depth of a step, at least 0.
    thickness: f32,
    color: [f32; 3],
}

/// What the network's numbers mean: softplus is the optical depth of a step, sigmoids are the colour.
pub(super) fn shade(out: &[f32]) -> Shade {
    let thickness = out[0].max(0.0) + (-out[0].abs()).exp().ln_1p();
    Shade { thickness, color: [1, 2, 3].map(|c| sigmoid(out[c])) }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// What was seen up to a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Composite {
    color: [f32; 3],
    depth_m: f32,
    /// What is left of the light.
    pub(super) light: f32,
}

impl Composite {
    pub(super) fn new() -> Self {
        Self { color: [0.0; 3], depth_m: 0.0, light: 1.0 }
    }

    /// Adds the next place.
    pub(super) fn add(&mut self, shade: &Shade, depth_m: f32) {
        let left = self.light * (-shade.thickness).exp();
        let taken = self.light - left;
        self.color.iter_mut().zip(shade.color).for_each(|(sum, c)| *sum += taken * c);
        self.depth_m += taken * depth_m;
        self.light = left;
    }

    /// With what lies behind all.
    pub(super) fn end(&self, far_m: f32) -> Rendered {
        Rendered {
            color: self.color.map(|sum| sum + self.light * BACKGROUND),
            depth_m: self.depth_m + self.light * far_m,
        }
    }
}

/// Gradient of the network's numbers `out` of a ray's places into `d_out`, both `[places, N_OUT]`.
///
/// With the light T_j before place j, its thickness τ_j and L_j the loss's slope by its share a_j of
/// the light: ∂/∂τ_j = T_{j+1} L_j - Σ_{k>j} a_k L_k - T_end L_end.
pub(super) fn backward(
    out: &[f32],
    depths: impl DoubleEndedIterator<Item = f32> + ExactSizeIterator + Clone,
    far_m: f32,
    d: &RayGradient,
    d_out: &mut [f32],
) {
    let slope = |color: &[f32; 3], depth_m: f32| {
        d.color.iter().zip(color).map(|(d, c)| d * c).sum::<f32>() + d.depth * depth_m
    };
    let mut lights = Vec::with_capacity(depths.len() + 1);
    lights.push(1.0);
    for out in out.chunks_exact(N_OUT) {
        lights.push(lights[lights.len() - 1] * (-shade(out).thickness).exp());
    }
    let mut behind = lights[lights.len() - 1] * slope(&[BACKGROUND; 3], far_m);
    let places = out.chunks_exact(N_OUT).zip(d_out.chunks_exact_mut(N_OUT)).zip(depths).enumerate();
    for (j, ((out, d_out), depth_m)) in places.rev() {
        let (shade, taken) = (shade(out), lights[j] - lights[j + 1]);
        let here = slope(&shade.color, depth_m);
        d_out[0] = sigmoid(out[0]) * (lights[j + 1] * here - behind);
        for (c, color) in shade.color.iter().enumerate() {
            d_out[c + 1] = taken * d.color[c] * color * (1.0 - color);
        }
        behind += taken * here;
    }
}
