//! What masks are worth between the patches of images: the vision transformer of pictures learns, from
//! colours and depths, where each pixel's surface will have moved 0.6 s later, as the truth tells; equal
//! steps for all.
//!
//!   cargo run --release --example patch_masks -- recordings
//!
//! A variant is the mask's name, with `:cut` (the grid is cut at depth steps of 10 cm) and `:past` (two
//! frames before, 0.2 s apart, in the factorised form) behind it; `unet` is the U-Net, which sees colours
//! alone.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::bag::recordings_below;
use forecloud_train::adamw::{AdamW, AdamWConfig};
use forecloud_train::video::{VideoDataset, VideoTrainConfig, Window};
use forecloud_video::{
    Encoder, EncoderKind, PatchMask, Spool, VideoConfig, VideoLayout, VitConfig,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Frames, 0.2 s apart, from what is seen to what is told.
const N_LATER: usize = 3;
/// Frames before that are looked at with `:past`.
const N_PAST: usize = 2;
/// What moves farther than this moves (dm).
const MOVES_DM: f32 = 0.1;
/// Depth steps at which the grid is cut with `:cut` (m).
const CUT_M: f32 = 0.1;
/// Windows that are drawn in search of one that the truth tells enough of.
const TRIES: usize = 100;

/// Prints a row for each seed and variant.
#[derive(Parser)]
struct Args {
    /// Folder of recordings with truth, of the splits train and val
    folder: PathBuf,
    /// What is compared
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,series,symmetric_grf,symmetric_grf:cut,toeplitz,none:past,symmetric_grf:past,toeplitz:past,unet"
    )]
    variants: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    seeds: Vec<u64>,
    /// Steps, each of one moment that all cameras saw
    #[arg(long, default_value_t = 1500)]
    steps: u64,
    /// Moments that are measured
    #[arg(long, default_value_t = 120)]
    moments: usize,
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f32,
}

/// Pictures of 80×60, patches of 4: 300 tokens.
fn config(variant: &str) -> Result<VideoConfig> {
    let sizes = VideoConfig { n_features: 3, picture: [80, 60], ..VideoConfig::default() };
    let config = VideoConfig { n_particles: 1 << 15, ..sizes };
    let mut parts = variant.split(':');
    let name = parts.next().unwrap_or_default();
    if name == "unet" {
        return Ok(config);
    }
    let mask = PatchMask::try_from(name.to_owned()).map_err(anyhow::Error::msg)?;
    let mut vit = VitConfig { patch: 4, mask, ..VitConfig::default() };
    for part in parts {
        match part {
            "cut" => vit.cut_m = Some(CUT_M),
            "past" => (vit.n_past, vit.n_blocks) = (N_PAST, vit.n_blocks - vit.n_time_blocks),
            other => bail!("`{other}` of `{variant}` is neither cut nor past"),
        }
    }
    Ok(VideoConfig { encoder: EncoderKind::Vit(vit), ..config })
}

/// A window of `N_LATER` frames in which something moves.
fn draw(data: &VideoDataset, rng: &mut ChaCha8Rng) -> Result<Window> {
    let config =
        VideoTrainConfig { still_share: 0.0, most_later: N_LATER, ..VideoTrainConfig::default() };
    for _ in 0..TRIES {
        let window = data.draw(rng, &config)?.context("no frame")?;
        let moves = |pair| motion_dm(pair).1 > MOVES_DM;
        if window.n_later == N_LATER && pairs(&window).any(moves) {
            return Ok(window);
        }
    }
    bail!("nothing moves in {TRIES} windows, or no truth tells of it")
}

type Pair<'a> = (&'a [f32; 3], &'a [f32; 3]);

/// Where the seen pixels' surfaces are, and where they will be.
fn pairs(window: &Window) -> impl Iterator<Item = Pair<'_>> {
    window.seen.positions.iter().zip(&window.positions)
}

/// The way, and its length (dm).
fn motion_dm((from, to): Pair<'_>) -> ([f32; 3], f32) {
    let way: [f32; 3] = std::array::from_fn(|axis| 10.0 * (to[axis] - from[axis]));
    (way, length(&way))
}

fn length(way: &[f32; 3]) -> f32 {
    way.iter().map(|x| x * x).sum::<f32>().sqrt()
}

/// What is told of each seen pixel, and the truth: calls `each` with its number, both ways, and whether it
/// moves.
fn compare(
    window: &Window,
    encoded: &[forecloud_video::Encoded],
    mut each: impl FnMut((usize, usize), [f32; 3], [f32; 3], bool),
) {
    for (&(number, pixel), pair) in window.seen.pixels.iter().zip(pairs(window)) {
        let row = encoded[number].row_of(window.pictures[number].place_of(pixel));
        let told = std::array::from_fn(|axis| encoded[number].features()[3 * row + axis]);
        let (way, length_dm) = motion_dm(pair);
        each((number, row), told, way, length_dm > MOVES_DM);
    }
}

/// Gradient of the mean squared error (dm²), what moves and what rests each counting half.
fn gradient(layout: &VideoLayout, weights: &[f32], window: &Window) -> Result<(f64, Vec<f32>)> {
    let encoder = Encoder::new(layout, weights);
    let encoded = window.encode(&encoder)?;
    let mut counts = [0u32; 2];
    compare(window, &encoded, |_, _, _, moves| counts[usize::from(moves)] += 1);
    let shares = counts.map(|n| 0.5 / n.max(1) as f32);
    let mut loss = 0.0;
    let mut d: Vec<_> = encoded.iter().map(|it| vec![0.0; it.features().len()]).collect();
    compare(window, &encoded, |(number, row), told, way, moves| {
        for axis in 0..3 {
            let off = told[axis] - way[axis];
            loss += f64::from(shares[usize::from(moves)] * off * off);
            d[number][3 * row + axis] = 2.0 * shares[usize::from(moves)] * off;
        }
    });
    let mut gradient = vec![0.0; weights.len()];
    for (encoded, d) in encoded.iter().zip(&d) {
        encoder.backward(encoded, d, &mut gradient);
    }
    Ok((loss, gradient))
}

/// Of one moment: mean error of what moves, and how far that moves, false motion of what rests (mm), and
/// overlap of what is told to move with what does (pixels in both over pixels in either).
fn measure(layout: &VideoLayout, weights: &[f32], window: &Window) -> Result<[f64; 4]> {
    let encoded = window.encode(&Encoder::new(layout, weights))?;
    let (mut sums, mut counts, mut both, mut either) = ([0.0; 3], [0.0f64; 2], 0.0, 0.0f64);
    compare(window, &encoded, |_, told, way, moves| {
        let off = std::array::from_fn(|axis| told[axis] - way[axis]);
        let is_told = length(&told) > MOVES_DM;
        match moves {
            true => {
                sums[0] += 100.0 * f64::from(length(&off));
                sums[1] += 100.0 * f64::from(length(&way));
            }
            false => sums[2] += 100.0 * f64::from(length(&told)),
        }
        counts[usize::from(moves)] += 1.0;
        both += f64::from(u8::from(is_told && moves));
        either += f64::from(u8::from(is_told || moves));
    });
    let [still, moving] = counts.map(|n| n.max(1.0));
    Ok([sums[0] / moving, sums[1] / moving, sums[2] / still, both / either.max(1.0)])
}

/// A cosine behind a short rise.
fn rate(args: &Args, step: u64) -> f32 {
    let rise = ((step + 1) as f32 / 50.0).min(1.0);
    let done = step as f32 / args.steps as f32;
    args.learning_rate * rise * (0.02 + 0.98 * 0.5 * (1.0 + (std::f32::consts::PI * done).cos()))
}

/// Trains a variant, and measures each moment of `held`.
fn run(
    args: &Args,
    (variant, seed): (&str, u64),
    training: &VideoDataset,
    validation: &VideoDataset,
) -> Result<Vec<[f64; 4]>> {
    let layout = VideoLayout::new(config(variant)?)?;
    let mut weights = layout.initial_weights(seed);
    let mut optimizer = AdamW::new(AdamWConfig::default(), weights.len());
    // The same windows for all variants.
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut losses, mut secs) = (0.0, 0.0);
    for step in 0..args.steps {
        let window = draw(training, &mut rng)?;
        let start = Instant::now();
        let (loss, mut gradient) = gradient(&layout, &weights, &window)?;
        let norm = optimizer.update(&mut weights, &mut gradient, rate(args, step));
        ensure!(norm.is_finite(), "step {step} of {variant}: the gradient is not finite");
        (losses, secs) = (losses + loss, secs + start.elapsed().as_secs_f64());
        if (step + 1) % 250 == 0 {
            let step = step + 1;
            eprintln!("{variant} seed {seed} step {step}: loss {:.4}, {secs:.0} s", losses / 250.0);
            losses = 0.0;
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1 << 40);
    let moment = |_| measure(&layout, &weights, &draw(validation, &mut rng)?);
    (0..args.moments).map(moment).collect()
}

/// Mean of numbers, and its standard error.
fn mean(numbers: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = numbers.clone().count() as f64;
    let mean = numbers.clone().sum::<f64>() / n;
    let spread = numbers.map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (spread / n).sqrt())
}

fn read(folder: &Path, video: VideoConfig, split: &str) -> Result<VideoDataset> {
    let spool = Spool::new(&std::env::temp_dir())?;
    let mut data = VideoDataset::new(video, FramesConfig::default(), spool);
    for path in recordings_below(folder)?.recordings {
        if let Err(error) = data.add(&path, split, false) {
            eprintln!("left out: {error}");
        }
    }
    eprintln!("{split}: {} recordings, {} frames", data.n_recordings(), data.n_frames());
    ensure!(data.n_frames() > 0, "no recording of split {split}");
    Ok(data)
}

fn main() -> Result<()> {
    let args = Args::parse();
    args.variants.iter().try_for_each(|variant| config(variant).map(drop))?;
    // Past frames are read for all, whether they look at them or not.
    let [training, validation] =
        ["train", "val"].map(|split| read(&args.folder, config("none:past")?, split));
    let (training, validation) = (training?, validation?);
    println!(
        "| variant | seed | error of what moves, mm | it moves, mm | less than the first such, mm | false motion, mm | overlap |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for &seed in &args.seeds {
        // The first one with and without past frames: what others are held against.
        let mut first: [Option<Vec<[f64; 4]>>; 2] = [None, None];
        for variant in &args.variants {
            let rows = run(&args, (variant, seed), &training, &validation)?;
            let [error, moved, still, overlap] =
                [0, 1, 2, 3].map(|at| mean(rows.iter().map(move |row| row[at])));
            let looks_back = usize::from(variant.ends_with(":past"));
            let first = first[looks_back].get_or_insert_with(|| rows.clone());
            let (less, sigma) = mean(first.iter().zip(&rows).map(|(a, b)| a[0] - b[0]));
            println!(
                "| {variant} | {seed} | {:.1} | {:.1} | {less:.2} ± {sigma:.2} | {:.2} | {:.3} |",
                error.0, moved.0, still.0, overlap.0
            );
        }
    }
    Ok(())
}
