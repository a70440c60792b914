//! What hindsight found, for people.

use std::fmt::{self, Formatter};

use super::hindsight::{HindsightReport, HindsightRow};
use super::table::{METHOD_WIDTH, millimetres};
use crate::hindsight::StepCounts;

/// Steps that the tables show at most; JSON has all.
const MAX_STEPS: usize = 5;
const TIME_WIDTH: usize = 9;
/// Name and unit of each column.
const COLUMNS: [[&str; 2]; 8] = [
    ["covered", "%"],
    ["front", "%"],
    ["agree", "%"],
    ["unknown", "%"],
    ["viol.", "mm"],
    ["to seen", "mm"],
    ["to pred", "mm"],
    ["Chamfer", "mm"],
];
pub(in crate) const HOW_TO_READ: &str = "\
How to read: 'covered' points fall on a pixel measured at the later time; the rest is of these.
'front': a camera saw through the point, so it is wrong; 'viol.': by how much, 0 where it is not
(mean). 'unknown': behind a surface: hidden, and not counted as wrong. Chamfer distance: of predicted
points to the cloud seen later, of that to the predicted ones, and the mean; a sparse prediction
never reaches 0: see 'the observation itself'. Regions are told by the depth images, not by the
model. More in docs/src/reference/measures.md
";

impl HindsightReport {
    /// A section for each region; of all points together where there are no depth images.
    pub(super) fn sections(&self, f: &mut Formatter<'_>, step_secs: f64) -> fmt::Result {
        let known = ["moving", "robot", "static"];
        let titles = ["Moving regions", "Robot", "Static regions"];
        let has_regions = self.has_regions();
        writeln!(f, "Against what the cameras saw later, without truth\n")?;
        match has_regions {
            true => known
                .into_iter()
                .zip(titles)
                .try_for_each(|(region, title)| self.section(f, region, title, step_secs))?,
            false => self.section(f, "all", "All points", step_secs)?,
        }
        if has_regions && self.share_of("hidden") > 0.0 {
            let share = percent(self.share_of("hidden"));
            writeln!(f, "{share} % of the points are in none: hidden at one of the two times\n")?;
        }
        writeln!(f, "{HOW_TO_READ}")
    }

    fn section(
        &self,
        f: &mut Formatter<'_>,
        region: &'static str,
        title: &str,
        step_secs: f64,
    ) -> fmt::Result {
        let rows: Vec<&HindsightRow> = self.of(region).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let title = format!("{title}, {} % of the points", percent(self.share_of(region)));
        write!(f, "{title:0$}", TIME_WIDTH + METHOD_WIDTH)?;
        COLUMNS.iter().try_for_each(|[name, _]| write!(f, "{name:>8}"))?;
        write!(f, "\n{:1$}", "", TIME_WIDTH + METHOD_WIDTH)?;
        COLUMNS.iter().try_for_each(|[_, unit]| write!(f, "{unit:>8}"))?;
        writeln!(f)?;
        for step in shown_steps(self.steps.len()) {
            let secs = (step + 1) as f64 * step_secs;
            let mut time = format!("  {} s", secs as f32);
            for row in rows.iter().filter(|row| row.n_points[step] > 0) {
                write!(f, "{time:TIME_WIDTH$}{:METHOD_WIDTH$}", row.method.label())?;
                row.cells(step).iter().try_for_each(|cell| write!(f, "{cell:>8}"))?;
                writeln!(f)?;
                time.clear();
            }
        }
        writeln!(f)
    }

    /// What became of the predictions, in words.
    pub(crate) fn fate(&self) -> String {
        let sum = |count: fn(&StepCounts) -> u64| self.steps.iter().map(count).sum::<u64>();
        let observed = shown_steps(self.steps.len()).map(|step| self.steps[step].n_observed);
        let observed: Vec<String> = observed.map(|n| n.to_string()).collect();
        let mut text = format!(
            "{} predictions, after each step shown; steps not seen: {} after the recording's \
             end, {} in gaps",
            observed.join(", "),
            sum(|step| step.n_missing_end),
            sum(|step| step.n_missing_gap)
        );
        if self.n_between_steps > 0 {
            text += &format!(
                "; {} predictions passed over: one is judged in each step",
                self.n_between_steps
            );
        }
        if self.n_unusable > 0 {
            text += &format!("; {} frames could not be read", self.n_unusable);
        }
        text
    }
}

impl HindsightRow {
    fn cells(&self, step: usize) -> [String; COLUMNS.len()] {
        let share = |values: &[Option<f64>]| values[step].map_or("-".into(), percent);
        let mm = |values: &[Option<f64>]| values[step].map_or("-".into(), millimetres);
        [
            share(&self.covered_share),
            share(&self.in_front_share),
            share(&self.agree_share),
            share(&self.unknown_share),
            mm(&self.violation_mm),
            mm(&self.chamfer_predicted_to_observed_mm),
            mm(&self.chamfer_observed_to_predicted_mm),
            mm(&self.chamfer_mm),
        ]
    }
}

/// All steps, or as many as are shown, evenly: the first and the last among them.
fn shown_steps(n: usize) -> impl Iterator<Item = usize> {
    let shown = n.min(MAX_STEPS);
    (0..shown).map(move |i| if n <= MAX_STEPS { i } else { i * (n - 1) / (shown - 1) })
}

/// One decimal, two for small ones.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.995 { format!("{percent:.2}") } else { format!("{percent:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_steps_are_shown() {
        let shown = |n| shown_steps(n).collect::<Vec<_>>();
        assert_eq!(shown(0), [0; 0]);
        assert_eq!(shown(3), [0, 1, 2]);
        assert_eq!(shown(6), [0, 1, 2, 3, 5]);
        assert_eq!(shown(100), [0, 24, 49, 74, 99]);
    }
}
