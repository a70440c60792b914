//! What `forecloud train` ends with: a table, a picture, and the next command.

use std::fmt::{self, Display};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use forecloud::engine::model::Model;
use forecloud_bag::recording::shell_word;
use forecloud_eval::metrics::{Class, Scores};
use forecloud_eval::plot;
use forecloud_train::dataset::Dataset;
use forecloud_train::evaluate::Evaluation;
use forecloud_train::files::RunFiles;
use forecloud_train::progress::{Measure, Progress, Verdict};
use forecloud_train::trainer::Trainer;

use super::curve;
use super::intake::recordings;

/// Writes the picture of the run's curves; false if there is nothing to draw.
///
/// # Errors
/// If the log can't be read, or the picture can't be written.
pub fn draw(files: &RunFiles) -> Result<bool> {
    let panels = curve::panels(&[&files.log])?;
    if panels.is_empty() {
        return Ok(false);
    }
    plot::draw(&files.curve, &panels)?;
    Ok(true)
}

/// How a run ends.
pub struct End<'a> {
    /// The model that it started from.
    pub before: Option<&'a Model>,
    /// Recordings of what is not to be forgotten, held out.
    pub known: Option<&'a Dataset>,
    /// Whether the new model is left even where it is not better than that.
    pub keeps_new: bool,
    /// Where things are.
    pub files: &'a RunFiles,
    /// Whether there is a picture of the curves.
    pub has_curve: bool,
}

impl End<'_> {
    /// Prints the model's errors beside the baselines' on `n_windows` validation windows of `n_steps`,
    /// those before and after, the files, and the next command; leaves the better model.
    ///
    /// # Errors
    /// What the evaluation returns; if a model or standard output can't be written.
    pub fn report(
        &self,
        trainer: &Trainer,
        validation: &Dataset,
        (n_windows, n_steps): (usize, usize),
    ) -> Result<()> {
        let Self { before, files, has_curve, .. } = *self;
        let model = trainer.model()?;
        let evaluation = Evaluation::new(&model, validation, n_windows, n_steps, || false)?;
        let evaluation = evaluation.context("the evaluation was stopped")?;
        let (step, n_recordings) = (trainer.step_index(), validation.n_recordings());
        let in_hindsight = validation.n_in_hindsight() > 0;
        let mut text = Table { evaluation, step, n_recordings, n_steps, in_hindsight }.to_string();
        let (mut verdict, mut knows_still) = (None, true);
        if let Some(before) = before {
            let progress = Progress::new([before, &model], validation, n_windows, n_steps)?;
            verdict = Some(progress.verdict());
            text += &Brought { progress, in_hindsight }.to_string();
            if let Some(known) = self.known {
                let n_steps = known.longest(n_steps);
                let progress = Progress::new([before, &model], known, n_windows, n_steps)?;
                knows_still = progress.has_forgotten() == Some(false);
                text += &Remembered(progress).to_string();
            }
        }
        let is_over = step >= trainer.config().steps;
        let is_better = verdict.map(|verdict| verdict == Verdict::Better && knows_still);
        let (kept, more) = self.leave(&model, is_better.filter(|_| is_over))?;
        text += &format!("\nmodel: {} ({})\n{more}", files.model.display(), kept.hash);
        text += &match has_curve {
            true => format!("curve: {}\n", files.curve.display()),
            false => {
                format!("curve: none; nothing to draw in {}\n", files.log.display())
            }
        };
        let steps = trainer.config().steps;
        match (step < steps, validation.recordings().next()) {
            (true, _) => {
                text += &format!("next: the same command without --stop-at, to step {steps}\n");
            }
            (false, Some(recording)) => {
                text += &format!("next: {}\n", replay(&files.model, recording))
            }
            (false, None) => {}
        }
        if kept.config.tells_sigma && kept.calibration.is_none() {
            text += "how sure: predictions have no sigma until `forecloud calibrate` has scaled it (forecloud calibrate --help)\n";
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("standard output")
    }

    /// Leaves the model before in the place of the new one where that `is_better` not; the one that is
    /// left, and what there is to tell of it.
    fn leave<'a>(
        &'a self,
        model: &'a Model,
        is_better: Option<bool>,
    ) -> Result<(&'a Model, String)> {
        let is_kept = is_better == Some(false) && !self.keeps_new;
        let RunFiles { model: place, tried, .. } = self.files;
        let Some(before) = self.before.filter(|_| is_kept) else {
            if is_better.is_some() {
                model.save(place)?;
            }
            return Ok((model, String::new()));
        };
        model.save(tried)?;
        before.save(place)?;
        let tried = tried.display();
        let told = format!(
            "       this is the earlier model, unchanged; the new one is {tried} ({}), and --keep new \
             would take it\n",
            model.hash
        );
        Ok((before, told))
    }
}

/// The command that shows what the model predicts of a recording.
fn replay(model: &Path, recording: &Path) -> String {
    let [model, recording] = [model, recording].map(|path| shell_word(&path.display().to_string()));
    format!("forecloud replay --model {model} {recording}")
}

/// Errors on the validation windows.
struct Table {
    evaluation: Evaluation,
    step: u64,
    n_recordings: usize,
    n_steps: usize,
    in_hindsight: bool,
}

/// What training has brought to the start model.
struct Brought {
    progress: Progress,
    in_hindsight: bool,
}

/// What it has left of what the start model knew.
struct Remembered(Progress);

/// The rows of a table before and after.
fn rows(f: &mut fmt::Formatter<'_>, progress: &Progress) -> fmt::Result {
    let n_steps = progress.n_steps;
    writeln!(f, "{:31}{:>9}{:>9}{:>14}", "", "before", "after", "after/before")?;
    for (name, measure) in [
        ("moving objects, 1 step".to_owned(), Measure::First),
        (format!("moving objects, {n_steps} steps"), Measure::Last),
        ("static points, false motion".into(), Measure::Static),
    ] {
        let Some(([before, after], ratio)) = progress.means(measure).zip(progress.ratio(measure))
        else {
            writeln!(f, "{name:31}{:>9}{:>9}", "-", "-")?;
            continue;
        };
        let digits = if measure == Measure::Static { 3 } else { 2 };
        write!(f, "{name:31}{before:>9.digits$}{after:>9.digits$}{:>14.2}", ratio.of_all)?;
        match ratio.interval.filter(|_| measure != Measure::Static) {
            Some(within) => writeln!(f, "   {:.2} to {:.2}", within.start(), within.end())?,
            None => writeln!(f)?,
        }
    }
    Ok(())
}

impl Display for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(progress) = self;
        let n = progress.n_windows;
        writeln!(f, "\nWhat was known before, {n} windows of the recordings to remember: mm\n")?;
        rows(f, progress)?;
        match progress.has_forgotten() {
            Some(true) => writeln!(f, "The new model has forgotten more than 5 % of what it knew."),
            Some(false) => writeln!(f, "The new model still knows it, to within 5 %."),
            None => writeln!(
                f,
                "It can't be measured whether the new model still knows it, as nothing moves there: \
                 remember recordings in which objects move."
            ),
        }
    }
}

impl Brought {
    /// By how much what moves is surely better, in words.
    fn gain(&self) -> String {
        let percent = |ratio: f64| (100.0 * (1.0 - ratio)).round();
        let n_steps = self.progress.n_steps;
        let all = [(Measure::First, 1), (Measure::Last, n_steps)];
        // Of one step, first and last are the same.
        let told = all.into_iter().take(n_steps).filter_map(|(m, n)| {
            let within = self.progress.ratio(m)?.interval.filter(|within| *within.end() < 1.0)?;
            let [least, most] = [within.end(), within.start()].map(|ratio| percent(*ratio));
            let steps = if n == 1 { "step" } else { "steps" };
            Some(format!("by {least} to {most} % after {n} {steps}"))
        });
        let told: Vec<String> = told.collect();
        format!("{} (90 % intervals over recordings)", told.join(", "))
    }
}

impl Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { progress, in_hindsight } = self;
        let n = progress.n_windows;
        writeln!(
            f,
            "\nBefore and after on the same {n} windows, static points held still: mean errors in mm\n"
        )?;
        rows(f, progress)?;
        let by = self.gain();
        match progress.verdict() {
            Verdict::Better => {
                writeln!(f, "The new model is better on what moves, {by}.")
            }
            Verdict::Restless => writeln!(
                f,
                "The new model is better on what moves, {by}, but it moves static points."
            ),
            Verdict::Worse => writeln!(f, "The new model is worse on what moves."),
            Verdict::Unsure => writeln!(
                f,
                "These recordings are too few to say whether the new model is better: validate with \
                 more."
            ),
        }?;
        if *in_hindsight {
            writeln!(
                f,
                "Errors are against where later frames show the points (hindsight), where that is sure."
            )?;
        }
        Ok(())
    }
}

impl Table {
    /// The columns: of which points, after how many steps.
    fn columns(&self) -> [(Class, usize); 5] {
        let last = self.n_steps;
        [
            (Class::Moving, 1),
            (Class::Moving, last),
            (Class::Robot, 1),
            (Class::Robot, last),
            (Class::Static, 1),
        ]
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, scores: &Scores) -> fmt::Result {
        write!(f, "{name:27}")?;
        for ((class, step), (width, digits)) in self.columns().into_iter().zip(WIDTHS) {
            let mean = scores.mean(class, step - 1, None).get();
            let cell = mean.map_or("-".into(), |mm| format!("{mm:.digits$}"));
            write!(f, "{cell:>width$}")?;
        }
        writeln!(f)
    }

    /// Error of moving points over that of the better baseline after `step` steps.
    fn ratio(&self, step: usize) -> Option<f64> {
        let Evaluation { model, nothing, velocity, .. } = &self.evaluation;
        let mean = |scores: &Scores| scores.mean(Class::Moving, step - 1, None).get();
        Some(mean(model)? / mean(nothing)?.min(mean(velocity)?)).filter(|ratio| ratio.is_finite())
    }
}

/// Widths of the columns, and digits after the point.
const WIDTHS: [(usize, usize); 5] = [(9, 2), (9, 2), (9, 2), (9, 2), (15, 3)];

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { evaluation, step, n_recordings, n_steps, in_hindsight } = self;
        let Evaluation { n_windows, model, nothing, velocity } = evaluation;
        writeln!(
            f,
            "Validation after step {step}, the network alone: mean errors in mm, {n_windows} windows of {}\n",
            recordings(*n_recordings)
        )?;
        writeln!(f, "{:27}{:>18}{:>18}{:>15}", "", "moving objects", "robot", "static points")?;
        writeln!(
            f,
            "{:27}{:>9}{:>9}{:>9}{:>9}{:>15}",
            "after",
            "1 step",
            format!("{n_steps} steps"),
            "1 step",
            format!("{n_steps} steps"),
            "false motion"
        )?;
        self.row(f, "model", model)?;
        self.row(f, "nothing moves", nothing)?;
        if *in_hindsight {
            self.row(f, "constant velocity", velocity)?;
        } else {
            self.row(f, "constant velocity, true *", velocity)?;
            writeln!(f, "* privileged: it knows how each point truly moved just before")?;
        }
        if let (Some(first), Some(last)) = (self.ratio(1), self.ratio(*n_steps)) {
            let verdict = match (first < 1.0, last < 1.0) {
                (true, true) => "better than both baselines",
                (false, false) => "not better than the better baseline",
                _ => "better than the baselines in part",
            };
            writeln!(
                f,
                "Moving objects: the model is {verdict}: {first:.2} of the better one's error after \
                 1 step, {last:.2} after {n_steps}."
            )?;
        }
        let is_missing =
            |(class, step): (Class, usize)| model.mean(class, step - 1, None).get().is_none();
        if self.columns().into_iter().any(is_missing) {
            writeln!(f, "-: no validation window has such points, or none is long enough")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_said_to_be_known_still() {
        let told = Remembered(Progress::default()).to_string();
        assert!(told.contains("can't be measured") && !told.contains("5 %"), "{told}");
    }
}
