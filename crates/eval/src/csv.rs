//! The figures of a report as tables for other programs: tidy, a row each method, class, task and
//! step (RFC 4180).

use crate::report::Report;

/// First line of [`errors`].
pub const ERRORS: &str = "method,class,task,step,time_s,mean_mm,n_points";
/// First line of [`hindsight`].
pub const HINDSIGHT: &str = "method,region,step,time_s,n_points,covered_share,in_front_share,\
agree_share,unknown_share,violation_mm,chamfer_predicted_to_observed_mm,\
chamfer_observed_to_predicted_mm,chamfer_mm,n_outside_workspace,n_observed_points,step_motion_mm";

/// Errors against the truth; `task` is empty in the rows of all tasks together.
pub fn errors(report: &Report) -> String {
    let mut text = format!("{ERRORS}\r\n");
    for row in &report.errors {
        let start =
            [row.method.name().into(), row.class.into(), quoted(row.task.as_deref().unwrap_or(""))];
        for (step, (mean_mm, n_points)) in row.mean_mm.iter().zip(&row.n_points).enumerate() {
            let place = place(report, step);
            let mean_mm = number(*mean_mm);
            text += &format!("{},{place},{mean_mm},{n_points}\r\n", start.join(","));
        }
    }
    text
}

/// What was held against what was seen later; none if all recordings have truth.
pub fn hindsight(report: &Report) -> Option<String> {
    let mut text = format!("{HINDSIGHT}\r\n");
    for row in &report.hindsight.as_ref()?.rows {
        for (step, n_points) in row.n_points.iter().enumerate() {
            let values = [
                &row.covered_share,
                &row.in_front_share,
                &row.agree_share,
                &row.unknown_share,
                &row.violation_mm,
                &row.chamfer_predicted_to_observed_mm,
                &row.chamfer_observed_to_predicted_mm,
                &row.chamfer_mm,
            ];
            let values = values.map(|values| number(values[step])).join(",");
            let (method, region, place) = (row.method.name(), row.region, place(report, step));
            let (outside, observed) = (row.n_outside_workspace[step], row.n_observed_points[step]);
            let motion = number(row.step_motion_mm[step]);
            text += &format!(
                "{method},{region},{place},{n_points},{values},{outside},{observed},{motion}\r\n"
            );
        }
    }
    Some(text)
}

/// Number and time of a step.
fn place(report: &Report, step: usize) -> String {
    format!("{},{}", step + 1, ((step + 1) as f64 * report.step_secs) as f32)
}

/// The shortest digits that give the number back; nothing if there is none.
fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A field in quotes where it needs them.
fn quoted(field: &str) -> String {
    match field.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quoted("two arms"), "two arms");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }

    #[test]
    fn numbers_keep_all_digits() {
        assert_eq!(number(Some(0.1 + 0.2)).parse(), Ok(0.1 + 0.2));
        assert_eq!(number(None), "");
    }
}
