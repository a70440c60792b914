//! The vision transformer that gives each pixel of a picture its features (Dosovitskiy et al. 2020):
//! patches of colour and depth are tokens with learnt places, and hear each other by linear attention
//! under a mask (GRF masking, section 4.2 and Table 2, at a small size). With past frames in the factorised
//! form (appendix C.4): blocks within each frame first, then blocks between the patches of all frames,
//! causal in time. Each token becomes features of all pixels of its patch; to these a dense layer of the
//! pixel's own numbers is added, so that fine texture need not go through a token.

mod block;
mod config;
mod masks;
mod patches;
#[cfg(test)]
mod tests;

use super::Picture;
use super::weights::{Table, VideoLayout};
pub use block::Block;
use block::{BlockSaved, Normed, dense_back, norm};
pub use config::{EncoderKind, PatchMask, VitConfig};
use forecloud::Result;
use forecloud::engine::model::Span;
use forecloud::engine::model::interlacer::Affine;
use forecloud::engine::ops::linear::linear_forward;
use forecloud::engine::ops::linear_attention::Heads;
pub(super) use masks::Frozen;
use masks::Masks;
use patches::{CHANNELS, Patches, pixels};

/// Tensors of the vision transformer.
#[derive(Debug, Clone)]
pub struct VitLayout {
    /// Its sizes.
    pub config: VitConfig,
    /// From a patch's numbers to a token.
    pub embed: Affine,
    /// What is added for the token's column and row, `[columns, d]`, `[rows, d]`.
    pub places: [Span; 2],
    /// What is added for the frame, `[frames, d]`, that at hand first; none without past frames.
    pub ages: Option<Span>,
    /// Blocks within frames, then those between frames.
    pub blocks: Vec<Block>,
    /// LayerNorm behind them.
    pub norm: Affine,
    /// From a token to the features of its patch's pixels.
    pub head: Affine,
    /// From a pixel's numbers to what is added to its features.
    pub skip: Affine,
    frozen: Frozen,
}

/// A picture's features, and what the backward pass needs.
pub(super) struct VitEncoded {
    patches: Patches,
    masks: Masks,
    /// Numbers of the pixels of the frame at hand, and those of the patches of all frames.
    pixels: Vec<f32>,
    rows: Vec<f32>,
    blocks: Vec<BlockSaved>,
    norm: Normed,
    /// `[pixels, n_features]`.
    features: Vec<f32>,
}

impl VitEncoded {
    pub fn row_of(&self, [u, v]: [u32; 2]) -> usize {
        v as usize * self.patches.size[0] + u as usize
    }

    pub fn features(&self) -> &[f32] {
        &self.features
    }
}

impl VitLayout {
    /// Lays out its tensors, for pictures of at most `picture` pixels.
    pub(super) fn new(
        config: VitConfig,
        picture: [u32; 2],
        n_features: usize,
        table: &mut Table,
    ) -> Self {
        let VitConfig { patch, width: d, mlp_ratio, mask, n_hops, n_past, .. } = config;
        let embed = table.affine("encoder.embed", patch * patch * CHANNELS, d);
        let [columns, rows] = config.grid(picture);
        let places = [("columns", columns), ("rows", rows)]
            .map(|(name, n)| table.tensor(format!("encoder.{name}"), vec![n, d]));
        let ages = (n_past > 0).then(|| table.tensor("encoder.ages".into(), vec![n_past + 1, d]));
        let n_params = mask.n_params(n_hops);
        let blocks = (0..config.n_blocks + config.n_time_blocks()).map(|index| {
            let name = |part: &str| format!("encoder.blocks.{index}.{part}");
            Block {
                norm: table.norm(&name("norm"), d),
                qkv: table.affine(&name("qkv"), d, 3 * d),
                out: table.affine(&name("out"), d, d),
                mask: (n_params > 0).then(|| table.tensor(name("mask"), vec![n_params])),
                mlp_norm: table.norm(&name("mlp_norm"), d),
                up: table.affine(&name("up"), d, mlp_ratio * d),
                down: table.affine(&name("down"), mlp_ratio * d, d),
            }
        });
        Self {
            config,
            embed,
            places,
            ages,
            blocks: blocks.collect(),
            norm: table.norm("encoder.norm", d),
            head: table.affine("encoder.head", d, patch * patch * n_features),
            skip: table.affine("encoder.skip", CHANNELS, n_features),
            frozen: Frozen::default(),
        }
    }

    fn heads(&self) -> Heads {
        Heads::new(self.config.width, self.config.n_heads)
    }

    /// Number of column, row and age of each token, `[tokens]`, of `n_frames` frames, the oldest first;
    /// beyond what was learnt, the last that was.
    fn places_of(
        &self,
        patches: &Patches,
        n_frames: usize,
    ) -> impl Iterator<Item = (usize, [(Span, usize); 3])> {
        let (len, columns) = (patches.len(), patches.grid[0]);
        let d = self.config.width;
        let [of_columns, of_rows] = self.places;
        let ages = self.ages.unwrap_or(of_rows);
        (0..n_frames * len).map(move |token| {
            let (age, at) = (n_frames - 1 - token / len, token % len);
            let places = [(of_columns, at % columns), (of_rows, at / columns), (ages, age)];
            (
                token,
                places.map(|(span, at)| (span, at.min((span.range().len() / d).saturating_sub(1)))),
            )
        })
    }

    /// Features of the last of `frames`, the oldest first, all of one camera and size; none of the
    /// others are needed, and more than the past ones of its settings are left out.
    ///
    /// # Errors
    /// As [`Masks::new`].
    pub(super) fn encode(
        &self,
        layout: &VideoLayout,
        weights: &[f32],
        frames: &[&Picture],
    ) -> Result<VitEncoded> {
        let VideoLayout { config: video, .. } = layout;
        let frames = &frames[frames.len().saturating_sub(self.config.n_past + 1)..];
        let size = frames.last().map_or([0; 2], |picture| picture.size);
        let patches = Patches {
            size: size.map(|n| n as usize),
            grid: self.config.grid(size),
            side: self.config.patch,
        };
        let mut last = Vec::new();
        let (mut rows, mut depths_m) = (Vec::new(), Vec::new());
        for picture in frames {
            last = pixels(picture, video.far_m);
            rows.extend(patches.cut(&last, CHANNELS));
            depths_m.push(patches.depths_m(picture));
        }
        let masks = Masks::new(&self.config, &patches, &depths_m, &self.frozen)?;
        let (d, of) = (self.config.width, |span: Span| span.of(weights));
        let mut x = vec![0.0; frames.len() * patches.len() * d];
        linear_forward(&rows, of(self.embed.weight), of(self.embed.bias), &mut x);
        let n_places = if self.ages.is_some() { 3 } else { 2 };
        for (token, places) in self.places_of(&patches, frames.len()) {
            let x = &mut x[token * d..][..d];
            for (span, at) in &places[..n_places] {
                let place = &of(*span)[at * d..][..d];
                x.iter_mut().zip(place).for_each(|(x, place)| *x += place);
            }
        }
        let forward = |(index, block): (usize, &Block)| {
            block.forward(weights, self.heads(), masks.of(index, &self.config), &mut x)
        };
        let blocks: Vec<BlockSaved> = self.blocks.iter().enumerate().map(forward).collect();
        let now = x.len() - patches.len() * d;
        let (saved, y) = norm(self.norm, weights, &x[now..]);
        let n = video.n_features;
        let mut of_patches = vec![0.0; patches.len() * of(self.head.bias).len()];
        linear_forward(&y, of(self.head.weight), of(self.head.bias), &mut of_patches);
        let mut features = vec![0.0; patches.n_pixels() * n];
        linear_forward(&last, of(self.skip.weight), of(self.skip.bias), &mut features);
        patches.join(&of_patches, n, &mut features);
        Ok(VitEncoded { patches, masks, pixels: last, rows, blocks, norm: saved, features })
    }

    /// d_weights += gradients, from those of the features; the pictures have none.
    pub(super) fn backward(
        &self,
        weights: &[f32],
        encoded: &VitEncoded,
        d_features: &[f32],
        d_weights: &mut [f32],
    ) {
        let VitEncoded { patches, masks, pixels, rows, blocks, norm, .. } = encoded;
        let d = self.config.width;
        let n = d_features.len() / patches.n_pixels().max(1);
        dense_back(self.skip, weights, pixels, d_features, d_weights);
        let d_patches = patches.cut(d_features, n);
        let y = norm.output(self.norm, weights);
        let dy = dense_back(self.head, weights, &y, &d_patches, d_weights);
        let n_frames = rows.len() / (patches.len() * self.config.patch.pow(2) * CHANNELS).max(1);
        let mut dx = vec![0.0; n_frames * patches.len() * d];
        let now = dx.len() - patches.len() * d;
        norm.backward(self.norm, weights, dy, &mut dx[now..], d_weights);
        for (index, (block, saved)) in self.blocks.iter().zip(blocks).enumerate().rev() {
            let mask = masks.of(index, &self.config);
            block.backward(weights, self.heads(), mask, saved, &mut dx, d_weights);
        }
        let n_places = if self.ages.is_some() { 3 } else { 2 };
        for (token, places) in self.places_of(patches, n_frames) {
            let dx = &dx[token * d..][..d];
            for (span, at) in &places[..n_places] {
                let place = &mut span.of_mut(d_weights)[at * d..][..d];
                place.iter_mut().zip(dx).for_each(|(place, dx)| *place += dx);
            }
        }
        dense_back(self.embed, weights, rows, &dx, d_weights);
    }
}
