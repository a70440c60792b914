//! What `forecloud train` and `forecloud compare` read, and what they tell of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use forecloud::Error;
use forecloud_bag::bag::{Found, recordings_below};
use forecloud_bag::outputs::Outputs;
use forecloud_bag::recording::Recording;
use forecloud_train::config::Teacher;
use forecloud_train::dataset::Dataset;
use forecloud_train::hold_out::HoldOut;
use forecloud_train::reading::{Cause, Intake, LeftOut, Reading, read_recordings};
use forecloud_train::skipped::Skipped;

use super::numbers::{by_option, with_default, within, wrong};
use super::out_folder::refused;
use super::rig_lines::rig_lines;
use super::say::name_first;

/// Motion (s) that recordings without truth should hold, to be worth training on.
const LEAST_MOTION_SECS: f64 = 180.0;
/// Options that say where validation recordings come from.
#[derive(clap::Args)]
pub struct HoldOutArgs {
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = within(HoldOut::SHARE),
        help = with_default(
            "Share of the training recordings that is held out for validation if no recording is of split \
             'val', from 0.001 to 0.9; fewer than ten recordings are first cut into stretches of 20 s",
            HoldOut::default().share
        )
    )]
    hold_out: Option<f64>,
}

impl HoldOutArgs {
    /// What is held out, with the seed that a --model-config file gives.
    pub fn rule(&self, seed: Option<u64>) -> HoldOut {
        let default = HoldOut::default();
        HoldOut {
            share: self.hold_out.unwrap_or(default.share),
            seed: seed.unwrap_or(default.seed),
        }
    }

    /// Holds recordings out for validation where there are none; returns what there is to tell, also that
    /// the option (or the seed of a --model-config file) has no effect.
    ///
    /// # Errors
    /// If there are too few, or one can't be read again.
    pub fn apply(
        &self,
        seed: Option<u64>,
        train: &mut Dataset,
        validation: &mut Dataset,
    ) -> Result<Option<String>> {
        if validation.n_recordings() == 0 {
            return hold_out(self.rule(seed), train, validation).map(Some);
        }
        let given =
            [(self.hold_out.is_some(), "--hold-out"), (seed.is_some(), "train.hold_out_seed")];
        let given: Vec<&str> =
            given.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
        let told = || {
            let n = validation.n_recordings();
            format!(
                "note: {} {} no effect: {} {} of split 'val'",
                given.join(" and "),
                if given.len() == 1 { "has" } else { "have" },
                recordings(n),
                if n == 1 { "is" } else { "are" }
            )
        };
        Ok((!given.is_empty()).then(told))
    }
}

/// The settings of `rule`, by where they come from, and their values in words.
pub fn hold_out_settings(rule: HoldOut) -> [(&'static str, String); 2] {
    [
        ("--hold-out", rule.share.to_string()),
        ("--model-config train.hold_out_seed", rule.seed.to_string()),
    ]
}

/// Recordings to read.
pub struct Recordings {
    folder: PathBuf,
    found: Found,
}

impl Recordings {
    /// All at or below `folder`; where `some` of them will do, in an order of which each beginning is
    /// spread over the folder.
    ///
    /// # Errors
    /// If there are none.
    pub fn find(folder: &Path, some: bool) -> Result<Self> {
        let mut found = recordings_below(folder).context("no recordings")?;
        ensure!(
            !found.recordings.is_empty(),
            "{}: no recordings in it or below: name a folder of your own (ros2 bag record), or make some with \
             `python -m sim.generate --out {0}`",
            folder.display()
        );
        if some {
            found.recordings = spread(found.recordings);
        }
        Ok(Self { folder: folder.to_owned(), found })
    }

    /// Refuses a folder of results that lies in one of them.
    ///
    /// # Errors
    /// Names both.
    pub fn must_not_hold(&self, out: &Path) -> Result<()> {
        let outputs = Outputs::default().protect(&self.found.recordings);
        outputs.check_folder(out).with_context(|| refused(out))
    }

    /// Refuses a split that none of them is of, before all are read.
    ///
    /// # Errors
    /// Names the splits that there are.
    pub fn must_have_split(&self, option: &str, split: &str) -> Result<()> {
        let mut others = BTreeSet::new();
        for path in &self.found.recordings {
            // What is wrong with one is told where it is read.
            let Ok(glimpse) = Recording::glimpse(path) else { continue };
            match glimpse.truth() {
                Some(truth) if truth.split == split => return Ok(()),
                Some(truth) => others.extend(Some(truth.split.clone()).filter(|s| !s.is_empty())),
                None => {}
            }
        }
        let others: Vec<String> = others.into_iter().collect();
        let has = match others.is_empty() {
            true => "none says its split (/truth/bodies)".into(),
            false => format!("there are {}", others.join(", ")),
        };
        let folder = self.folder.display();
        Err(wrong(format!("{option} {split}: no recording in {folder} is of this split; {has}")))
    }

    /// Where they are.
    pub fn paths(&self) -> &[PathBuf] {
        &self.found.recordings
    }

    /// Where some may be that were not found, and why.
    pub fn not_looked_into(&self) -> &[(PathBuf, Error)] {
        &self.found.left_out
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.found.recordings.len()
    }

    /// Reads them; returns what there is to tell. `propose`: the command that may read a recording whose
    /// error this is.
    pub fn read(
        &self,
        intakes: &mut [Intake],
        propose: impl Fn(&Error) -> Option<String>,
        progress: impl Fn() + Sync,
    ) -> Vec<String> {
        let reading = read_recordings(&self.found.recordings, intakes, progress);
        let used: Vec<(&str, usize)> =
            intakes.iter().map(|intake| (intake.split, intake.data.n_recordings())).collect();
        self.lines(&reading, &used, propose)
    }

    /// What was left out, and why; damage; warnings; numbers.
    fn lines(
        &self,
        reading: &Reading,
        used: &[(&str, usize)],
        propose: impl Fn(&Error) -> Option<String>,
    ) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (path, what) in &reading.damage {
            lines.push(format!("warning: {}", name_first(path, what)));
        }
        for (warning, n) in &reading.robot_warnings {
            lines.push(format!("warning: robot description of {}: {warning}", recordings(*n)));
        }
        lines.extend(rig_lines(&reading.rigs));
        for (path, error) in &self.found.left_out {
            lines.push(format!("left out: {}", name_first(path, &error.to_string())));
        }
        let mut causes: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
        for LeftOut { path, cause } in &reading.left_out {
            let cause = match cause {
                Cause::Unusable(error) => {
                    lines.push(left_out(path, error));
                    // Of recordings of the same topics once.
                    let command = propose(error).filter(|command| !lines.contains(command));
                    lines.extend(command);
                    (0, "can't be used".into())
                }
                Cause::NoTruth => (1, "without truth (topic /truth/bodies)".into()),
                Cause::OtherSplit(split) if split.is_empty() => (2, "say no split".into()),
                Cause::OtherSplit(split) => (2, format!("of split '{split}'")),
                Cause::Surplus => (3, "more than --max-recordings".into()),
            };
            causes.entry(cause).or_default().push(self.short(path));
        }
        for ((kind, cause), names) in &causes {
            // Those were named above, each with its error.
            if *kind > 0 {
                lines.push(format!("left out, {cause}: {}", names.join(", ")));
            }
        }
        let n_used: usize = used.iter().map(|(_, n)| n).sum();
        let used: Vec<String> = used.iter().map(|(split, n)| format!("{n} {split}")).collect();
        let elsewhere = self.found.left_out.len();
        let n_left_out = reading.left_out.len() + elsewhere;
        let mut why: Vec<String> =
            causes.iter().map(|((_, cause), names)| format!("{} {cause}", names.len())).collect();
        why.extend((elsewhere > 0).then(|| format!("{elsewhere} not looked into")));
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
        lines.push(format!(
            "recordings: {} found, {n_used} used ({}), {n_left_out} left out{why}",
            self.len() + elsewhere,
            used.join(", ")
        ));
        lines
    }

    /// The path below the folder.
    fn short(&self, path: &Path) -> String {
        match path.strip_prefix(&self.folder) {
            Ok(below) if !below.as_os_str().is_empty() => below.display().to_string(),
            _ => path.display().to_string(),
        }
    }
}

/// That a recording is left out, and why.
pub fn left_out(path: &Path, error: &Error) -> String {
    let problem = match error {
        // The command that may read it is told apart.
        Error::MissingTopics { problem, .. } => problem.clone(),
        error => error.to_string(),
    };
    format!("left out: {}", name_first(path, &problem))
}

/// A number of recordings in words.
pub fn recordings(n: usize) -> String {
    if n == 1 { "1 recording".into() } else { format!("{n} recordings") }
}

/// Holds recordings out for validation; returns what there is to tell.
fn hold_out(rule: HoldOut, train: &mut Dataset, validation: &mut Dataset) -> Result<String> {
    let n = train.n_recordings();
    let held = rule.apply(train, validation).map_err(by_option)?;
    let n_parts = held.len() + train.n_recordings();
    let cut = match n_parts > n {
        true => {
            format!("{} cut into {n_parts} stretches, which count as recordings; ", recordings(n))
        }
        false => String::new(),
    };
    Ok(format!(
        "no recording is of split 'val': {cut}{} of {n_parts} held out for validation (--hold-out {}): {}",
        held.len(),
        rule.share,
        held.join(", ")
    ))
}

/// What `data` holds, by its purpose; one line each.
pub fn summary(purpose: &str, data: &Dataset) -> Vec<String> {
    let (windows, active) = (data.n_windows(), data.n_active());
    let n = recordings(data.n_recordings());
    let teacher = match data.n_in_hindsight() {
        0 => String::new(),
        _ if data.teacher() == Teacher::Video => {
            ", taught by pixels (hindsight chooses windows and measures)".into()
        }
        n if n == data.n_recordings() => ", taught by hindsight".into(),
        n => format!(", {} taught by hindsight", recordings(n)),
    };
    let first = format!("{purpose}: {n}{teacher}, {windows} windows, objects move in {active}");
    let skipped = skipped_lines(data.skipped()).map(|line| format!("{purpose}: {line}"));
    let secs = active as f64 * data.step_secs();
    let all_in_hindsight = data.n_in_hindsight() == data.n_recordings();
    let too_little = (purpose == "training" && all_in_hindsight && secs < LEAST_MOTION_SECS).then(|| {
        format!(
            "warning: too little moves in these recordings to learn from: {secs:.0} s of motion, and at \
             least {:.0} min are needed: record more of what the robot does",
            LEAST_MOTION_SECS / 60.0
        )
    });
    std::iter::once(first).chain(skipped).chain(too_little).collect()
}

/// Refuses data that nothing can be drawn from.
///
/// # Errors
/// Says why, and what to do.
pub fn must_have_windows(purpose: &str, split: &str, data: &Dataset) -> Result<()> {
    match (data.n_recordings(), data.n_windows()) {
        (0, _) => bail!(
            "no recording can be used for {purpose}{}; what was left out stands above, with the reason",
            match purpose {
                "training" =>
                    ": any recordings of your robot will do, and simulated ones of split 'train'"
                        .to_owned(),
                _ => format!(
                    ": it takes recordings whose truth (/truth/bodies) says split '{split}'"
                ),
            }
        ),
        (n, 0) => bail!(
            "no window in the {} for {purpose}: it takes three usable frames one step apart; what \
             was skipped stands above",
            recordings(n)
        ),
        _ => Ok(()),
    }
}

/// Frames that are not used as they might be, and why; nothing if all are.
fn skipped_lines(skipped: &Skipped) -> impl Iterator<Item = String> {
    let list = |losses: Vec<(u64, &str)>| {
        let losses: Vec<String> = losses.iter().map(|(n, what)| format!("{what}: {n}")).collect();
        Some(losses.join("; ")).filter(|text| !text.is_empty())
    };
    let frames = list(skipped.frames().collect()).map(|losses| format!("skipped: {losses}"));
    let n: u64 = skipped.starts().map(|(n, _)| n).sum();
    let starts = list(skipped.starts().collect());
    let starts = starts.map(|starts| format!("no window starts at {n} frames: {starts}"));
    frames.into_iter().chain(starts)
}

/// An order of which each beginning is spread over the whole: with some of the recordings, some of
/// each task. Steps of the golden ratio's share, as far as they hit each once.
pub fn spread<T>(items: Vec<T>) -> Vec<T> {
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
