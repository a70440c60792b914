//! What is compared: models that differ from the first one in one thing.

use serde::{Deserialize, Serialize};

use super::parameters::with_as_many_parameters;
use forecloud::engine::graph::EdgeWeights;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig};
use forecloud::engine::model::{GlobalLayer, LocalLayer, MaskConfig, ModelConfig};
use forecloud_lab::layers::{K_MIP, MESSAGE_PASSING, SOFTMAX};
use forecloud_lab::masks::MaskKind;

/// σ of edges weighed by distance (m), walkers a token and their halting probability, where samplers
/// are compared: with uniform weights and full walks they would hardly differ.
const BANDWIDTH_M: f32 = 0.05;
const N_WALKS: usize = 9;
const P_HALT: f32 = 0.25;

/// A model with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in tables and folders: lower-case letters, digits, `_`.
    pub name: String,
    /// The model.
    pub model: ModelConfig,
}

/// Variants that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The local layer: GRF attention, message passing, linear attention, none.
    Layers,
    /// The mask: enumerated or sampled walks, samplers, importance weights; but for the first with
    /// edges weighed by distance, sampled walks with a halting probability.
    Walks,
    /// Neighbours, hops, walks and particles.
    Sizes,
    /// Softmax attention beside linear and GRF attention, at few particles.
    Softmax,
    /// Steps that one pass predicts.
    Chunks,
    /// Every mask of the local layer beside the GRF attention and none.
    Masks,
    /// Sides of the cells of masks that count cells, and how many they reach, beside the GRF attention.
    Cells,
}

impl Suite {
    /// All suites and their names.
    pub const ALL: [(&str, Self); 7] = [
        ("layers", Self::Layers),
        ("walks", Self::Walks),
        ("sizes", Self::Sizes),
        ("softmax", Self::Softmax),
        ("chunks", Self::Chunks),
        ("masks", Self::Masks),
        ("cells", Self::Cells),
    ];

    /// Sizes that the suite has without settings.
    pub fn base(self) -> ModelConfig {
        let default = ModelConfig::default();
        match self {
            Self::Softmax => {
                ModelConfig { n_particles: 512, n_history: 256, n_kinematic: 64, ..default }
            }
            _ => default,
        }
    }

    /// The suite's models of the sizes in `base`, which is the first of them. All have as many
    /// weights as it, as nearly as can be.
    pub fn variants(self, base: ModelConfig) -> Vec<Variant> {
        forecloud_lab::register();
        let models = match self {
            Self::Layers => layers(base),
            Self::Walks => walks(base),
            Self::Sizes => sizes(base),
            Self::Softmax => softmax(base),
            Self::Chunks => chunks(base),
            Self::Masks => masks(base),
            Self::Cells => cells(base),
        };
        let variant = |(name, model): (String, ModelConfig)| {
            let model = with_as_many_parameters(model, &base);
            Variant { name, model }
        };
        models.into_iter().map(variant).collect()
    }
}

type Named = Vec<(String, ModelConfig)>;

fn of_layers(base: ModelConfig, global: GlobalLayer, local: LocalLayer) -> ModelConfig {
    let mut model = base;
    (model.layers.global, model.layers.local) = (global, local);
    model
}

fn layers(base: ModelConfig) -> Named {
    let of = |local: LocalLayer| of_layers(base, GlobalLayer::Linear, local);
    let rivals = [LocalLayer::Grf, MESSAGE_PASSING, LocalLayer::Linear, LocalLayer::None];
    rivals.map(|local| (local.name().to_owned(), of(local))).into()
}

/// The GRF attention, linear attention without a mask, and all masks of the table.
fn masks(base: ModelConfig) -> Named {
    let of = |local: LocalLayer| of_layers(base, GlobalLayer::Linear, local);
    let masks = MaskKind::all().into_iter().map(|kind| LocalLayer::Registered(kind.layer()));
    let all = [LocalLayer::Grf, LocalLayer::Linear].into_iter().chain(masks);
    all.map(|local| (local.name().to_owned(), of(local))).collect()
}

/// The GRF attention, and masks that count cells with other cells and reaches.
fn cells(base: ModelConfig) -> Named {
    let grf = of_layers(base, GlobalLayer::Linear, LocalLayer::Grf);
    let mut models = vec![("grf".to_owned(), grf)];
    for kind in MaskKind::all().into_iter().filter(|kind| kind.reads().cell) {
        let local = LocalLayer::Registered(kind.layer());
        let masked = of_layers(base, GlobalLayer::Linear, local);
        for (cell_cm, n_hops) in [(4u8, 3), (4, 1), (6, 2), (6, 1), (8, 2), (8, 1), (12, 1)] {
            let mask = MaskConfig { cell_m: f32::from(cell_cm) / 100.0, ..base.mask };
            let name = format!("{}_{cell_cm}cm_{n_hops}", kind.name());
            models.push((name, ModelConfig { mask, n_hops, ..masked }));
        }
    }
    models
}

fn softmax(base: ModelConfig) -> Named {
    let model = |name: &str, global, local| (name.to_owned(), of_layers(base, global, local));
    vec![
        model("linear_grf", GlobalLayer::Linear, LocalLayer::Grf),
        model("linear_alone", GlobalLayer::Linear, LocalLayer::None),
        model("softmax_alone", SOFTMAX, LocalLayer::None),
        model("softmax_grf", SOFTMAX, LocalLayer::Grf),
        model("k_mip_grf", K_MIP, LocalLayer::Grf),
    ]
}

fn walks(base: ModelConfig) -> Named {
    let edge_weights = EdgeWeights::Distance { bandwidth_m: BANDWIDTH_M };
    let masked = |name: &str, mask| (name.to_owned(), ModelConfig { mask, ..base });
    let sampled = |name: &str, sampler, importance| {
        let halting = Halting::Probability { p_halt: P_HALT, max_hops: base.n_hops };
        let walks = Some(WalkConfig { sampler, n_walks: N_WALKS, halting, importance });
        masked(name, MaskConfig { edge_weights, walks, ..MaskConfig::default() })
    };
    vec![
        ("all_uniform".to_owned(), base),
        masked("all_distance", MaskConfig { edge_weights, ..MaskConfig::default() }),
        sampled("iid", Sampler::Iid, true),
        sampled("antithetic", Sampler::Antithetic, true),
        sampled("repelling", Sampler::Repelling, true),
        sampled("antithetic_repelling", Sampler::AntitheticRepelling, true),
        sampled("iid_unweighted", Sampler::Iid, false),
        sampled("repelling_unweighted", Sampler::Repelling, false),
    ]
}

/// Passes of the base's steps, and of others.
fn chunks(base: ModelConfig) -> Named {
    let others =
        [1, 2, 5, 10].into_iter().filter(|&steps_per_pass| steps_per_pass != base.steps_per_pass);
    let models = std::iter::once(base)
        .chain(others.map(|steps_per_pass| base.with_steps_per_pass(steps_per_pass)));
    models.map(|model| (format!("chunk_{}", model.steps_per_pass), model)).collect()
}

/// One size at a time; those that are the base's own are left out.
fn sizes(base: ModelConfig) -> Named {
    let mut models = vec![("base".to_owned(), base)];
    for k in [2, 5, 8] {
        models.push((format!("k_{k}"), ModelConfig { k, ..base }));
    }
    for n_hops in [1, 2, 4] {
        models.push((format!("hops_{n_hops}"), ModelConfig { n_hops, ..base }));
    }
    for n_walks in [3, 9, 27] {
        let (sampler, halting) = (Sampler::Repelling, Halting::Hops(base.n_hops));
        let walks = Some(WalkConfig { sampler, n_walks, halting, importance: true });
        let mask = MaskConfig { walks, ..base.mask };
        models.push((format!("walks_{n_walks}"), ModelConfig { mask, ..base }));
    }
    for parts in [4, 2] {
        let n_particles = base.n_particles / parts;
        models.push((format!("particles_{n_particles}"), ModelConfig { n_particles, ..base }));
    }
    models.retain(|(name, model)| name == "base" || *model != base);
    models
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::parameters::n_parameters;

    #[test]
    fn all_variants_are_valid_models_of_other_names_and_as_many_weights() {
        for (name, suite) in Suite::ALL {
            let variants = suite.variants(suite.base());
            assert!(variants.len() >= 4, "{name}");
            assert_eq!(variants[0].model, suite.base(), "{name}");
            let target = n_parameters(&variants[0].model) as f64;
            for (i, Variant { name, model }) in variants.iter().enumerate() {
                model.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
                let difference = n_parameters(model) as f64 / target - 1.0;
                // Each step of a pass has inputs and outputs of its own.
                let most = if suite == Suite::Chunks { 0.06 } else { 0.02 };
                assert!(difference.abs() < most, "{name}: {difference}");
                assert!(variants[..i].iter().all(|other| other.name != *name), "{name}");
                assert!(variants[..i].iter().all(|other| other.model != *model), "{name}");
            }
        }
    }

    #[test]
    fn a_size_that_is_the_bases_own_is_not_compared_twice() {
        let variants = Suite::Sizes.variants(ModelConfig { k: 5, ..ModelConfig::default() });
        assert!(variants.iter().all(|variant| variant.name != "k_5"));
    }
}
