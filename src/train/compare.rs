//! Models that differ in one thing, trained for the same time with the same care, and what came of
//! it: the rivals of the GRF attention, walks, sizes, softmax attention at few particles.
//!
//! **Equal time.** A budget is CPU seconds of one thread. A pilot, in which all variants take turns,
//! measures the CPU time of their steps; budget over time is each variant's number of steps, fixed
//! in the plan. From then on nothing depends on a clock: a busy machine, or a run that was stopped
//! and goes on, gives the same table. Each run trains on one thread, several side by side.
//!
//! **Equal weights.** The hidden width of the MLPs is chosen so that all have as many weights as the
//! first variant, as nearly as whole widths allow; the difference is in the table.
//!
//! **Equal care.** For each variant the same learning rates are tried, each for a share of the budget
//! with a seed of its own; the best by validation error trains for the whole budget with each seed.
//! Test recordings are looked at last, once for each run.

mod clock;
mod curves;
mod evaluate;
mod files;
mod parameters;
mod pilot;
mod plan;
mod run;
mod suites;
mod table;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::dataset::Dataset;
use crate::{Error, Result};

pub use evaluate::{STEPS, TestErrors};
pub use pilot::Speed;
pub use plan::{DataSummary, Plan, PlannedVariant, Settings};
pub use run::{Outcome, Point};
pub use suites::{Suite, Variant};
pub use table::{Row, RunRow, Spread, Table};

use files::Folder;
use run::Run;

/// The recordings of a comparison; [`Settings::horizons`] tells how far their windows must reach.
pub struct Data {
    /// To train on.
    pub train: Dataset,
    /// To choose learning rates by.
    pub validation: Dataset,
    /// For the table.
    pub test: Dataset,
}

/// What a comparison tells while it runs, and asks; called by all of its threads.
pub trait Watch: Sync {
    /// A line about what is done now.
    fn stage(&self, what: &str);
    /// So many more seconds of the whole budget are used.
    fn advance(&self, secs: f64);
    /// Whether to stop: checkpoints are written, and the same comparison goes on from them.
    fn stops(&self) -> bool;
}

/// A comparison in its folder.
pub struct Comparison {
    folder: Folder,
    plan: Plan,
}

impl Comparison {
    /// Goes on with the comparison in `folder`, or plans it there: measures speeds on `data`.
    /// None if `watch` stopped it.
    ///
    /// # Errors
    /// [`Error::Config`] if a variant makes no sense (it is named), or if `folder` has a plan of
    /// other settings or other recordings; [`Error::Io`].
    pub fn open(
        folder: PathBuf,
        settings: Settings,
        data: &Data,
        watch: &dyn Watch,
    ) -> Result<Option<Self>> {
        settings.validate()?;
        let folder = Folder::new(folder);
        let summary = DataSummary::of(data);
        if let Some(plan) = folder.plan()? {
            plan.must_be_of(&folder.plan_path(), &settings, &summary)?;
            return Ok(Some(Self { folder, plan }));
        }
        watch.stage("measuring the speed of each variant");
        let Some(speeds) = pilot::measure(&settings, data, watch)? else { return Ok(None) };
        let plan = Plan::new(settings, summary, speeds);
        folder.save_plan(&plan)?;
        Ok(Some(Self { folder, plan }))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Trains and evaluates what is not done yet, `jobs` runs side by side, each on one thread.
    /// None if `watch` stopped it. Runs that fail are named in the table; the others go on.
    ///
    /// # Errors
    /// [`Error::Config`] if a variant can't be run on `data` or if threads can't be started.
    pub fn run(&self, data: &Data, jobs: usize, watch: &dyn Watch) -> Result<Option<Table>> {
        watch.stage("choosing learning rates");
        let tuning: Vec<Run> = (0..self.plan.variants.len())
            .flat_map(|variant| self.plan.tuning_runs(variant))
            .collect();
        let Some(tried) = self.all(&tuning, data, jobs, watch)? else { return Ok(None) };
        let chosen = self.plan.choose(&tuning, &tried);
        watch.stage("training with all seeds");
        let runs: Vec<Run> = chosen
            .iter()
            .enumerate()
            .filter_map(|(variant, rate)| Some((variant, rate.as_ref().ok()?)))
            .flat_map(|(variant, rate)| self.plan.runs(variant, *rate))
            .collect();
        let Some(outcomes) = self.all(&runs, data, jobs, watch)? else { return Ok(None) };
        let table = Table::new(&self.plan, &chosen, &runs, &outcomes);
        self.folder.save_text("comparison.csv", &table.csv())?;
        self.folder.save_bytes("comparison.png", &curves::png(&table))?;
        Ok(Some(table))
    }

    /// Runs all of `runs`, in order of their place; none if stopped. A failure is an outcome.
    fn all(
        &self,
        runs: &[Run],
        data: &Data,
        jobs: usize,
        watch: &dyn Watch,
    ) -> Result<Option<Vec<Result<Outcome>>>> {
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<Result<Outcome>>>> =
            runs.iter().map(|_| Mutex::new(None)).collect();
        let pools: Vec<_> = (0..jobs.clamp(1, runs.len().max(1))).map(|_| one_thread()).collect();
        let pools: Vec<rayon::ThreadPool> = pools.into_iter().collect::<Result<_>>()?;
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(index) else { return };
                let folder = self.folder.run(run);
                let outcome = run.finish(&self.plan.settings, &folder, data, watch);
                let Some(outcome) = outcome.transpose() else { return };
                if let Err(problem) = &outcome {
                    watch.stage(&format!("failed: {}: {problem}", run.name));
                }
                if let Ok(mut place) = outcomes[index].lock() {
                    *place = Some(outcome);
                }
            }
        };
        std::thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(|| pool.install(work));
            }
        });
        Ok(outcomes.into_iter().map(|place| place.into_inner().ok().flatten()).collect())
    }
}

/// A thread of its own, on which a run's parallel loops run in sequence: its clock is the run's.
fn one_thread() -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| Error::Config {
        key: "jobs".into(),
        problem: format!("can't start a thread: {error}"),
    })
}
