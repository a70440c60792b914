//! Places of a run's files.

use std::path::{Path, PathBuf};

/// Places of a run's files in its folder.
#[derive(Debug, Clone)]
pub struct RunFiles {
    /// The checkpoint to resume from.
    pub checkpoint: PathBuf,
    /// The model alone, for use.
    pub model: PathBuf,
    /// What was trained from a model that it is not surely better than.
    pub tried: PathBuf,
    /// A line of JSON for each validation.
    pub log: PathBuf,
    /// Errors over the steps, as a picture (SVG).
    pub curve: PathBuf,
    /// Folder of what hindsight told, so that it is not found twice.
    pub labels: PathBuf,
}

impl RunFiles {
    /// Files of a run in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self {
            checkpoint: folder.join("checkpoint.safetensors"),
            model: folder.join("model.safetensors"),
            tried: folder.join("tried.safetensors"),
            log: folder.join("train.jsonl"),
            curve: folder.join("curve.svg"),
            labels: folder.join("labels"),
        }
    }
}
