//! Dense layers and attentions, against f64 and against the CPU's operations.

use super::super::kernels::{Dense, Kernel, LoadsBuffers, n_halves, n_partials, number};
use super::super::model::row_cap;
use super::*;
use crate::engine::graph::{KnnGraph, Loads};
use crate::engine::ops::check::{assert_close, f64s, numbers};
use crate::engine::ops::grf_attention::grf_attention_forward;
use crate::engine::ops::layer_norm::layer_norm_forward;
use crate::engine::ops::linear::{linear_forward_add, linear_relu_forward};
use crate::engine::ops::linear_attention::{
    Heads, linear_attention_fold, linear_attention_queries, linear_attention_state,
};

/// Rows, inputs, outputs: what no tile divides, and what all divide.
const SHAPES: [[usize; 3]; 7] = [
    [1, 1, 1],
    [67, 49, 64],
    [65, 64, 192],
    [130, 70, 7],
    [128, 16, 64],
    [200, 128, 100],
    [131, 36, 66],
];

struct Inputs {
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    y: Vec<f32>,
}

fn inputs([rows, n_in, n_out]: [usize; 3]) -> Inputs {
    Inputs {
        x: numbers(rows * n_in, 1),
        weight: numbers(n_in * n_out, 2),
        bias: numbers(n_out, 3),
        y: numbers(rows * n_out, 4),
    }
}

/// y by the device, from the y of `inputs`; by kernels of halves from rows that `split` splits.
fn dense(
    [split, kernel]: [Option<Kernel>; 2],
    [rows, n_in, n_out]: [usize; 3],
    inputs: &Inputs,
    n_relu: usize,
) -> Vec<f32> {
    let mut memory = Memory::new();
    let (norm_weight, norm_bias) = (memory.put(&numbers(n_in, 5)), memory.put(&numbers(n_in, 6)));
    let y = memory.put(&inputs.y);
    let weight = memory.put(&inputs.weight);
    let halves = memory.empty(n_halves(n_out, n_in));
    memory.gpu.split_weights(weight, n_out, halves).unwrap();
    let x_halves: Buffer<u32> = memory.empty(n_halves(rows, n_in));
    let y_halves: Buffer<u32> = memory.empty(n_halves(rows, n_out));
    let layer = Dense {
        x: memory.put(&inputs.x).address(),
        weight: weight.address(),
        halves: halves.address(),
        x_halves: x_halves.address(),
        y_halves: y_halves.address(),
        bias: memory.put(&inputs.bias).address(),
        y: y.address(),
        norm_weight: norm_weight.address(),
        norm_bias: norm_bias.address(),
        z: 0,
        rows: number(rows),
        n_in: number(n_in),
        n_out: number(n_out),
        x_stride: number(n_in),
        n_relu: number(n_relu),
        n_heads: 1,
        x_rows: number(rows),
        own_weights: 0,
    };
    for kernel in [split, kernel].into_iter().flatten() {
        memory.gpu.dense(kernel, &layer, 1).unwrap();
    }
    if kernel == Some(Kernel::HalfSplit) {
        return joined(&memory.get(y_halves), n_out);
    }
    memory.get(y)
}

/// Rows of `n` numbers of what they were split into; none but zeros may lie behind them.
fn joined(halves: &[u32], n: usize) -> Vec<f32> {
    let n_all = n.next_multiple_of(16);
    let rows = halves.len() / n_all;
    let (rounded, rest) = halves.split_at(halves.len() / 2);
    // Sixteen numbers of each row, then the next ones.
    let number = |halves: &[u32], row: usize, c: usize| {
        let pair = halves[(rows * (c / 16) + row) * 8 + c % 16 / 2];
        let bits = if c.is_multiple_of(2) { pair as u16 } else { (pair >> 16) as u16 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
        let magnitude = match exponent {
            0 => fraction * 2f32.powi(-24),
            _ => (fraction + 1024.0) * 2f32.powi(exponent - 25),
        };
        if bits >> 15 == 1 { -magnitude } else { magnitude }
    };
    let row = |row: usize| {
        let all = (0..n_all).map(move |c| number(rounded, row, c) + number(rest, row, c));
        let all: Vec<f32> = all.collect();
        assert!(all[n..].iter().all(|&x| x == 0.0), "zeros behind a row");
        all.into_iter().take(n)
    };
    (0..rows).flat_map(row).collect()
}

/// A kernel of f32, and one of halves with what splits its rows.
fn full(kernel: Kernel) -> [Option<Kernel>; 2] {
    [None, Some(kernel)]
}

fn half(kernel: Kernel) -> [Option<Kernel>; 2] {
    [Some(Kernel::SplitRows), Some(kernel)]
}

#[test]
fn dense_layers_are_the_cpus() {
    for shape in SHAPES {
        let n_relu = shape[2] / 2;
        let given = inputs(shape);
        let mut expected = vec![0.0; given.y.len()];
        linear_relu_forward(&given.x, &given.weight, &given.bias, n_relu, &mut expected);
        let got = dense(full(Kernel::DensePlain), shape, &given, n_relu);
        assert_close(&got, &f64s(&expected), 2e-6);
        let mut expected = given.y.clone();
        linear_forward_add(&given.x, &given.weight, &given.bias, &mut expected);
        assert_close(&dense(full(Kernel::DenseAdd), shape, &given, 0), &f64s(&expected), 2e-6);
    }
}

/// What two numbers of half precision leave of one, with some room: 20 bits.
const SPLIT: f64 = 1e-6;

#[test]
fn dense_layers_on_tensor_cores_are_the_cpus() {
    for shape in SHAPES {
        let mut given = inputs(shape);
        let mut expected = vec![0.0; given.y.len()];
        linear_relu_forward(&given.x, &given.weight, &given.bias, 1, &mut expected);
        assert_close(&dense(half(Kernel::HalfPlain), shape, &given, 1), &f64s(&expected), SPLIT);
        assert_close(&dense(half(Kernel::HalfSplit), shape, &given, 1), &f64s(&expected), SPLIT);
        let mut added = given.y.clone();
        linear_forward_add(&given.x, &given.weight, &given.bias, &mut added);
        assert_close(&dense(half(Kernel::HalfAdd), shape, &given, 0), &f64s(&added), SPLIT);
        // Each number in its place: nothing is rounded then.
        given.x.iter_mut().for_each(|x| *x = (3.0 * *x).round());
        given.weight.iter_mut().for_each(|w| *w = (3.0 * *w).round());
        linear_relu_forward(&given.x, &given.weight, &given.bias, 1, &mut expected);
        assert_close(&dense(half(Kernel::HalfPlain), shape, &given, 1), &f64s(&expected), 1e-6);
        // Not only the sums of many: the rest of the rounding counts, too.
        given.x.iter_mut().for_each(|x| *x += 1.0 / 4096.0);
        linear_relu_forward(&given.x, &given.weight, &given.bias, 1, &mut expected);
        assert_close(&dense(half(Kernel::HalfPlain), shape, &given, 1), &f64s(&expected), 1e-6);
    }
}

#[test]
fn layer_norm_before_a_dense_layer_is_the_cpus() {
    for shape in SHAPES {
        for scale in [1.0, 1e3, 1e-2] {
            let mut given = inputs(shape);
            given.x.iter_mut().for_each(|x| *x = scale * (*x + 0.5));
            let (w, b) = (numbers(shape[1], 5), numbers(shape[1], 6));
            let mut normalized = given.x.clone();
            layer_norm_forward(&given.x, &w, &b, &mut normalized, None);
            let mut expected = vec![0.0; given.y.len()];
            let n_relu = shape[2];
            linear_relu_forward(&normalized, &given.weight, &given.bias, n_relu, &mut expected);
            let got = dense(full(Kernel::DenseNorm), shape, &given, n_relu);
            assert_close(&got, &f64s(&expected), 1e-5);
            let got =
                dense([Some(Kernel::SplitNorm), Some(Kernel::HalfPlain)], shape, &given, n_relu);
            assert_close(&got, &f64s(&expected), 1e-5);
        }
    }
}

/// Rows `[φ(q) | φ(k) | v]`.
fn qkv(n: usize, d: usize) -> Vec<f32> {
    let mut rows = numbers(n * 3 * d, 7);
    for row in rows.chunks_exact_mut(3 * d) {
        row[..2 * d].iter_mut().for_each(|x| *x = x.max(0.0));
    }
    rows
}

#[test]
fn linear_attention_is_the_cpus() {
    for (n, d, n_heads) in [(1, 4, 2), (200, 64, 4), (131, 20, 5), (97, 256, 4), (70, 48, 1)] {
        let (rows, heads) = (qkv(n, d), Heads::new(d, n_heads));
        let (weight, bias, x) = (numbers(d * d, 8), numbers(d, 9), numbers(n * d, 10));
        let mut state = vec![0.0; heads.state_len()];
        linear_attention_state(&rows, heads, &mut state);
        let mut folded = vec![0.0; d * d];
        linear_attention_fold(&state, heads, &weight, &mut folded);
        let (mut queries, mut expected) = (vec![0.0; n * d], x.clone());
        linear_attention_queries(&rows, 3 * d, &state, heads, &mut queries);
        linear_forward_add(&queries, &folded, &bias, &mut expected);

        let mut memory = Memory::new();
        let (on_device, widths) = (memory.put(&rows), [d, d / n_heads]);
        let partials = memory.empty(heads.state_len() * n_partials(n, d));
        let (folded_there, z) = (memory.empty(d * d), memory.empty(d));
        let (weight, y) = (memory.put(&weight), memory.put(&x));
        let gpu = memory.gpu.clone();
        gpu.linear_state(on_device, 1, widths, partials).unwrap();
        gpu.linear_fold(partials, 1, widths, weight, folded_there, z).unwrap();
        assert_close(&memory.get(z), &f64s(&state[d * d / n_heads..]), 2e-6);
        assert_close(&memory.get(folded_there), &f64s(&folded), 5e-6);
        let layer = Dense {
            x: on_device.address(),
            weight: folded_there.address(),
            bias: memory.put(&bias).address(),
            y: y.address(),
            z: z.address(),
            rows: number(n),
            n_in: number(d),
            n_out: number(d),
            x_stride: number(3 * d),
            n_heads: number(n_heads),
            ..Dense::default()
        };
        gpu.dense(Kernel::DenseQueriesAdd, &layer, 1).unwrap();
        assert_close(&memory.get(y), &f64s(&expected), 1e-5);
    }
}

#[test]
fn many_rows_are_summed_by_blocks_of_several_chunks() {
    // A block has room for 24 of the rows at once, and there are to be 256 blocks at most.
    let (n, d, n_heads) = (24 * 256 + 100, 256, 16);
    let (rows, heads) = (qkv(n, d), Heads::new(d, n_heads));
    let (weight, mut state) = (numbers(d * d, 8), vec![0.0; heads.state_len()]);
    linear_attention_state(&rows, heads, &mut state);
    let mut folded = vec![0.0; d * d];
    linear_attention_fold(&state, heads, &weight, &mut folded);
    let mut memory = Memory::new();
    let (rows, weight) = (memory.put(&rows), memory.put(&weight));
    let (there, z) = (memory.empty(d * d), memory.empty(d));
    assert!(n_partials(n, d) <= 256 && n_partials(n, d) * 24 < n);
    let partials = memory.empty(heads.state_len() * n_partials(n, d));
    let (gpu, widths) = (memory.gpu.clone(), [d, d / n_heads]);
    gpu.linear_state(rows, 1, widths, partials).unwrap();
    gpu.linear_fold(partials, 1, widths, weight, there, z).unwrap();
    assert_close(&memory.get(z), &f64s(&state[d * d / n_heads..]), 1e-5);
    assert_close(&memory.get(there), &f64s(&folded), 2e-5);
}

#[test]
fn grf_attention_is_the_cpus() {
    for (n, d, k, n_hops) in
        [(5, 8, 3, 3), (150, 64, 3, 3), (66, 100, 8, 2), (75, 256, 2, 1), (47, 30, 3, 2)]
    {
        let positions: Vec<[f32; 3]> =
            numbers(3 * n, 11).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let (mut graph, mut loads) = (KnnGraph::default(), Loads::default());
        graph.rebuild(&positions, k).unwrap();
        loads.rebuild(&graph, n_hops).unwrap();
        let (rows, logits) = (qkv(n, d), numbers(n_hops + 1, 12));
        let softplus = |x: &f32| f64::from(*x).exp().ln_1p() as f32;
        let hop_weights: Vec<f32> = logits.iter().map(softplus).collect();
        let (mut expected, mut denominators) = (vec![0.0; n * d], vec![0.0; n]);
        let f = &hop_weights;
        grf_attention_forward(0..n, &rows, d, &loads, f, &mut expected, &mut denominators);

        let mut memory = Memory::new();
        let (cap, stride) = (row_cap(n, k, n_hops), n_hops + 1);
        let (mut lens, mut nodes) = (vec![0; n], vec![u32::MAX; n * cap]);
        let mut values = vec![f32::NAN; n * cap * stride];
        for i in 0..n {
            let row = loads.row(i);
            lens[i] = row.nodes.len() as u32;
            nodes[i * cap..][..row.nodes.len()].copy_from_slice(row.nodes);
            values[i * cap * stride..][..row.loads.len()].copy_from_slice(row.loads);
        }
        let mask = LoadsBuffers {
            lens: memory.put(&lens).address(),
            nodes: memory.put(&nodes).address(),
            loads: memory.put(&values).address(),
            n: number(n),
            cap: number(cap),
            n_hops: number(n_hops),
        };
        let (rows, logits, out) = (memory.put(&rows), memory.put(&logits), memory.empty(n * d));
        let halves = memory.empty(n_halves(n, d));
        memory.gpu.grf_attention(rows, &mask, logits, out, halves).unwrap();
        assert_close(&memory.get(out), &f64s(&expected), 5e-6);
        assert_close(&joined(&memory.get(halves), d), &f64s(&expected), 5e-6);
    }
}
