//! The renderer, like Point-NeRF (Xu et al. 2022), as HD-VPD has it: what a ray sees of particles.
//!
//! Places of a ray that have particles near are looked at from near to far. Each is told by four
//! annular kernels over its nearest particles ([`kernels`]); two hidden layers make density and
//! colour of that, which add up along the ray to colour and expected depth ([`composite`]).

mod composite;
mod field;
mod kernels;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::weights::VideoLayout;
use composite::{Composite, shade};
use field::{Field, Sample};
use forecloud::base::geometry::Vec3;
use forecloud::engine::ops::linear::{
    linear_backward_input, linear_backward_weights, linear_forward, linear_relu_forward,
};
use forecloud::engine::ops::relu::relu_backward;

/// Rays that are traced together: what they see fills the matrix products.
const RAYS: usize = 64;
/// Places that each of them adds before the hidden ones are left out.
const ROUND: usize = 3;
/// What is left of a ray's light when nothing behind can be seen.
const SPENT: f32 = 2e-3;
/// Numbers that the network makes: density, red, green, blue.
const N_OUT: usize = 4;

/// A ray of a camera, in the world frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ray {
    /// Where the camera stands (m).
    pub origin: Vec3,
    /// Way to where the depth along the optical axis is 1 m (m).
    pub direction: Vec3,
    /// By which part of a step its places are shifted away from the camera, 0 to 1.
    pub shift: f32,
}

/// What a ray sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rendered {
    /// Red, green and blue, 0 to 1.
    pub color: [f32; 3],
    /// Expected depth along the optical axis (m); of what sees nothing the farthest.
    pub depth_m: f32,
}

/// Gradient of a loss by what a ray sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RayGradient {
    /// By red, green and blue.
    pub color: [f32; 3],
    /// By the expected depth (1/m).
    pub depth: f32,
}

/// Particles that are looked at: where they are, and what they carry.
pub struct Scene<'a> {
    field: Field,
    features: &'a [f32],
}

/// Gradients that [`Renderer::backward`] adds to.
pub struct Gradients<'a> {
    /// Of all weights of the layout; those of the encoder stay. None of a renderer that does not learn.
    pub weights: Option<&'a mut [f32]>,
    /// Of the particles' features, `[n, n_features]`.
    pub features: &'a mut [f32],
    /// Of their positions (1/m), `[n]`.
    pub positions: &'a mut [Vec3],
}

/// What rays saw, and what the backward pass needs.
pub struct Traced {
    blocks: Vec<Block>,
}

/// Rays that were traced together.
struct Block {
    rays: Vec<Rendered>,
    /// Places, ray by ray.
    samples: Vec<Sample>,
    /// First place of each ray, and one more.
    starts: Vec<usize>,
    /// What the network was given and made of it, `[places, …]`.
    layers: [Vec<f32>; 4],
}

/// The renderer with its weights.
#[derive(Clone, Copy)]
pub struct Renderer<'a> {
    layout: &'a VideoLayout,
    weights: &'a [f32],
}

impl<'a> Scene<'a> {
    /// Of particles at `positions` (world frame, m) that carry `features` `[n, n_features]`.
    ///
    /// # Errors
    /// [`forecloud::Error::NonFinite`] if a position is not finite, [`forecloud::Error::Shape`] if there are not
    /// as many features as they need.
    pub fn new(
        layout: &VideoLayout,
        positions: &[Vec3],
        features: &'a [f32],
    ) -> forecloud::Result<Self> {
        let (expected, got) = (positions.len() * layout.config.n_features, features.len());
        if expected != got {
            let what = "features of the particles of a picture";
            return Err(forecloud::Error::Shape { what, expected, got });
        }
        Ok(Self { field: Field::new(positions, &layout.config)?, features })
    }
}

impl Traced {
    /// What each ray saw, in their order.
    pub fn rays(&self) -> impl Iterator<Item = &Rendered> {
        self.blocks.iter().flat_map(|block| &block.rays)
    }
}

impl<'a> Renderer<'a> {
    /// Of all `weights` of `layout`.
    pub fn new(layout: &'a VideoLayout, weights: &'a [f32]) -> Self {
        Self { layout, weights }
    }

    /// What `rays` see of `scene`: a picture. Places behind what hides them are left out, which changes
    /// a colour by less than a tenth of what eight bits tell apart.
    pub fn draw(&self, scene: &Scene, rays: &[Ray]) -> Vec<Rendered> {
        let chunks = rays.par_chunks(RAYS);
        chunks.flat_map_iter(|rays| self.draw_block(scene, rays)).collect()
    }

    /// What `rays` see of `scene`, all places included, with what [`Self::backward`] needs.
    pub fn trace(&self, scene: &Scene, rays: &[Ray]) -> Traced {
        let blocks = rays.par_chunks(RAYS / 4).map(|rays| {
            let (mut samples, mut starts) = (Vec::new(), vec![0]);
            for ray in rays {
                scene.field.look(ray, &mut 0, self.layout.config.max_samples, &mut samples);
                starts.push(samples.len());
            }
            let layers = self.network(scene, &samples);
            let far_m = self.layout.config.far_m;
            let see = |span: &[usize]| {
                let mut seen = Composite::new();
                let places = samples[span[0]..span[1]].iter();
                for (sample, out) in places.zip(layers[3][N_OUT * span[0]..].chunks_exact(N_OUT)) {
                    seen.add(&shade(out), sample.depth_m);
                }
                seen.end(far_m)
            };
            let rays = starts.windows(2).map(see).collect();
            Block { rays, samples, starts, layers }
        });
        Traced { blocks: blocks.collect() }
    }

    /// Adds the gradients of a loss, given by those of what each ray saw, to `into`.
    ///
    /// Blocks of rays side by side, their sums in order: the same on any number of threads.
    pub fn backward(
        &self,
        scene: &Scene,
        traced: &Traced,
        d_rays: &[RayGradient],
        into: &mut Gradients,
    ) {
        let n_features = self.layout.config.n_features;
        let learns = into.weights.is_some();
        let blocks = traced.blocks.par_iter().zip(d_rays.par_chunks(RAYS / 4));
        let parts: Vec<_> = blocks
            .map(|(block, d_rays)| self.backward_block(scene, block, d_rays, learns))
            .collect();
        let range = self.layout.of_renderer();
        for (block, (d_weights, d_neighbors)) in traced.blocks.iter().zip(parts) {
            if let Some(weights) = &mut into.weights {
                let sums = weights[range.clone()].iter_mut();
                sums.zip(&d_weights[range.clone()]).for_each(|(sum, d)| *sum += d);
            }
            let neighbors = block.samples.iter().flat_map(Sample::neighbors);
            for (i, d) in neighbors.zip(d_neighbors.chunks_exact(3 + n_features)) {
                into.positions[i].iter_mut().zip(d).for_each(|(sum, d)| *sum += d);
                let features = &mut into.features[i * n_features..][..n_features];
                features.iter_mut().zip(&d[3..]).for_each(|(sum, d)| *sum += d);
            }
        }
    }

    fn draw_block(&self, scene: &Scene, rays: &[Ray]) -> Vec<Rendered> {
        let config = &self.layout.config;
        let mut seen = vec![(Composite::new(), 0, 0); rays.len()];
        let (mut active, mut samples): (Vec<usize>, Vec<Sample>) =
            ((0..rays.len()).collect(), vec![]);
        while !active.is_empty() {
            samples.clear();
            let mut starts = vec![0];
            for &ray in &active {
                let (_, step, n_looked) = &mut seen[ray];
                let n_most = ROUND.min(config.max_samples - *n_looked);
                scene.field.look(&rays[ray], step, n_most, &mut samples);
                *n_looked += n_most;
                starts.push(samples.len());
            }
            let [.., out] = self.network(scene, &samples);
            let mut place = 0;
            active.retain(|&ray| {
                let (composite, _, n_looked) = &mut seen[ray];
                let [start, end] = [starts[place], starts[place + 1]];
                place += 1;
                for i in start..end {
                    composite.add(&shade(&out[N_OUT * i..][..N_OUT]), samples[i].depth_m);
                }
                // A ray that found fewer is at its end.
                end - start == ROUND && *n_looked < config.max_samples && composite.light > SPENT
            });
        }
        seen.iter().map(|(composite, ..)| composite.end(config.far_m)).collect()
    }

    /// What the network is given of each place, its hidden layers and what it makes: one after the other.
    fn network(&self, scene: &Scene, samples: &[Sample]) -> [Vec<f32>; 4] {
        let VideoLayout { config, dense, .. } = self.layout;
        let [first, second, last] =
            dense.map(|layer| (layer.weight.of(self.weights), layer.bias.of(self.weights)));
        let rows = |n: usize| vec![0.0; samples.len() * n];
        let mut layers =
            [rows(config.n_inputs()), rows(config.hidden), rows(config.hidden), rows(N_OUT)];
        let [inputs, hidden, more, out] = &mut layers;
        kernels::gather(samples, scene.features, config, inputs);
        if !samples.is_empty() {
            linear_relu_forward(inputs, first.0, first.1, config.hidden, hidden);
            linear_relu_forward(hidden, second.0, second.1, config.hidden, more);
            linear_forward(more, last.0, last.1, out);
        }
        layers
    }

    /// Gradients of a block: of the weights, and of each place's neighbours one after the other, position
    /// then features.
    fn backward_block(
        &self,
        scene: &Scene,
        block: &Block,
        d_rays: &[RayGradient],
        learns: bool,
    ) -> (Vec<f32>, Vec<f32>) {
        let VideoLayout { config, dense, .. } = self.layout;
        let Block { samples, starts, layers: [inputs, hidden, more, out], .. } = block;
        let mut d_weights = vec![0.0; if learns { self.weights.len() } else { 0 }];
        if samples.is_empty() {
            return (d_weights, Vec::new());
        }
        let mut d_out = vec![0.0; out.len()];
        for (span, d_ray) in starts.windows(2).zip(d_rays) {
            let depths = samples[span[0]..span[1]].iter().map(|sample| sample.depth_m);
            let places = N_OUT * span[0]..N_OUT * span[1];
            let out = &out[places.clone()];
            composite::backward(out, depths, config.far_m, d_ray, &mut d_out[places]);
        }
        let mut dy = d_out;
        let inputs = [inputs, hidden, more];
        for (i, (layer, x)) in dense.iter().zip(inputs).enumerate().rev() {
            if learns {
                let (d_weight, d_bias) = layer.weight.pair_mut(layer.bias, &mut d_weights);
                linear_backward_weights(x, &dy, d_weight, d_bias);
            }
            let mut dx = vec![0.0; x.len()];
            linear_backward_input(
                &dy,
                layer.weight.of(self.weights),
                layer.bias.range().len(),
                &mut dx,
            );
            if i > 0 {
                relu_backward(x, &mut dx);
            }
            dy = dx;
        }
        let d_neighbors = kernels::gather_backward(samples, scene, config, inputs[0], &dy);
        (d_weights, d_neighbors)
    }
}
