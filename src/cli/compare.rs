//! `forecloud compare`: rivals trained for the same time with the same care, and their table.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::cloud::SensorNoise;
use forecloud::model::ModelConfig;
use forecloud::train::compare::{Comparison, Data, Plan, Settings, Suite, Table, Watch};
use forecloud::train::dataset::{Dataset, DatasetConfig};
use forecloud::train::reading::{Intake, read_recordings, recordings_in};
use forecloud::train::trainer::TrainConfig;
use indicatif::{ProgressBar, ProgressStyle};

use super::layers::{SizeArgs, or};
use super::topics::TopicArgs;
use super::train::{Curriculum, Stop, VALIDATION_STEPS, parse_curriculum, skipped_lines, tell};

/// Compare models: train rivals for the same time with the same care, and print what they cost and
/// how well they predict.
#[derive(clap::Args)]
#[command(after_help = "\
Suites:
  layers   the local layer: GRF attention, message passing, linear attention, none
  walks    the mask: all walks or sampled ones, samplers, with and without importance weights
  sizes    neighbours, hops, walks and particles, one at a time
  softmax  softmax beside linear and GRF attention, at 512 particles unless said

A run trains on one thread for a budget of its CPU seconds. A pilot measures how fast each variant
is; from that the steps of all runs are fixed in OUT/plan.json, and from then on no clock matters: a
busy machine, or an interruption (Ctrl-C; the same command goes on), changes nothing in the table.
All variants get as many weights, try the same learning rates, and train with the same seeds.
OUT also gets comparison.csv (a line for each run) and comparison.png (validation errors on the way).

Examples:
  forecloud compare recordings --out runs/layers
  forecloud compare recordings --out runs/quick --budget-secs 40 --seeds 2 --max-recordings 100
  forecloud compare recordings --out runs/softmax --suite softmax --particles 256 --json")]
pub struct Args {
    /// Folder of recordings (rosbag2 folders with truth).
    recordings: PathBuf,
    /// Folder of the comparison.
    #[arg(long)]
    out: PathBuf,
    /// What is compared.
    #[arg(long, default_value = "layers", value_parser = PossibleValuesParser::new(Suite::ALL.map(|(name, _)| name)))]
    suite: String,
    /// Only these variants of the suite; the first is what the others are held against.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    variants: Vec<String>,
    /// CPU seconds of training, of each run.
    #[arg(long, value_name = "SECS", default_value_t = 300.0)]
    budget_secs: f64,
    /// Runs of each variant, with seeds from 0 on.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Learning rates that each variant tries; one alone is taken untried.
    #[arg(
        long,
        value_name = "RATE,…",
        value_delimiter = ',',
        default_value = "0.0005,0.001,0.002"
    )]
    learning_rates: Vec<f32>,
    /// Share of the budget that a try of a learning rate takes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    tuning_share: f64,
    /// Windows a step.
    #[arg(long, default_value_t = TrainConfig::default().batch)]
    batch: usize,
    #[arg(
        long,
        value_parser = parse_curriculum,
        help = or(
            "Lengths of the roll-out, each from a share of the steps on: SHARE:LENGTH,…",
            Curriculum(TrainConfig::default().curriculum)
        )
    )]
    curriculum: Option<Curriculum>,
    /// Noise added to the depth images, in units of a typical camera's (RealSense D435): each
    /// training recording draws a strength up to twice this, the others have this; 0 for none.
    #[arg(long, value_name = "STRENGTH", default_value_t = TrainConfig::default().sensor_noise)]
    sensor_noise: f32,
    /// Validations on the way of a run.
    #[arg(long, value_name = "N", default_value_t = 8)]
    validations: u64,
    /// Windows of a validation.
    #[arg(long, value_name = "N", default_value_t = 80)]
    validation_windows: usize,
    /// Windows of the test.
    #[arg(long, value_name = "N", default_value_t = 240)]
    test_windows: usize,
    /// Split of the recordings that the table is of: test, unseen or materials.
    #[arg(long, default_value = "test")]
    test_split: String,
    /// Use at most this many recordings of each split, spread over the folder.
    #[arg(long, value_name = "N")]
    max_recordings: Option<usize>,
    /// Runs side by side [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: SizeArgs,
    #[command(flatten)]
    topics: TopicArgs,
}

/// Rounds of the pilot.
const PILOT_ROUNDS: usize = 5;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let settings = settings(args)?;
    settings.validate()?;
    let watch = Progress::new().context("signal handlers")?;
    let Some(data) = load(args, &settings, &watch)? else { return watch.end(args) };
    let comparison = Comparison::open(args.out.clone(), settings, &data, &watch)
        .context("can't plan the comparison")?;
    let Some(comparison) = comparison else { return watch.end(args) };
    let jobs = args.jobs.map_or_else(cores, usize::from);
    watch.plan(comparison.plan(), jobs);
    let table = comparison.run(&data, jobs, &watch)?;
    watch.bar.finish_and_clear();
    let Some(table) = table else { return watch.end(args) };
    print(args, &table).context("standard output")?;
    let n = table.failures.len();
    ensure!(n == 0, "{n} failed: {}", table.failures.join("; "));
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn print(args: &Args, table: &Table) -> Result<()> {
    let text = match args.json {
        true => serde_json::to_string_pretty(table)? + "\n",
        false => format!("{table}\nRuns and curves: {}\n", args.out.display()),
    };
    let mut stdout = std::io::stdout().lock();
    Ok(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())?)
}

fn settings(args: &Args) -> Result<Settings> {
    let suite = Suite::ALL.into_iter().find(|(name, _)| *name == args.suite);
    let suite = suite.context("unknown --suite")?.1;
    let mut base = suite.base();
    args.sizes.apply(&mut base);
    base.validate()?;
    let mut variants = suite.variants(base);
    let names: Vec<String> = variants.iter().map(|variant| variant.name.clone()).collect();
    for name in &args.variants {
        let all = names.join(", ");
        ensure!(names.contains(name), "--variants: {name} is none of suite {}: {all}", args.suite);
    }
    variants.retain(|variant| args.variants.is_empty() || args.variants.contains(&variant.name));
    let place = |name: &str| args.variants.iter().position(|wanted| wanted == name);
    variants.sort_by_key(|variant| place(&variant.name));
    let noise = SensorNoise { strength: args.sensor_noise, ..SensorNoise::default() };
    noise.validate()?;
    let default = TrainConfig::default();
    let curriculum = args.curriculum.as_ref().map(|curriculum| curriculum.0.clone());
    Ok(Settings {
        suite: args.suite.clone(),
        variants,
        budget_secs: args.budget_secs,
        seeds: (0..args.seeds).collect(),
        learning_rates: args.learning_rates.clone(),
        tuning_share: args.tuning_share,
        train: TrainConfig {
            batch: args.batch,
            curriculum: curriculum.unwrap_or_else(|| default.curriculum.clone()),
            sensor_noise: args.sensor_noise,
            ..default
        },
        data: DatasetConfig { noise, varies_noise: false, ..DatasetConfig::default() },
        test_split: args.test_split.clone(),
        validations: args.validations,
        validation_steps: VALIDATION_STEPS,
        validation_windows: args.validation_windows,
        test_windows: args.test_windows,
        pilot_rounds: PILOT_ROUNDS,
    })
}

/// The recordings; none if stopped.
fn load(args: &Args, settings: &Settings, watch: &Progress) -> Result<Option<Data>> {
    let paths = spread(recordings_in(&args.recordings)?);
    ensure!(
        !paths.is_empty(),
        "{}: no recordings; make some with `python -m sim.generate`",
        args.recordings.display()
    );
    let frames = args.topics.config()?;
    // As many points of each frame as the variant with most particles takes.
    let models = settings.variants.iter().map(|variant| variant.model);
    let n_particles = models.clone().map(|model| model.n_particles).max().unwrap_or(0);
    let model = models.clone().next().context("no variants")?;
    let model = ModelConfig { n_particles, ..model };
    let horizons = settings.horizons();
    let empty = |max_horizon, varies_noise| {
        let config = DatasetConfig { max_horizon, varies_noise, ..settings.data };
        Dataset::new(config, model, frames.clone())
    };
    let mut train = empty(horizons[0], true);
    let (mut validation, mut test) = (empty(horizons[1], false), empty(horizons[2], false));
    watch.bar.set_length(paths.len() as u64);
    let max_recordings = args.max_recordings;
    let mut intakes = [
        Intake { split: "train", max_recordings, data: &mut train },
        Intake { split: "val", max_recordings, data: &mut validation },
        Intake { split: &args.test_split, max_recordings, data: &mut test },
    ];
    let left_out = read_recordings(&paths, &mut intakes, || watch.bar.inc(1));
    watch.bar.suspend(|| tell(&left_out));
    if watch.stops() {
        return Ok(None);
    }
    watch.bar.reset();
    for (name, data) in [("train", &train), ("val", &validation), (&*args.test_split, &test)] {
        let (n, windows, active) = (data.n_recordings(), data.n_windows(), data.n_active());
        watch
            .stage(&format!("{name}: {n} recordings, {windows} windows, objects move in {active}"));
        skipped_lines(data.skipped()).for_each(|line| watch.stage(&format!("{name}: {line}")));
        ensure!(windows > 0, "no {name} recordings: their split is in /truth/bodies");
    }
    Ok(Some(Data { train, validation, test }))
}

/// An order of which each beginning is spread over the whole: with some of the recordings, some of
/// each task. Steps of the golden ratio's share, as far as they hit each once.
fn spread<T>(items: Vec<T>) -> Vec<T> {
    let n = items.len();
    let is_coprime = |step: &usize| {
        let (mut a, mut b) = (n, *step);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let from = (0.618 * n as f64) as usize;
    let step = (from.max(1)..=n.max(1)).find(is_coprime).unwrap_or(1);
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    (0..n).filter_map(|i| items[i * step % n].take()).collect()
}

/// The bar over all runs, and the signal that asks for an end.
struct Progress {
    bar: ProgressBar,
    stop: Stop,
}

impl Progress {
    fn new() -> std::io::Result<Self> {
        let template = "{wide_bar} {percent} % {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
        Ok(Self { bar: ProgressBar::new(0).with_style(style), stop: Stop::register()? })
    }

    fn plan(&self, plan: &Plan, jobs: usize) {
        let secs = plan.total_secs();
        let total = Duration::from_secs_f64((secs / jobs as f64).min(1e9));
        self.stage(&format!(
            "{} variants, {} CPU s in all; on {jobs} free cores {:.0} min and validations beside",
            plan.variants.len(),
            secs.round(),
            total.as_secs_f64() / 60.0
        ));
        for variant in &plan.variants {
            self.stage(&format!(
                "  {}: {} weights, {} steps a run, {} to try a learning rate",
                variant.name, variant.parameters, variant.steps, variant.tuning_steps
            ));
        }
        self.bar.set_length((1e3 * secs) as u64);
        self.bar.set_position(0);
    }

    /// What is said where a signal stopped the comparison.
    fn end(&self, args: &Args) -> Result<()> {
        self.bar.finish_and_clear();
        if let Some(signal) = self.stop.signal() {
            // Ends also where nobody reads it.
            let told = "the same command goes on";
            let _ = writeln!(std::io::stderr(), "stopped: {}; {told}", args.out.display());
            // Ends as the signal ends programs, so that shells and scripts see what happened.
            signal_hook::low_level::emulate_default_handler(signal)?;
        }
        Ok(())
    }
}

impl Watch for Progress {
    fn stage(&self, what: &str) {
        self.bar.suspend(|| eprintln!("{what}"));
    }

    fn advance(&self, secs: f64) {
        self.bar.inc((1e3 * secs) as u64);
    }

    fn stops(&self) -> bool {
        self.stop.signal().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_beginning_is_spread_and_all_are_there() {
        for n in [0, 1, 2, 3, 10, 97, 100, 992] {
            let mut order = spread((0..n).collect());
            for part in [10, 40].into_iter().filter(|&part| part <= n) {
                let quarters = order[..part].iter().map(|i| 4 * i / n);
                let counts: Vec<usize> =
                    (0..4).map(|q| quarters.clone().filter(|&at| at == q).count()).collect();
                assert!(counts.iter().all(|&c| 4 * c + 8 >= part), "{n}: {counts:?}");
            }
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
