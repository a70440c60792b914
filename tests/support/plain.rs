//! Operations in f64, their sums written out: what the fast ones are held to.

#![allow(dead_code)] // each crate uses some of it

use forecloud::engine::ops;
pub use forecloud::engine::ops::linear_attention::Heads;

/// y = x·W + b in f64.
pub fn linear(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let (n_out, n_in) = (bias.len(), weight.len() / bias.len());
    x.chunks_exact(n_in)
        .flat_map(|row| {
            (0..n_out).map(move |c| {
                bias[c]
                    + row.iter().enumerate().map(|(r, x)| x * weight[r * n_out + c]).sum::<f64>()
            })
        })
        .collect()
}

/// Layer normalisation in f64.
pub fn layer_norm(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let d = weight.len();
    x.chunks_exact(d)
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / d as f64;
            let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
            let rstd = 1.0 / (var + f64::from(ops::layer_norm::EPSILON)).sqrt();
            row.iter()
                .zip(weight.iter().zip(bias))
                .map(move |(x, (w, b))| (x - mean) * rstd * w + b)
        })
        .collect()
}

/// In f64 under the dense `mask` `[n, n]`, the sums written out.
pub fn masked_attention(mask: &[f64], rows: &[f64], heads: Heads) -> Vec<f64> {
    let (d, dh, m, len) = (heads.width, heads.head_width(), heads.n_features, heads.row_len());
    let n = rows.len() / len;
    let mut out = vec![0.0; n * d];
    for (i, head) in (0..n).flat_map(|i| (0..heads.n_heads).map(move |head| (i, head))) {
        let q = &rows[i * len + head * m..][..m];
        let mut total = f64::from(ops::linear_attention::EPSILON);
        for j in 0..n {
            let k = &rows[j * len + heads.features() + head * m..][..m];
            let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
            let weight = mask[i * n + j] * score;
            total += weight;
            for c in head * dh..(head + 1) * dh {
                out[i * d + c] += weight * rows[j * len + 2 * heads.features() + c];
            }
        }
        out[i * d + head * dh..][..dh].iter_mut().for_each(|o| *o /= total);
    }
    out
}
