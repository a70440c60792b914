//! Times the block-Toeplitz mask on full grids against its number of nodes, after holding some rows of
//! its product to sums in f64.
//!
//! `cargo bench --bench toeplitz [-- --log2 8,17 --reach 3]`: steps of time (one axis) and images (two).
//! Prints medians on one thread, in ns a node of 64 columns: product and gradients; beside them what bounds
//! each way to the product, measured here: the Fourier transforms of the larger grid alone, there and back
//! for each two columns, every axis as if its rows lay in a row; and a matrix product of as many
//! multiply-adds as the sums over all offsets. `bound ×`: over the smaller of the two. Below each grid: how
//! the time grows, over N log N.

mod support;

use anyhow::ensure;
use forecloud::base::instruction_set::InstructionSet;
use forecloud::base::random::{draw, uniform};
use forecloud::engine::ops::linear::{Mat, matmul};
use forecloud_lab::masks::Mask;
use forecloud_lab::masks::Toeplitz;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;
use support::time_ms;

const RUNS: usize = 7;
const COLUMNS: usize = 64;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let given = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1)).map(String::as_str)
    };
    let reach: usize = given("--reach").map_or(Ok(3), str::parse)?;
    let logs = given("--log2").unwrap_or("8,11,14,17");
    let logs: Vec<u32> = logs.split(',').map(str::parse).collect::<Result<_, _>>()?;
    ensure!(logs.iter().all(|log| (4..=20).contains(log)), "--log2: not all are in 4..=20");
    ensure!((1..15).contains(&reach), "--reach {reach} is not in 1..=14");
    println!(
        "one thread; {}; ns a node, {COLUMNS} columns, reach {reach}",
        InstructionSet::in_use().name()
    );
    println!(
        "{:>12} {:>7} {:>9} {:>10} {:>9} {:>8} {:>10}",
        "grid", "nodes", "product", "transforms", "sums", "bound ×", "gradients"
    );
    type Shape = fn(u32) -> Vec<usize>;
    let grids: [(&str, Shape); 2] = [
        ("time", |log| vec![1 << log]),
        ("image", |log| vec![1 << (log / 2), 1 << log.div_ceil(2)]),
    ];
    for (name, shape) in grids {
        let mut rows = Vec::new();
        for &log in &logs {
            rows.push((f64::from(log), measure(name, &shape(log), reach)?));
        }
        if let [first, .., last] = &rows[..] {
            let growth = |of: fn(&[f64; 2]) -> f64| {
                let n_log_n = ((last.0 - first.0) * 2f64.ln()) + (last.0 / first.0).ln();
                let time = (of(&last.1) / of(&first.1)).ln() + (last.0 - first.0) * 2f64.ln();
                time / n_log_n
            };
            println!(
                "{:>12} {:>7} {:>9.2} {:>10} {:>9} {:>8} {:>10.2}",
                "growth",
                "",
                growth(|row| row[0]),
                "",
                "",
                "",
                growth(|row| row[1])
            );
        }
    }
    Ok(())
}

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| uniform(draw(seed, 0, i, 0))).collect()
}

/// Times of product and gradients in ns a node.
fn measure(name: &str, shape: &[usize], reach: usize) -> anyhow::Result<[f64; 2]> {
    let mask = Toeplitz::new(shape, &vec![reach; shape.len()])?;
    let (n, params) = (mask.n_nodes(), numbers(mask.n_params(), 1));
    let (x, dy, mut y) = (numbers(n * COLUMNS, 2), numbers(n * COLUMNS, 3), vec![0.0; n * COLUMNS]);
    mask.apply(&params, &x, &mut y);
    for node in [0, n / 3, n - 1] {
        check(shape, reach, &params, &x, &y, node)?;
    }
    let mut d_params = vec![0.0; params.len()];
    let mut bound = Bound::new(shape, reach);
    let offsets = numbers(n * params.len(), 4);
    let of_offsets = Mat::new(&offsets, params.len());
    let values = Mat::new(&x[..params.len().min(n) * COLUMNS], COLUMNS);
    ensure!(params.len() <= n, "--log2: fewer nodes than offsets");
    let mut times = [vec![], vec![], vec![], vec![]];
    for _ in 0..RUNS {
        times[0].push(timed(|| mask.apply(&params, &x, &mut y))?);
        times[1].push(timed(|| bound.run())?);
        times[2].push(timed(|| mask.gradients(&params, &x, &dy, &mut d_params))?);
        times[3].push(timed(|| matmul(&mut y, COLUMNS, of_offsets, values, false))?);
    }
    let per_node = |times: Vec<f64>| 1e6 * support::median(times) / n as f64;
    let [product, transforms, gradients, sums] = times.map(per_node);
    println!(
        "{name:>12} {n:>7} {product:>9.0} {transforms:>10.0} {sums:>9.0} {:>8.2} {gradients:>10.0}",
        product / transforms.min(sums)
    );
    Ok([product, gradients])
}

fn timed(mut run: impl FnMut()) -> anyhow::Result<f64> {
    Ok(time_ms(|| {
        run();
        forecloud::Result::Ok(())
    })?)
}

/// The transforms that no product by them is without.
struct Bound {
    grid: Vec<Complex64>,
    scratch: Vec<Complex64>,
    axes: Vec<[std::sync::Arc<dyn rustfft::Fft<f64>>; 2]>,
}

impl Bound {
    fn new(shape: &[usize], reach: usize) -> Self {
        let padded = shape.iter().map(|&len| fast_len(len + reach));
        let mut planner = FftPlanner::new();
        let mut plan = |len| [planner.plan_fft_forward(len), planner.plan_fft_inverse(len)];
        let axes: Vec<_> = padded.clone().map(&mut plan).collect();
        let scratch = axes.iter().flatten().map(|fft| fft.get_inplace_scratch_len()).max();
        let scratch = vec![Complex64::default(); scratch.unwrap_or(0)];
        Self { grid: vec![Complex64::default(); padded.product()], scratch, axes }
    }

    fn run(&mut self) {
        for _ in (0..COLUMNS).step_by(2) {
            for fft in self.axes.iter().flatten() {
                fft.process_with_scratch(&mut self.grid, &mut self.scratch);
            }
        }
        std::hint::black_box(&mut self.grid);
    }
}

/// The next length whose only factors are 2, 3 and 5, as the mask's larger grid has it.
fn fast_len(len: usize) -> usize {
    let rest = |len: usize| {
        [2, 3, 5].into_iter().fold(len, |mut rest, factor| {
            while rest.is_multiple_of(factor) {
                rest /= factor;
            }
            rest
        })
    };
    (len..).find(|&len| rest(len) == 1).unwrap_or(len)
}

/// Holds a node's row of the product to its sums in f64.
fn check(
    shape: &[usize],
    reach: usize,
    params: &[f32],
    x: &[f32],
    y: &[f32],
    node: usize,
) -> anyhow::Result<()> {
    let side = 2 * reach + 1;
    for column in 0..COLUMNS {
        let mut want = 0.0;
        for (offset, &theta) in params.iter().enumerate() {
            // Along each axis the last first: the offset is the place that hears less the one heard.
            let (mut rest, mut offset, mut from, mut stride) = (node, offset, Some(0), 1);
            for &len in shape.iter().rev() {
                let other = (rest % len + reach).checked_sub(offset % side);
                let other = other.filter(|&other| other < len);
                from = from.zip(other).map(|(from, other)| from + stride * other);
                (rest, offset, stride) = (rest / len, offset / side, stride * len);
            }
            if let Some(from) = from {
                want += f64::from(theta).exp().ln_1p() * f64::from(x[from * COLUMNS + column]);
            }
        }
        let got = f64::from(y[node * COLUMNS + column]);
        let error = (got - want).abs();
        ensure!(error < 1e-4 * want.abs().max(1.0), "node {node} of {shape:?}: {got}, not {want}");
    }
    Ok(())
}
