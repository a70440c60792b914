//! Times k-MIP attention beside dense softmax attention, after holding both to sums in f64.
//!
//! `cargo bench --bench k_mip [-- --log2 12,15 --k 16 --width 64 --heads 4]`: random queries, keys and
//! values. Prints medians of the forward pass in ms, k-MIP's over the scores' bare matrix products (what
//! no exact search that compares all pairs can be below), and softmax's over k-MIP's. With `--in-turn` k-MIP
//! and the products alone, a block of queries by each after the other, on one thread: what else the machine
//! does falls on both.

mod support;

use forecloud::base::instruction_set::InstructionSet;
use forecloud::base::random::{draw, normal_pair};
use forecloud::engine::ops::linear::{Mat, matmul};
use forecloud::engine::ops::linear_attention::Heads;
use forecloud_lab::ops::k_mip_attention::{BLOCK, k_mip_attention_forward};
use forecloud_lab::ops::softmax_attention::{self, softmax_attention_forward};
use rayon::prelude::*;
use support::time_ms;

const RUNS: usize = 5;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let given = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1)).map(String::as_str)
    };
    let number = |name, default: usize| given(name).map_or(Ok(default), str::parse);
    let (width, n_heads, k) = (number("--width", 64)?, number("--heads", 4)?, number("--k", 16)?);
    let logs = given("--log2").unwrap_or("10,12,15");
    let logs: Vec<u32> = logs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    println!(
        "threads: {}; {}; width {width}, {n_heads} heads, k = {k}; ms, medians of {RUNS}",
        rayon::current_num_threads(),
        InstructionSet::in_use().name()
    );
    println!(
        "{:>7} {:>9} {:>9} {:>9} {:>8} {:>10}",
        "N", "k-MIP", "softmax", "scores", "bound ×", "softmax ×"
    );
    let (heads, takes_turns) = (Heads::new(width, n_heads), args.iter().any(|a| a == "--in-turn"));
    for log in logs {
        let n = 1usize << log;
        let rows: Vec<f32> =
            (0..3 * n * width).map(|i| normal_pair(draw(1, 0, i as u64, 0))[0]).collect();
        if takes_turns {
            in_turn(&rows, heads, k)?;
            continue;
        }
        let (mut out, mut dense) = (vec![0.0; n * width], vec![0.0; n * width]);
        k_mip(&rows, heads, k, &mut out)?;
        softmax(&rows, heads, &mut dense)?;
        for row in (0..n).step_by((n / 8).max(1)) {
            check(&rows, heads, k, row, &out)?;
            check(&rows, heads, n, row, &dense)?;
        }
        let mut times = [vec![], vec![], vec![]];
        for _ in 0..RUNS {
            times[0].push(time_ms(|| k_mip(&rows, heads, k, &mut out))?);
            times[1].push(time_ms(|| softmax(&rows, heads, &mut dense))?);
            times[2].push(time_ms(|| scores(&rows, heads))?);
        }
        let [sparse, dense, bound] = times.map(support::median);
        println!(
            "{n:>7} {sparse:>9.2} {dense:>9.2} {bound:>9.2} {:>8.2} {:>10.2}",
            sparse / bound,
            dense / sparse
        );
    }
    Ok(())
}

fn k_mip(rows: &[f32], heads: Heads, k: usize, out: &mut [f32]) -> forecloud::Result<()> {
    let blocks = out.par_chunks_mut(BLOCK * heads.width).enumerate();
    blocks.for_each_init(Default::default, |memory, (index, out)| {
        k_mip_block(rows, heads, k, index, out, memory);
    });
    Ok(())
}

/// Log-sum-exps and chosen keys.
type Memory = (Vec<f32>, Vec<u32>);

fn k_mip_block(
    rows: &[f32],
    heads: Heads,
    k: usize,
    index: usize,
    out: &mut [f32],
    (log_sums, chosen): &mut Memory,
) {
    let of = index * BLOCK..index * BLOCK + out.len() / heads.width;
    log_sums.resize(of.len() * heads.n_heads, 0.0);
    chosen.resize(log_sums.len() * k, 0);
    k_mip_attention_forward(of, rows, heads, out, log_sums, chosen);
}

/// Prints least and lower quartile of the blocks' times.
fn in_turn(rows: &[f32], heads: Heads, k: usize) -> anyhow::Result<()> {
    let n = rows.len() / (3 * heads.width);
    let (mut out, mut memory) = (vec![0.0; n * heads.width], Memory::default());
    let mut times = [vec![], vec![]];
    for (index, out) in out.chunks_mut(BLOCK * heads.width).enumerate() {
        times[0].push(time_ms(|| {
            k_mip_block(rows, heads, k, index, out, &mut memory);
            anyhow::Ok(())
        })?);
        let mut scores = vec![0.0; BLOCK * BLOCK];
        times[1].push(time_ms(|| {
            scores_block(rows, heads, index, &mut scores);
            anyhow::Ok(())
        })?);
    }
    for row in (0..n).step_by((n / 8).max(1)) {
        check(rows, heads, k, row, &out)?;
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let [least, quartile] = [0, times[0].len() / 4].map(|at| [times[0][at], times[1][at]]);
    for (name, [k_mip, bound]) in [("least", least), ("quartile", quartile)] {
        println!("{n:>7} {k_mip:>9.2} {:>9} {bound:>9.2} {:>8.2}  {name}", "", k_mip / bound);
    }
    Ok(())
}

fn softmax(rows: &[f32], heads: Heads, out: &mut [f32]) -> forecloud::Result<()> {
    const ROWS: usize = softmax_attention::BLOCK;
    let blocks = out.par_chunks_mut(ROWS * heads.width).enumerate();
    blocks.for_each_init(
        || (vec![0.0; ROWS * heads.n_heads], vec![0.0; softmax_attention::SCRATCH_LEN]),
        |(log_sums, scratch), (index, out)| {
            let of = index * ROWS..index * ROWS + out.len() / heads.width;
            let log_sums = &mut log_sums[..of.len() * heads.n_heads];
            softmax_attention_forward(of, rows, heads, out, log_sums, scratch);
        },
    );
    Ok(())
}

/// The scores' matrix products alone, in the same blocks.
fn scores(rows: &[f32], heads: Heads) -> forecloud::Result<()> {
    let n = rows.len() / (3 * heads.width);
    (0..n.div_ceil(BLOCK)).into_par_iter().for_each_init(
        || vec![0.0; BLOCK * BLOCK],
        |scores, block| scores_block(rows, heads, block, scores),
    );
    Ok(())
}

fn scores_block(rows: &[f32], heads: Heads, block: usize, scores: &mut [f32]) {
    let (d, dh) = (heads.width, heads.head_width());
    let n = rows.len() / (3 * d);
    let part = |of: usize, which: usize, head: usize| {
        let end = (of + BLOCK).min(n);
        Mat::columns(&rows[of * 3 * d..end * 3 * d], 3 * d, which * d + head * dh, dh)
    };
    for (head, keys) in
        (0..heads.n_heads).flat_map(|head| (0..n).step_by(BLOCK).map(move |keys| (head, keys)))
    {
        let n_keys = BLOCK.min(n - keys);
        matmul(scores, n_keys, part(block * BLOCK, 0, head), part(keys, 1, head).t(), false);
    }
    std::hint::black_box(scores);
}

/// Holds a row of outputs to the sums in f64 over its `k` best keys.
fn check(rows: &[f32], heads: Heads, k: usize, row: usize, out: &[f32]) -> anyhow::Result<()> {
    let (d, dh) = (heads.width, heads.head_width());
    let part = |row: usize, which: usize, head: usize| {
        rows[(row * 3 + which) * d + head * dh..][..dh].iter().map(|&x| f64::from(x))
    };
    for head in 0..heads.n_heads {
        let score =
            |j: usize| part(row, 0, head).zip(part(j, 1, head)).map(|(q, k)| q * k).sum::<f64>();
        let mut scores: Vec<(f64, usize)> =
            (0..rows.len() / (3 * d)).map(|j| (score(j), j)).collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0));
        scores.truncate(k);
        let weights: Vec<f64> =
            scores.iter().map(|s| ((s.0 - scores[0].0) / (dh as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        for c in 0..dh {
            let value = |j: usize| part(j, 2, head).nth(c).unwrap_or(f64::NAN);
            let want =
                scores.iter().zip(&weights).map(|(s, w)| w * value(s.1)).sum::<f64>() / total;
            let got = f64::from(out[row * d + head * dh + c]);
            anyhow::ensure!((got - want).abs() < 1e-4, "row {row}, k = {k}: {got}, not {want}");
        }
    }
    Ok(())
}
