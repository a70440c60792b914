//! Weights: initial values, and model files (safetensors) with the configuration inside.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use sha2::{Digest, Sha256};

use crate::base::whole_file::replace;
use crate::engine::model::Layout;
use crate::engine::model::interlacer::Tensor;
use crate::{Error, Result};

/// Largest model file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Most weights of a model: a checkpoint, which has four numbers for each, is not larger than
/// that.
pub(crate) const MAX_WEIGHTS: usize = (MAX_FILE_BYTES / 16) as usize;
/// Metadata key of the tensors' SHA-256, by which a damaged file is told from a whole one.
const SHA256_KEY: &str = "forecloud.sha256";
/// What the names of the optimiser's tensors in checkpoints begin with.
pub const OPTIMIZER_PREFIXES: [&str; 3] = ["mean.", "square.", "average."];

/// Initial weights of `layout`: LayerNorms 1 and 0, dense layers uniform of variance 1/n_in (those
/// that write the residual stream divided by the root of how many there are), the head at zero, hops at equal weight.
pub fn initial_weights(layout: &Layout, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut weights = vec![0.0; layout.n_params()];
    let n_writers = layout.mixers.len() + layout.config.n_blocks;
    let residual = 1.0 / (n_writers as f32).sqrt();
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
    hexadecimal(&hasher.finalize()[..8])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes named vectors of the table's tensors and text metadata to a safetensors file.
///
/// The file appears whole or not at all, even if the power fails.
///
/// # Errors
/// [`Error::Io`] and [`Error::Model`].
pub fn save(
    path: &Path,
    tensors: &[Tensor],
    vectors: &[(&str, &[f32])],
    mut metadata: HashMap<String, String>,
) -> Result<()> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = vectors
        .iter()
        .flat_map(|(prefix, vector)| {
            tensors.iter().map(move |tensor| {
                let values = tensor.span.of(vector);
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                (format!("{prefix}{}", tensor.name), tensor.shape.clone(), bytes)
            })
        })
        .collect();
    let wrong = |e: safetensors::SafeTensorError| model_error(path, e.to_string());
    let views: Vec<(&str, TensorView)> = bytes
        .iter()
        .map(|(name, shape, bytes)| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<std::result::Result<_, safetensors::SafeTensorError>>()
        .map_err(wrong)?;
    // The tensors lie in the file in an order of its own.
    let plain = serialize(views, None).map_err(wrong)?;
    let numbers = tensor_bytes(&plain).map_err(wrong)?;
    metadata.insert(SHA256_KEY.into(), hexadecimal(&Sha256::digest(numbers)));
    let mut data = header(&plain[..plain.len() - numbers.len()], metadata)
        .map_err(|error| model_error(path, format!("its metadata can't be written ({error})")))?;
    data.extend_from_slice(numbers);
    replace(path, &data).map_err(|cause| Error::Io { path: path.to_owned(), cause })
}

/// The header `plain` with `metadata`, all keys in alphabetical order: the same file for the same
/// model. (`safetensors` writes the metadata in the order of a hash map, which changes.)
fn header(plain: &[u8], metadata: HashMap<String, String>) -> serde_json::Result<Vec<u8>> {
    const LENGTH_BYTES: usize = 8;
    let mut entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(plain.get(LENGTH_BYTES..).unwrap_or_default())?;
    let metadata: BTreeMap<String, String> = metadata.into_iter().collect();
    entries.insert("__metadata__".into(), serde_json::to_value(metadata)?);
    let mut json = serde_json::to_vec(&entries)?;
    // The tensors begin at a multiple of eight.
    json.resize(json.len().next_multiple_of(LENGTH_BYTES), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    Ok(header)
}

/// The tensors' bytes: all of the file behind its header.
fn tensor_bytes(file: &[u8]) -> std::result::Result<&[u8], safetensors::SafeTensorError> {
    let (header_len, _) = SafeTensors::read_metadata(file)?;
    Ok(file.get(8 + header_len..).unwrap_or(&[]))
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
    /// [`Error::Io`] if it can't be read, [`Error::Model`] if it is no safetensors file, too big,
    /// or its tensors are not those that were written.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        let on_disk = std::fs::metadata(path).map_err(io)?;
        let size = on_disk.len();
        if !on_disk.is_file() {
            return Err(model_error(path, "no regular file".into()));
        }
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
        let Some(expected) = metadata.get(SHA256_KEY) else {
            let problem = format!("its metadata has no {SHA256_KEY}: another program's model");
            return Err(model_error(path, problem));
        };
        let got = hexadecimal(&Sha256::digest(tensor_bytes(&bytes).map_err(not_a_model)?));
        if got != *expected {
            let problem = format!(
                "damaged since it was written: its tensors have SHA-256 {got}, its header says \
                 {expected}; copy it again"
            );
            return Err(model_error(path, problem));
        }
        Ok(Self { path: path.to_owned(), bytes, metadata })
    }

    /// The flat vector stored under `prefix`, every one of `tensors` checked: name, type, shape,
    /// finite values; and that there are no others but the optimiser's.
    ///
    /// # Errors
    /// [`Error::Model`] names the tensor and what is wrong with it.
    pub fn vector(&self, tensors: &[Tensor], prefix: &str) -> Result<Vec<f32>> {
        let wrong = |problem| model_error(&self.path, problem);
        let file = SafeTensors::deserialize(&self.bytes).map_err(|e| wrong(e.to_string()))?;
        let n_params = tensors.last().map_or(0, |tensor| tensor.span.range().end);
        let n_bytes = n_params.saturating_mul(4);
        if n_bytes > self.bytes.len() {
            let got = self.bytes.len();
            return Err(wrong(format!(
                "{got} bytes, its configuration asks for {n_bytes} and more"
            )));
        }
        let is_known = |name: &str| {
            let plain = OPTIMIZER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
            tensors.iter().any(|tensor| tensor.name == plain.unwrap_or(name))
        };
        if let Some(name) = file.names().into_iter().find(|name| !is_known(name)) {
            return Err(wrong(format!("tensor {name} is none of its configuration's")));
        }
        let mut vector = vec![0.0; n_params];
        for tensor in tensors {
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

pub fn model_error(path: &Path, problem: String) -> Error {
    Error::Model { path: path.to_owned(), problem }
}
