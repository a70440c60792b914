//! The model: what the Interlacer is, its weights, its tokens, and its fused engine on the CPU.

pub mod calibration;
pub mod cpu;
mod grow;
pub mod interlacer;
pub mod layers;
pub mod rollout;
pub mod tokens;
pub mod weights;

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::model::calibration::Calibration;
use crate::robot::plan::Horizon;
use crate::vision::cloud::Workspace;
use crate::{Error, Result};

pub use crate::engine::step_graph::{MaskConfig, StepGraph};
pub use cpu::{Engine, Gradients, Mode};
pub use interlacer::{InterlacerConfig, Layout, Span};
pub use layers::{FeatureMap, GlobalLayer, LayersConfig, LocalLayer};
pub use rollout::{Rollout, RolloutConfig};
pub use tokens::{Encodings, Inputs, TokenConfig};

/// Metadata key of the configuration in model files.
const CONFIG_KEY: &str = "forecloud.config";
/// Metadata key of the calibration.
const CALIBRATION_KEY: &str = "forecloud.calibration";

/// Everything about a model besides its weights; stored in the model file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Width d of the residual stream.
    pub width: usize,
    /// Heads of the global attention.
    pub n_heads: usize,
    /// Blocks.
    pub n_blocks: usize,
    /// Neighbours of each token.
    pub k: usize,
    /// Hops of the walks.
    pub n_hops: usize,
    /// Scene particles that the model was trained with.
    pub n_particles: usize,
    /// History particles.
    pub n_history: usize,
    /// Points of the two clouds that past motion is estimated from; 0 leaves it unknown.
    pub n_motion: usize,
    /// Kinematic particles of one time; 0 for a model without a robot.
    pub n_kinematic: usize,
    /// Points on the robot for each kinematic particle; nearness to the robot is measured to them.
    pub kinematic_detail: usize,
    /// Of the points on the support plane one in this many becomes a particle; 1 takes all alike.
    pub support_stride: usize,
    /// Length of a step in seconds.
    pub step_secs: f64,
    /// Seconds by which the robot follows its command late.
    pub plan_lag_secs: f64,
    /// Box that the model was trained in (world frame, m).
    pub workspace: Workspace,
    /// Walks and weights of the local attention's mask.
    pub mask: MaskConfig,
    /// Token-mixing layers.
    pub layers: LayersConfig,
    /// Steps that one pass predicts. Roll-outs go pass by pass; 1 is the papers' way.
    #[serde(rename = "chunk")]
    pub steps_per_pass: usize,
    /// Steps of a pass after which a longer roll-out looks again, from where it has come to by then: a
    /// divisor of `steps_per_pass`. None: it looks again after all of them.
    // Without this, serde would take a file that lacks it for one that says none.
    #[serde(rename = "stride", deserialize_with = "Option::deserialize")]
    pub replan_interval: Option<usize>,
    /// What the model is told of its particles.
    pub inputs: Inputs,
    /// What it is told of where they lie in their graph.
    pub encodings: Encodings,
    /// Whether it tells how sure it is.
    pub tells_sigma: bool,
}

/// Most steps of a pass.
pub const MAX_STEPS_PER_PASS: usize = 20;

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            width: 64,
            n_heads: 4,
            n_blocks: 4,
            k: 3,
            n_hops: 3,
            n_particles: 1024,
            n_history: 512,
            n_motion: 8192,
            n_kinematic: 128,
            kinematic_detail: 8,
            support_stride: 8,
            step_secs: 0.1,
            plan_lag_secs: 0.05,
            workspace: Workspace::default(),
            mask: MaskConfig::default(),
            layers: LayersConfig::default(),
            steps_per_pass: 10,
            replan_interval: Some(5),
            inputs: Inputs::Second,
            encodings: Encodings::None,
            tells_sigma: true,
        }
    }
}

impl ModelConfig {
    /// The same model with passes of `steps_per_pass` steps. A longer roll-out looks again after half of a pass,
    /// which was best of all strides that were tried for passes of ten steps (docs/src/notebook/accuracy.md); after the
    /// whole pass where that is an odd number of steps.
    pub fn with_steps_per_pass(self, steps_per_pass: usize) -> Self {
        let replan_interval = steps_per_pass.is_multiple_of(2).then_some(steps_per_pass / 2);
        Self { steps_per_pass, replan_interval, ..self }
    }

    /// Sizes of the Interlacer.
    pub fn interlacer(&self) -> InterlacerConfig {
        InterlacerConfig {
            n_features: tokens::n_features(self.steps_per_pass, self.inputs, self.encodings),
            width: self.width,
            n_heads: self.n_heads,
            n_blocks: self.n_blocks,
            k: self.k,
            n_hops: self.n_hops,
            n_outputs: self.steps_per_pass * (rollout::N_OUTPUTS + usize::from(self.tells_sigma)),
            layers: self.layers,
        }
    }

    /// Points on the robot that places are measured to.
    pub fn n_robot(&self) -> usize {
        self.n_kinematic * self.kinematic_detail
    }

    /// What positions are told relative to.
    pub fn frame(&self) -> tokens::Frame {
        let (min, max) = (self.workspace.min, self.workspace.max);
        tokens::Frame {
            center_m: std::array::from_fn(|axis| 0.5 * (min[axis] + max[axis])),
            half_side_m: (0..3).map(|axis| 0.5 * (max[axis] - min[axis])).fold(0.0, f32::max),
        }
    }

    /// What the roll-out needs to know.
    pub fn rollout(&self) -> RolloutConfig {
        let (frame, interlacer, mask) = (self.frame(), self.interlacer(), self.mask);
        let tokens = TokenConfig {
            frame,
            step_secs: self.step_secs as f32,
            steps_per_pass: self.steps_per_pass,
            inputs: self.inputs,
            encodings: self.encodings,
            k: self.k,
        };
        RolloutConfig { interlacer, mask, tokens, replan_interval: self.replan_interval() }
    }

    /// Steps of a pass behind which the next one starts.
    pub fn replan_interval(&self) -> usize {
        self.replan_interval.unwrap_or(self.steps_per_pass)
    }

    /// Steps that are known behind the pass that step `n_steps` is of.
    pub fn whole_passes(&self, n_steps: usize) -> usize {
        n_steps.next_multiple_of(self.replan_interval())
    }

    /// How many steps ahead the passes of a roll-out of `n_steps` look, to the end of the last one.
    pub fn reach(&self, n_steps: usize) -> usize {
        match self.whole_passes(n_steps) {
            0 => 0,
            known => known - self.replan_interval() + self.steps_per_pass,
        }
    }

    /// When joint positions are wanted for `n_steps` steps, to the end of their last pass, and how late
    /// the robot follows.
    pub fn horizon(&self, n_steps: usize) -> Horizon {
        self.steps(self.reach(n_steps))
    }

    /// As [`ModelConfig::horizon`], but no farther than the `n_steps` steps themselves.
    pub fn steps(&self, n_steps: usize) -> Horizon {
        Horizon { step_secs: self.step_secs, n_steps, lag_secs: self.plan_lag_secs }
    }

    /// Checks all values before anything is allocated for them.
    ///
    /// # Errors
    /// [`Error::Config`] names the value.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("model.{key}"), problem })
        };
        if !(1..=MAX_STEPS_PER_PASS).contains(&self.steps_per_pass) {
            return wrong(
                "chunk",
                format!("{} is not in 1..={MAX_STEPS_PER_PASS}", self.steps_per_pass),
            );
        }
        if let Some(replan_interval) = self.replan_interval
            && (replan_interval == 0 || !self.steps_per_pass.is_multiple_of(replan_interval))
        {
            let problem = format!(
                "{replan_interval} does not divide the {} steps of a pass: take one of their divisors",
                self.steps_per_pass
            );
            return wrong("stride", problem);
        }
        self.interlacer().validate()?;
        self.mask.validate(self.n_hops)?;
        self.mask.validate_for(self.layers.local.name(), self.layers.local.reads())?;
        if self.n_particles <= self.k {
            let (n, k) = (self.n_particles, self.k);
            let problem = format!("{n} are too few for a graph of {k} neighbours");
            return wrong("n_particles", format!("{problem}: {}..={}", k + 1, 1 << 20));
        }
        let counts = [
            ("n_particles", self.n_particles),
            ("n_history", self.n_history),
            ("n_motion", self.n_motion),
            ("n_kinematic", self.n_kinematic),
        ];
        if let Some((key, n)) = counts.into_iter().find(|&(_, n)| n > 1 << 20) {
            return wrong(key, format!("{n} is more than {}", 1 << 20));
        }
        if !(1..=64).contains(&self.kinematic_detail) {
            let problem = format!("{} is not in 1..=64", self.kinematic_detail);
            return wrong("kinematic_detail", problem);
        }
        if !(1..=1 << 20).contains(&self.support_stride) {
            let problem = format!("{} is not in 1..={}", self.support_stride, 1 << 20);
            return wrong("support_stride", problem);
        }
        if !(1e-3..=10.0).contains(&self.step_secs) {
            return wrong("step_secs", format!("{} s is not in 0.001..=10", self.step_secs));
        }
        if !(0.0..=10.0).contains(&self.plan_lag_secs) {
            return wrong("plan_lag_secs", format!("{} s is not in 0..=10", self.plan_lag_secs));
        }
        let n_weights = Layout::new(self.interlacer()).n_params();
        if n_weights > weights::MAX_WEIGHTS {
            let problem = format!(
                "the model has {n_weights} weights, more than {}: take a smaller width, or fewer \
                 blocks",
                weights::MAX_WEIGHTS
            );
            return wrong("width", problem);
        }
        self.workspace.validate()
    }
}

/// A trained model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Sizes and settings.
    pub config: ModelConfig,
    /// Flat weights, laid out as [`Layout`] says.
    pub weights: Vec<f32>,
    /// What its sigmas are multiplied by; none of models that were not calibrated, or tell none.
    pub calibration: Option<Calibration>,
    /// 16 hexadecimal digits that name configuration, weights and calibration.
    pub hash: String,
}

impl Model {
    /// A model of given weights.
    ///
    /// # Errors
    /// [`Error::Config`] or [`Error::Shape`] if they do not belong together.
    pub fn new(config: ModelConfig, weights: Vec<f32>) -> Result<Self> {
        config.validate()?;
        let expected = Layout::new(config.interlacer()).n_params();
        if weights.len() != expected {
            return Err(Error::Shape { what: "weights", expected, got: weights.len() });
        }
        let hash = weights::hash(&config_json(&config), &weights);
        Ok(Self { config, weights, calibration: None, hash })
    }

    /// The same model, calibrated.
    ///
    /// # Errors
    /// As [`Calibration::validate`]; [`Error::Config`] for a model that tells no sigma.
    pub fn calibrated(self, calibration: Calibration) -> Result<Self> {
        calibration.validate()?;
        if !self.config.tells_sigma {
            let problem = "the model does not tell how sure it is, as models of the papers' preset don't: \
                           train one without --preset paper";
            return Err(Error::Config { key: "calibration".into(), problem: problem.into() });
        }
        let named = config_json(&self.config) + &json(&calibration);
        let hash = weights::hash(&named, &self.weights);
        Ok(Self { calibration: Some(calibration), hash, ..self })
    }

    /// Reads a model file: safetensors, the configuration in its metadata.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Model`] or [`Error::Config`] say what is wrong with the file.
    pub fn load(path: &Path) -> Result<Self> {
        let file = weights::File::open(path)?;
        let config = read_config(path, &file.metadata)?;
        let model = Self::new(config, file.vector(&Layout::new(config.interlacer()).tensors, "")?)?;
        let Some(text) = file.metadata.get(CALIBRATION_KEY) else { return Ok(model) };
        let wrong =
            |problem: String| weights::model_error(path, format!("{CALIBRATION_KEY}: {problem}"));
        let calibration = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        model.calibrated(calibration).map_err(|e| wrong(e.to_string()))
    }

    /// Writes a model file.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Model`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let layout = Layout::new(self.config.interlacer());
        let mut metadata = config_metadata(&self.config);
        let calibration = self.calibration.as_ref().map(json);
        metadata.extend(calibration.map(|text| (CALIBRATION_KEY.to_owned(), text)));
        weights::save(path, &layout.tensors, &[("", &self.weights)], metadata)
    }
}

/// The configuration as model files hold it.
pub fn config_metadata(config: &ModelConfig) -> HashMap<String, String> {
    HashMap::from([(CONFIG_KEY.to_owned(), config_json(config))])
}

/// The checked configuration of a model file.
pub fn read_config(path: &Path, metadata: &HashMap<String, String>) -> Result<ModelConfig> {
    let wrong = |problem| weights::model_error(path, problem);
    let json = metadata.get(CONFIG_KEY).ok_or_else(|| {
        wrong(format!("its metadata has no {CONFIG_KEY}: another program's model"))
    })?;
    let config: ModelConfig = serde_json::from_str(json).map_err(|e| {
        let hint = "trained with another version of Forecloud? Train it anew with this one";
        wrong(format!("{CONFIG_KEY}: {e} ({hint})"))
    })?;
    config.validate().map_err(|e| wrong(e.to_string()))?;
    Ok(config)
}

fn config_json(config: &ModelConfig) -> String {
    json(config)
}

fn json(value: &impl Serialize) -> String {
    // Numbers, strings and structs always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::tokens::N_FEATURES;
    use super::*;

    fn model() -> Model {
        let config = ModelConfig { width: 8, n_heads: 2, n_blocks: 1, ..ModelConfig::default() };
        let weights = weights::initial_weights(&Layout::new(config.interlacer()), 1);
        Model::new(config, weights).unwrap()
    }

    #[test]
    fn a_saved_model_is_the_same_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        let saved = model();
        saved.save(&path).unwrap();
        let loaded = Model::load(&path).unwrap();
        assert_eq!((loaded.config, &loaded.weights), (saved.config, &saved.weights));
        assert_eq!(loaded.hash, saved.hash);
    }

    #[test]
    fn a_calibration_is_kept_and_named_and_is_only_of_models_that_tell_sigma() {
        let factors = (0..5).map(|i| [vec![1.0 + i as f32], vec![3.0]]).collect();
        let calibration = Calibration { n_recordings: 9, factors };
        let of = |tells_sigma: bool| {
            let config = ModelConfig { tells_sigma, ..model().config };
            let weights = weights::initial_weights(&Layout::new(config.interlacer()), 1);
            Model::new(config, weights).unwrap()
        };
        assert!(of(false).calibrated(calibration.clone()).is_err());
        let plain = of(true);
        let saved = plain.clone().calibrated(calibration).unwrap();
        assert_ne!(saved.hash, plain.hash);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        saved.save(&path).unwrap();
        let loaded = Model::load(&path).unwrap();
        assert_eq!((loaded.calibration, loaded.hash), (saved.calibration, saved.hash));
        let text = std::fs::read(&path).unwrap();
        let at = text.windows(12).position(|w| w == b"n_recordings").unwrap();
        let mut other = text.clone();
        other[at] = b'm';
        std::fs::write(&path, other).unwrap();
        let message = Model::load(&path).unwrap_err().to_string();
        assert!(message.contains("forecloud.calibration"), "{message}");
    }

    #[test]
    fn the_same_model_gives_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        let (model, layout) = (model(), Layout::new(model().config.interlacer()));
        // As many keys as a checkpoint has: their order in a hash map differs from map to map.
        let bytes = || {
            let mut metadata = config_metadata(&model.config);
            metadata.extend(["b", "a", "d", "c"].map(|key| (key.to_owned(), key.to_owned())));
            weights::save(&path, &layout.tensors, &[("", &model.weights)], metadata).unwrap();
            std::fs::read(&path).unwrap()
        };
        let first = bytes();
        assert!((0..10).all(|_| bytes() == first));
        assert_eq!(Model::load(&path).unwrap().hash, model.hash);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_before_anything_is_allocated() {
        let told = |config: ModelConfig| config.validate().unwrap_err().to_string();
        let default = ModelConfig::default();
        for n_particles in [0, 1, default.k] {
            let message = told(ModelConfig { n_particles, ..default });
            assert!(message.contains("model.n_particles") && message.contains("4..="), "{message}");
        }
        let message = told(ModelConfig { width: 4096, n_blocks: 64, ..default });
        assert!(message.contains("model.width") && message.contains("weights"), "{message}");
    }

    #[test]
    fn the_card_names_the_shipped_model() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/small.safetensors");
        let hash = Model::load(&shipped).unwrap().hash;
        assert!(
            include_str!("../../models/README.md").contains(&hash),
            "{hash} is not in the card"
        );
    }

    #[test]
    fn files_hold_every_setting_and_only_those() {
        let layers = LayersConfig {
            local: crate::engine::lab::layers::MESSAGE_PASSING,
            feature_map: FeatureMap::Favor { n_features: 24, seed: 5 },
            anchor_stride: 6,
            top_k: 16,
            ..LayersConfig::default()
        };
        let other = ModelConfig { layers, ..ModelConfig::default() };
        let json = config_json(&other);
        assert_eq!(serde_json::from_str::<ModelConfig>(&json).unwrap(), other);
        assert!(serde_json::from_str::<ModelConfig>(&json.replace("global", "globe")).is_err());
        let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
        for key in whole.as_object().unwrap().keys() {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(key);
            let message = serde_json::from_value::<ModelConfig>(less).unwrap_err().to_string();
            assert!(message.contains(key), "without {key}: {message}");
        }
        assert!(other.validate().is_ok());
        let walks = crate::engine::graph::EdgeWeights::Distance { bandwidth_m: 0.1 };
        let mask = MaskConfig { edge_weights: walks, ..MaskConfig::default() };
        assert!(ModelConfig { mask, ..other }.validate().unwrap_err().to_string().contains("mask"));
    }

    #[test]
    fn passes_start_behind_strides_and_look_to_their_own_ends() {
        let again =
            ModelConfig { steps_per_pass: 10, replan_interval: Some(5), ..ModelConfig::default() };
        let whole = ModelConfig { replan_interval: None, ..again };
        let of = |config: &ModelConfig, n| (config.whole_passes(n), config.reach(n));
        assert_eq!(
            [0, 1, 5, 6, 10, 11].map(|n| of(&again, n)),
            [(0, 0), (5, 10), (5, 10), (10, 15), (10, 15), (15, 20)]
        );
        assert_eq!([0, 1, 10, 11].map(|n| of(&whole, n)), [(0, 0), (10, 10), (10, 10), (20, 20)]);
        assert_eq!(serde_json::from_str::<ModelConfig>(&config_json(&again)).unwrap(), again);
        for replan_interval in [0, 3, 20] {
            let error = ModelConfig { replan_interval: Some(replan_interval), ..again }
                .validate()
                .unwrap_err();
            assert!(error.to_string().contains("model.stride"), "{error}");
        }
    }

    #[test]
    fn other_numbers_of_features_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        let model = model();
        for n_features in [N_FEATURES - 1, N_FEATURES + 1] {
            let layout = Layout::new(InterlacerConfig { n_features, ..model.config.interlacer() });
            let weights = weights::initial_weights(&layout, 1);
            let metadata = config_metadata(&model.config);
            weights::save(&path, &layout.tensors, &[("", &weights)], metadata).unwrap();
            let message = Model::load(&path).unwrap_err().to_string();
            let told = ["embed.weight is F32", "asks for"].iter().any(|w| message.contains(w));
            assert!(told, "{n_features}: {message}");
        }
    }

    #[test]
    fn foreign_truncated_and_damaged_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        let refuse = |bytes: &[u8], reason: &str| {
            std::fs::write(&path, bytes).unwrap();
            let message = Model::load(&path).unwrap_err().to_string();
            assert!(message.contains("m.safetensors") && message.contains(reason), "{message}");
        };
        model().save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 3, 8, 100, bytes.len() / 2, bytes.len() - 1] {
            refuse(&bytes[..cut], "safetensors");
        }
        let text = |from: &str, to: &str| {
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut bytes = bytes.clone();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            bytes
        };
        refuse(&text("forecloud.config", "somebodys.config"), "another program's model");
        refuse(&text("forecloud.sha256", "somebodys.sha256"), "no forecloud.sha256");
        refuse(&text("\\\"width\\\":8", "\\\"width\\\":0"), "width");
        refuse(&text("\\\"width\\\":8", "\\\"width\\\":4"), "expected F32");
        refuse(&text("\\\"n_hops\\\"", "\\\"n_hips\\\""), "n_hips");
        // Sizes are held to the file's before anything is allocated for them.
        refuse(&text("\\\"n_blocks\\\":1", "\\\"n_blocks\\\":9"), "asks for");
        refuse(&text("\\\"n_hops\\\":3", "\\\"n_hops\\\":8"), "walks a token");
        refuse(&text("head.bias", "tail.bias"), "tail.bias is none of its configuration");
        let mut damaged = bytes.clone();
        let end = damaged.len();
        damaged[end - 1] ^= 1;
        refuse(&damaged, "damaged since it was written");
        assert!(matches!(Model::load(&folder.path().join("none")), Err(Error::Io { .. })));
    }
}
