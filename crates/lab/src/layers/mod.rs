//! Layers that models may have in place of those that ship, each in a file of its own, and the masks.

mod anchors;
mod attention;
mod k_mip;
mod masked;
mod messages;
mod softmax;

use forecloud::engine::model::{GlobalLayer, LocalLayer};
use forecloud::engine::registry::{LayerKind, LayerSpec};

use super::masks::MaskKind;

pub use anchors::Anchors;

/// Softmax attention, exact: quadratic time, for comparison.
pub const SOFTMAX: GlobalLayer = GlobalLayer::Registered(LayerKind::of(&softmax::Spec));
/// Softmax attention to the `top_k` keys of largest inner product, exact (k-MIP): quadratic time for
/// the scores alone, linear memory.
pub const K_MIP: GlobalLayer = GlobalLayer::Registered(LayerKind::of(&k_mip::Spec));
/// Message passing over anchors: each anchor hears its k neighbours, then every other token its
/// nearest anchor (the Interlacer of Whitney et al. 2024). Relative positions are inputs: within
/// a roll-out no gradient flows through them.
pub const MESSAGE_PASSING: LocalLayer = LocalLayer::Registered(LayerKind::of(&messages::Spec));

/// All layers, and attention under each mask.
pub(super) fn all() -> impl Iterator<Item = LayerKind> {
    let specs: [&dyn LayerSpec; 3] = [&softmax::Spec, &k_mip::Spec, &messages::Spec];
    specs.map(LayerKind::of).into_iter().chain(MaskKind::all().into_iter().map(MaskKind::layer))
}
