//! Which token-mixing layers a model is made of: what is compared on the same data.

use serde::{Deserialize, Serialize};

use crate::engine::masks::MaskKind;
pub use crate::engine::ops::feature_map::FeatureMap;
use crate::{Error, Result};

/// The layer of a block in which every token meets every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalLayer {
    /// Linear attention: linear cost.
    #[default]
    Linear,
    /// Softmax attention, exact: quadratic time, for comparison.
    Softmax,
    /// Softmax attention to the `top_k` keys of largest inner product, exact (k-MIP): quadratic time for
    /// the scores alone, linear memory.
    KMip,
    /// No such layer.
    None,
}

impl GlobalLayer {
    /// All: what the tool's options and the tests run through.
    pub const ALL: [Self; 4] = [Self::Linear, Self::Softmax, Self::KMip, Self::None];

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Softmax => "softmax",
            Self::KMip => "k_mip",
            Self::None => "none",
        }
    }
}

/// The layer of a block that carries the local geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum LocalLayer {
    /// GRF-masked attention of one head.
    #[default]
    Grf,
    /// Message passing over anchors: each anchor hears its k neighbours, then every other token its
    /// nearest anchor (the Interlacer of Whitney et al. 2024). Relative positions are inputs: within
    /// a roll-out no gradient flows through them.
    MessagePassing,
    /// Linear attention of one head, as the GRF attention has one, but without its mask: the
    /// transformer that the papers call unmasked.
    Linear,
    /// No such layer.
    None,
    /// Attention of the model's heads under another mask of [`crate::engine::masks`].
    Masked(MaskKind),
}

impl LocalLayer {
    /// Those without another mask: the rivals of the GRF attention.
    pub const UNMASKED: [Self; 4] = [Self::Grf, Self::MessagePassing, Self::Linear, Self::None];
    /// All: what the tool's options and the tests run through.
    pub const ALL: [Self; 4 + MaskKind::ALL.len()] = {
        let mut all = [Self::None; 4 + MaskKind::ALL.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = if i < 4 { Self::UNMASKED[i] } else { Self::Masked(MaskKind::ALL[i - 4]) };
            i += 1;
        }
        all
    };

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grf => "grf",
            Self::MessagePassing => "message_passing",
            Self::Linear => "linear",
            Self::None => "none",
            Self::Masked(kind) => kind.name(),
        }
    }

    /// Whether [`crate::engine::masks::MaskConfig`] says how its mask is made.
    pub const fn has_mask(self) -> bool {
        matches!(self, Self::Grf | Self::Masked(_))
    }
}

impl From<LocalLayer> for &'static str {
    fn from(layer: LocalLayer) -> Self {
        layer.name()
    }
}

impl TryFrom<String> for LocalLayer {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let layer = Self::ALL.into_iter().find(|layer| layer.name() == name);
        layer.ok_or_else(|| format!("local layer `{name}` is none of {names}"))
    }
}

/// A model's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayersConfig {
    /// Global layer of each block.
    pub global: GlobalLayer,
    /// Local layer of each block, behind the global one.
    pub local: LocalLayer,
    /// Feature map of linear and GRF attention.
    pub feature_map: FeatureMap,
    /// Every so many tokens, one is an anchor of message passing.
    pub anchor_stride: usize,
    /// Keys that a query of the k-MIP attention chooses, in each head.
    pub top_k: usize,
    /// Width of the MLPs' hidden layer, in widths of the model. By it models of other layers get as
    /// many weights.
    pub mlp_ratio: usize,
}

impl Default for LayersConfig {
    fn default() -> Self {
        Self {
            global: GlobalLayer::default(),
            local: LocalLayer::default(),
            feature_map: FeatureMap::default(),
            anchor_stride: 4,
            top_k: 16,
            mlp_ratio: 4,
        }
    }
}

impl LayersConfig {
    /// Whether any layer has a feature map.
    pub fn has_feature_map(&self) -> bool {
        let global = match self.global {
            GlobalLayer::Linear => true,
            GlobalLayer::Softmax | GlobalLayer::KMip | GlobalLayer::None => false,
        };
        let local = match self.local {
            LocalLayer::Grf | LocalLayer::Linear | LocalLayer::Masked(_) => true,
            LocalLayer::MessagePassing | LocalLayer::None => false,
        };
        global || local
    }

    /// Checks that the settings belong together.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting and what to do.
    pub fn validate(&self) -> Result<()> {
        self.feature_map.validate()?;
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("model.layers.{key}"), problem })
        };
        if !self.has_feature_map() && self.feature_map != FeatureMap::default() {
            let problem = "no layer has one: take linear or GRF attention, or leave it out";
            return wrong("feature_map", problem.into());
        }
        if !(2..=64).contains(&self.anchor_stride) {
            let problem = format!("{} is not in 2..=64", self.anchor_stride);
            return wrong("anchor_stride", problem);
        }
        if !(1..=1024).contains(&self.top_k) {
            return wrong("top_k", format!("{} is not in 1..=1024", self.top_k));
        }
        if self.global != GlobalLayer::KMip && self.top_k != Self::default().top_k {
            return wrong("top_k", "only the k_mip layer chooses keys: leave it out".into());
        }
        if !(1..=16).contains(&self.mlp_ratio) {
            return wrong("mlp_ratio", format!("{} is not in 1..=16", self.mlp_ratio));
        }
        let has_anchors = self.local == LocalLayer::MessagePassing;
        if !has_anchors && self.anchor_stride != Self::default().anchor_stride {
            let problem = "only message passing has anchors: leave it out".into();
            return wrong("anchor_stride", problem);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::names_in_files;

    #[test]
    fn all_layers_are_listed_under_their_names() {
        let global = GlobalLayer::ALL.map(GlobalLayer::name);
        assert_eq!(global.to_vec(), names_in_files::<GlobalLayer>());
        for (i, local) in LocalLayer::ALL.into_iter().enumerate() {
            let json = serde_json::to_string(&local).unwrap();
            assert_eq!(json, format!("\"{}\"", local.name()));
            assert_eq!(serde_json::from_str::<LocalLayer>(&json).unwrap(), local);
            assert!(LocalLayer::ALL[..i].iter().all(|other| other.name() != local.name()));
        }
        let unknown = serde_json::from_str::<LocalLayer>("\"gnn\"").unwrap_err().to_string();
        assert!(unknown.contains("`gnn` is none of grf, "), "{unknown}");
    }

    #[test]
    fn settings_that_do_not_belong_together_are_refused() {
        let good = LayersConfig::default();
        assert!(good.validate().is_ok());
        let refused = |layers: LayersConfig, key: &str| {
            let message = layers.validate().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        };
        let maps = [FeatureMap::Elu, FeatureMap::Favor { n_features: 9, seed: 1 }];
        for feature_map in maps {
            let layers = LayersConfig { global: GlobalLayer::Softmax, feature_map, ..good };
            assert!(layers.validate().is_ok(), "the local layer has a map");
            let local = LocalLayer::MessagePassing;
            refused(LayersConfig { local, ..layers }, "feature_map");
        }
        let local = LocalLayer::MessagePassing;
        assert!(LayersConfig { local, anchor_stride: 7, ..good }.validate().is_ok());
        refused(LayersConfig { local, anchor_stride: 1, ..good }, "anchor_stride");
        refused(LayersConfig { anchor_stride: 7, ..good }, "anchor_stride");
        refused(LayersConfig { mlp_ratio: 0, ..good }, "mlp_ratio");
        refused(LayersConfig { mlp_ratio: 17, ..good }, "mlp_ratio");
    }
}
