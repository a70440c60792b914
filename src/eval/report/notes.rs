//! What a report can't tell, and the remedy.

use crate::eval::method::Method;
use crate::eval::metrics::Class;
use crate::eval::replay::Replay;

impl Replay {
    /// What is missing in the report of all recordings so far.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.reach_note().into_iter().collect();
        let Some(findings) = &self.findings else { return notes };
        notes.push("without truth there is no error of each point, and no true velocity".into());
        let n_without_depth = findings.n_without_depth;
        if !findings.has_depth {
            notes.push(
                "no camera gives depth images (clouds can't be projected into): Chamfer distance \
                 only, and regions are not told apart; record depth images and their camera info"
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

    /// Steps that no recording reaches.
    fn reach_note(&self) -> Option<String> {
        let (horizon, step_secs) = (self.config.horizon, self.model.config.step_secs);
        let n_predicted: u64 = self.bags.iter().map(|bag| bag.n_predicted).sum();
        let n_reached = (0..horizon).rev().find(|&step| self.reaches(step)).map_or(0, |s| s + 1);
        if n_predicted == 0 || n_reached == horizon {
            return None;
        }
        let secs = |steps: usize| (steps as f64 * step_secs) as f32;
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
