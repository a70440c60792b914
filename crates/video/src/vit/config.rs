//! Settings of the vision transformer, and the choice between it and the U-Net.

use serde::{Deserialize, Serialize};

use forecloud_lab::masks::MaskKind;

/// What gives each pixel its features.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EncoderKind {
    /// A U-Net of colours.
    #[default]
    Unet,
    /// A vision transformer of colours and depths.
    Vit(VitConfig),
}

impl EncoderKind {
    /// Whether it is the U-Net: files without this setting have that.
    pub(crate) fn is_unet(&self) -> bool {
        matches!(self, Self::Unet)
    }

    /// Frames before the one at hand that it looks at.
    pub fn n_past(&self) -> usize {
        match self {
            Self::Unet => 0,
            Self::Vit(vit) => vit.n_past,
        }
    }
}

/// The mask of the attention between patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum PatchMask {
    /// None: all with all.
    #[default]
    None,
    /// A number learnt for each offset between patches, [`forecloud_lab::masks::Toeplitz`].
    Toeplitz,
    /// A mask of the table over the grid of patches.
    Graph(MaskKind),
}

impl PatchMask {
    /// All: what the tool's options and the tests run through.
    pub fn all() -> Vec<Self> {
        let graphs = MaskKind::all().into_iter().map(Self::Graph);
        [Self::None, Self::Toeplitz].into_iter().chain(graphs).collect()
    }

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Toeplitz => "toeplitz",
            Self::Graph(kind) => kind.name(),
        }
    }

    /// Parameters that a block learns of it, for walks and offsets of up to `n_hops` patches.
    pub(super) fn n_params(self, n_hops: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Toeplitz => (2 * n_hops + 1).pow(2),
            Self::Graph(kind) => kind.n_params(n_hops),
        }
    }
}

impl From<PatchMask> for &'static str {
    fn from(mask: PatchMask) -> Self {
        mask.name()
    }
}

impl TryFrom<String> for PatchMask {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        let all = Self::all();
        let names = all.iter().map(|mask| mask.name()).collect::<Vec<_>>().join(", ");
        let mask = all.into_iter().find(|mask| mask.name() == name);
        mask.ok_or_else(|| format!("mask `{name}` of patches is none of {names}"))
    }
}

/// Sizes of the vision transformer, and its mask.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VitConfig {
    /// Side of a patch (pixels).
    pub patch: usize,
    /// Width of a token.
    pub width: usize,
    /// Heads of the attention; they divide the width.
    pub n_heads: usize,
    /// Blocks between the patches of a frame.
    pub n_blocks: usize,
    /// Width of the hidden layer of the blocks, in widths of a token.
    pub mlp_ratio: usize,
    /// What a patch may hear of another.
    pub mask: PatchMask,
    /// How far that goes, in patches: hops of walks, offsets along each axis.
    pub n_hops: usize,
    /// Walks from each patch, of masks that sample them.
    pub n_walks: usize,
    /// Neighbouring patches whose mean depths are farther apart than this (m) are no neighbours; none:
    /// all are.
    pub cut_m: Option<f32>,
    /// Frames before the one at hand that are looked at, where there are so many.
    pub n_past: usize,
    /// Blocks between the patches of all frames, behind the others; none without past frames.
    pub n_time_blocks: usize,
}

impl Default for VitConfig {
    fn default() -> Self {
        Self {
            patch: 8,
            width: 64,
            n_heads: 8,
            n_blocks: 3,
            mlp_ratio: 2,
            mask: PatchMask::None,
            n_hops: 8,
            n_walks: 20,
            cut_m: None,
            n_past: 0,
            n_time_blocks: 1,
        }
    }
}

impl VitConfig {
    /// Most patches along an axis of a picture of `size` (pixels).
    pub(crate) fn grid(&self, size: [u32; 2]) -> [usize; 2] {
        size.map(|n| (n as usize).div_ceil(self.patch))
    }

    /// Blocks between the patches of all frames.
    pub(super) fn n_time_blocks(&self) -> usize {
        if self.n_past > 0 { self.n_time_blocks } else { 0 }
    }

    /// What is wrong with a value: its name, and what is allowed.
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let counts = [
            ("vit.patch", self.patch, 2..=32),
            ("vit.width", self.width, 1..=512),
            ("vit.n_heads", self.n_heads, 1..=64),
            ("vit.n_blocks", self.n_blocks, 1..=24),
            ("vit.mlp_ratio", self.mlp_ratio, 1..=8),
            ("vit.n_hops", self.n_hops, 1..=16),
            // With the longest walks below what loads take.
            ("vit.n_walks", self.n_walks, 1..=1000 / self.n_hops.clamp(1, 16)),
            ("vit.n_past", self.n_past, 0..=8),
            ("vit.n_time_blocks", self.n_time_blocks, 0..=24),
        ];
        for (key, value, allowed) in counts {
            if !allowed.contains(&value) {
                let (low, high) = allowed.into_inner();
                return Some((key, format!("{value} is not {low} to {high}")));
            }
        }
        if !self.width.is_multiple_of(self.n_heads) {
            let problem = format!("{} heads don't divide a width of {}", self.n_heads, self.width);
            return Some(("vit.n_heads", problem));
        }
        let cut_m = self.cut_m?;
        if !(0.001..=100.0).contains(&cut_m) {
            return Some(("vit.cut_m", format!("{cut_m} is not 0.001 to 100")));
        }
        let has_graph = matches!(self.mask, PatchMask::Graph(_));
        let problem = || format!("the mask {} has no edges to cut: leave it out", self.mask.name());
        (!has_graph).then(|| ("vit.cut_m", problem()))
    }
}
