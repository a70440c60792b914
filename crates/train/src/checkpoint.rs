//! Checkpoints: model files that hold the optimiser's state, too.

use std::path::Path;

use super::config::TrainConfig;
use super::differences::differences;
use super::origin::Origin;
use forecloud::engine::model::weights::{self, OPTIMIZER_PREFIXES};
use forecloud::engine::model::{Layout, ModelConfig, config_metadata, read_config};
use forecloud::{Error, Result};

/// Metadata keys, beside the model's configuration.
const SETTINGS_KEY: &str = "forecloud.train";
const STEP_KEY: &str = "forecloud.step";

/// Numbers for each weight.
pub(super) struct Vectors<T> {
    /// The weights.
    pub(super) weights: T,
    /// Mean gradients.
    pub(super) mean: T,
    /// Mean squared gradients.
    pub(super) square: T,
    /// The average of the weights.
    pub(super) average: T,
}

/// Writes a checkpoint.
///
/// # Errors
/// As [`weights::save`].
pub(super) fn write(
    path: &Path,
    layout: &Layout,
    (config, model, origin): (&TrainConfig, &ModelConfig, Option<&Origin>),
    step: u64,
    vectors: Vectors<&[f32]>,
) -> Result<()> {
    let mut metadata = config_metadata(model);
    let settings = serde_json::to_string(config).unwrap_or_default();
    metadata.insert(SETTINGS_KEY.into(), settings);
    metadata.insert(STEP_KEY.into(), step.to_string());
    origin.into_iter().for_each(|origin| origin.put(&mut metadata));
    let [mean, square, average] = OPTIMIZER_PREFIXES;
    let vectors = [
        ("", vectors.weights),
        (mean, vectors.mean),
        (square, vectors.square),
        (average, vectors.average),
    ];
    weights::save(path, &layout.tensors, &vectors, metadata)
}

/// Reads the checkpoint of a run of these settings: steps done, what it was begun from, and the state.
///
/// # Errors
/// [`Error::Io`]; [`Error::Checkpoint`] if it is damaged, or of other settings.
pub(super) fn read(
    path: &Path,
    layout: &Layout,
    config: &TrainConfig,
    model: &ModelConfig,
) -> Result<(u64, Option<Origin>, Vectors<Vec<f32>>)> {
    let file = weights::File::open(path).map_err(|error| damaged(path, error))?;
    let text = |key: &str| {
        file.metadata.get(key).ok_or_else(|| no_checkpoint(path, &format!("it has no {key}")))
    };
    // First: a model alone has a configuration, too.
    let (settings, step) = (text(SETTINGS_KEY)?, text(STEP_KEY)?);
    let stored: TrainConfig = serde_json::from_str(settings)
        .map_err(|error| no_checkpoint(path, &format!("{SETTINGS_KEY}: {error}")))?;
    let stored_model = read_config(path, &file.metadata).map_err(|error| damaged(path, error))?;
    let mut differing = differences(&stored_model, model);
    differing.iter_mut().for_each(|difference| difference.insert_str(0, "model."));
    differing.extend(differences(&stored, config));
    if !differing.is_empty() {
        let problem = format!(
            "the checkpoint was made with other settings ({}): use the same ones, or choose another --out",
            differing.join("; ")
        );
        return Err(Error::Checkpoint { path: path.to_owned(), problem });
    }
    let step = step.parse().map_err(|_| no_checkpoint(path, &format!("bad {STEP_KEY}")))?;
    let origin = Origin::of(&file.metadata).map_err(|error| no_checkpoint(path, &error))?;
    let vector =
        |prefix| file.vector(&layout.tensors, prefix).map_err(|error| damaged(path, error));
    let [mean, square, average] = OPTIMIZER_PREFIXES;
    let vectors = Vectors {
        weights: vector("")?,
        mean: vector(mean)?,
        square: vector(square)?,
        average: vector(average)?,
    };
    Ok((step, origin, vectors))
}

/// The error of a file that is damaged; those of the system stay as they are.
fn damaged(path: &Path, error: Error) -> Error {
    match error {
        Error::Model { problem, .. } => {
            remedied(path, &format!("the checkpoint is damaged: {problem}"))
        }
        Error::Io { .. } => error,
        other => remedied(path, &format!("the checkpoint is damaged: {other}")),
    }
}

fn no_checkpoint(path: &Path, problem: &str) -> Error {
    remedied(path, &format!("is not a checkpoint of this version of Forecloud ({problem})"))
}

/// With what to do next.
fn remedied(path: &Path, problem: &str) -> Error {
    let model = path.with_file_name("model.safetensors");
    let go_on = match model.is_file() {
        true => {
            format!("go on from the model beside it (--from {} and another --out)", model.display())
        }
        false => "choose another --out".into(),
    };
    let problem = format!("{problem}. To start over, move it away; or {go_on}");
    Error::Checkpoint { path: path.to_owned(), problem }
}
