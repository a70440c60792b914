//! Which token-mixing layers a model is made of: what is compared on the same data.

use serde::{Deserialize, Serialize};

pub use crate::engine::ops::feature_map::FeatureMap;
use crate::engine::registry::{LayerKind, Place, Reads, named};
use crate::{Error, Result};

/// The layer of a block in which every token meets every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum GlobalLayer {
    /// Linear attention: linear cost.
    #[default]
    Linear,
    /// No such layer.
    None,
    /// One that is registered ([`crate::engine::registry::register`]).
    Registered(LayerKind),
}

impl GlobalLayer {
    /// Those that ship.
    pub const SHIPPED: [Self; 2] = [Self::Linear, Self::None];

    /// All, with those that are registered: what the tool's options and the tests run through.
    pub fn all() -> Vec<Self> {
        with_registered(&Self::SHIPPED, Place::Global, Self::Registered)
    }

    /// Its name in options and model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::None => "none",
            Self::Registered(kind) => kind.name(),
        }
    }

    /// Which settings it reads.
    pub fn reads(self) -> Reads {
        match self {
            Self::Linear => Reads { feature_map: true, ..Reads::NOTHING },
            Self::None => Reads::NOTHING,
            Self::Registered(kind) => kind.reads(),
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
    /// Linear attention of one head, as the GRF attention has one, but without its mask: the
    /// transformer that the papers call unmasked.
    Linear,
    /// No such layer.
    None,
    /// One that is registered ([`crate::engine::registry::register`]).
    Registered(LayerKind),
}

impl LocalLayer {
    /// Those that ship.
    pub const SHIPPED: [Self; 3] = [Self::Grf, Self::Linear, Self::None];

    /// All, with those that are registered: what the tool's options and the tests run through.
    pub fn all() -> Vec<Self> {
        with_registered(&Self::SHIPPED, Place::Local, Self::Registered)
    }

    /// Its name in options and model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grf => "grf",
            Self::Linear => "linear",
            Self::None => "none",
            Self::Registered(kind) => kind.name(),
        }
    }

    /// Which settings it reads.
    pub fn reads(self) -> Reads {
        match self {
            Self::Grf => Reads { feature_map: true, ..Reads::WALKS },
            Self::Linear => Reads { feature_map: true, ..Reads::NOTHING },
            Self::None => Reads::NOTHING,
            Self::Registered(kind) => kind.reads(),
        }
    }
}

/// Those that ship, and those that are registered for `place`.
fn with_registered<T: Copy>(shipped: &[T], place: Place, of: fn(LayerKind) -> T) -> Vec<T> {
    let registered = LayerKind::all().into_iter().filter(|kind| kind.place() == place);
    shipped.iter().copied().chain(registered.map(of)).collect()
}

impl From<GlobalLayer> for &'static str {
    fn from(layer: GlobalLayer) -> Self {
        layer.name()
    }
}

impl TryFrom<String> for GlobalLayer {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        named("global layer", &name, &Self::all(), Self::SHIPPED.len(), Self::name)
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
        named("local layer", &name, &Self::all(), Self::SHIPPED.len(), Self::name)
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
    /// Checks that the settings belong together.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting and what to do.
    pub fn validate(&self) -> Result<()> {
        self.feature_map.validate()?;
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("model.layers.{key}"), problem })
        };
        let read =
            |reads: fn(&Reads) -> bool| reads(&self.global.reads()) || reads(&self.local.reads());
        let default = Self::default();
        if !read(|reads| reads.feature_map) && self.feature_map != default.feature_map {
            let problem = "no layer has one: take linear or GRF attention, or leave it out";
            return wrong("feature_map", problem.into());
        }
        let sizes = [
            ("anchor_stride", self.anchor_stride, 2..=64),
            ("top_k", self.top_k, 1..=1024),
            ("mlp_ratio", self.mlp_ratio, 1..=16),
        ];
        if let Some((key, size, range)) = sizes.into_iter().find(|(_, n, range)| !range.contains(n))
        {
            return wrong(key, format!("{size} is not in {range:?}"));
        }
        if !read(|reads| reads.top_k) && self.top_k != default.top_k {
            return wrong("top_k", "only the k_mip layer chooses keys: leave it out".into());
        }
        if !read(|reads| reads.anchor_stride) && self.anchor_stride != default.anchor_stride {
            let problem = "only message passing has anchors: leave it out".into();
            return wrong("anchor_stride", problem);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lab::layers::{MESSAGE_PASSING, SOFTMAX};

    fn assert_listed<T>(all: &[T], name: fn(T) -> &'static str)
    where
        T: Copy + PartialEq + std::fmt::Debug + Serialize + serde::de::DeserializeOwned,
    {
        for (i, layer) in all.iter().enumerate() {
            let json = serde_json::to_string(layer).unwrap();
            assert_eq!(json, format!("\"{}\"", name(*layer)));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *layer);
            assert!(all[..i].iter().all(|other| name(*other) != name(*layer)));
        }
        let unknown = serde_json::from_str::<T>("\"gnn\"").unwrap_err().to_string();
        let first = name(all[0]);
        assert!(unknown.contains(&format!("`gnn` is none of {first}, ")), "{unknown}");
        assert!(!unknown.contains("forecloud-lab"), "the laboratory is there: {unknown}");
    }

    #[test]
    fn all_layers_are_listed_under_their_names() {
        assert_listed(&GlobalLayer::all(), GlobalLayer::name);
        assert_listed(&LocalLayer::all(), LocalLayer::name);
        assert!(GlobalLayer::all().len() > GlobalLayer::SHIPPED.len());
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
            let layers = LayersConfig { global: SOFTMAX, feature_map, ..good };
            assert!(layers.validate().is_ok(), "the local layer has a map");
            let local = MESSAGE_PASSING;
            refused(LayersConfig { local, ..layers }, "feature_map");
        }
        let local = MESSAGE_PASSING;
        assert!(LayersConfig { local, anchor_stride: 7, ..good }.validate().is_ok());
        refused(LayersConfig { local, anchor_stride: 1, ..good }, "anchor_stride");
        refused(LayersConfig { anchor_stride: 7, ..good }, "anchor_stride");
        refused(LayersConfig { mlp_ratio: 0, ..good }, "mlp_ratio");
        refused(LayersConfig { mlp_ratio: 17, ..good }, "mlp_ratio");
    }
}
