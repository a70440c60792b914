//! Attention of both kernels under graph random features, against the dense one in f64.

use super::*;
use forecloud::engine::graph::walks::{Halting, Sampler, WalkConfig, WalkSeed};
use forecloud::engine::graph::{EdgeWeights, KnnGraph, WeightedGraph};
use forecloud::engine::ops::check::*;

/// The same in f64, all entries of the mask and of its size written out.
fn dense(rows: &[f64], of: (Similarity, Heads), loads: &Loads, f: &[f64]) -> Vec<f64> {
    let (similarity, heads) = of;
    let (len, all, m, dh) =
        (heads.row_len(), heads.features(), heads.n_features, heads.head_width());
    let (n, n_hops) = (loads.len(), loads.n_hops() + 1);
    let mut out = vec![0.0; n * heads.width];
    for (i, head) in (0..n).flat_map(|i| (0..heads.n_heads).map(move |head| (i, head))) {
        let (mut mask, mut size, row) = (vec![0.0; n], vec![0.0; n], loads.row(i));
        for (&j, c) in row.nodes.iter().zip(row.loads.chunks_exact(n_hops)) {
            for (f, &c) in f[head * n_hops..].iter().zip(c) {
                mask[j as usize] += f * f64::from(c);
                size[j as usize] += f.abs() * f64::from(c);
            }
        }
        let score = |j: usize| -> f64 {
            let q = &rows[i * len + head * m..][..m];
            let k = &rows[j * len + all + head * m..][..m];
            q.iter().zip(k).map(|(q, k)| q * k).sum()
        };
        let highest = (0..n).map(score).fold(f64::NEG_INFINITY, f64::max);
        let e = |j: usize| match similarity {
            Similarity::Softmax => ((score(j) - highest) / (m as f64).sqrt()).exp(),
            Similarity::Linear => score(j),
        };
        let total: f64 = (0..n).map(|j| e(j) * size[j]).sum();
        for (j, c) in (0..n).flat_map(|j| (0..dh).map(move |c| (j, c))) {
            let value = rows[j * len + 2 * all + head * dh + c];
            if total > 0.0 {
                out[i * heads.width + head * dh + c] += e(j) * mask[j] / total * value;
            }
        }
    }
    out
}

/// All walks of three hops on the 3-NN graph of `n` points, or sampled ones.
fn walks(n: usize, is_sampled: bool) -> (Loads, TransposedLoads) {
    let points: Vec<[f32; 3]> =
        numbers(3 * n, 5).chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
    let (mut knn, mut graph) = (KnnGraph::default(), WeightedGraph::default());
    knn.rebuild(&points, 3).unwrap();
    graph.rebuild(&knn, &points, EdgeWeights::Distance { bandwidth_m: 1.0 });
    let (mut loads, mut transposed) = (Loads::default(), TransposedLoads::default());
    if is_sampled {
        let (sampler, halting) = (Sampler::Iid, Halting::Probability { p_halt: 0.3, max_hops: 3 });
        let walks = WalkConfig { sampler, n_walks: 4, halting, importance: true };
        loads.rebuild_sampled(&graph, &walks, WalkSeed { seed: 2, stamp_ns: 1 }).unwrap();
    } else {
        loads.rebuild(&graph, 3).unwrap();
    }
    transposed.rebuild(&loads);
    (loads, transposed)
}

type Gradients = (Vec<f32>, Vec<f32>);

fn run(
    of: GrfKernel<'_>,
    transposed: &TransposedLoads,
    rows: &[f32],
    d_out: &[f32],
) -> (Vec<f32>, Gradients) {
    let n = of.loads.len();
    let (mut out, mut log_sums) =
        (vec![f32::NAN; n * of.heads.width], vec![f32::NAN; n * of.heads.n_heads]);
    grf_kernel_attention_forward(of, rows, &mut out, &mut log_sums);
    let mut d_rows = vec![f32::NAN; rows.len()];
    let mut d_f = vec![f64::NAN; of.hop_weights.len()];
    let saved = GrfKernelSaved { rows, log_sums: &log_sums };
    grf_kernel_attention_backward(of, transposed, saved, d_out, &mut d_rows, &mut d_f);
    (out, (d_rows, d_f.iter().map(|d| *d as f32).collect()))
}

/// Seeded rows, queries `sharpness` times as large; of the linear similarity's no feature is negative.
fn rows(n: usize, (similarity, heads): (Similarity, Heads), sharpness: f32) -> Vec<f32> {
    let mut rows = numbers(n * heads.row_len(), 1);
    for row in rows.chunks_exact_mut(heads.row_len()) {
        row[..heads.features()].iter_mut().for_each(|q| *q *= sharpness);
        if similarity == Similarity::Linear {
            row[..2 * heads.features()].iter_mut().for_each(|x| *x = x.abs() + 0.05);
        }
    }
    rows
}

fn assert_dense(of: (Similarity, Heads), n: usize, is_sampled: bool, f: &[f32], sharpness: f32) {
    let (loads, transposed) = walks(n, is_sampled);
    let (similarity, heads) = of;
    let (rows, d_out) = (rows(n, of, sharpness), numbers(n * heads.width, 2));
    let fast = GrfKernel { similarity, heads, loads: &loads, hop_weights: f };
    let (out, (d_rows, d_f)) = run(fast, &transposed, &rows, &d_out);
    let (rows64, f64s_) = (f64s(&rows), f64s(f));
    assert_close(&out, &dense(&rows64, of, &loads, &f64s_), 2e-5);
    let of_rows = |x: &[f64]| dense(x, of, &loads, &f64s_);
    assert_gradient_of("rows", &d_rows, &rows, &d_out, of_rows);
    assert_gradient_of("f", &d_f, f, &d_out, |f| dense(&rows64, of, &loads, f));
}

const SIMILARITIES: [Similarity; 2] = [Similarity::Softmax, Similarity::Linear];
const F: [f32; 8] = [0.7, 0.4, 1.3, 0.2, 0.1, 0.9, 0.3, 2.0];
const SIGNED: [f32; 8] = [0.7, -0.4, 1.3, -0.2, -0.1, 0.9, -0.3, -2.0];

#[test]
fn attention_under_grfs_and_its_gradients() {
    let heads = Heads::new(6, 2);
    for (similarity, f) in
        SIMILARITIES.into_iter().flat_map(|similarity| [(similarity, F), (similarity, SIGNED)])
    {
        assert_dense((similarity, heads), 21, false, &f, 1.0);
        let wider = Heads { n_features: 5, ..heads };
        assert_dense((similarity, wider), ROWS + 6, true, &f, 1.0);
    }
    // Scores of tens.
    assert_dense((Similarity::Softmax, heads), 21, false, &SIGNED, 20.0);
}

/// Outputs depend on ratios of f alone: of numbers whose products would leave f32 too.
#[test]
fn tiny_hop_weights_are_as_good_as_others() {
    let (loads, transposed) = walks(21, false);
    let heads = Heads::new(6, 2);
    for similarity in SIMILARITIES {
        let (rows, d_out) = (rows(21, (similarity, heads), 1.0), numbers(21 * 6, 2));
        let at = |scale: f32| {
            let f = SIGNED.map(|f| scale * f);
            let of = GrfKernel { similarity, heads, loads: &loads, hop_weights: &f };
            run(of, &transposed, &rows, &d_out)
        };
        let (plain, tiny) = (at(1.0), at(2.0f32.powi(-120)));
        assert_eq!((plain.0, plain.1.0), (tiny.0, tiny.1.0));
        // Nothing is heard: nothing is said, and nothing learnt from it.
        let (out, (d_rows, d_f)) = at(0.0);
        assert!(out.iter().chain(&d_rows).chain(&d_f).all(|x| *x == 0.0));
    }
}

/// Σ f_t W^t is 0 along the diagonal here, or nearly.
#[test]
fn no_output_is_larger_than_the_largest_value() {
    let (n, heads) = (300, Heads::new(4, 1));
    let (loads, transposed) = walks(n, true);
    for similarity in SIMILARITIES {
        let (rows, d_out) = (rows(n, (similarity, heads), 1.0), numbers(n * 4, 2));
        let values = |row: &[f32]| row[8..].iter().fold(0.0f32, |max, v| max.max(v.abs()));
        let largest = rows.chunks_exact(12).map(values).fold(0.0, f32::max);
        for f in [[1.0, -1.0, 0.0, 0.0], [1.0, -1.0 / 3.0, 1.0 / 9.0, -1.0], [-1.0; 4]] {
            let of = GrfKernel { similarity, heads, loads: &loads, hop_weights: &f };
            let (out, (d_rows, d_f)) = run(of, &transposed, &rows, &d_out);
            assert!(out.iter().all(|out| out.abs() <= largest * 1.000_01));
            assert!(d_rows.iter().chain(&d_f).all(|d| d.is_finite()));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let (loads, transposed) = walks(3 * ROWS + 5, false);
    let (n, heads) = (loads.len(), Heads::new(6, 2));
    for similarity in SIMILARITIES {
        let (rows, d_out) = (rows(n, (similarity, heads), 1.0), numbers(n * 6, 2));
        let of = GrfKernel { similarity, heads, loads: &loads, hop_weights: &SIGNED };
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(of, &transposed, &rows, &d_out))
        };
        assert_eq!(on(1), on(3));
    }
}
