//! The table: what each variant costs, and how well it predicts, with the spread over seeds.

use std::fmt::{self, Display};

use serde::Serialize;

use super::evaluate::{STEPS, TestErrors};
use super::plan::Plan;
use super::run::{Outcome, Point, Run};
use forecloud::Result;

/// All that a comparison found; serialises to the JSON of `forecloud compare --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Settings, recordings and speeds.
    pub plan: Plan,
    /// A row for each variant.
    pub rows: Vec<Row>,
    /// A row for each run with a seed.
    pub runs: Vec<RunRow>,
    /// What failed, and why.
    pub failures: Vec<String>,
}

/// Mean and spread over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Mean; none of nothing.
    pub mean: Option<f64>,
    /// Standard deviation of a sample (n - 1); none of less than two.
    pub deviation: Option<f64>,
}

/// A variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Weights.
    pub parameters: usize,
    /// The learning rate of its runs; none if all failed.
    pub learning_rate: Option<f32>,
    /// Steps of a run.
    pub steps: u64,
    /// Training steps a second of one thread, mean over the curriculum.
    pub train_steps_per_sec: f64,
    /// A step of a prediction (ms of one thread).
    pub predict_ms: f64,
    /// Runs that were finished.
    pub n_seeds: usize,
    /// CPU seconds of a run as it was, beside the budget.
    pub cpu_secs: Spread,
    /// Moving object points, after each of [`STEPS`] steps (mm).
    pub moving_mm: [Spread; 3],
    /// The same over the better trivial baseline.
    pub ratio: [Spread; 3],
    /// Robot points (mm).
    pub robot_mm: [Spread; 3],
    /// False motion of static points (mm per step).
    pub static_mm: Spread,
}

/// A run with a seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// Its variant.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl Spread {
    /// Of values that are there.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let values: Vec<f64> = values.into_iter().flatten().collect();
        let n = values.len() as f64;
        let mean = (n > 0.0).then(|| values.iter().sum::<f64>() / n);
        let squares = mean.map(|mean| values.iter().map(|v| (v - mean).powi(2)).sum::<f64>());
        Self { mean, deviation: squares.filter(|_| n > 1.0).map(|s| (s / (n - 1.0)).sqrt()) }
    }

    fn shown(&self, digits: usize) -> String {
        match (self.mean, self.deviation) {
            (None, _) => "-".into(),
            (Some(mean), None) => format!("{mean:.digits$}"),
            (Some(mean), Some(deviation)) => format!("{mean:.digits$} ± {deviation:.digits$}"),
        }
    }
}

// The columns' names below say these steps.
const _: () = assert!(matches!(STEPS, [1, 5, 10]));

impl Table {
    /// The first line of [`Table::csv`].
    pub const CSV_HEAD: &str = "variant,parameters,learning_rate,seed,steps,cpu_secs,\
        train_steps_per_sec,predict_ms,moving_mm_1,moving_mm_5,moving_mm_10,ratio_1,ratio_5,ratio_10,\
        nothing_mm_1,nothing_mm_5,nothing_mm_10,velocity_mm_1,velocity_mm_5,velocity_mm_10,\
        robot_mm_1,robot_mm_5,robot_mm_10,static_mm,model_hash";

    pub(super) fn new(
        plan: &Plan,
        chosen: &[std::result::Result<f32, String>],
        runs: &[Run],
        outcomes: &[Result<Outcome>],
    ) -> Self {
        let done = runs.iter().zip(outcomes);
        let run_rows = done.clone().filter_map(|(run, outcome)| {
            let name = plan.variants[run.variant].name.clone();
            Some(RunRow { name, outcome: outcome.as_ref().ok()?.clone() })
        });
        let failed = done.filter_map(|(run, outcome)| {
            Some(format!("{}: {}", run.name, outcome.as_ref().err()?))
        });
        let mut table = Self {
            plan: plan.clone(),
            rows: Vec::new(),
            runs: run_rows.collect(),
            failures: chosen.iter().filter_map(|rate| rate.as_ref().err().cloned()).collect(),
        };
        table.failures.extend(failed);
        table.rows =
            (0..plan.variants.len()).map(|i| table.row(i, chosen[i].as_ref().ok())).collect();
        table
    }

    fn row(&self, variant: usize, learning_rate: Option<&f32>) -> Row {
        let settings = &self.plan.settings;
        let (planned, variant) = (&self.plan.variants[variant], &settings.variants[variant]);
        let outcomes: Vec<&Outcome> = self
            .runs
            .iter()
            .filter(|run| run.name == planned.name)
            .map(|run| &run.outcome)
            .collect();
        let spread = |value: &dyn Fn(&TestErrors) -> Option<f64>| {
            Spread::of(outcomes.iter().map(|outcome| value(outcome.test.as_ref()?)))
        };
        let of_steps = |value: fn(&TestErrors) -> [Option<f64>; 3]| {
            std::array::from_fn(|i| spread(&|errors| value(errors)[i]))
        };
        Row {
            name: planned.name.clone(),
            parameters: planned.parameters,
            learning_rate: learning_rate.copied(),
            steps: planned.steps,
            train_steps_per_sec: 1.0
                / planned.speed.step_secs(&settings.train_of(variant).curriculum),
            predict_ms: 1e3 * planned.speed.predict_secs,
            n_seeds: outcomes.len(),
            cpu_secs: Spread::of(outcomes.iter().map(|outcome| Some(outcome.cpu_secs))),
            moving_mm: of_steps(|errors| errors.moving_mm),
            ratio: of_steps(TestErrors::ratios),
            robot_mm: of_steps(|errors| errors.robot_mm),
            static_mm: spread(&|errors| errors.static_mm),
        }
    }

    /// A line for each run with a seed, a column for each value; units are in the columns' names.
    pub fn csv(&self) -> String {
        let mut text = Self::CSV_HEAD.to_owned() + "\n";
        for run in &self.runs {
            let outcome = &run.outcome;
            let Some(row) = self.rows.iter().find(|row| row.name == run.name) else { continue };
            let Some(errors) = &outcome.test else { continue };
            let values = [errors.moving_mm, errors.ratios(), errors.nothing_mm, errors.velocity_mm];
            let values =
                values.iter().chain([&errors.robot_mm]).flatten().chain([&errors.static_mm]);
            let values: Vec<String> = values
                .map(|value| value.map_or(String::new(), |value| value.to_string()))
                .collect();
            let Outcome { learning_rate, seed, steps, cpu_secs, model_hash, .. } = outcome;
            let Row { name, parameters, train_steps_per_sec, predict_ms, .. } = row;
            text += &format!(
                "{name},{parameters},{learning_rate},{seed},{steps},{cpu_secs},\
                 {train_steps_per_sec},{predict_ms},{},{model_hash}\n",
                values.join(",")
            );
        }
        text
    }

    /// Validations of the runs of a variant.
    pub(super) fn curves(&self, name: &str) -> impl Iterator<Item = &[Point]> {
        let runs = self.runs.iter().filter(move |run| run.name == name);
        runs.map(|run| run.outcome.curve.as_slice())
    }

    fn costs(&self) -> Vec<Vec<String>> {
        let first = self.rows.first().map_or(1.0, |row| row.parameters as f64);
        let row = |row: &Row| {
            let difference = 100.0 * (row.parameters as f64 / first - 1.0);
            vec![
                row.name.clone(),
                format!("{} ({difference:+.1} %)", row.parameters),
                format!("{:.2}", row.train_steps_per_sec),
                format!("{:.1}", row.predict_ms),
                row.steps.to_string(),
                row.cpu_secs.shown(1),
                row.learning_rate.map_or("-".into(), |rate| rate.to_string()),
                row.n_seeds.to_string(),
            ]
        };
        let names = [
            "variant",
            "weights",
            "training steps/s",
            "ms per predicted step",
            "steps",
            "CPU s",
            "learning rate",
            "seeds",
        ];
        std::iter::once(names.map(String::from).into()).chain(self.rows.iter().map(row)).collect()
    }

    fn errors(&self) -> Vec<Vec<String>> {
        let row = |row: &Row| {
            let mut cells = vec![row.name.clone()];
            cells.extend(row.ratio.iter().map(|ratio| ratio.shown(3)));
            cells.extend(row.moving_mm.iter().map(|error| error.shown(1)));
            cells.extend([row.robot_mm[1].shown(1), row.static_mm.shown(2)]);
            cells
        };
        let mut names = vec!["variant".to_owned()];
        names.extend(STEPS.map(|step| format!("ratio, {step}")));
        names.extend(STEPS.map(|step| format!("mm, {step}")));
        names.extend([format!("robot mm, {}", STEPS[1]), "false motion, mm per step".into()]);
        std::iter::once(names).chain(self.rows.iter().map(row)).collect()
    }

    fn baselines(&self) -> Option<String> {
        let errors = self.runs.iter().find_map(|run| run.outcome.test.as_ref())?;
        let shown = |mm: [Option<f64>; 3]| {
            mm.map(|mm| mm.map_or("-".into(), |mm| format!("{mm:.1}"))).join(" / ")
        };
        Some(format!(
            "On {} test windows: nothing moves {} mm, constant true velocity {} mm after {} steps.",
            errors.n_windows,
            shown(errors.nothing_mm),
            shown(errors.velocity_mm),
            STEPS.map(|step| step.to_string()).join(" / ")
        ))
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { settings, data, cpu, version, .. } = &self.plan;
        let per_run = match settings.steps {
            Some(steps) => format!("{steps} steps per run,"),
            None => format!("{} CPU s per run", settings.budget_secs),
        };
        writeln!(
            f,
            "Suite {}, {per_run} on one thread of {cpu}, Forecloud {version}; {} recordings to \
             train on, {} to validate, {} to test ({}).\n",
            settings.suite, data.train[0], data.validation[0], data.test[0], settings.test_split
        )?;
        markdown(f, &self.costs())?;
        writeln!(
            f,
            "\nMoving object points after 1, 5 and 10 steps, as ratio to the better baseline and in \
             mm; mean ± standard deviation over seeds.\n"
        )?;
        markdown(f, &self.errors())?;
        if let Some(baselines) = self.baselines() {
            writeln!(f, "\n{baselines}")?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "failed: {failure}"))
    }
}

/// A table in Markdown, columns of one width each.
fn markdown(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let n_columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths);
        cells.clone().try_for_each(|(cell, width)| write!(f, "| {cell:width$} "))?;
        writeln!(f, "|")?;
        if i == 0 {
            cells.clone().try_for_each(|(_, width)| write!(f, "|{:-<1$}", "", width + 2))?;
            writeln!(f, "|")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_a_sample_and_leaves_out_what_is_missing() {
        let spread = Spread::of([Some(1.0), None, Some(3.0)]);
        assert_eq!(spread, Spread { mean: Some(2.0), deviation: Some(2f64.sqrt()) });
        assert_eq!(spread.shown(1), "2.0 ± 1.4");
        assert_eq!(Spread::of([Some(1.0)]).shown(2), "1.00");
        assert_eq!(Spread::of([None]).shown(2), "-");
    }
}
