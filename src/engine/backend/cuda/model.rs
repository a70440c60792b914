//! A model on the device: whether it runs there, and its weights.

use std::ops::Range;
use std::sync::Arc;

use super::Gpu;
use super::kernels::{SHARED_BYTES, merge_bytes, n_halves};
use super::memory::{Arena, Buffer, Pinned};
use crate::engine::model::interlacer::MixerKind;
use crate::engine::model::rollout::RolloutConfig;
use crate::engine::model::tokens::Encodings;
use crate::engine::model::{FeatureMap, GlobalLayer, Layout, LocalLayer, Span};
use crate::{Error, Result};

/// Widest model, most heads and most hops that the kernels take.
const MAX_WIDTH: usize = 256;
const MAX_HEADS: usize = 16;
const MAX_HOPS: usize = 8;

/// Why models of `config` do not run on a GPU; none if they do.
pub fn unsupported(config: &RolloutConfig) -> Option<String> {
    let (model, layers) = (&config.interlacer, &config.interlacer.layers);
    let not = |what: &str| Some(format!("{what} runs on the CPU only so far: take device: cpu"));
    let setting = |key: &str, value: serde_json::Result<String>| {
        let value = value.unwrap_or_default();
        not(&format!("a model of {key} {}", value.trim_matches('"')))
    };
    if layers.global != GlobalLayer::Linear {
        return setting("layers.global", serde_json::to_string(&layers.global));
    }
    if layers.local != LocalLayer::Grf {
        return setting("layers.local", serde_json::to_string(&layers.local));
    }
    if layers.feature_map != FeatureMap::Relu {
        return setting("layers.feature_map", serde_json::to_string(&layers.feature_map));
    }
    if config.mask.walks.is_some() {
        return setting("mask.walks (sampled walks)", serde_json::to_string(&config.mask.walks));
    }
    if !config.mask.is_default() {
        return setting("mask.edge_weights", serde_json::to_string(&config.mask.edge_weights));
    }
    let tokens = &config.tokens;
    if tokens.encodings != Encodings::None {
        return setting("encodings", serde_json::to_string(&tokens.encodings));
    }
    let cap = row_cap(usize::MAX, model.k, model.n_hops);
    let is_too_big = model.width > MAX_WIDTH
        || model.n_heads > MAX_HEADS
        || model.n_hops > MAX_HOPS
        || merge_bytes(cap, model.n_hops) > SHARED_BYTES;
    if is_too_big {
        let sizes = format!(
            "a model of width {}, {} heads, {} neighbours and {} hops (at most {MAX_WIDTH}, \
             {MAX_HEADS}, and 1024 walks of {MAX_HOPS} hops)",
            model.width, model.n_heads, model.k, model.n_hops
        );
        return not(&sizes);
    }
    None
}

/// What matrix products are made of; all else is in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// f32: what the other one is checked against.
    Full,
    /// Inputs and weights as sums of two of half precision, on tensor cores; sums in f32. Products with
    /// the state of linear attention, which has no bound, and those of the head stay in f32.
    Half,
}

/// A model on the device.
#[derive(Debug)]
pub(super) struct DeviceModel {
    pub config: RolloutConfig,
    pub layout: Layout,
    pub precision: Precision,
    weights: Buffer<f32>,
    /// Of the matrices that tensor cores take: where their weights begin, and their halves.
    halves: Vec<(usize, Buffer<u32>)>,
    arena: Arena,
}

impl DeviceModel {
    /// A model of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not run there, or does not fit; [`Error::Shape`] for weights of
    /// another model.
    pub fn new(
        gpu: &Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        if let Some(problem) = unsupported(&config) {
            return Err(Error::Device { device: gpu.name().into(), problem });
        }
        let layout = Layout::new(config.interlacer);
        let (expected, got) = (layout.n_params(), weights.len());
        if got != expected {
            return Err(Error::Shape { what: "weights", expected, got });
        }
        let mut arena = Arena::new(gpu.clone());
        let matrices = match precision {
            Precision::Full => Vec::new(),
            Precision::Half => split_matrices(&layout),
        };
        let ((on_device, halves), _) = arena.lay_out(|places| {
            let weights = places.take(got);
            let of = |&(span, n_out): &(Span, usize)| {
                let Range { start, end } = span.range();
                (start, places.take(n_halves(n_out, (end - start) / n_out)))
            };
            (weights, matrices.iter().map(of).collect::<Vec<_>>())
        })?;
        let mut staged = Pinned::new(gpu.clone());
        staged.reserve(got)?;
        staged.get_mut(got).copy_from_slice(weights);
        gpu.upload(&staged, on_device)?;
        let model = Self { config, layout, precision, weights: on_device, halves, arena };
        for &(span, n_out) in &matrices {
            gpu.split_weights(model.tensor(span), n_out, model.halves(span))?;
        }
        gpu.synchronize()?;
        Ok(model)
    }

    /// A tensor of it.
    pub fn tensor(&self, span: Span) -> Buffer<f32> {
        let range = span.range();
        self.weights.part(range.start, range.len())
    }

    /// The halves of a matrix, if tensor cores take it; else nothing.
    pub fn halves(&self, weight: Span) -> Buffer<u32> {
        let start = weight.range().start;
        let known = self.halves.iter().find(|(of, _)| *of == start);
        known.map(|(_, halves)| *halves).unwrap_or_default()
    }

    /// Bytes of device memory that it holds.
    pub fn bytes(&self) -> usize {
        self.arena.bytes()
    }
}

/// Weights of all dense layers that have a kernel of [`Precision::Half`], and their outputs.
fn split_matrices(layout: &Layout) -> Vec<(Span, usize)> {
    let of_mixers = layout.mixers.iter().flat_map(|mixer| match &mixer.kind {
        MixerKind::Linear { tensors, .. } => vec![tensors.qkv],
        MixerKind::Grf { tensors, .. } => vec![tensors.qkv, tensors.out],
        // `unsupported` refuses such models.
        _ => Vec::new(),
    });
    let of_mlps = layout.mlps.iter().flat_map(|mlp| [mlp.up, mlp.down]);
    let all = std::iter::once(layout.embed).chain(of_mixers).chain(of_mlps);
    all.map(|affine| (affine.weight, affine.bias.range().len())).collect()
}

/// Most entries of a row of merged loads over `n` tokens.
pub(super) fn row_cap(n: usize, k: usize, n_hops: usize) -> usize {
    let prefixes = (0..=n_hops as u32).map(|t| k.saturating_pow(t));
    prefixes.fold(0, usize::saturating_add).min(n).max(1)
}
