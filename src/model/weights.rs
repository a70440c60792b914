//! Weights: initial values, and model files (safetensors) with the configuration inside.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use sha2::{Digest, Sha256};

use crate::model::Layout;
use crate::{Error, Result};

/// Largest model file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Initial weights of `layout`: LayerNorms 1 and 0, dense layers uniform of variance 1/n_in (those
/// that write the residual stream divided by √(2·blocks)), the head at zero, hops at equal weight.
pub fn initial_weights(layout: &Layout, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut weights = vec![0.0; layout.n_params()];
    let residual = 1.0 / (3.0 * layout.config.n_blocks as f32).sqrt();
    for tensor in &layout.tensors {
        let values = tensor.span.of_mut(&mut weights);
        let name = tensor.name.as_str();
        if name.ends_with("norm.weight") {
            values.fill(1.0);
        } else if name.ends_with(".weight") && name != "head.weight" {
            let writes_residual = name.ends_with(".out.weight") || name.ends_with(".down.weight");
            let scale = if writes_residual { residual } else { 1.0 };
            let bound = scale * (3.0 / tensor.shape[0] as f32).sqrt();
            values.iter_mut().for_each(|w| *w = rng.random_range(-bound..bound));
        }
    }
    weights
}

/// Short hash that names a set of weights in reports and messages: 16 hexadecimal digits of the
/// SHA-256 of configuration and weights.
pub fn hash(config_json: &str, weights: &[f32]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(config_json.as_bytes());
    weights.iter().for_each(|w| hasher.update(w.to_le_bytes()));
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes named vectors of the layout's tensors and text metadata to a safetensors file.
///
/// The file appears whole or not at all: it is written beside its place, then renamed.
///
/// # Errors
/// [`Error::Io`] and [`Error::Model`].
pub fn save(
    path: &Path,
    layout: &Layout,
    vectors: &[(&str, &[f32])],
    metadata: HashMap<String, String>,
) -> Result<()> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = vectors
        .iter()
        .flat_map(|(prefix, vector)| {
            layout.tensors.iter().map(move |tensor| {
                let values = tensor.span.of(vector);
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                (format!("{prefix}{}", tensor.name), tensor.shape.clone(), bytes)
            })
        })
        .collect();
    let views: Vec<(&str, TensorView)> = bytes
        .iter()
        .map(|(name, shape, bytes)| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<_, safetensors::SafeTensorError>>()
        .map_err(|e| model_error(path, e.to_string()))?;
    let data = serialize(views, Some(metadata)).map_err(|e| model_error(path, e.to_string()))?;
    let io = |cause| Error::Io { path: path.to_owned(), cause };
    let unfinished = PathBuf::from(format!("{}.part", path.display()));
    std::fs::write(&unfinished, data).map_err(io)?;
    std::fs::rename(&unfinished, path).map_err(io)
}

/// A model file's bytes, checked as a safetensors file.
pub struct File {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Text metadata.
    pub metadata: HashMap<String, String>,
}

impl File {
    /// Reads and checks `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be read, [`Error::Model`] if it is no safetensors file or too big.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        let size = std::fs::metadata(path).map_err(io)?.len();
        if size > MAX_FILE_BYTES {
            return Err(model_error(path, format!("{size} bytes, more than {MAX_FILE_BYTES}")));
        }
        let bytes = std::fs::read(path).map_err(io)?;
        let not_a_model = |e: safetensors::SafeTensorError| {
            model_error(path, format!("no complete safetensors file ({e})"))
        };
        SafeTensors::deserialize(&bytes).map_err(not_a_model)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(not_a_model)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Self { path: path.to_owned(), bytes, metadata })
    }

    /// The flat vector stored under `prefix`, every tensor of `layout` checked: name, type, shape,
    /// finite values.
    ///
    /// # Errors
    /// [`Error::Model`] names the tensor and what is wrong with it.
    pub fn vector(&self, layout: &Layout, prefix: &str) -> Result<Vec<f32>> {
        let wrong = |problem| model_error(&self.path, problem);
        let file = SafeTensors::deserialize(&self.bytes).map_err(|e| wrong(e.to_string()))?;
        let n_bytes = layout.n_params().saturating_mul(4);
        if n_bytes > self.bytes.len() {
            let got = self.bytes.len();
            return Err(wrong(format!(
                "{got} bytes, its configuration asks for {n_bytes} and more"
            )));
        }
        let mut vector = vec![0.0; layout.n_params()];
        for tensor in &layout.tensors {
            let name = format!("{prefix}{}", tensor.name);
            let view =
                file.tensor(&name).map_err(|_| wrong(format!("tensor {name} is missing")))?;
            if view.dtype() != Dtype::F32 || view.shape() != tensor.shape {
                let (dtype, shape) = (view.dtype(), view.shape());
                return Err(wrong(format!(
                    "tensor {name} is {dtype:?} {shape:?}, expected F32 {:?}",
                    tensor.shape
                )));
            }
            let values = tensor.span.of_mut(&mut vector);
            for (value, bytes) in values.iter_mut().zip(view.data().chunks_exact(4)) {
                *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                if !value.is_finite() {
                    return Err(wrong(format!("tensor {name} holds {value}")));
                }
            }
        }
        Ok(vector)
    }
}

pub(crate) fn model_error(path: &Path, problem: String) -> Error {
    Error::Model { path: path.to_owned(), problem }
}
