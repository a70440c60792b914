//! What the operations' tests share: seeded numbers, comparison, central finite differences,
//! PyTorch's golden values.

#![allow(dead_code)] // each crate uses some of it

use std::fmt::Display;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::de::DeserializeOwned;

use forecloud::base::random::{draw, normal_pair};

/// The folder that has Cargo.lock: golden values lie below it, whichever crate asks.
fn workspace() -> String {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace").display().to_string()
}

/// Tensors of a file in `tests/golden/`.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn read(name: &str) -> Self {
        let path = format!("{}/tests/golden/{name}.safetensors", workspace());
        Self(std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}")))
    }

    /// Names of all files of golden values that begin with `prefix`, sorted, without it.
    pub fn names(prefix: &str) -> Vec<String> {
        let folder = format!("{}/tests/golden", workspace());
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let name = |file: std::ffi::OsString| {
            let name = file.to_str()?.strip_prefix(prefix)?;
            Some(name.strip_suffix(".safetensors")?.to_owned())
        };
        let mut names: Vec<_> = files.filter_map(name).collect();
        names.sort_unstable();
        names
    }

    /// A setting that the file was computed with, as JSON.
    pub fn setting<T: DeserializeOwned>(&self, key: &str) -> T {
        let (_, header) = SafeTensors::read_metadata(&self.0).unwrap();
        let settings = header.metadata().as_ref().and_then(|settings| settings.get(key));
        serde_json::from_str(settings.unwrap_or_else(|| panic!("no {key}"))).unwrap()
    }

    pub fn f64(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let words = |n: usize| tensor.data().chunks_exact(n);
        match tensor.dtype() {
            Dtype::F64 => words(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::F32 => {
                words(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            Dtype::I32 => {
                words(4).map(|b| f64::from(i32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.f64(name).iter().map(|&x| x as f32).collect()
    }

    pub fn vectors(&self, name: &str) -> Vec<[f32; 3]> {
        self.f32(name).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect()
    }
}

/// `n` seeded standard normal numbers.
pub fn numbers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| normal_pair(draw(seed, 0, i, 0))[0]).collect()
}

/// Sets the first `width` columns of rows of length `stride` to `columns` `[rows, width]`.
pub fn set_columns(rows: &mut [f32], stride: usize, columns: &[f32], width: usize) {
    for (row, columns) in rows.chunks_exact_mut(stride).zip(columns.chunks_exact(width)) {
        row[..width].copy_from_slice(columns);
    }
}

pub fn f64s(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Holds `got` to `want` within `tolerance` times the largest magnitude (at least 1e-6 of it).
#[track_caller]
pub fn assert_close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_close_of("numbers", got, want, tolerance);
}

/// The same, of what a failure is to name: a tensor and the variant of the model.
#[track_caller]
pub fn assert_close_of(what: impl Display, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "length of {what}");
    let scale = want.iter().fold(1e-12f64, |m, w| m.max(w.abs()));
    for (i, (&g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs();
        assert!(error <= tolerance * scale, "{what}, element {i}: {g}, not {w} (of {scale})");
    }
}

/// Names of an enum's variants as files have them, in the order of their declaration.
pub fn names_in_files<T: DeserializeOwned>() -> Vec<String> {
    let unknown = serde_json::from_str::<T>("\"?\"").err().expect("no variant has this name");
    let names = unknown.to_string();
    names.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// Holds `gradient` of Σ dy·f(x) to central differences of the plain `f`.
#[track_caller]
pub fn assert_gradient(gradient: &[f32], x: &[f32], dy: &[f32], f: impl Fn(&[f64]) -> Vec<f64>) {
    assert_gradient_of("the operation", gradient, x, dy, f);
}

/// The same, of what a failure is to name.
#[track_caller]
pub fn assert_gradient_of(
    what: impl Display,
    gradient: &[f32],
    x: &[f32],
    dy: &[f32],
    f: impl Fn(&[f64]) -> Vec<f64>,
) {
    let objective =
        |x: &[f64]| -> f64 { f(x).iter().zip(dy).map(|(y, &g)| y * f64::from(g)).sum() };
    let mut point = f64s(x);
    let numeric: Vec<f64> = (0..x.len())
        .map(|i| {
            let (at, step) = (point[i], 1e-6 * point[i].abs().max(1.0));
            point[i] = at + step;
            let above = objective(&point);
            point[i] = at - step;
            let below = objective(&point);
            point[i] = at;
            (above - below) / (2.0 * step)
        })
        .collect();
    assert_close_of(format_args!("gradient of {what}"), gradient, &numeric, 2e-5);
}
