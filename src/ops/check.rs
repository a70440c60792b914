//! What the operations' tests share: seeded numbers, comparison, central finite differences,
//! PyTorch's golden values.

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use crate::graph::random::{draw, normal_pair};

/// Tensors of a file in `tests/golden/`.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn read(name: &str) -> Self {
        let path = format!("{}/tests/golden/{name}.safetensors", env!("CARGO_MANIFEST_DIR"));
        Self(std::fs::read(path).expect("golden values"))
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
pub fn assert_close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1e-12f64, |m, w| m.max(w.abs()));
    for (i, (&g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs();
        assert!(error <= tolerance * scale, "element {i}: {g} against {w}, scale {scale}");
    }
}

/// Holds `gradient` of Σ dy·f(x) to central differences of the plain `f`.
pub fn assert_gradient(gradient: &[f32], x: &[f32], dy: &[f32], f: impl Fn(&[f64]) -> Vec<f64>) {
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
    assert_close(gradient, &numeric, 2e-5);
}
