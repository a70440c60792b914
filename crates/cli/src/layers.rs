//! Options of `forecloud train` and `forecloud compare` that choose the model: its sizes, its layers
//! and the mask of its GRF attention.

use std::fmt::Display;

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::engine::graph::EdgeWeights;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig};
use forecloud::engine::masks::{MaskConfig, MaskKind};
use forecloud::engine::model::{
    Encodings, FeatureMap, GlobalLayer, LayersConfig, LocalLayer, Model, ModelConfig,
};
use serde::de::DeserializeOwned;

use super::numbers::by_option;

/// Names of the options in [`LayerArgs`]: a start model and a preset have their own.
pub const IDS: [&str; 13] = [
    "global",
    "local",
    "feature_map",
    "random_features",
    "feature_seed",
    "anchor_stride",
    "top_k",
    "mlp_ratio",
    "edge_bandwidth",
    "sampler",
    "walks",
    "p_halt",
    "mask_cell",
];

/// Names of the options in [`SizeArgs`]; first those in which a start model can grow.
pub const SIZE_IDS: [&str; 10] = [
    "width",
    "chunk",
    "encodings",
    "blocks",
    "k",
    "n_hops",
    "particles",
    "history",
    "n_kinematic",
    "plan_lag",
];
/// How many those are; [`SizeArgs::grow`] knows them.
pub const N_GROWING: usize = 2;

/// Sizes of the model. What is not given stays as it is.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Sizes of the model")]
pub struct SizeArgs {
    #[arg(long, help = or("Width of the model", ModelConfig::default().width))]
    pub width: Option<usize>,
    #[arg(
        long,
        value_name = "STEPS",
        help = or(
            "Steps that one pass predicts; a longer prediction looks again after half of them, or after all \
             of an odd number; 1 is the papers' way",
            ModelConfig::default().chunk
        )
    )]
    chunk: Option<usize>,
    #[arg(
        long,
        value_parser = names(Encodings::ALL, Encodings::name),
        help = or(
            "Tell the model where in their graph its tokens lie, by layers that solve it: `heat`, \
             `eigenvectors` or `both` (docs/src/notebook/method.md)",
            ModelConfig::default().encodings.name()
        )
    )]
    encodings: Option<String>,
    #[arg(long, help = or("Blocks of the model", ModelConfig::default().n_blocks))]
    blocks: Option<usize>,
    #[arg(long, help = or("Neighbours of each token in the graph", ModelConfig::default().k))]
    k: Option<usize>,
    #[arg(long, help = or("Hops of the walks on the graph", ModelConfig::default().n_hops))]
    n_hops: Option<usize>,
    #[arg(
        long,
        help = or("Scene particles; 0 for the default", ModelConfig::default().n_particles)
    )]
    particles: Option<usize>,
    #[arg(long, help = or("History particles", ModelConfig::default().n_history))]
    history: Option<usize>,
    #[arg(
        long,
        help = or("Particles of the robot per time step", ModelConfig::default().n_kinematic)
    )]
    n_kinematic: Option<usize>,
    #[arg(
        long,
        value_name = "SECS",
        help = or(
            "Seconds by which the robot lags behind its command (measure it on yours)",
            ModelConfig::default().plan_lag_secs
        )
    )]
    plan_lag: Option<f64>,
}

/// What an option takes: the names of all values.
fn names<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> PossibleValuesParser {
    PossibleValuesParser::new(all.map(name))
}

/// Help of `--local`: the masks say themselves what they are.
fn local_help() -> String {
    let about = |kind: MaskKind| format!("; {}: {}", kind.name(), kind.about());
    let masks: String = MaskKind::ALL.map(about).concat();
    format!(
        "Local layer: GRF-masked attention, message passing over anchors, linear attention without a \
         mask (one head), none, or attention of all heads under another mask{masks}"
    )
}

/// Help of an option whose default a preset or a suite can be the source of.
pub fn or(what: &str, default: impl Display) -> String {
    format!("{what} [default: {default}]")
}

impl SizeArgs {
    /// Writes the given sizes into `model`; sampled walks go on to its last hop.
    pub fn apply(&self, model: &mut ModelConfig) {
        let sizes = [
            (self.width, &mut model.width),
            (self.blocks, &mut model.n_blocks),
            (self.k, &mut model.k),
            (self.n_hops, &mut model.n_hops),
            (self.particles.filter(|&n| n > 0), &mut model.n_particles),
            (self.history, &mut model.n_history),
            (self.n_kinematic, &mut model.n_kinematic),
        ];
        for (given, size) in sizes {
            *size = given.unwrap_or(*size);
        }
        *model = self.chunk.map_or(*model, |chunk| model.with_chunk(chunk));
        model.encodings = self.encodings().unwrap_or(model.encodings);
        model.plan_lag_secs = self.plan_lag.unwrap_or(model.plan_lag_secs);
        if let Some(walks) = &mut model.mask.walks {
            walks.halting = match walks.halting {
                Halting::Hops(_) => Halting::Hops(model.n_hops),
                Halting::Probability { p_halt, .. } => {
                    Halting::Probability { p_halt, max_hops: model.n_hops }
                }
            };
        }
    }
}

impl SizeArgs {
    fn encodings(&self) -> Option<Encodings> {
        let name = self.encodings.as_ref()?;
        Encodings::ALL.into_iter().find(|encodings| encodings.name() == name)
    }

    /// The start model, as large as the given sizes say.
    ///
    /// # Errors
    /// Says which option a model can't grow by.
    pub fn grow(&self, start: Model, seed: u64) -> anyhow::Result<Model> {
        let wider = match self.width {
            Some(width) => start.widened(width, seed).map_err(by_option)?,
            None => start,
        };
        match self.chunk {
            Some(chunk) => Ok(wider.extended(chunk).map_err(by_option)?),
            None => Ok(wider),
        }
    }
}

/// Layers and mask. The default is the papers' GRF Interlacer with the exact mask.
#[derive(clap::Args)]
#[command(next_help_heading = "Layers (for comparison on the same data)")]
pub struct LayerArgs {
    /// Global layer: linear attention (linear cost), softmax attention (exact, quadratic cost), k_mip
    /// (softmax to the keys of largest inner product: --top-k), or none
    #[arg(long, default_value = "linear", value_parser = names(GlobalLayer::ALL, GlobalLayer::name))]
    global: String,
    #[arg(
        long,
        default_value = "grf",
        value_parser = names(LocalLayer::ALL, LocalLayer::name),
        help = local_help()
    )]
    local: String,
    /// Feature map of linear and GRF attention: ReLU, ELU + 1, x², or FAVOR+ (random features of
    /// the softmax kernel)
    #[arg(long, default_value = "relu", value_parser = names(FeatureMap::ALL, FeatureMap::name))]
    feature_map: String,
    /// Random features per head, with --feature-map favor [default: 64]
    #[arg(long, value_name = "M")]
    random_features: Option<usize>,
    /// Seed of the random features, with --feature-map favor [default: 0]
    #[arg(long, value_name = "SEED")]
    feature_seed: Option<u64>,
    /// One token in so many is an anchor, with --local message_passing [default: 4]
    #[arg(long, value_name = "TOKENS")]
    anchor_stride: Option<usize>,
    /// Keys that each token hears in each head, with --global k_mip [default: 16]
    #[arg(long, value_name = "KEYS")]
    top_k: Option<usize>,
    /// Width of the MLPs' hidden layer, as a multiple of the model's width [default: 4]
    #[arg(long, value_name = "WIDTHS")]
    mlp_ratio: Option<usize>,
    /// Weigh the graph's edges by exp(-d²/σ²) with this σ, in metres; without it all weigh the same.
    /// With --local grf and other masks of the graph
    #[arg(long, value_name = "METRES")]
    edge_bandwidth: Option<f32>,
    /// Sample the walks of the mask, dependent on each other in this way; without it all walks are
    /// taken, which is exact. With --local grf and with masks of sampled walks, and with --walks
    #[arg(long, requires = "walks", value_parser = names(Sampler::ALL, Sampler::name))]
    sampler: Option<String>,
    /// Walks sampled from each token
    #[arg(long, value_name = "N", requires = "sampler")]
    walks: Option<usize>,
    /// Probability with which a sampled walk halts before each hop; without it all are of full length
    #[arg(long, value_name = "P", requires = "sampler")]
    p_halt: Option<f32>,
    /// Side of the cells of masks that count cells [default: 0.04]
    #[arg(long, value_name = "METRES")]
    mask_cell: Option<f32>,
}

impl LayerArgs {
    /// Writes layers and mask into `model`.
    ///
    /// # Errors
    /// Says which options do not belong together.
    pub fn apply(&self, model: &mut ModelConfig) -> anyhow::Result<()> {
        let default = LayersConfig::default();
        model.layers = LayersConfig {
            global: named(&self.global)?,
            local: named(&self.local)?,
            feature_map: self.feature_map()?,
            anchor_stride: self.anchor_stride.unwrap_or(default.anchor_stride),
            top_k: self.top_k.unwrap_or(default.top_k),
            mlp_ratio: self.mlp_ratio.unwrap_or(default.mlp_ratio),
        };
        model.mask = self.mask(model.n_hops)?;
        let sets_mask =
            [self.edge_bandwidth.is_some(), self.sampler.is_some(), self.mask_cell.is_some()];
        ensure!(
            model.layers.local.has_mask() || !sets_mask.contains(&true),
            "--edge-bandwidth, --sampler, --walks, --p-halt and --mask-cell set the mask of GRF \
             attention and of other masked attention: not with --local {}",
            self.local
        );
        ensure!(
            self.anchor_stride.is_none() || self.local == "message_passing",
            "--anchor-stride sets the anchors of message passing: not with --local {}",
            self.local
        );
        ensure!(
            self.top_k.is_none() || self.global == "k_mip",
            "--top-k sets the keys of the k-MIP attention: not with --global {}",
            self.global
        );
        let options = "--global, --local, --feature-map, --anchor-stride, --top-k or --mlp-ratio";
        model.layers.validate().map_err(by_option).context(options)
    }

    fn feature_map(&self) -> anyhow::Result<FeatureMap> {
        let mut map = FeatureMap::ALL.into_iter().find(|map| map.name() == self.feature_map);
        match &mut map {
            Some(FeatureMap::Favor { n_features, seed }) => {
                *n_features = self.random_features.unwrap_or(*n_features);
                *seed = self.feature_seed.unwrap_or(*seed);
            }
            _ => ensure!(
                self.random_features.is_none() && self.feature_seed.is_none(),
                "--random-features and --feature-seed set FAVOR+: not with --feature-map {}",
                self.feature_map
            ),
        }
        map.with_context(|| format!("--feature-map {}: not known", self.feature_map))
    }

    fn mask(&self, n_hops: usize) -> anyhow::Result<MaskConfig> {
        let edge_weights = self
            .edge_bandwidth
            .map_or(EdgeWeights::Uniform, |bandwidth_m| EdgeWeights::Distance { bandwidth_m });
        let halting = match self.p_halt {
            Some(p_halt) => Halting::Probability { p_halt, max_hops: n_hops },
            None => Halting::Hops(n_hops),
        };
        let walks = match (&self.sampler, self.walks) {
            (Some(sampler), Some(n_walks)) => {
                let sampler: Sampler = named(sampler)?;
                Some(WalkConfig { sampler, n_walks, halting, importance: true })
            }
            _ => None,
        };
        let cell_m = self.mask_cell.unwrap_or(MaskConfig::default().cell_m);
        Ok(MaskConfig { edge_weights, walks, cell_m })
    }
}

/// The value of this name in model files.
fn named<T: DeserializeOwned>(name: &str) -> anyhow::Result<T> {
    Ok(serde_json::from_value(serde_json::Value::from(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        sizes: SizeArgs,
        #[command(flatten)]
        layers: LayerArgs,
    }

    fn parse(line: &str) -> anyhow::Result<ModelConfig> {
        let words = std::iter::once("train").chain(line.split_whitespace());
        let mut model = ModelConfig::default();
        let command = Command::try_parse_from(words)?;
        command.sizes.apply(&mut model);
        command.layers.apply(&mut model)?;
        model.validate().map_err(by_option)?;
        Ok(model)
    }

    #[test]
    fn no_option_is_the_default_model() {
        assert_eq!(parse("").unwrap(), ModelConfig::default());
    }

    #[test]
    fn particles_of_0_are_the_default() {
        let n = parse("--particles 0").unwrap().n_particles;
        assert_eq!(n, ModelConfig::default().n_particles);
    }

    #[test]
    fn the_names_of_all_options_are_listed() {
        let command = <Command as clap::CommandFactory>::command();
        let named: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        let listed: Vec<&str> = SIZE_IDS.into_iter().chain(IDS).collect();
        assert_eq!(named, listed);
    }

    #[test]
    fn a_presets_walks_follow_the_hops() {
        let words = ["train", "--n-hops", "2", "--particles", "64"];
        let mut model = forecloud_train::preset::Preset::Paper.model();
        Command::try_parse_from(words).unwrap().sizes.apply(&mut model);
        assert_eq!(model.n_particles, 64);
        model.validate().unwrap();
    }

    #[test]
    fn every_name_is_a_layer_a_map_or_a_sampler() {
        for global in GlobalLayer::ALL {
            let model = parse(&format!("--global {}", global.name())).unwrap();
            assert_eq!(model.layers.global, global);
        }
        for local in LocalLayer::ALL {
            let model = parse(&format!("--local {}", local.name())).unwrap();
            assert_eq!(model.layers.local, local);
        }
        for map in FeatureMap::ALL {
            let model = parse(&format!("--feature-map {}", map.name())).unwrap();
            assert_eq!(model.layers.feature_map, map);
        }
        for sampler in Sampler::ALL {
            let model = parse(&format!("--sampler {} --walks 9", sampler.name())).unwrap();
            assert_eq!(model.mask.walks.unwrap().sampler, sampler);
        }
    }

    #[test]
    fn options_reach_the_model() {
        let model = parse("--global none --feature-map favor --random-features 32").unwrap();
        assert_eq!(model.layers.global, GlobalLayer::None);
        assert_eq!(model.layers.feature_map, FeatureMap::Favor { n_features: 32, seed: 0 });
        let model = parse("--local message_passing --anchor-stride 6").unwrap();
        assert_eq!(model.layers.local, LocalLayer::MessagePassing);
        assert_eq!(model.layers.anchor_stride, 6);
        assert_eq!(parse("--mlp-ratio 6").unwrap().layers.mlp_ratio, 6);
        let model = parse("--k 4 --n-hops 2 --n-kinematic 32 --sampler iid --walks 5").unwrap();
        assert_eq!((model.k, model.n_hops, model.n_kinematic), (4, 2, 32));
        assert_eq!(model.mask.walks.unwrap().halting, Halting::Hops(2));
        let model =
            parse("--edge-bandwidth 0.05 --sampler repelling --walks 9 --p-halt 0.25").unwrap();
        assert_eq!(parse("--local voxels --mask-cell 0.1").unwrap().mask.cell_m, 0.1);
        let expected = MaskConfig {
            edge_weights: EdgeWeights::Distance { bandwidth_m: 0.05 },
            walks: Some(WalkConfig {
                sampler: Sampler::Repelling,
                n_walks: 9,
                halting: Halting::Probability { p_halt: 0.25, max_hops: 3 },
                importance: true,
            }),
            ..MaskConfig::default()
        };
        assert_eq!(model.mask, expected);
    }

    #[test]
    fn options_that_do_not_belong_together_are_refused_by_name() {
        for (line, word) in [
            ("--local convolution", "convolution"),
            ("--walks 9", "--sampler"),
            ("--sampler iid", "--walks"),
            ("--p-halt 0.5", "--sampler"),
            ("--sampler iid --walks 0", "walks"),
            ("--sampler iid --walks 400", "more than 341"),
            ("--sampler iid --walks 9 --p-halt 1", "halting"),
            ("--edge-bandwidth 0", "bandwidth"),
            ("--local none --edge-bandwidth 0.1", "--local none"),
            ("--local none --mask-cell 0.1", "--local none"),
            ("--local voxels --mask-cell 0", "--mask-cell: a cell of 0 m"),
            ("--mask-cell 0.1", "--mask-cell: GRF attention counts no cells"),
            ("--local forest --mask-cell 0.1", "--mask-cell: the mask forest does not read it"),
            ("--local forest --edge-bandwidth 0.1", "--edge-bandwidth: the mask forest does not"),
            ("--local diffusion --sampler iid --walks 4", "diffusion does not read it"),
            ("--local linear --sampler iid --walks 9", "--local linear"),
            ("--anchor-stride 4", "--anchor-stride"),
            ("--top-k 8", "--top-k"),
            ("--global k_mip --top-k 0", "--top-k: 0 is not in"),
            ("--mlp-ratio 40", "--mlp-ratio: 40 is not in 1..=16"),
            ("--k 33", "--k: 33 is not in 1..=32"),
            ("--k 0", "--k: 0 is not in"),
            ("--width 0", "--width: 0 is not in"),
            ("--width 30", "--width: 4 does not divide width 30"),
            ("--width 4096 --blocks 64", "--width: the model has"),
            ("--blocks 99999999999", "--blocks"),
            ("--particles 3", "--particles: 3 are too few"),
            ("--particles 9999999", "--particles"),
            ("--plan-lag nan", "--plan-lag: NaN s is not in 0..=10"),
            ("--k 12 --n-hops 5", "--n-hops"),
            ("--local message_passing --anchor-stride 1", "--anchor-stride: 1 is not in"),
            ("--random-features 9", "--random-features"),
            ("--feature-map elu --feature-seed 1", "--feature-map elu"),
            ("--feature-map favor --random-features 0", "random features"),
            ("--global softmax --local none --feature-map elu", "--feature-map"),
        ] {
            let message = format!("{:#}", parse(line).expect_err(line));
            assert!(message.contains(word), "{line}: {message}");
        }
    }
}
