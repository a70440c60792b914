//! A comparison in its folder: planned once, then run, through any number of interruptions.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::clock::one_thread;
use super::curves;
use super::data::{Data, DataSummary};
use super::files::{read_json, write, write_json};
use super::pilot;
use super::plan::Plan;
use super::run::{Outcome, Run};
use super::settings::Settings;
use super::table::Table;
use super::watch::Watch;
use forecloud::Result;
use forecloud_eval::plot;

/// Names of a comparison's files in its folder; beside them is a folder for each variant.
pub const PLAN: &str = "plan.json";
/// A line for each run.
pub const TABLE: &str = "comparison.csv";
/// Validation errors on the way.
pub const PICTURE: &str = "comparison.svg";

/// A comparison in its folder.
pub struct Comparison {
    folder: PathBuf,
    plan: Plan,
}

impl Comparison {
    /// Goes on with the comparison in `folder`, or plans it there: measures speeds on `data`.
    /// None if `watch` stopped it.
    ///
    /// # Errors
    /// [`forecloud::Error::Config`] if a variant makes no sense (it is named), or if `folder` has a plan of
    /// other settings or other recordings; [`forecloud::Error::Io`].
    pub fn open(
        folder: PathBuf,
        settings: Settings,
        data: &Data,
        watch: &dyn Watch,
    ) -> Result<Option<Self>> {
        settings.validate()?;
        let path = folder.join(PLAN);
        let summary = DataSummary::of(data);
        if let Some(plan) = read_json::<Plan>(&path)? {
            plan.must_be_of(&path, &settings, &summary)?;
            return Ok(Some(Self { folder, plan }));
        }
        watch.stage("measuring the speed of each variant");
        let Some(speeds) = pilot::measure(&settings, data, watch)? else { return Ok(None) };
        let plan = Plan::new(settings, summary, speeds);
        write_json(&path, &plan)?;
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
    /// [`forecloud::Error::Config`] if a variant can't be run on `data` or if threads can't be started.
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
        write(&self.folder.join(TABLE), table.csv().as_bytes())?;
        let panels = curves::panels(&table);
        if !panels.is_empty() {
            plot::draw(&self.folder.join(PICTURE), &panels)?;
        }
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
                let folder = self.folder.join(&run.folder);
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
