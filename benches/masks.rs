//! Times attention under each mask against its number of nodes, after checking that its cost grows no
//! faster than it says.
//!
//! `cargo bench --bench masks [-- --log2 8,17 --masks series,forest --width 64 --heads 4]` (the width is a
//! multiple of 32): k-NN graphs (k = 3) of points on a wavy surface, 20,000 a square metre, so that more
//! nodes are more surface.
//! Prints medians: building the mask, the products alone with 64 columns, attention forward and
//! backward; beside them the bound that is named, measured here: reading and writing 64 columns once, and
//! for the forest, which goes up and down its trees, twice reading two rows and writing one. First
//! the fused GRF attention, one head, on one thread: beside it reading the same keys and values in the
//! same order and adding them up, and a matrix product of as many multiply-adds.

mod support;

use anyhow::Context;
use forecloud::base::instruction_set::InstructionSet;
use forecloud::base::random::{draw, uniform};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::graph::{KnnGraph, Loads, WeightedGraph};
use forecloud::engine::model::{LayersConfig, LocalLayer, MaskConfig, ModelConfig};
use forecloud::engine::ops::grf_attention::grf_attention_forward;
use forecloud::engine::ops::linear::{Mat, matmul};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud::engine::registry::StepTokens;
use forecloud_lab::masks::{MaskKind, Nodes};
use forecloud_lab::ops::masked_attention::{
    MaskedSaved, masked_attention_backward, masked_attention_forward, n_stretches,
};
use support::time_ms;

const RUNS: usize = 7;
const COLUMNS: usize = 64;
/// The attention that ships, as `--masks` names it.
const GRF: &str = "grf";
/// Neighbours and hops: as the model has them.
const K: usize = 3;
const N_HOPS: usize = 3;

fn main() -> anyhow::Result<()> {
    forecloud_lab::register();
    let args: Vec<String> = std::env::args().collect();
    let given = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1)).map(String::as_str)
    };
    let number = |name, default: usize| given(name).map_or(Ok(default), str::parse);
    let (width, n_heads) = (number("--width", 64)?, number("--heads", 4)?);
    let logs = given("--log2").unwrap_or("8,11,14,17");
    let logs: Vec<u32> = logs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let kinds = MaskKind::all().into_iter().map(MaskKind::name);
    let names: Vec<&str> = std::iter::once(GRF).chain(kinds).collect();
    println!(
        "threads: {}; {}; ns a node: {COLUMNS} columns on one thread, attention of width {width} and \
         {n_heads} heads on all; growth: ln of the time over ln of the nodes, last over first",
        rayon::current_num_threads(),
        InstructionSet::in_use().name()
    );
    println!(
        "{:>14} {:>7} {:>9} {:>10} {:>8} {:>10} {:>10}",
        "mask", "nodes", "build", "columns", "bound ×", "forward", "backward"
    );
    for name in given("--masks").map_or(names, |names| names.split(',').collect()) {
        if name == GRF {
            logs.iter().try_for_each(|&log| measure_grf(1 << log, width))?;
            continue;
        }
        let kind = MaskKind::from_name(name);
        let kind = kind.with_context(|| format!("--masks {name}: not known"))?;
        let mut rows = Vec::new();
        for &log in &logs {
            rows.push(measure(kind, 1 << log, Heads::new(width, n_heads))?);
        }
        if let [first, .., last] = &rows[..] {
            let growth = |of: fn(&Row) -> f64| {
                let nodes = (last.n as f64 / first.n as f64).ln();
                1.0 + (of(last) / of(first)).ln() / nodes
            };
            println!(
                "{:>14} {:>7} {:>9.2} {:>10.2} {:>8} {:>10.2} {:>10.2}",
                "growth",
                "",
                growth(|row| row.build),
                growth(|row| row.columns),
                "",
                growth(|row| row.forward),
                growth(|row| row.backward)
            );
        }
    }
    Ok(())
}

/// Times in ns a node.
struct Row {
    n: usize,
    build: f64,
    columns: f64,
    forward: f64,
    backward: f64,
}

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| uniform(draw(seed, 0, i, 0))).collect()
}

/// Points on a wavy surface, as a depth image sees one; in Morton order, as particles are.
fn surface(n: usize) -> Vec<[f32; 3]> {
    let side = (n as f32 / 20_000.0).sqrt();
    let places = numbers(2 * n, 1);
    let point = |p: &[f32]| {
        let (x, y) = (side * p[0], side * p[1]);
        [x, y, 0.02 * (30.0 * x).sin() * (20.0 * y).cos()]
    };
    let mut points: Vec<[f32; 3]> = places.chunks_exact(2).map(point).collect();
    let cell = |x: f32| ((x / side * 4096.0) as u64).min(4095);
    let morton = |p: &[f32; 3]| -> u64 {
        let (x, y) = (cell(p[0]), cell(p[1]));
        (0..12).map(|bit| (x >> bit & 1) << (2 * bit) | (y >> bit & 1) << (2 * bit + 1)).sum()
    };
    points.sort_by_key(morton);
    points
}

fn measure(kind: MaskKind, n: usize, heads: Heads) -> anyhow::Result<Row> {
    let (positions, seed, mask) = (surface(n), WalkSeed::default(), MaskConfig::default());
    let layers = LayersConfig { local: LocalLayer::Registered(kind.layer()), ..Default::default() };
    let config =
        ModelConfig { k: K, n_hops: N_HOPS, layers, ..ModelConfig::default() }.interlacer();
    let mut knn = KnnGraph::default();
    let mut data = kind.layer().step_data().context("no mask")?;
    let build = median(|| {
        knn.rebuild(&positions, K)?;
        let (positions, knn, config, mask) = (&positions, &knn, &config, &mask);
        data.rebuild(&StepTokens { positions, knn, config, mask, seed, training: true })
    })?;
    let mut graph = WeightedGraph::default();
    graph.rebuild(&knn, &positions, mask.edge_weights);
    let (positions, graph, cell_m) = (&positions, &graph, mask.cell_m);
    let mask = kind.over(&Nodes { positions, graph, n_hops: N_HOPS, walks: None, cell_m, seed })?;
    let params = vec![0.0; kind.n_params(N_HOPS)];

    let (x, mut y) = (numbers(n * COLUMNS, 2), vec![0.0; n * COLUMNS]);
    let columns = median(|| {
        mask.apply(&params, &x, &mut y);
        Ok(())
    })?;
    anyhow::ensure!(y.iter().all(|y| y.is_finite() && *y >= 0.0), "{}: no mask", kind.name());
    let bound = median(|| {
        match kind.name() {
            "forest" => {
                mix(std::hint::black_box(&x), &mut y);
                mix(std::hint::black_box(&x), &mut y);
            }
            _ => y.copy_from_slice(std::hint::black_box(&x)),
        }
        Ok(())
    })?;

    let rows = numbers(n * heads.row_len(), 3);
    let (mut out, mut denominators) = (vec![0.0; n * heads.width], vec![0.0; n * heads.n_heads]);
    let forward = median(|| {
        masked_attention_forward(&*mask, &params, &rows, heads, &mut out, &mut denominators);
        Ok(())
    })?;
    let d_out = numbers(n * heads.width, 4);
    let saved = MaskedSaved { rows: &rows, out: &out, denominators: &denominators };
    let mut d_rows = vec![0.0; rows.len()];
    let mut d_params = vec![0.0; n_stretches(heads) * params.len()];
    let backward = median(|| {
        masked_attention_backward(
            &*mask,
            &params,
            saved,
            heads,
            &d_out,
            &mut d_rows,
            &mut d_params,
        );
        Ok(())
    })?;
    let per_node = |ms: f64| 1e6 * ms / n as f64;
    let row = Row {
        n,
        build: per_node(build),
        columns: per_node(columns),
        forward: per_node(forward),
        backward: per_node(backward),
    };
    println!(
        "{:>14} {n:>7} {:>9.0} {:>10.0} {:>8.2} {:>10.0} {:>10.0}",
        kind.name(),
        row.build,
        row.columns,
        columns / bound,
        row.forward,
        row.backward
    );
    Ok(row)
}

/// The attention that ships, whose rows are made once a step: forward, on one thread.
fn measure_grf(n: usize, width: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        (2 * width).is_multiple_of(STRIPE),
        "--width {width}: a multiple of {} is needed",
        STRIPE / 2
    );
    let (mut knn, mut loads) = (KnnGraph::default(), Loads::default());
    let positions = surface(n);
    let mut build = || {
        knn.rebuild(&positions, K)?;
        loads.rebuild(&knn, N_HOPS)
    };
    let build = median(&mut build)?;
    let rows = numbers(n * 3 * width, 3);
    let (f, mut out, mut denominators) = ([1.0; N_HOPS + 1], vec![0.0; n * width], vec![0.0; n]);
    let forward = median(|| {
        let all = 0..n;
        grf_attention_forward(all, &rows, width, &loads, &f, &mut out, &mut denominators);
        Ok(())
    })?;
    anyhow::ensure!(denominators.iter().all(|&d| d > 0.0), "no sums");
    // For each entry a dot product of features, and a row of values added.
    let entries: usize = (0..n).map(|i| loads.row(i).nodes.len()).sum();
    let (inner, mut y) = (entries.div_ceil(n), vec![0.0; n * 2 * width]);
    let (a, b) = (numbers(n * inner, 5), numbers(inner * 2 * width, 6));
    let product = median(|| {
        matmul(&mut y, 2 * width, Mat::new(&a, inner), Mat::new(&b, 2 * width), false);
        Ok(())
    })?;
    let mut sums = vec![0.0; n * 2 * width];
    let gathering = median(|| {
        gather(&rows, width, &loads, &mut sums);
        Ok(())
    })?;
    anyhow::ensure!(sums.iter().all(|&sum| sum > 0.0), "nothing was gathered");
    let per_node = |ms: f64| 1e6 * ms / n as f64;
    println!(
        "{:>14} {n:>7} {:>9.0} {:>10} {:>8.2} {:>10.0} {:>10}  ({:.1} entries a row; bound: gathering, {:.0} ns; \
         {:.2} × a matrix product)",
        "grf (fused)",
        per_node(build),
        "",
        forward / gathering,
        per_node(forward),
        "",
        entries as f64 / n as f64,
        per_node(gathering),
        forward / product,
    );
    Ok(())
}

/// Numbers of a row that are added up in registers.
const STRIPE: usize = 64;

/// Whether the bounds have AVX2.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return InstructionSet::in_use() != InstructionSet::Scalar && is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Adds up the keys and values that each query's row hears: what the attention reads, where it reads it,
/// with one addition for each of its multiply-adds.
fn gather(rows: &[f32], width: usize, loads: &Loads, sums: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn with_avx2(rows: &[f32], width: usize, loads: &Loads, sums: &mut [f32]) {
        gather_inline(rows, width, loads, sums);
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has these instructions.
        return unsafe { with_avx2(rows, width, loads, sums) };
    }
    gather_inline(rows, width, loads, sums);
}

#[inline(always)]
fn gather_inline(rows: &[f32], width: usize, loads: &Loads, sums: &mut [f32]) {
    for (i, sums) in sums.chunks_exact_mut(2 * width).enumerate() {
        let nodes = loads.row(i).nodes;
        for (stripe, sums) in sums.chunks_exact_mut(STRIPE).enumerate() {
            let mut total = [0.0f32; STRIPE];
            for &j in nodes {
                let heard = &rows[j as usize * 3 * width + width + stripe * STRIPE..][..STRIPE];
                for (total, x) in total.iter_mut().zip(heard) {
                    *total += x;
                }
            }
            sums.copy_from_slice(&total);
        }
    }
}

/// y = (x + y) / 2: reads two rows and writes one.
fn mix(x: &[f32], y: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn with_avx2(x: &[f32], y: &mut [f32]) {
        mix_inline(x, y);
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has these instructions.
        return unsafe { with_avx2(x, y) };
    }
    mix_inline(x, y);
}

#[inline(always)]
fn mix_inline(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = 0.5 * *y + 0.5 * x;
    }
}

/// Median time in ms, after a first run.
fn median(mut run: impl FnMut() -> forecloud::Result<()>) -> anyhow::Result<f64> {
    run()?;
    let times: Result<Vec<f64>, _> = (0..RUNS).map(|_| time_ms(&mut run)).collect();
    Ok(support::median(times?))
}
