//! What a report can't tell, and the remedy.

use crate::method::Method;
use crate::metrics::Class;
use crate::part::Pool;
use crate::replay::{BagResult, Failure};
use crate::report::percent;
use crate::survey::Survey;
use forecloud::base::geometry::Vec3;
use forecloud::vision::cloud::Workspace;

impl Pool<'_> {
    /// What is missing in the report of all recordings so far.
    pub(super) fn notes(&self) -> Vec<String> {
        let first = [self.box_note(), self.rate_note(), self.lack_note(), self.reach_note()];
        let mut notes: Vec<String> = first.into_iter().flatten().collect();
        let Some(findings) = &self.findings else { return notes };
        notes.push("without truth there is no error of each point, and no true velocity".into());
        let n_without_depth = findings.n_without_depth;
        if !findings.has_depth {
            notes.push(
                "no camera gives depth images (clouds can't be projected into): Chamfer distance \
                 only, and regions are not distinguished; record depth images and their camera info"
                    .into(),
            );
        } else if n_without_depth > 0 {
            notes.push(format!(
                "{n_without_depth} cameras give clouds without depth images: they count in the \
                 Chamfer distance only"
            ));
        }
        notes.extend(findings.problems.iter().cloned());
        notes
    }

    /// Points that lie outside of the workspace: where, and a box that holds them.
    fn box_note(&self) -> Option<String> {
        let surveys = || self.bags().map(|bag| &bag.survey);
        let sum = |count: fn(&Survey) -> usize| surveys().map(count).sum::<usize>();
        let (measured, inside) = (sum(|s| s.n_measured), sum(|s| s.n_in_workspace));
        let nothing_left = self.failures.iter().any(Failure::is_too_few_points);
        let is_told = self.follows_cameras() || measured == 0 || 2 * inside >= measured;
        if !nothing_left && is_told {
            return None;
        }
        let Workspace { min, max } = self.workspace();
        let workspace = format!("the workspace {} to {}", corner(min), corner(max));
        let boxes = surveys().filter_map(|survey| survey.points);
        let Some([low, high]) =
            boxes.reduce(|[a, b], [c, d]| [each(f32::min, a, c), each(f32::max, b, d)])
        else {
            return Some(format!(
                "the cameras measured no point at all, in {workspace} or elsewhere: check the \
                 depth images"
            ));
        };
        // Outwards, to whole centimetres, and no flatter than a box must be.
        let low = low.map(|x| (100.0 * x).floor() / 100.0);
        let high = high.map(|x| (100.0 * x).ceil() / 100.0);
        let high = each(f32::max, high, low.map(|x| x + 0.1));
        let share = percent(inside as f64 / measured.max(1) as f64);
        Some(format!(
            "{workspace} (m, in {}) holds {share} % of the points that the cameras measured in \
             the first frames; nearly all of these lie between {} and {}: --workspace {} {} takes \
             them in, or name another frame with -p world_frame:=FRAME. The model was trained in a box of {} m",
            self.terms.frames.world_frame,
            corner(low),
            corner(high),
            corner(low),
            corner(high),
            sides(&self.terms.trained_workspace)
        ))
    }

    /// Frames that do not come one step apart: which rate was measured, and which is wanted.
    fn rate_note(&self) -> Option<String> {
        let (step_secs, tolerance_secs) =
            (self.terms.step_secs, self.terms.config.history_tolerance_secs);
        let misses = |bag: &&BagResult| {
            bag.survey.frame_secs.is_some_and(|secs| {
                let nearest = (step_secs / secs).round().max(1.0) * secs;
                // A clock's jitter is no other rate.
                (nearest - step_secs).abs() > tolerance_secs + 1e-3
                    && 2 * bag.n_predicted < bag.frames.frames
            })
        };
        let bag = self.bags().find(misses)?;
        let rate_hz = 1.0 / bag.survey.frame_secs?;
        Some(format!(
            "frames come at {rate_hz:.1} Hz; the model takes steps of {step_secs} s and needs, for \
             each frame, another one step before it (within {tolerance_secs} s): {} Hz or a \
             multiple of it is wanted. {} of {} frames of {} have none",
            (1.0 / step_secs) as f32,
            bag.n_without_history,
            bag.frames.frames,
            bag.path.display()
        ))
    }

    /// A truth by which nothing can be judged, as topics are missing.
    fn lack_note(&self) -> Option<String> {
        let lacks = |bag: &&BagResult| {
            !bag.truth_lack.is_empty() && bag.n_predicted > 0 && bag.n_evaluated == 0
        };
        let bag = self.bags().find(lacks)?;
        Some(format!(
            "the truth of {} lacks {}, so nothing could be judged by it; --no-truth judges by what was \
             seen later",
            bag.path.display(),
            bag.truth_lack.join(" and ")
        ))
    }

    /// Steps that no recording reaches.
    fn reach_note(&self) -> Option<String> {
        let (horizon, step_secs) = (self.terms.config.horizon, self.terms.step_secs);
        let n_predicted: u64 = self.bags().map(|bag| bag.n_predicted).sum();
        let n_reached = (0..horizon).rev().find(|&step| self.reaches(step)).map_or(0, |s| s + 1);
        if n_predicted == 0 || n_reached == horizon {
            return None;
        }
        let secs = |steps: usize| (steps as f64 * step_secs) as f32;
        if n_reached == 0 && self.lack_note().is_some() {
            return None;
        }
        Some(match n_reached {
            0 => format!(
                "no frame follows one step ({} s) after one that was predicted, so nothing could \
                 be judged: a longer recording, or one without gaps, is needed",
                secs(1)
            ),
            n => format!(
                "the recordings reach {} s beyond predicted frames, not {} s: later steps could \
                 not be judged; use --horizon {n} or longer recordings",
                secs(n),
                secs(horizon)
            ),
        })
    }

    fn reaches(&self, step: usize) -> bool {
        let scores = &self.scores[Method::Model as usize];
        let findings = self.findings.as_ref();
        let seen = findings.and_then(|findings| findings.steps.get(step));
        Class::ALL.into_iter().any(|class| scores.mean(class, step, None).n > 0)
            || seen.is_some_and(|seen| seen.n_observed > 0)
    }
}

fn each(f: fn(f32, f32) -> f32, a: Vec3, b: Vec3) -> Vec3 {
    std::array::from_fn(|axis| f(a[axis], b[axis]))
}

/// As `--workspace` takes it.
pub(crate) fn corner([x, y, z]: Vec3) -> String {
    format!("{x},{y},{z}")
}

fn sides(workspace: &Workspace) -> String {
    let side = |axis: usize| (100.0 * (workspace.max[axis] - workspace.min[axis])).round() / 100.0;
    format!("{} x {} x {}", side(0), side(1), side(2))
}
