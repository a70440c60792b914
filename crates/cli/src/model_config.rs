//! `--model-config FILE`: what no table shows to matter, and whoever compares models needs nevertheless:
//! sizes, layers and masks of a model, and the rarer settings of its training.

use forecloud::Error;
use forecloud::engine::graph::walks::Halting;
use forecloud::engine::model::ModelConfig;
use forecloud_train::compare::Settings;
use forecloud_train::config::{TrainConfig, check_curriculum};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::numbers::wrong;

/// What a file may set of a training; what it does not set stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainKeys {
    /// `[[share of the steps, length of the roll-out], …]`.
    pub curriculum: Option<Vec<(f64, usize)>>,
    /// How much less later steps count in the loss.
    pub step_discount: Option<f32>,
    /// Strength of the noise added to recordings with truth.
    pub sensor_noise: Option<f32>,
    /// Windows of a validation.
    pub validation_windows: Option<usize>,
    /// Seconds from one checkpoint to the next.
    pub checkpoint_secs: Option<f64>,
    /// Seed of the choice of recordings that are held out.
    pub hold_out_seed: Option<u64>,
    /// Weight of the loss of pixels.
    pub pixel_weight: Option<f32>,
    /// Rays of each step that is drawn.
    pub rays: Option<usize>,
}

const TRAIN_KEYS: [&str; 8] = [
    "curriculum",
    "step_discount",
    "sensor_noise",
    "validation_windows",
    "checkpoint_secs",
    "hold_out_seed",
    "pixel_weight",
    "rays",
];

/// Objects in a model's configuration of which a file may give some keys alone.
const NESTED: [&str; 3] = ["mask", "layers", "workspace"];

/// A file that was read; its keys are known, and their values of the right kind.
#[derive(Debug, Clone, Default)]
pub struct ModelFile {
    name: String,
    model: Map<String, Value>,
    train: TrainKeys,
}

/// The option, for all commands that have it.
#[derive(clap::Args)]
pub struct ModelConfigArgs {
    /// JSON file for settings that seldom matter: {"model": {…}, "train": {…}}. `model` takes any key of
    /// a model's settings, as `forecloud info` prints them; `train` takes curriculum, step_discount,
    /// sensor_noise, validation_windows, checkpoint_secs, hold_out_seed, pixel_weight and rays.
    /// Keys that are left out keep their defaults
    #[arg(long, value_name = "FILE", value_parser = ModelFile::read)]
    model_config: Option<ModelFile>,
}

impl ModelFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Names the key, and what is known or allowed.
    pub fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let Value::Object(mut parts) = value else {
            return Err("expected a JSON object, such as {\"model\": {\"k\": 4}}".into());
        };
        let mut part = |name: &str| match parts.remove(name) {
            None => Ok(Map::new()),
            Some(Value::Object(keys)) => Ok(keys),
            Some(_) => Err(format!("{name}: expected an object")),
        };
        let (model, train) = (part("model")?, part("train")?);
        if let Some(key) = parts.keys().next() {
            return Err(format!("unknown key '{key}'; known: model, train"));
        }
        for (key, value) in &model {
            with_key(ModelConfig::default(), key, value)?;
        }
        Ok(Self { name: path.to_owned(), model, train: train_keys(train)? })
    }

    /// `base` with the file's keys.
    fn apply(&self, base: ModelConfig) -> Result<ModelConfig, String> {
        let mut model = base;
        // Before the walks that go on to the last hop, and the interval that goes with the pass.
        for first in ["n_hops", "chunk"] {
            if let Some(value) = self.model.get(first) {
                model = with_key(model, first, value)?;
            }
        }
        if self.model.contains_key("chunk") {
            model = model.with_steps_per_pass(model.steps_per_pass);
        }
        if let Some(walks) = &mut model.mask.walks {
            walks.halting = match walks.halting {
                Halting::Hops(_) => Halting::Hops(model.n_hops),
                Halting::Probability { p_halt, .. } => {
                    Halting::Probability { p_halt, max_hops: model.n_hops }
                }
            };
        }
        for (key, value) in &self.model {
            model = with_key(model, key, value)?;
        }
        Ok(model)
    }
}

/// The configuration with another value of one key.
fn with_key(model: ModelConfig, key: &str, value: &Value) -> Result<ModelConfig, String> {
    let told = |error: serde_json::Error| format!("model.{key}: {error}");
    let mut all = serde_json::to_value(model).map_err(told)?;
    let names = |object: &Value| -> String {
        let names = object.as_object().into_iter().flat_map(Map::keys);
        names.map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let known = names(&all);
    let place = all.get_mut(key);
    let place = place.ok_or_else(|| format!("unknown key 'model.{key}'; known: {known}"))?;
    match value {
        Value::Object(keys) if NESTED.contains(&key) => {
            for (name, value) in keys {
                let known = names(place);
                let unknown = || format!("unknown key 'model.{key}.{name}'; known: {known}");
                let inner = place.get_mut(name).ok_or_else(unknown)?;
                *inner = match name.as_str() {
                    "walks" => whole_walks(value.clone(), model.n_hops),
                    _ => value.clone(),
                };
            }
        }
        _ => *place = value.clone(),
    }
    serde_json::from_value(all).map_err(told)
}

/// Walks of which some keys are given: they go on to the last hop, and are weighed.
fn whole_walks(mut walks: Value, n_hops: usize) -> Value {
    if let Some(keys) = walks.as_object_mut() {
        keys.entry("halting").or_insert(json!({ "hops": n_hops }));
        keys.entry("importance").or_insert(json!(true));
    }
    walks
}

fn train_keys(keys: Map<String, Value>) -> Result<TrainKeys, String> {
    for (key, value) in &keys {
        if !TRAIN_KEYS.contains(&key.as_str()) {
            return Err(format!("unknown key 'train.{key}'; known: {}", TRAIN_KEYS.join(", ")));
        }
        let alone = serde_json::from_value::<TrainKeys>(json!({ key: value }));
        alone.map_err(|error| format!("train.{key}: {error}"))?;
    }
    let keys: TrainKeys =
        serde_json::from_value(Value::Object(keys)).map_err(|error| error.to_string())?;
    keys.check()?;
    Ok(keys)
}

impl TrainKeys {
    fn check(&self) -> Result<(), String> {
        fn within<T: PartialOrd + std::fmt::Display>(
            key: &str,
            value: &Option<T>,
            range: std::ops::RangeInclusive<T>,
        ) -> Result<(), String> {
            match value {
                Some(value) if !range.contains(value) => Err(format!(
                    "train.{key}: {value} is not in {}..={}",
                    range.start(),
                    range.end()
                )),
                _ => Ok(()),
            }
        }
        if let Some(stages) = &self.curriculum {
            check_curriculum(stages).map_err(|problem| format!("train.curriculum: {problem}"))?;
        }
        within("step_discount", &self.step_discount, TrainConfig::STEP_DISCOUNT)?;
        within("sensor_noise", &self.sensor_noise, TrainConfig::SENSOR_NOISE)?;
        within("validation_windows", &self.validation_windows, Settings::COUNT)?;
        within("checkpoint_secs", &self.checkpoint_secs, 0.0..=86_400.0)?;
        within("pixel_weight", &self.pixel_weight, 1e-6..=1e6)?;
        within("rays", &self.rays, 1..=65_536)
    }

    /// Writes them into `config` of a run of `model`; a curriculum that is not given reaches the end of
    /// its passes.
    pub fn apply(&self, config: &mut TrainConfig, model: &ModelConfig) {
        match &self.curriculum {
            Some(stages) => config.curriculum.clone_from(stages),
            None => config.reach_whole_passes(model),
        }
        config.step_discount = self.step_discount.unwrap_or(config.step_discount);
        config.sensor_noise = self.sensor_noise.unwrap_or(config.sensor_noise);
    }
}

impl ModelConfigArgs {
    /// Whether a file says something of the model.
    pub fn sets_model(&self) -> bool {
        self.model_config.as_ref().is_some_and(|file| !file.model.is_empty())
    }

    /// What a file says of the training.
    pub fn train(&self) -> TrainKeys {
        self.model_config.as_ref().map(|file| file.train.clone()).unwrap_or_default()
    }

    /// `base` with the file's keys, then with the sizes that have an option of their own.
    ///
    /// # Errors
    /// Names the option, and for the file the key.
    pub fn model(
        &self,
        base: ModelConfig,
        [width, steps_per_pass]: [Option<usize>; 2],
    ) -> anyhow::Result<ModelConfig> {
        let mut model = base;
        if let Some(file) = &self.model_config {
            model = file.apply(model).map_err(|problem| self.refused(&problem))?;
        }
        model.width = width.unwrap_or(model.width);
        model = steps_per_pass
            .map_or(model, |steps_per_pass| model.with_steps_per_pass(steps_per_pass));
        model.validate().map_err(|error| match (&error, &self.model_config) {
            (Error::Config { key, problem }, file) => match (key.as_str(), file) {
                ("model.width" | "model.n_heads", _) if width.is_some() => {
                    wrong(format!("--width: {problem}"))
                }
                ("model.chunk", _) if steps_per_pass.is_some() => {
                    wrong(format!("--steps-per-pass: {problem}"))
                }
                (_, Some(_)) => self.refused(&error),
                (_, None) => wrong(&error),
            },
            _ => wrong(&error),
        })?;
        Ok(model)
    }

    /// The error of what the file says.
    pub fn refused(&self, problem: &dyn std::fmt::Display) -> anyhow::Error {
        let name = self.model_config.as_ref().map_or("", |file| file.name.as_str());
        wrong(format!("--model-config {name}: {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::engine::graph::EdgeWeights;
    use forecloud::engine::graph::walks::{Sampler, WalkConfig};
    use forecloud::engine::model::{Encodings, FeatureMap, GlobalLayer, LocalLayer};
    use forecloud::engine::step_graph::MaskConfig;
    use forecloud_train::preset::Preset;

    fn args(text: &str) -> Result<ModelConfigArgs, String> {
        forecloud_lab::register();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let file = ModelFile::read(&file.path().display().to_string())?;
        Ok(ModelConfigArgs { model_config: Some(file) })
    }

    fn model(keys: &str) -> Result<ModelConfig, String> {
        let args = args(&format!("{{\"model\": {{{keys}}}}}"))?;
        args.model(ModelConfig::default(), [None; 2]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn no_key_is_the_default_model() {
        assert_eq!(model("").unwrap(), ModelConfig::default());
        let none = ModelConfigArgs { model_config: None };
        assert_eq!(none.model(ModelConfig::default(), [None; 2]).unwrap(), ModelConfig::default());
        assert_eq!(none.train(), TrainKeys::default());
    }

    /// Every key of a model's settings is one of the file's, floats to the bit.
    #[test]
    fn a_models_own_settings_are_a_file() {
        for (_, preset) in Preset::ALL {
            let json = serde_json::to_string(&preset.model()).unwrap();
            let args = args(&format!("{{\"model\": {json}}}")).unwrap();
            assert_eq!(args.model(ModelConfig::default(), [None; 2]).unwrap(), preset.model());
        }
    }

    #[test]
    fn every_name_is_a_layer_a_map_or_a_sampler() {
        for global in GlobalLayer::all() {
            let found = model(&format!("\"layers\": {{\"global\": \"{}\"}}", global.name()));
            assert_eq!(found.unwrap().layers.global, global);
        }
        for local in LocalLayer::all() {
            let found = model(&format!("\"layers\": {{\"local\": \"{}\"}}", local.name()));
            assert_eq!(found.unwrap().layers.local, local);
        }
        for encodings in Encodings::all() {
            let found = model(&format!("\"encodings\": \"{}\"", encodings.name()));
            assert_eq!(found.unwrap().encodings, encodings);
        }
        for sampler in Sampler::ALL {
            let walks = format!("{{\"sampler\": \"{}\", \"n_walks\": 9}}", sampler.name());
            let found = model(&format!("\"mask\": {{\"walks\": {walks}}}")).unwrap();
            assert_eq!(found.mask.walks.unwrap().sampler, sampler);
        }
    }

    #[test]
    fn keys_reach_the_model() {
        let favor = "{\"favor\": {\"n_features\": 32, \"seed\": 3}}";
        let found = model(&format!("\"layers\": {{\"feature_map\": {favor}}}")).unwrap();
        assert_eq!(found.layers.feature_map, FeatureMap::Favor { n_features: 32, seed: 3 });
        let found = model(
            "\"k\": 4, \"n_hops\": 2, \"n_kinematic\": 32, \
             \"mask\": {\"walks\": {\"sampler\": \"iid\", \"n_walks\": 5}}",
        );
        let found = found.unwrap();
        assert_eq!((found.k, found.n_hops, found.n_kinematic), (4, 2, 32));
        assert_eq!(found.mask.walks.unwrap().halting, Halting::Hops(2));
        let found = model(
            "\"mask\": {\"edge_weights\": {\"distance\": {\"bandwidth_m\": 0.05}}, \
             \"walks\": {\"sampler\": \"repelling\", \"n_walks\": 9, \
             \"halting\": {\"probability\": {\"p_halt\": 0.25, \"max_hops\": 3}}}}",
        );
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
        assert_eq!(found.unwrap().mask, expected);
    }

    #[test]
    fn a_presets_walks_follow_the_hops_and_a_pass_its_stride() {
        let args = args("{\"model\": {\"n_hops\": 2, \"chunk\": 4}}").unwrap();
        let found = args.model(Preset::Paper.model(), [None; 2]).unwrap();
        assert_eq!(found.mask.walks.unwrap().halting, Halting::Hops(2));
        assert_eq!((found.steps_per_pass, found.replan_interval), (4, Some(2)));
        // The options of growing models count for new ones, too.
        let found = args.model(ModelConfig::default(), [Some(32), Some(5)]).unwrap();
        assert_eq!((found.width, found.steps_per_pass, found.replan_interval), (32, 5, None));
        let told = args.model(ModelConfig::default(), [Some(30), None]).unwrap_err();
        assert_eq!(told.to_string(), "--width: 4 does not divide width 30");
        let told = args.model(ModelConfig::default(), [None, Some(21)]).unwrap_err();
        assert_eq!(told.to_string(), "--steps-per-pass: 21 is not in 1..=20");
    }

    #[test]
    fn keys_reach_the_training() {
        let args = args(
            "{\"train\": {\"curriculum\": [[0, 1], [0.5, 2]], \"step_discount\": 0.25, \
             \"sensor_noise\": 1, \"validation_windows\": 4, \"checkpoint_secs\": 0, \
             \"hold_out_seed\": 3, \"pixel_weight\": 2, \"rays\": 64}}",
        );
        let keys = args.unwrap().train();
        let mut config = TrainConfig::default();
        keys.apply(&mut config, &ModelConfig::default());
        assert_eq!(config.curriculum, [(0.0, 1), (0.5, 2)]);
        assert_eq!((config.step_discount, config.sensor_noise), (0.25, 1.0));
        assert_eq!((keys.validation_windows, keys.checkpoint_secs), (Some(4), Some(0.0)));
        assert_eq!(
            (keys.hold_out_seed, keys.pixel_weight, keys.rays),
            (Some(3), Some(2.0), Some(64))
        );
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_key() {
        for (text, word) in [
            ("", "EOF"),
            ("[]", "JSON object"),
            ("{\"modle\": {}}", "unknown key 'modle'; known: model, train"),
            ("{\"model\": 3}", "model: expected an object"),
            ("{\"train\": {\"rate\": 1}}", "unknown key 'train.rate'; known: curriculum"),
            ("{\"train\": {\"rays\": -1}}", "train.rays: invalid value"),
            ("{\"train\": {\"rays\": 0}}", "train.rays: 0 is not in 1..=65536"),
            ("{\"train\": {\"pixel_weight\": 0}}", "train.pixel_weight: 0 is not in"),
            ("{\"train\": {\"sensor_noise\": 11}}", "train.sensor_noise: 11 is not in 0..=10"),
            ("{\"train\": {\"step_discount\": 5}}", "train.step_discount: 5 is not in 0..=4"),
            ("{\"train\": {\"validation_windows\": 0}}", "validation_windows: 0 is not in 1..="),
            ("{\"train\": {\"checkpoint_secs\": 1e9}}", "checkpoint_secs: 1000000000 is not in"),
            ("{\"train\": {\"curriculum\": [[0.5, 1]]}}", "train.curriculum: the first share"),
            ("{\"train\": {\"curriculum\": [[0, 99]]}}", "1..=20"),
        ] {
            let problem = args(text).err().expect(text);
            assert!(problem.contains(word), "{text}: {problem}");
        }
        for (keys, word) in [
            ("\"blocks\": 2", "unknown key 'model.blocks'; known: "),
            ("\"layers\": {\"lokal\": \"grf\"}", "unknown key 'model.layers.lokal'; known: "),
            (
                "\"layers\": {\"local\": \"convolution\"}",
                "model.layers: local layer `convolution` is none of",
            ),
            ("\"inputs\": \"first\"", "model.inputs: unknown variant `first`"),
            ("\"k\": \"3\"", "model.k: invalid type"),
            ("\"k\": 33", "model.k: 33 is not in 1..=32"),
            ("\"k\": 0", "model.k: 0 is not in"),
            ("\"width\": 30", "4 does not divide width 30"),
            ("\"width\": 4096, \"n_blocks\": 64", "the model has"),
            ("\"n_particles\": 3", "model.n_particles: 3 are too few"),
            ("\"n_particles\": 9999999", "model.n_particles"),
            ("\"plan_lag_secs\": -1", "model.plan_lag_secs: -1 s is not in 0..=10"),
            ("\"stride\": 3", "model.stride: 3 does not divide"),
            ("\"layers\": {\"top_k\": 0}", "top_k: 0 is not in"),
            ("\"layers\": {\"mlp_ratio\": 40}", "mlp_ratio: 40 is not in 1..=16"),
            ("\"mask\": {\"cell_m\": 0.1}", "grf does not read it"),
            ("\"mask\": {\"walks\": {\"sampler\": \"iid\"}}", "n_walks"),
            ("\"mask\": {\"walks\": {\"sampler\": \"iid\", \"n_walks\": 400}}", "more than 341"),
        ] {
            let problem = model(keys).expect_err(keys);
            assert!(problem.contains(word), "{keys}: {problem}");
        }
    }
}
