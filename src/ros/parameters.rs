//! The node's parameters.
//!
//! A parameter's name is the field's. Names and types are checked against the default values, so
//! that a typing error is refused by name and never ignored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use r2r::ParameterValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::Workspace;
use crate::config::PredictorConfig;
use crate::frames::{CameraInput, CameraTopics, FramesConfig, Topics};

/// Parameters of the node; config/forecloud.yaml holds the same defaults with the same words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Model file; empty takes the one that comes with the package.
    pub model: String,
    /// Names of the cameras: `<name>/color/image_raw`, `<name>/depth/image_raw` and
    /// `<name>/color/camera_info` are subscribed (remap them where they differ).
    pub cameras: Vec<String>,
    /// What the cameras send: `images`, `compressed` (image_transport's compressed and
    /// compressedDepth) or `points` (`<name>/points`); one for all, or one for each.
    pub camera_inputs: Vec<String>,
    /// Whether each pixel of a depth image shows what the same pixel of the colour image does; if
    /// not, `<name>/depth/camera_info` is subscribed too.
    pub depth_registered: bool,
    /// Seconds (of the other cameras' stamps) after which a silent camera is left out of the
    /// frames; it is taken back when it sends again.
    pub camera_timeout_secs: f64,
    /// Frame of the predictions, fixed to the ground, z up.
    pub world_frame: String,
    /// Steps to predict.
    pub horizon: usize,
    /// Particles of a prediction; 0 takes the number that the model was trained with.
    pub n_particles: usize,
    /// Seed of the particles' draw.
    pub seed: u64,
    /// Lower corner of the box that is predicted (world frame, m): x, y, z; empty takes the model's.
    pub workspace_min: Vec<f32>,
    /// Upper corner, likewise.
    pub workspace_max: Vec<f32>,
    /// Threads of the predictor; 0 takes one per CPU.
    pub threads: usize,
    /// Seconds by which the images of one frame, and a late joint state, may differ.
    pub tolerance_secs: f64,
    /// Seconds by which the history frame may miss one step back.
    pub history_tolerance_secs: f64,
    /// Seconds that a topic's stamps must go back to count as time being set back.
    pub time_jump_secs: f64,
    /// Motion over all steps (m) from which on a particle gets an arrow in `~/motion`.
    pub motion_min_m: f64,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let (frames, predictor) = (FramesConfig::default(), PredictorConfig::default());
        Self {
            model: String::new(),
            cameras: frames.topics.cameras.into_iter().map(|camera| camera.name).collect(),
            camera_inputs: vec!["images".into()],
            depth_registered: true,
            camera_timeout_secs: frames.camera_timeout_secs,
            world_frame: frames.world_frame,
            horizon: predictor.horizon,
            n_particles: predictor.n_particles,
            seed: predictor.seed,
            workspace_min: Vec::new(),
            workspace_max: Vec::new(),
            threads: 0,
            tolerance_secs: frames.tolerance_secs,
            history_tolerance_secs: predictor.history_tolerance_secs,
            time_jump_secs: frames.time_jump_secs,
            motion_min_m: 0.01,
        }
    }
}

impl NodeConfig {
    /// How messages become frames.
    ///
    /// # Errors
    /// Cameras that are none, too many, or named twice; times that make no sense.
    pub fn frames(&self) -> anyhow::Result<FramesConfig> {
        let n_cameras = self.cameras.len();
        let inputs = CameraInput::of_cameras("camera_inputs", &self.camera_inputs, n_cameras)
            .context("parameters")?;
        let camera = |(name, input): (&String, CameraInput)| {
            CameraTopics::new(name, input, self.depth_registered)
        };
        let cameras = self.cameras.iter().zip(inputs).map(camera).collect();
        let config = FramesConfig {
            topics: Topics { cameras, ..Topics::default() },
            world_frame: self.world_frame.clone(),
            tolerance_secs: self.tolerance_secs,
            time_jump_secs: self.time_jump_secs,
            camera_timeout_secs: self.camera_timeout_secs,
            ..FramesConfig::default()
        };
        config.validate().context("parameters")?;
        Ok(config)
    }

    /// How the model is run.
    ///
    /// # Errors
    /// A workspace of which one corner is missing or not three numbers, and as
    /// [`PredictorConfig::validate`].
    pub fn predictor(&self) -> anyhow::Result<PredictorConfig> {
        let workspace = match (&self.workspace_min[..], &self.workspace_max[..]) {
            ([], []) => None,
            (&[x0, y0, z0], &[x1, y1, z1]) => {
                Some(Workspace { min: [x0, y0, z0], max: [x1, y1, z1] })
            }
            _ => bail!("parameters: `workspace_min` and `workspace_max` must be 3 numbers each"),
        };
        let config = PredictorConfig {
            horizon: self.horizon,
            n_particles: self.n_particles,
            seed: self.seed,
            workspace,
            history_tolerance_secs: self.history_tolerance_secs,
        };
        config.validate().context("parameters")?;
        Ok(config)
    }

    /// The model file.
    ///
    /// # Errors
    /// None is named, and none comes with the package.
    pub fn model(&self) -> anyhow::Result<PathBuf> {
        if !self.model.is_empty() {
            return Ok(PathBuf::from(&self.model));
        }
        // lib/forecloud/forecloud_node → share/forecloud/models, wherever the package is installed.
        let program = std::env::current_exe().context("the path of this program")?;
        let shipped = program.ancestors().nth(3).map(|prefix| prefix.join(SHIPPED_MODEL));
        shipped.filter(|path| path.is_file()).ok_or_else(|| {
            anyhow!(
                "parameters: `model` is not set, and no {SHIPPED_MODEL} comes with the package. \
                 Remedy: set `model` to a file that `forecloud train` wrote"
            )
        })
    }
}

/// Where the package installs its model.
const SHIPPED_MODEL: &str = "share/forecloud/models/small.safetensors";

/// Parameters that ROS itself gives to any node. The node works in the time of the messages'
/// headers, so `use_sim_time` changes nothing.
const FOREIGN: &[&str] = &["use_sim_time", "start_type_description_service", "qos_overrides"];

/// The defaults of `C` with the given parameters put in.
///
/// # Errors
/// Every parameter that is unknown or of another type, each by name.
pub fn configure<C: Default + Serialize + DeserializeOwned>(
    parameters: &BTreeMap<String, ParameterValue>,
) -> anyhow::Result<C> {
    let mut config = serde_json::to_value(C::default()).context("default configuration")?;
    let known = names(&config, "");
    let mut problems = Vec::new();
    for (name, value) in parameters {
        let foreign = FOREIGN.contains(&name.split('.').next().unwrap_or_default());
        if foreign || *value == ParameterValue::NotSet {
            continue;
        }
        match field(&mut config, name) {
            None => problems.push(format!("`{name}` is unknown")),
            Some(slot) => match convert(value, slot) {
                Ok(value) => *slot = value,
                Err(wanted) => {
                    problems.push(format!("`{name}` must be {wanted}, but is {}", describe(value)))
                }
            },
        }
    }
    if !problems.is_empty() {
        bail!(
            "parameters: {}. Remedy: correct the parameter file. Known parameters: {}",
            problems.join("; "),
            known.join(", ")
        );
    }
    serde_json::from_value(config).context("parameters")
}

/// The field with the dotted path `name`, if it is one value and not a group of them.
fn field<'a>(config: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let slot = name.split('.').try_fold(config, |group, key| group.get_mut(key))?;
    (!slot.is_object()).then_some(slot)
}

/// Dotted paths of all values.
fn names(value: &Value, prefix: &str) -> Vec<String> {
    match value {
        Value::Object(group) => group
            .iter()
            .flat_map(|(key, value)| {
                let dot = if prefix.is_empty() { "" } else { "." };
                names(value, &format!("{prefix}{dot}{key}"))
            })
            .collect(),
        _ => vec![prefix.to_owned()],
    }
}

/// `parameter` as a value of the type of `default`, or what that type is.
fn convert(parameter: &ParameterValue, default: &Value) -> Result<Value, &'static str> {
    use ParameterValue as P;
    match (default, parameter) {
        (Value::Bool(_), P::Bool(value)) => Ok((*value).into()),
        (Value::Bool(_), _) => Err("true or false"),
        (Value::Number(number), P::Integer(value)) if number.is_u64() && *value < 0 => {
            Err("a whole number from 0")
        }
        // A whole number is a fine value for a field with decimals; the other way it is not.
        (Value::Number(_), P::Integer(value)) => Ok((*value).into()),
        (Value::Number(number), P::Double(value)) if number.is_f64() && value.is_finite() => {
            Ok((*value).into())
        }
        (Value::Number(number), _) if number.is_f64() => Err("a finite number"),
        (Value::Number(_), _) => Err("a whole number"),
        (Value::String(_), P::String(value)) => Ok(value.as_str().into()),
        (Value::String(_), _) => Err("a text"),
        (Value::Array(_), P::StringArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), P::DoubleArray(values)) if values.iter().all(|v| v.is_finite()) => {
            Ok(values.clone().into())
        }
        (Value::Array(_), P::IntegerArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), P::BoolArray(values)) => Ok(values.clone().into()),
        (Value::Array(_), _) => Err("a list"),
        // An optional field without a default: its own type decides on reading.
        (_, P::Bool(value)) => Ok((*value).into()),
        (_, P::Integer(value)) => Ok((*value).into()),
        (_, P::Double(value)) => Ok((*value).into()),
        (_, P::String(value)) => Ok(value.as_str().into()),
        (_, P::StringArray(values)) => Ok(values.clone().into()),
        (_, P::DoubleArray(values)) => Ok(values.clone().into()),
        (_, P::IntegerArray(values)) => Ok(values.clone().into()),
        (_, _) => Err("a value"),
    }
}

/// A value as its writer knows it: with its type.
fn describe(value: &ParameterValue) -> String {
    use ParameterValue as P;
    match value {
        P::Bool(value) => format!("the boolean {value}"),
        P::Integer(value) => format!("the whole number {value}"),
        P::Double(value) => format!("the number {value:?}"),
        P::String(value) => format!("the text '{}'", value.escape_debug()),
        other => format!("a {}", other.type_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        model: Option<String>,
        cameras: Vec<String>,
        horizon: u32,
        graph: Graph,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Graph {
        radius_m: f32,
        corner: [f32; 3],
    }

    impl Default for Config {
        fn default() -> Self {
            let graph = Graph { radius_m: 0.1, corner: [0.0; 3] };
            Self { model: None, cameras: vec!["camera".into()], horizon: 3, graph }
        }
    }

    fn set(parameters: &[(&str, ParameterValue)]) -> anyhow::Result<Config> {
        configure(&parameters.iter().map(|(n, v)| (n.to_string(), v.clone())).collect())
    }

    #[test]
    fn parameters_replace_defaults_and_nothing_else() {
        let config = set(&[
            ("model", ParameterValue::String("m".into())),
            ("cameras", ParameterValue::StringArray(vec!["a".into(), "b".into()])),
            ("graph.radius_m", ParameterValue::Integer(2)),
            ("graph.corner", ParameterValue::DoubleArray(vec![1.0, 2.0, 0.1])),
            ("use_sim_time", ParameterValue::Bool(true)),
            ("qos_overrides./tf.publisher.depth", ParameterValue::Integer(2)),
        ]);
        let graph = Graph { radius_m: 2.0, corner: [1.0, 2.0, 0.1] };
        let cameras = vec!["a".into(), "b".into()];
        let expected = Config { model: Some("m".into()), cameras, horizon: 3, graph };
        assert_eq!(config.unwrap(), expected);
    }

    #[test]
    fn every_wrong_parameter_is_named() {
        let error = set(&[
            ("horizn", ParameterValue::Integer(2)),
            ("graph", ParameterValue::Integer(2)),
            ("horizon", ParameterValue::Integer(-1)),
            ("cameras", ParameterValue::String("left".into())),
            ("graph.radius_m", ParameterValue::Double(f64::NAN)),
        ]);
        let text = error.unwrap_err().to_string();
        for part in [
            "`horizn` is unknown",
            "`graph` is unknown",
            "`horizon` must be a whole number from 0, but is the whole number -1",
            "`cameras` must be a list, but is the text 'left'",
            "`graph.radius_m` must be a finite number, but is the number NaN",
            "graph.corner",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn the_parameter_file_holds_the_defaults() {
        let file = std::fs::read_to_string("config/forecloud.yaml").unwrap();
        let file: Value = serde_norway::from_str(&file).unwrap();
        let parameters = &file["/**"]["ros__parameters"];
        let config: NodeConfig = serde_json::from_value(parameters.clone()).unwrap();
        assert_eq!(config, NodeConfig::default());
        // ROS parameter files have no empty list: these two stand there as a comment.
        let mut known = names(&serde_json::to_value(config).unwrap(), "");
        known.retain(|name| !name.starts_with("workspace_"));
        assert_eq!(names(parameters, ""), known);
    }

    #[test]
    fn half_a_workspace_is_refused() {
        let config = NodeConfig { workspace_min: vec![0.0; 3], ..NodeConfig::default() };
        assert!(config.predictor().is_err());
        let workspace_max = vec![1.0; 3];
        assert!(NodeConfig { workspace_max, ..config }.predictor().is_ok());
    }

    #[test]
    fn times_that_make_no_sense_are_refused() {
        let with = |change: fn(&mut NodeConfig)| {
            let mut config = NodeConfig::default();
            change(&mut config);
            let refused = config.frames().map(drop).and_then(|()| config.predictor().map(drop));
            refused.err().map_or_else(String::new, |error| format!("{error:#}"))
        };
        assert_eq!(with(|_| ()), "");
        assert_eq!(with(|c| (c.tolerance_secs, c.time_jump_secs) = (0.0, 0.001)), "");
        for (change, told) in [
            (
                (|c| c.tolerance_secs = -0.1) as fn(&mut NodeConfig),
                "parameters: tolerance_secs: -0.1 s",
            ),
            (|c| c.tolerance_secs = f64::NAN, "tolerance_secs: NaN s is not in 0.0..=10.0"),
            (|c| c.time_jump_secs = 0.0, "time_jump_secs: 0 s is not in 0.001..=3600.0"),
            (|c| c.time_jump_secs = 1e9, "time_jump_secs"),
            (|c| c.camera_timeout_secs = 0.0, "camera_timeout_secs: 0 s is not in 0.05..=3600.0"),
            (|c| c.camera_inputs = vec!["video".into()], "images, compressed or points"),
            (|c| c.history_tolerance_secs = 11.0, "parameters: history_tolerance_secs: 11 s"),
        ] {
            let text = with(change);
            assert!(text.contains(told), "{told} is not in: {text}");
        }
    }

    #[test]
    fn a_list_of_the_wrong_length_is_refused() {
        let error = set(&[("graph.corner", ParameterValue::DoubleArray(vec![1.0]))]);
        assert!(format!("{:#}", error.unwrap_err()).contains("parameters"));
    }
}
