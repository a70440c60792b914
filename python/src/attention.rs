//! Attention: of linear kernel under any mask, of either under graph random features, and to the keys of largest
//! inner product.

use forecloud::engine::graph::Loads;
use forecloud::engine::ops::linear_attention::Heads;
use forecloud_lab::ops::grf_kernel_attention::{
    GrfKernel, Similarity, grf_kernel_attention_forward,
};
use forecloud_lab::ops::k_mip_attention::{BLOCK, k_mip_attention_forward};
use forecloud_lab::ops::masked_attention::{masked_attention_forward, n_stretches};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::arrays::{self, input};
use crate::errors;
use crate::graph::{Floats, Graph, walk_config, walk_seed};
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

/// Outputs `[n, width]` of attention under graph random features, all walks' or sampled ones'.
#[pyfunction]
#[pyo3(signature = (q, k, v, graph, modulation, is_softmax, walks, seed, n_heads))]
fn grf_attention<'py>(
    py: Python<'py>,
    q: Floats<'py>,
    k: Floats<'py>,
    v: Floats<'py>,
    graph: &Graph,
    modulation: Floats<'py>,
    is_softmax: bool,
    walks: Option<&str>,
    seed: (u64, i64),
    n_heads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let graph = &graph.inner;
    let n = graph.len();
    let ([q, k, v], heads) = parts(&q, &k, &v, n as isize, n_heads)?;
    let hop_weights = arrays::finite("modulation", &modulation, [n_heads as isize, -1])?;
    let n_hops = modulation.shape()[1].saturating_sub(1);
    let walks = walks.map(walk_config).transpose()?;
    let most = walks.as_ref().map_or(n_hops, |walks| walks.halting.max_hops());
    if hop_weights.is_empty() || n_hops > 64 || most != n_hops {
        return Err(input(format!(
            "modulation: {} numbers a head; expected one a hop of the walks and one, {}, at most 65",
            modulation.shape()[1],
            most.saturating_add(1)
        )));
    }
    let similarity = if is_softmax { Similarity::Softmax } else { Similarity::Linear };
    let below = |x: &f32| *x < 0.0;
    if similarity == Similarity::Linear && (q.iter().any(below) || k.iter().any(below)) {
        return Err(input(
            "q, k: below 0; of the linear kernel apply the feature map before".into(),
        ));
    }
    let out = work::run(py, |_| {
        let mut loads = Loads::default();
        match &walks {
            Some(walks) => loads.rebuild_sampled(graph, walks, walk_seed(seed))?,
            None => loads.rebuild(graph, n_hops)?,
        }
        let of = GrfKernel { similarity, heads, loads: &loads, hop_weights };
        let (rows, mut out) = (rows(q, k, v, n), vec![0.0; v.len()]);
        grf_kernel_attention_forward(of, &rows, &mut out, &mut vec![0.0; n * n_heads]);
        Ok(out)
    })?;
    let out = out.map_err(errors::of)?;
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
    module.add_function(wrap_pyfunction!(grf_attention, module)?)?;
    module.add_function(wrap_pyfunction!(k_mip_attention, module)?)
}
