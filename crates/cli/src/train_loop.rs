//! The loop of `forecloud train`: steps, validations, checkpoints, and what is told of them.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forecloud::base::end_signal::EndSignal;
use forecloud_train::dataset::Dataset;
use forecloud_train::files::RunFiles;
use forecloud_train::trainer::{StepReport, Trainer};
use forecloud_train::validation::Validation;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use super::say::say;

/// What a loop does, and when.
pub struct Loop<'a> {
    /// Where it writes.
    pub files: &'a RunFiles,
    /// The step after which it ends.
    pub end: u64,
    /// Steps from one validation to the next.
    pub validate_every: u64,
    /// Windows of a validation.
    pub validation_windows: usize,
    /// Steps of its roll-outs.
    pub validation_steps: usize,
    /// Seconds from one checkpoint to the next.
    pub checkpoint_secs: f64,
    /// What ends it early.
    pub stop: &'a EndSignal,
}

impl Loop<'_> {
    /// Trains until the end, or until it is stopped; a checkpoint is left in either case.
    ///
    /// # Errors
    /// What training returns, and files that can't be written.
    pub fn run(
        &self,
        trainer: &mut Trainer,
        [train, validation]: [&Dataset; 2],
        log: &mut impl Write,
    ) -> Result<()> {
        self.announce(trainer.step_index());
        let bar = bar(trainer.config().steps, "{wide_bar} step {pos} of {len}{prefix}\n{wide_msg}");
        bar.set_position(trainer.step_index());
        let (first, start, mut saved) = (trainer.step_index(), Instant::now(), Instant::now());
        let (mut loss_mm, mut of_pixels, mut last) = (None, None, None);
        while trainer.step_index() < self.end {
            let report = trainer.step(train)?;
            loss_mm =
                Some(loss_mm.map_or(report.loss_mm, |mean| 0.99 * mean + 0.01 * report.loss_mm));
            let loss_mm = loss_mm.unwrap_or(report.loss_mm);
            if let Some(now) = report.pixel_loss {
                of_pixels = Some(of_pixels.map_or(now, |mean| 0.99 * mean + 0.01 * now));
            }
            let loss = Loss { loss_mm, of_pixels };
            let step = trainer.step_index();
            if step.is_multiple_of(self.validate_every) || step == self.end {
                let (n_windows, n_steps) = (self.validation_windows, self.validation_steps);
                let checked = trainer.validate(validation, n_windows, n_steps)?;
                let line =
                    log_line(step, start.elapsed().as_secs_f64(), loss_mm, &report, &checked);
                // In one piece, so that no line is cut in half.
                let written = log.write_all(line.as_bytes());
                written.with_context(|| self.files.log.display().to_string())?;
                let is_first = last.replace((step, checked)).is_none();
                bar.suspend(|| {
                    let missing = checked.missing().into_iter().filter(|_| is_first);
                    missing.for_each(|what| say(format_args!("not measured: {what}")));
                    let told = shown(&checked);
                    say(format_args!("step {step}: {loss}; validation: {told}"));
                });
            }
            let stops = step == self.end || self.stop.signal().is_some();
            if stops || saved.elapsed().as_secs_f64() > self.checkpoint_secs {
                // The checkpoint last: what it says is done is not done again.
                trainer.model()?.save(&self.files.model)?;
                trainer.save(&self.files.checkpoint)?;
                saved = Instant::now();
            }
            // By all steps so far, validations included.
            let secs = start.elapsed().as_secs_f64() / (step - first) as f64;
            let left = Duration::from_secs_f64(secs * (self.end - step) as f64);
            bar.set_prefix(format!(", {} left", HumanDuration(left)));
            bar.set_message(message(&loss, last.as_ref()));
            bar.set_position(step);
            if stops {
                break;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn announce(&self, step: u64) {
        match self.end.saturating_sub(step) {
            0 => say(format_args!("step {step} is already done: nothing left to train")),
            _ if step > 0 => {
                say(format_args!("resuming after step {step}, until step {}", self.end))
            }
            _ => {
                let first = self.validate_every.min(self.end);
                say(format_args!("{} steps, the first validation after step {first}", self.end));
            }
        }
    }
}

/// Means over some steps.
struct Loss {
    loss_mm: f64,
    of_pixels: Option<f64>,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loss {:.2} mm", self.loss_mm)?;
        self.of_pixels.map_or(Ok(()), |of_pixels| write!(f, ", pixels {of_pixels:.4}"))
    }
}

/// What stands below the bar: short, as terminals are narrow.
fn message(loss: &Loss, last: Option<&(u64, Validation)>) -> String {
    match last {
        None => format!("{loss}; no validation yet"),
        Some((step, checked)) => match (checked.moving_1_mm, checked.moving_last_mm) {
            (Some(first), Some(last)) => {
                let n = checked.n_steps;
                format!(
                    "{loss}; at step {step}: moving {first:.1} mm, after {n} steps {last:.1} mm"
                )
            }
            _ => format!("{loss}; at step {step}: {}", shown(checked)),
        },
    }
}

/// A validation in words.
fn shown(checked: &Validation) -> String {
    let mm = |value: Option<f64>, digits: usize| {
        value.map_or("not measured".into(), |mm| format!("{mm:.digits$} mm"))
    };
    format!(
        "moving objects {} after 1 step, {} after {}; false motion {}",
        mm(checked.moving_1_mm, 1),
        mm(checked.moving_last_mm, 1),
        checked.n_steps,
        mm(checked.static_1_mm, 2)
    )
}

pub fn log_line(
    step: u64,
    secs: f64,
    loss_mm: f64,
    report: &StepReport,
    checked: &Validation,
) -> String {
    let line = serde_json::json!({
        "step": step, "secs": secs, "loss_mm": loss_mm, "report": report, "validation": checked,
    });
    format!("{line}\n")
}

/// Tells where a pause comes too late to be one.
pub(super) fn tell_stop(stop_at: Option<u64>, steps: u64) {
    if let Some(stop_at) = stop_at.filter(|&stop_at| stop_at >= steps) {
        say(format_args!("note: --stop-at {stop_at} has no effect: the run ends at step {steps}"));
    }
}

/// The log, without lines of steps after `step`: those are taken again.
pub fn open_log(path: &Path, step: u64) -> std::io::Result<File> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        text => text?,
    };
    let is_before = |line: &&[u8]| {
        let line = serde_json::from_slice::<serde_json::Value>(line);
        line.is_ok_and(|line| line["step"].as_u64().is_some_and(|at| at <= step))
    };
    let kept: usize =
        text.split_inclusive(|&b| b == b'\n').take_while(is_before).map(<[u8]>::len).sum();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    if kept < text.len() {
        log.set_len(kept as u64)?;
    }
    Ok(log)
}

/// A bar; hidden where stderr is no terminal.
pub fn bar(len: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_no_nulls_and_begins_as_logs_are_known_by() {
        let report =
            StepReport { loss_mm: 1.0, pixel_loss: None, gradient_norm: 0.5, learning_rate: 1e-3 };
        let line = log_line(3, 0.5, 1.25, &report, &Validation::default());
        assert!(line.starts_with("{\"loss_mm\":") && line.ends_with("}\n"), "{line}");
        assert!(!line.contains("null"), "{line}");
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_be_0() {
        let checked = Validation { n_steps: 5, moving_1_mm: Some(3.04), ..Validation::default() };
        let told = shown(&checked);
        assert!(
            told.starts_with("moving objects 3.0 mm after 1 step, not measured after 5"),
            "{told}"
        );
    }
}
