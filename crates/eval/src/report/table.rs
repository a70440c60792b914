//! The report for people.

use std::fmt::{self, Display, Write};
use std::path::Path;

use super::notes::corner;
use super::{ErrorRow, Report, percent};
use crate::coverage::ConfidenceRow;
use crate::method::Method;
use crate::metrics::Class;
use crate::published::{Agreement, Comparison};
use crate::survey::Survey;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::Problem;

/// Warnings that are shown.
const MAX_WARNINGS: usize = 8;
/// Causes of what was dropped that are shown, of all recordings or of each.
pub(crate) const MAX_PROBLEMS: usize = 4;
/// Columns of the task and of the method.
const TASK_WIDTH: usize = 12;
pub(super) const METHOD_WIDTH: usize = 29;

impl Class {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Moving => "Object points that move, more than 2 mm in the step: mean error in mm",
            Self::Sudden => {
                "Of these, falls and impacts, motion changes by 30 mm per step: mean error in mm"
            }
            Self::Resting => "Object points at rest: mean error in mm",
            Self::Robot => "Robot points: mean error in mm",
            Self::Static => "Static points: mean false motion in mm, of each step alone",
        }
    }
}

impl Method {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Node => "node, as published",
            Self::NothingMoves => "nothing moves",
            Self::VelocityEstimated => "constant velocity, estimated",
            Self::VelocityTrue => "constant velocity, true *",
            Self::Observed => "the observation itself",
        }
    }
}

/// A figure of [`ConfidenceRow`] after each step.
pub(crate) struct Line<'a> {
    pub label: &'static str,
    pub values: &'a [Option<f64>],
    pub show: fn(f64) -> String,
}

impl ConfidenceRow {
    /// Its figures, in the order of tables.
    pub(crate) fn lines(&self) -> [Line<'_>; 5] {
        let rank = |rank: f64| format!("{rank:.2}");
        [
            Line { label: "within sigma, %", values: &self.within_50, show: percent },
            Line { label: "within sigma_90, %", values: &self.within_90, show: percent },
            Line { label: "sigma, mm", values: &self.sigma_mm, show: millimetres },
            Line { label: "sigma_90, mm", values: &self.sigma_90_mm, show: millimetres },
            Line {
                label: "ranks like the error (1: all)",
                values: &self.rank_correlation,
                show: rank,
            },
        ]
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            self.section(f, class)?;
        }
        if !self.errors.is_empty() {
            writeln!(f, "* privileged: it knows how each point truly moved just before\n")?;
        }
        self.confidence(f)?;
        if let Some(hindsight) = &self.hindsight {
            hindsight.sections(f, self.step_secs)?;
        }
        if let Some(video) = &self.video {
            video.sections(f, self.step_secs)?;
        }
        self.facts(f)
    }
}

impl Report {
    fn section(&self, f: &mut fmt::Formatter<'_>, class: Class) -> fmt::Result {
        let rows: Vec<&ErrorRow> =
            self.errors.iter().filter(|row| row.class == class.name()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}", class.title())?;
        write!(f, "{:1$}", "", TASK_WIDTH + METHOD_WIDTH)?;
        for step in 1..=self.horizon {
            write!(f, "{:>9}", format!("{} s", (step as f64 * self.step_secs) as f32))?;
        }
        writeln!(f)?;
        let one_task = self.errors.iter().filter_map(|row| row.task.as_deref());
        let one_task = one_task.collect::<std::collections::BTreeSet<_>>().len() == 1;
        let mut last = None;
        for row in rows {
            let task = row.task.as_deref().unwrap_or("all");
            if one_task && row.task.is_none() && class.is_object() {
                continue; // the same numbers again
            }
            let shown = if last == Some(task) || !class.is_object() { "" } else { task };
            last = Some(task);
            write!(f, "  {shown:0$}{1:2$}", TASK_WIDTH - 2, row.method.label(), METHOD_WIDTH)?;
            for mean_mm in &row.mean_mm {
                write!(f, "{:>9}", mean_mm.map_or("-".into(), millimetres))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    /// How sure the predictions were, and whether they were right to be.
    fn confidence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.confidence.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "How sure: errors within sigma (half of them should be), within sigma_90 (90 %)"
        )?;
        writeln!(f, "(unplanned: on the robot, in steps without a plan)")?;
        write!(f, "{:1$}", "", TASK_WIDTH + METHOD_WIDTH)?;
        for step in 1..=self.horizon {
            write!(f, "{:>9}", format!("{} s", (step as f64 * self.step_secs) as f32))?;
        }
        writeln!(f)?;
        for row in &self.confidence {
            for (index, line) in row.lines().into_iter().enumerate() {
                let shown = if index == 0 { row.situation } else { "" };
                write!(f, "  {shown:0$}{1:2$}", TASK_WIDTH - 2, line.label, METHOD_WIDTH)?;
                for value in line.values {
                    write!(f, "{:>9}", value.map_or("-".into(), line.show))?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f)
    }

    fn facts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fact = |name: &str, value: String| writeln!(f, "{name:11}{value}");
        fact("recordings", self.recordings())?;
        fact("frames", self.frames())?;
        if let Some(inside) = self.inside() {
            fact("workspace", inside)?;
        }
        if let Some(added) = self.added_noise() {
            fact("noise", added)?;
        }
        if let Some(hindsight) = &self.hindsight {
            fact("seen later", hindsight.fate())?;
        }
        self.verdicts.iter().try_for_each(|verdict| fact("verdict", verdict.text()))?;
        self.notes.iter().try_for_each(|note| fact("note", note.clone()))?;
        fact("rig", self.rig())?;
        self.warnings().iter().try_for_each(|warning| fact("warning", warning.clone()))?;
        for failure in &self.failures {
            fact("failed", format!("{} frames; the first: {}", failure.count, failure.first))?;
        }
        for bag in &self.skipped {
            let reason: Vec<&str> = bag.reason.lines().map(str::trim).collect();
            fact("skipped", format!("{}: {}", bag.path.display(), reason.join(" ")))?;
        }
        if let Some(dropped) = self.dropped() {
            fact("dropped", dropped)?;
        }
        self.problems().into_iter().try_for_each(|problem| fact("cause", problem))?;
        if let Some([least, most]) = self.n_particles {
            let least = if least < most { format!("{least} to ") } else { String::new() };
            let (history, robot) = (self.n_history, self.of_robot());
            fact("particles", format!("{least}{most}; {history} of history{robot}"))?;
        }
        if let Some(time) = self.time {
            let (median, p90) = (time.step_ms_median, time.step_ms_p90);
            let particles = time.particles_ms_median;
            fact(
                "time",
                format!(
                    "{median:.1} ms a step (median; 90 % within {p90:.1} ms), and {particles:.1} \
                     ms a frame for cloud and particles (median)"
                ),
            )?;
        }
        fact("seed", self.seed.to_string())?;
        let path = self.model_path.as_ref().map(|path| format!("  {}", path.display()));
        fact("model", format!("{}{}", self.model_hash, path.unwrap_or_default()))?;
        let threads = self.device.n_threads;
        let plural = if threads == 1 { "" } else { "s" };
        fact("device", format!("{}, {threads} thread{plural}", self.device.cpu))?;
        self.agreement().map_or(Ok(()), |agreement| fact("published", agreement))
    }

    /// The box that was predicted in, and how much of what was measured lies in it.
    pub(crate) fn inside(&self) -> Option<String> {
        let sum = |count: fn(&Survey) -> usize| -> usize {
            self.bags.iter().map(|bag| count(&bag.survey)).sum()
        };
        let (measured, inside) = (sum(|s| s.n_measured), sum(|s| s.n_in_workspace));
        let Workspace { min, max } = self.workspace;
        let is_one = self.bags.iter().all(|bag| bag.survey.workspace == self.workspace);
        let which = match is_one {
            true => format!("{} to {} m", corner(min), corner(max)),
            false => "per recording, as its cameras see".into(),
        };
        (measured > 0).then(|| {
            let share = percent(inside as f64 / measured as f64);
            format!("{which}: {share} % of the points measured in the first frames lie in it")
        })
    }

    /// Warnings of all recordings, each once, with the recordings that it is of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut texts: Vec<(&str, Vec<&Path>)> = Vec::new();
        for bag in &self.bags {
            for warning in &bag.warnings {
                match texts.iter_mut().find(|(text, _)| text == warning) {
                    Some((_, paths)) => paths.push(&bag.path),
                    None => texts.push((warning, vec![&bag.path])),
                }
            }
        }
        let line = |(text, paths): &(&str, Vec<&Path>)| {
            let more = match paths.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            format!("{}{more}: {text}", paths[0].display())
        };
        let n = texts.len();
        let mut lines: Vec<String> = texts.iter().take(MAX_WARNINGS).map(line).collect();
        if n > MAX_WARNINGS {
            lines.push(format!("{} more are in the JSON report", n - MAX_WARNINGS));
        }
        lines
    }

    /// Frames that have the robot.
    pub fn n_with_robot(&self) -> u64 {
        self.bags.iter().map(|bag| bag.n_with_robot).sum()
    }

    /// The robot's particles, and the frames that have them.
    pub(crate) fn of_robot(&self) -> String {
        let (with, n) = (self.n_with_robot(), self.n_frames);
        match with {
            0 => "; no frame has a robot".into(),
            _ => format!(", {} of the robot in {with} of {n} frames", self.n_kinematic),
        }
    }

    /// What is suspicious of the rigs, each once.
    pub(crate) fn rig(&self) -> String {
        let mut texts: Vec<(&str, usize)> = Vec::new();
        for item in self.bags.iter().flat_map(|bag| &bag.rig) {
            match texts.iter_mut().find(|(what, _)| *what == item.what) {
                Some((_, n)) => *n += 1,
                None => texts.push((&item.what, 1)),
            }
        }
        let told = |(what, n): &(&str, usize)| match self.bags.len() {
            1 => (*what).to_owned(),
            all => format!("{what} in {n} of {all} recordings"),
        };
        let more = if texts.len() > MAX_WARNINGS { ", …" } else { "" };
        let told: Vec<String> = texts.iter().take(MAX_WARNINGS).map(told).collect();
        match told.is_empty() {
            true => "nothing suspicious".into(),
            false => format!("suspicious: {}{more}; `forecloud check` tells why", told.join(", ")),
        }
    }

    /// What was added to the depth images, if anything was.
    pub(crate) fn added_noise(&self) -> Option<String> {
        let noise = self.sensor_noise.as_ref()?;
        let (strength, sigma_mm) = (noise.strength, 1e3 * noise.sigma_m(1.0));
        Some(format!("added, of strength {strength}: {sigma_mm:.1} mm at 1 m"))
    }

    pub(crate) fn recordings(&self) -> String {
        let mut tasks = std::collections::BTreeMap::<&str, usize>::new();
        for bag in &self.bags {
            *tasks.entry(bag.task.as_deref().unwrap_or("without truth")).or_default() += 1;
        }
        let tasks: Vec<String> = tasks.iter().map(|(task, n)| format!("{n} {task}")).collect();
        let skipped = match self.skipped.len() {
            0 => String::new(),
            n => format!("; {n} skipped"),
        };
        format!("{} ({}){skipped}", self.bags.len(), tasks.join(", "))
    }

    pub(crate) fn frames(&self) -> String {
        // Writing to a string can't fail.
        let mut text = format!(
            "{}: {} predicted, {} compared with the truth",
            self.n_frames, self.n_predicted, self.n_evaluated
        );
        if self.n_in_hindsight > 0 {
            let _ = write!(text, ", {} with what was seen later", self.n_in_hindsight);
        }
        if self.n_without_truth > 0 {
            let _ = write!(text, ", {} without truth at their time", self.n_without_truth);
        }
        if self.n_without_history > 0 {
            let _ = write!(text, ", {} without a frame one step back", self.n_without_history);
        }
        if self.n_other_cameras > 0 {
            let _ = write!(text, " ({} with one of other cameras)", self.n_other_cameras);
        }
        if self.messages.frames_without_camera > 0 {
            let _ = write!(text, ", {} with a camera missing", self.messages.frames_without_camera);
        }
        text
    }

    /// What never became a frame, by cause; and that time was set back, which a frame or two are
    /// lost by.
    fn dropped(&self) -> Option<String> {
        let losses = self.messages.losses();
        let jumps = (self.messages.time_jumps, "times that stamps went back");
        let losses = losses.chain([jumps].into_iter().filter(|(n, _)| *n > 0));
        let losses: Vec<String> = losses.map(|(n, what)| format!("{what}: {n}")).collect();
        (!losses.is_empty()).then(|| losses.join("; "))
    }

    /// Why, of all recordings: the first of each kind, causes first; at most [`MAX_PROBLEMS`].
    fn problems(&self) -> Vec<String> {
        let mut all = Vec::new();
        for bag in &self.bags {
            Problem::merge(&mut all, bag.problems.iter().cloned());
        }
        let several = self.bags.len() > 1;
        let of = |problem: &Problem| {
            let bag = self.bags.iter().find(|bag| bag.problems.iter().any(|p| p.is_like(problem)));
            bag.filter(|_| several).map_or(String::new(), |bag| format!("{}: ", bag.path.display()))
        };
        let line = |problem: &Problem| of(problem) + &problem.text();
        let mut lines: Vec<String> = all.iter().take(MAX_PROBLEMS).map(line).collect();
        if all.len() > MAX_PROBLEMS {
            lines.push(format!("{} more are in the JSON report", all.len() - MAX_PROBLEMS));
        }
        lines
    }

    pub(crate) fn agreement(&self) -> Option<String> {
        let found = self.published.as_ref()?;
        let (published, replayed) = (found.n_both + found.n_reduced, found.n_replayed);
        Some(format!(
            "{published} of {replayed} frames predicted by the node; bit for bit equal: {}",
            found.verdict()
        ))
    }
}

impl Comparison {
    /// Whether the two are equal, and if not, why, in words.
    pub fn verdict(&self) -> String {
        let mut parts = Vec::new();
        let n_differing = self.n_both - self.n_equal;
        if n_differing > 0 {
            let causes = self.differences.iter().map(|cause| match cause.what {
                "numbers" => format!("by up to {:e} m", self.max_difference_m),
                _ => cause.told.clone(),
            });
            let causes: Vec<String> = causes.collect();
            let first = self.first_difference.as_deref().unwrap_or_default();
            let predictions =
                if n_differing == 1 { "prediction differs" } else { "predictions differ" };
            parts.push(format!("{n_differing} {predictions}; {}; {first}", causes.join(", ")));
        }
        if self.n_of_other_frames == self.n_published {
            parts.push("none is of a frame of this recording".into());
        } else if self.n_of_other_frames > 0 {
            let n = self.n_of_other_frames;
            parts.push(format!("{n} are of frames that replay does not predict"));
        }
        if self.n_lacking > 0 {
            let frames = if self.n_lacking == 1 { "frame is" } else { "frames are" };
            parts.push(format!("{} {frames} missing", self.n_lacking));
        }
        if self.n_reduced > 0 {
            let n = self.n_reduced;
            parts.push(format!("{n} with fewer particles, due to a deadline, are not compared"));
        }
        if self.n_unsettled > 0 {
            let n = self.n_unsettled;
            parts.push(format!(
                "{n} hang on earlier predictions that replay can't make, and are not compared"
            ));
        }
        if self.n_other_objects > 0 {
            let n = self.n_other_objects;
            parts.push(format!(
                "objects of {n} hang on earlier predictions that replay can't make, and are not compared"
            ));
        }
        parts.extend(self.warnings.iter().map(|warning| format!("their file: {warning}")));
        match self.agreement() {
            Agreement::Equal => "yes".into(),
            Agreement::Partial => {
                format!("{} are; unknown for the others: {}", self.n_equal, parts.join("; "))
            }
            Agreement::Different => format!("no: {}", parts.join("; ")),
        }
    }
}

/// Three digits, or as many as stand before the point.
pub(crate) fn millimetres(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
