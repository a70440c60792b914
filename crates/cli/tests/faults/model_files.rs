//! Model files that are damaged or none, and models whose predictions are no numbers.

use forecloud::engine::model::{Layout, Model, weights};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::intake::Intake;
use super::memory::largest_allocation;
use super::stream;

/// A model file of its own, and its folder.
struct Written {
    path: PathBuf,
    bytes: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Written {
    fn of(model: &Model) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.safetensors");
        model.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Self { path, bytes, _folder: folder }
    }

    /// Length of all before the tensors.
    fn header_len(&self) -> usize {
        8 + u64::from_le_bytes(self.bytes[..8].try_into().unwrap()) as usize
    }

    /// The file with these bytes must be refused: by name, with a remedy, without taking more
    /// memory than a file of its size can need.
    fn refuse(&self, bytes: &[u8], reason: &str) {
        std::fs::write(&self.path, bytes).unwrap();
        let (largest, outcome) = largest_allocation(|| Model::load(&self.path));
        let message = outcome.expect_err("a damaged file").to_string();
        assert!(message.contains("robot.safetensors"), "{message}");
        assert!(message.contains("take a model file written by `forecloud train`"), "{message}");
        assert!(message.contains(reason), "expected '{reason}': {message}");
        assert!(largest < 4 * bytes.len() + (64 << 10), "{largest} bytes for {}", bytes.len());
    }
}

#[test]
fn a_header_cut_at_any_byte_is_refused() {
    let written = Written::of(&stream::model());
    for n in 0..written.header_len() {
        written.refuse(&written.bytes[..n], "no complete safetensors file");
    }
}

#[test]
fn the_shipped_model_cut_at_every_thousandth_byte_is_refused() {
    let shipped = Path::new(crate::ROOT).join("models/small.safetensors");
    let written = Written::of(&Model::load(&shipped).unwrap());
    let n_bytes = written.bytes.len();
    assert!(n_bytes > 1_000_000);
    for n in (0..n_bytes).step_by(1000).chain([n_bytes - 1]) {
        written.refuse(&written.bytes[..n], "no complete safetensors file");
    }
}

#[test]
fn a_header_that_claims_any_size_takes_no_memory() {
    let written = Written::of(&stream::model());
    let true_len = written.header_len() as u64 - 8;
    for claimed in [1 << 60, u64::MAX, 1 << 32, 1 << 26, true_len + 1, true_len - 1, 0] {
        let mut bytes = written.bytes.clone();
        bytes[..8].copy_from_slice(&claimed.to_le_bytes());
        written.refuse(&bytes, "no complete safetensors file");
    }
    // A file that is huge on disk, though nothing is in it.
    let file = std::fs::File::create(&written.path).unwrap();
    file.set_len(3 << 30).unwrap();
    let (largest, outcome) = largest_allocation(|| Model::load(&written.path));
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("robot.safetensors") && message.contains("more than"), "{message}");
    assert!(largest < 1 << 20, "{largest} bytes");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    for path in ["/dev/zero", "/dev/null", "/", "."] {
        let (largest, outcome) = largest_allocation(|| Model::load(path.as_ref()));
        let message = outcome.unwrap_err().to_string();
        assert!(message.starts_with(&format!("{path}: no regular file")), "{message}");
        assert!(largest < 1 << 20, "{largest} bytes");
    }
}

#[test]
fn a_changed_byte_of_any_tensor_is_refused_by_the_hash() {
    let written = Written::of(&stream::model());
    let header_len = written.header_len();
    for at in (header_len..written.bytes.len()).step_by(97) {
        let mut bytes = written.bytes.clone();
        bytes[at] ^= 1;
        written.refuse(&bytes, "damaged since it was written");
    }
    // Another hash in the header is the same to who reads it.
    let key = b"forecloud.sha256\":\"";
    let at = written.bytes.windows(key.len()).position(|window| window == key).unwrap();
    let mut bytes = written.bytes.clone();
    let digit = &mut bytes[at + key.len()];
    *digit = if *digit == b'0' { b'1' } else { b'0' };
    written.refuse(&bytes, "damaged since it was written");
    std::fs::write(&written.path, &written.bytes).unwrap();
    assert_eq!(Model::load(&written.path).unwrap().hash, stream::model().hash);
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut model = stream::model();
        let last = model.weights.len() - 1;
        model.weights[last] = value;
        let written = Written::of(&model);
        written.refuse(&written.bytes, &format!("holds {value}"));
    }
}

#[test]
fn tensors_of_another_model_are_refused() {
    let model = stream::model();
    let written = Written::of(&model);
    let layout = Layout::new(model.config.interlacer());
    let config = serde_json::to_string(&model.config).unwrap();
    let metadata = HashMap::from([("forecloud.config".to_owned(), config)]);
    let save = |vectors: &[(&str, &[f32])]| {
        weights::save(&written.path, &layout.tensors, vectors, metadata.clone()).unwrap();
        std::fs::read(&written.path).unwrap()
    };
    let own = &model.weights;
    written.refuse(&save(&[("", own), ("other.", own)]), "is none of its configuration's");
    written.refuse(&save(&[("other.", own)]), "is none of its configuration's");
    written.refuse(&save(&[("mean.", own)]), "is missing");
    // The configuration of a wider model over these tensors.
    let from = b"\\\"width\\\":8";
    let at = written.bytes.windows(from.len()).position(|window| window == from).unwrap();
    let mut bytes = written.bytes.clone();
    bytes[at + from.len() - 1] = b'4';
    written.refuse(&bytes, "expected F32");
}

#[test]
fn a_prediction_that_is_no_number_is_rejected_and_never_published() {
    for horizon in [1, 2, 5] {
        let mut model = stream::model();
        // Finite, so that the file is accepted; their products are not.
        model.weights.iter_mut().for_each(|weight| *weight = 1e30 * (*weight + 0.5));
        let mut intake = Intake::of(model.clone());
        let config = PredictorConfig { horizon, ..PredictorConfig::default() };
        intake.predictor = Predictor::new(model, config).unwrap();
        intake.take_all(stream::start());
        intake.take_frames(0..10);
        assert_eq!(intake.counts().frames, 10);
        assert_eq!(intake.n_predicted, 0, "horizon {horizon}");
        assert!(intake.n_rejected > 2, "{:?}", intake.problems);
        assert!(intake.reported(&["predicted motion", "check the model file", "not finite"]));
    }
}
