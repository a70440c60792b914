//! `forecloud compare`: rivals trained for the same time with the same care, and their table.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use forecloud::Error;
use forecloud::base::end_signal::EndSignal;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_train::compare::{
    Comparison, Data, PICTURE, PLAN, Plan, Settings, Suite, TABLE, Table, Watch,
};
use forecloud_train::config::{DatasetConfig, TrainConfig};
use forecloud_train::dataset::Dataset;
use forecloud_train::reading::Intake;
use indicatif::ProgressBar;

use super::intake::{HoldOutArgs, Recordings, must_have_windows, summary};
use super::memory;
use super::model_config::ModelConfigArgs;
use super::numbers::{by_option, must, with_default, within, wrong};
use super::out_folder::{OutFolder, refused};
use super::say::{self, say};
use super::threads::cores;
use super::topics::ReadArgs;
use super::train::VALIDATION_STEPS;
use super::train_loop::bar;

/// Train competing models for the same time (or steps), and compare what they cost and how well they
/// predict.
#[derive(clap::Args)]
#[command(after_help = "\
Suites:
  layers   the local layer: GRF attention, message passing, linear attention, none
  walks    the mask: all walks or sampled ones, samplers, with and without importance weights
  sizes    neighbours, hops, walks and particles, one at a time
  softmax  softmax and k-MIP beside linear and GRF attention, at 512 particles unless --model-config says otherwise
  chunks   passes of 1, 2, 5 and 10 steps
  masks    the local layer under every mask, beside GRF attention and linear attention without one
  cells    masks that count cells (local layer voxels): sides of the cells, and how many cells they reach

Each run trains on one thread, for a budget of CPU seconds. A pilot measures how fast each variant is and \
fixes the steps of all runs in OUT/plan.json. From then on no clock matters: a busy machine or an \
interruption (Ctrl-C; the same command resumes) changes nothing in the table. With --steps, all runs take \
that many steps, however long they need. All variants have the same number of weights, try the same \
learning rates, train with the same seeds, and roll out whole passes. OUT also gets comparison.csv (a line \
for each run) and comparison.svg (validation errors over time).

Recordings are looked for in the folder and in all folders below it; everything left out is listed with the \
reason.

Exit codes:
  0  the table is complete
  1  an error, or a run failed
  2  wrong arguments

Examples:
  forecloud compare recordings --out runs/layers
  forecloud compare recordings --out runs/quick --budget-secs 40 --seeds 2 --max-recordings 100
  forecloud compare recordings --out runs/softmax --suite softmax --json
  forecloud compare recordings --out runs/claim --steps 8000 --batch 4 --seeds 2")]
pub struct Args {
    /// Folder of recordings with truth (rosbag2 folders, .mcap and .db3 files)
    recordings: PathBuf,
    /// Folder of the comparison; created if needed
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What to compare
    #[arg(long, default_value = "layers", value_parser = PossibleValuesParser::new(Suite::ALL.map(|(name, _)| name)))]
    suite: String,
    /// Only these variants of the suite; the first is the reference
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    variants: Vec<String>,
    /// CPU seconds of training per run, from 0.001 to 10,000,000
    #[arg(long, value_name = "SECS", default_value_t = 300.0, value_parser = within(Settings::BUDGET_SECS))]
    budget_secs: f64,
    /// Steps per run, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "budget_secs", value_parser = within(TrainConfig::STEPS))]
    steps: Option<u64>,
    /// Runs per variant, with the seeds 0, 1, …: from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Learning rates that each variant tries, each up to 1; a single one is used without a trial
    #[arg(
        long,
        value_name = "RATE,…",
        value_delimiter = ',',
        value_parser = within(TrainConfig::LEARNING_RATE),
        default_value = "0.0005,0.001,0.002"
    )]
    learning_rates: Vec<f32>,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(TrainConfig::BATCH),
        help = with_default("Windows per step, from 1 to 1024", TrainConfig::default().batch)
    )]
    batch: Option<usize>,
    /// Windows of the test, from 1 to 1,000,000
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = within(Settings::COUNT))]
    test_windows: usize,
    /// Split that the table reports: test, unseen or materials, say
    #[arg(long, value_name = "SPLIT", default_value = "test", value_parser = held_out)]
    test_split: String,
    #[command(flatten)]
    hold_out: HoldOutArgs,
    /// Use at most this many recordings of each split, spread over the folder
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    max_recordings: Option<usize>,
    /// Runs in parallel [default: one per core]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    jobs: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    file: ModelConfigArgs,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// Rounds of the pilot.
const PILOT_ROUNDS: usize = 5;
/// Share of the budget that the try of a learning rate takes: rates are told apart by then.
const TUNING_SHARE: f64 = 0.25;
/// Validations during a run: as many points as a curve needs to be read.
const VALIDATIONS: u64 = 8;
/// Windows of each, unless a file says otherwise.
const VALIDATION_WINDOWS: usize = 80;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    args.topics.check()?;
    let settings = settings(args)?;
    settings.validate().map_err(|error| wrong(by_option(error)))?;
    let jobs = jobs(args);
    for variant in &settings.variants {
        memory::must_suffice(&settings.train_of(variant), &variant.model, false, jobs)?;
    }
    let watch = Progress::new().context("signal handlers")?;
    let Some(table) = compare(args, settings, jobs, &watch)? else { return watch.end(args) };
    print(args, &table)?;
    let n = table.failures.len();
    ensure!(n == 0, "{n} failed: {}", table.failures.join("; "));
    Ok(())
}

/// The table; none if stopped.
fn compare(
    args: &Args,
    settings: Settings,
    jobs: usize,
    watch: &Progress,
) -> Result<Option<Table>> {
    let _folder = OutFolder::open(&args.out)?;
    check_files(args, &settings)?;
    let Some(data) = load(args, &settings, watch)? else { return Ok(None) };
    let comparison = Comparison::open(args.out.clone(), settings, &data, watch)
        .map_err(by_option)
        .context("can't plan the comparison")?;
    let Some(comparison) = comparison else { return Ok(None) };
    watch.plan(comparison.plan(), jobs);
    let table = comparison.run(&data, jobs, watch)?;
    watch.bar.finish_and_clear();
    Ok(table)
}

/// Refuses to replace what no comparison wrote: what has our names and no plan beside it, and a table
/// that is none.
fn check_files(args: &Args, settings: &Settings) -> Result<()> {
    let [plan, table, picture] = [PLAN, TABLE, PICTURE].map(|name| args.out.join(name));
    if !plan.exists() {
        let names = settings.variants.iter().map(|variant| variant.name.as_str());
        let mut names = [TABLE, PICTURE].into_iter().chain(names);
        if let Some(name) = names.find(|name| args.out.join(name).exists()) {
            anyhow::bail!(
                "{}: it exists without a {PLAN}, so no comparison wrote it: move it away, or \
                 choose another --out",
                args.out.join(name).display()
            );
        }
    }
    for (path, kind) in [(table, Kind::Table(Table::CSV_HEAD)), (picture, Kind::Plot)] {
        Outputs::default().check(&path, kind).with_context(|| refused(&args.out))?;
    }
    Ok(())
}

/// Runs side by side: no more than there are cores, as each takes one.
fn jobs(args: &Args) -> usize {
    let cores = cores();
    if let Some(asked) = args.jobs.filter(|&asked| asked > cores) {
        say(format_args!("--jobs {asked}: more than the {cores} cores; {cores} runs in parallel"));
    }
    args.jobs.unwrap_or(cores).clamp(1, cores)
}

fn print(args: &Args, table: &Table) -> Result<()> {
    let text = match args.json {
        true => serde_json::to_string_pretty(table)? + "\n",
        false => format!("{table}\nRuns and curves: {}\n", args.out.display()),
    };
    say::print(&text)
}

/// The split that a table may be about: one that no run has learnt or chosen by.
fn held_out(split: &str) -> Result<String, &'static str> {
    match split {
        "train" | "val" => Err("runs learn and choose with these recordings: take others"),
        _ => Ok(split.to_owned()),
    }
}

fn settings(args: &Args) -> Result<Settings> {
    let suite = Suite::ALL.into_iter().find(|(name, _)| *name == args.suite);
    let suite = suite.context("unknown --suite")?.1;
    let base = args.file.model(suite.base(), [None; 2])?;
    let mut variants = suite.variants(base);
    let names: Vec<String> = variants.iter().map(|variant| variant.name.clone()).collect();
    for name in &args.variants {
        let all = names.join(", ");
        must(names.contains(name), || {
            format!("--variants: suite {} has no {name}; it has {all}", args.suite)
        })?;
    }
    variants.retain(|variant| args.variants.is_empty() || args.variants.contains(&variant.name));
    let place = |name: &str| args.variants.iter().position(|wanted| wanted == name);
    variants.sort_by_key(|variant| place(&variant.name));
    let mut train = TrainConfig::default();
    // Each variant's roll-outs are whole passes of its own.
    let keys = args.file.train();
    keys.apply(&mut train, &ModelConfig { steps_per_pass: 1, ..base });
    train.batch = args.batch.unwrap_or(train.batch);
    if keys.checkpoint_secs.is_some() || keys.pixel_weight.is_some() || keys.rays.is_some() {
        say("note: comparisons don't use train.checkpoint_secs, train.pixel_weight and train.rays");
    }
    let noise = SensorNoise { strength: train.sensor_noise, ..SensorNoise::default() };
    Ok(Settings {
        suite: args.suite.clone(),
        variants,
        budget_secs: args.budget_secs,
        steps: args.steps,
        seeds: (0..args.seeds).collect(),
        learning_rates: args.learning_rates.clone(),
        tuning_share: TUNING_SHARE,
        train,
        data: DatasetConfig { noise, varies_noise: false, ..DatasetConfig::default() },
        topics: args.topics.settings().map(|(option, value)| (option.to_owned(), value)).into(),
        test_split: args.test_split.clone(),
        validations: VALIDATIONS,
        validation_steps: VALIDATION_STEPS,
        validation_windows: keys.validation_windows.unwrap_or(VALIDATION_WINDOWS),
        test_windows: args.test_windows,
        pilot_rounds: PILOT_ROUNDS,
    })
}

/// The recordings; none if stopped.
fn load(args: &Args, settings: &Settings, watch: &Progress) -> Result<Option<Data>> {
    let recordings = Recordings::find(&args.recordings, true)?;
    recordings.must_not_hold(&args.out)?;
    recordings.must_have_split("--test-split", &args.test_split)?;
    let (frames, meshes) = (args.topics.config()?, args.topics.meshes());
    // As many points of each frame as the variant with most particles takes.
    let models = settings.variants.iter().map(|variant| variant.model);
    let n_particles = models.clone().map(|model| model.n_particles).max().unwrap_or(0);
    let model = models.clone().next().context("no variants")?;
    let model = ModelConfig { n_particles, ..model };
    let horizons = settings.horizons();
    let empty = |max_horizon, varies_noise| {
        let config = DatasetConfig { max_horizon, varies_noise, ..settings.data };
        // The robot as far ahead as any variant's passes reach.
        let farthest = models.clone().max_by_key(|model| model.reach(max_horizon)).unwrap_or(model);
        let model = ModelConfig {
            steps_per_pass: farthest.steps_per_pass,
            replan_interval: farthest.replan_interval,
            ..model
        };
        Dataset::new(config, model, frames.clone()).with_meshes(meshes.clone())
    };
    let mut train = empty(horizons[0], true);
    let (mut validation, mut test) = (empty(horizons[1], false), empty(horizons[2], false));
    watch.bar.set_length(recordings.len() as u64);
    let max_recordings = args.max_recordings;
    let intake = |split, data| Intake { split, takes_unsaid: false, max_recordings, data };
    let mut intakes = [
        Intake { takes_unsaid: true, ..intake("train", &mut train) },
        intake("val", &mut validation),
        intake(&args.test_split, &mut test),
    ];
    let propose = |error: &Error| args.topics.proposal(error, "compare");
    let told = recordings.read(&mut intakes, propose, || watch.bar.inc(1));
    told.into_iter().for_each(|line| watch.stage(&line));
    if watch.stops() {
        return Ok(None);
    }
    watch.bar.reset();
    must_have_windows("training", "train", &train)?;
    let seed = args.file.train().hold_out_seed;
    let held = args.hold_out.apply(seed, &mut train, &mut validation)?;
    held.into_iter().for_each(|line| watch.stage(&line));
    for (purpose, split, data) in [
        ("training", "train", &train),
        ("validation", "val", &validation),
        ("test", &*args.test_split, &test),
    ] {
        summary(purpose, data).into_iter().for_each(|line| watch.stage(&line));
        must_have_windows(purpose, split, data)?;
    }
    Ok(Some(Data { train, validation, test }))
}

/// The bar over all runs, and the signal that asks for an end.
struct Progress {
    bar: ProgressBar,
    stop: EndSignal,
}

impl Progress {
    fn new() -> std::io::Result<Self> {
        Ok(Self { bar: bar(0, "{wide_bar} {percent} % {msg}"), stop: EndSignal::register()? })
    }

    fn plan(&self, plan: &Plan, jobs: usize) {
        let secs = plan.total_secs();
        let total = Duration::from_secs_f64((secs / jobs as f64).min(1e9));
        self.stage(&format!(
            "{} variants, {} CPU s of training in all: {:.0} min on {jobs} free cores, and the \
             validations and tests besides",
            plan.variants.len(),
            secs.round(),
            total.as_secs_f64() / 60.0
        ));
        for variant in &plan.variants {
            self.stage(&format!(
                "  {}: {} weights, {} steps per run, {} to try a learning rate",
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
            say(format_args!("stopped: {}; the same command resumes", args.out.display()));
            // Ends as the signal ends programs, so that shells and scripts see what happened.
            signal_hook::low_level::emulate_default_handler(signal)?;
        }
        Ok(())
    }
}

impl Watch for Progress {
    fn stage(&self, what: &str) {
        self.bar.suspend(|| say(what));
    }

    fn advance(&self, secs: f64) {
        self.bar.inc((1e3 * secs) as u64);
    }

    fn stops(&self) -> bool {
        self.stop.signal().is_some()
    }
}
