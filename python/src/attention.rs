//! Attention: of linear kernel under any mask, and to the keys of largest inner product.

use forecloud::engine::ops::linear_attention::Heads;
use forecloud_lab::ops::k_mip_attention::{BLOCK, k_mip_attention_forward};
use forecloud_lab::ops::masked_attention::{masked_attention_forward, n_stretches};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::arrays::{self, input};
use crate::graph::Floats;
use crate::masks::Mask;
use crate::work;

/// Numbers that a call holds at most (4 GiB).
const MAX_NUMBERS: usize = 1 << 30;

/// Rows `[q | k | v]` side by side, and how many there are.
fn rows(q: &[f32], k: &[f32], v: &[f32], n: usize) -> Vec<f32> {
    let (m, d) = (q.len() / n.max(1), v.len() / n.max(1));
    let mut rows = Vec::with_capacity(q.len() + k.len() + v.len());
    for i in 0..n {
        rows.extend_from_slice(&q[i * m..(i + 1) * m]);
        rows.extend_from_slice(&k[i * m..(i + 1) * m]);
        rows.extend_from_slice(&v[i * d..(i + 1) * d]);
    }
    rows
}

/// Checks q, k `[n, features]` and v `[n, width]`, and that heads divide them.
fn parts<'a>(
    q: &'a Floats<'_>,
    k: &'a Floats<'_>,
    v: &'a Floats<'_>,
    n: isize,
    n_heads: usize,
) -> PyResult<([&'a [f32]; 3], Heads)> {
    let of_q = arrays::finite("q", q, [n, -1])?;
    let (n, features) = (q.shape()[0], q.shape()[1]);
    let of_k = arrays::finite("k", k, [n as isize, features as isize])?;
    let of_v = arrays::finite("v", v, [n as isize, -1])?;
    let width = v.shape()[1];
    let divides = |of: usize| n_heads > 0 && of > 0 && of.is_multiple_of(n_heads);
    if !divides(features) || !divides(width) {
        return Err(input(format!(
            "n_heads: {n_heads} does not divide the columns of q and k, {features}, and of v, {width}"
        )));
    }
    Ok(([of_q, of_k, of_v], Heads { width, n_heads, n_features: features / n_heads }))
}

/// Outputs `[n, width]` of linear attention under a mask.
#[pyfunction]
fn masked_attention<'py>(
    py: Python<'py>,
    q: Floats<'py>,
    k: Floats<'py>,
    v: Floats<'py>,
    mask: &Mask,
    params: Floats<'py>,
    n_heads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let n = mask.inner.n_nodes();
    let ([q, k, v], heads) = parts(&q, &k, &v, n as isize, n_heads)?;
    let params = mask.checked(&params)?;
    let sums = n_stretches(heads).saturating_mul(n).saturating_mul(heads.head_width() + 1);
    if sums > MAX_NUMBERS {
        return Err(input(format!(
            "q, k, v: {n} nodes of {} features and {} values need {sums} numbers, more than {MAX_NUMBERS}; \
             take fewer at a time",
            heads.features(),
            heads.width
        )));
    }
    let out = work::run(py, |_| {
        let rows = rows(q, k, v, n);
        let (mut out, mut totals) = (vec![0.0; v.len()], vec![0.0; n * n_heads]);
        masked_attention_forward(&*mask.inner, params, &rows, heads, &mut out, &mut totals);
        out
    })?;
    Ok(PyArray1::from_vec(py, out).reshape([n, heads.width])?.into_any())
}

/// Outputs `[n, width]` and chosen keys `[n, n_heads, top_k]` of k-MIP attention.
#[pyfunction]
fn k_mip_attention<'py>(
    py: Python<'py>,
    q: Floats<'py>,
    k: Floats<'py>,
    v: Floats<'py>,
    top_k: usize,
    n_heads: usize,
) -> PyResult<[Bound<'py, PyAny>; 2]> {
    let ([q, k, v], heads) = parts(&q, &k, &v, -1, n_heads)?;
    let n = v.len() / heads.width;
    if heads.features() != heads.width {
        let (features, width) = (heads.features(), heads.width);
        return Err(input(format!(
            "v: expected as many columns as q and k, {features}, got {width}"
        )));
    }
    if top_k == 0 || top_k > n || n.saturating_mul(n_heads).saturating_mul(top_k) > MAX_NUMBERS {
        return Err(input(format!(
            "top_k: {top_k} keys of {n} for {n_heads} heads; at least 1, at most all, and {MAX_NUMBERS} in all"
        )));
    }
    let (out, chosen) = work::run(py, |_| {
        let rows = rows(q, k, v, n);
        let (mut out, mut log_sums) = (vec![0.0; v.len()], vec![0.0; n * n_heads]);
        let mut chosen = vec![0u32; n * n_heads * top_k];
        let outs = out.par_chunks_mut(BLOCK * heads.width);
        let blocks = outs.zip(log_sums.par_chunks_mut(BLOCK * n_heads));
        let blocks = blocks.zip(chosen.par_chunks_mut(BLOCK * n_heads * top_k));
        blocks.enumerate().for_each(|(block, ((out, log_sums), chosen))| {
            let at = block * BLOCK..((block + 1) * BLOCK).min(n);
            k_mip_attention_forward(at, &rows, heads, out, log_sums, chosen);
        });
        (out, chosen)
    })?;
    let out = PyArray1::from_vec(py, out).reshape([n, heads.width])?.into_any();
    Ok([out, PyArray1::from_vec(py, chosen).reshape([n, n_heads, top_k])?.into_any()])
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(masked_attention, module)?)?;
    module.add_function(wrap_pyfunction!(k_mip_attention, module)?)
}
