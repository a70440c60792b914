//! Validation errors over the steps of a training run, as a picture; also for the examples.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use forecloud_eval::plot::{Axis, Curve, GREY, Legend, Line, Panel};

/// A validation. What was not measured is none.
struct Check {
    step: f64,
    /// Steps of its roll-outs.
    n_steps: u64,
    /// Error of moving object points over that of 'nothing moves', after the first and last step.
    shares: [Option<f64>; 2],
    /// False motion of static points (mm).
    static_mm: Option<f64>,
}

/// The curves of logs of `forecloud train` (OUT/train.jsonl), in the order in which runs went on from
/// each other; empty if they have nothing to draw.
///
/// # Errors
/// Names the log that can't be read.
pub fn panels(logs: &[impl AsRef<Path>]) -> Result<Vec<Panel>> {
    let (mut checks, mut from, mut starts) = (Vec::new(), 0.0, Vec::new());
    for path in logs {
        let path = path.as_ref();
        let read = read(path, from).with_context(|| path.display().to_string())?;
        // One that was stopped before its first validation has none.
        let Some(last) = read.last().map(|check| check.step) else { continue };
        starts.push(from);
        checks.extend(read);
        from = last;
    }
    let curve = |value: &dyn Fn(&Check) -> Option<f64>| -> Vec<[f64; 2]> {
        checks.iter().filter_map(|check| Some([check.step, value(check)?])).collect()
    };
    let n_steps = checks.last().map_or(0, |check| check.n_steps);
    let shares = vec![
        Curve::new("after 1 step", 0, Line::Solid, curve(&|check| check.shares[0])),
        Curve::new(format!("after {n_steps} steps"), 1, Line::Solid, curve(&|c| c.shares[1])),
    ];
    let still = vec![Curve::new("static points", 2, Line::Solid, curve(&|check| check.static_mm))];
    let panel = |title: &str, name: &'static str, mut curves: Vec<Curve>| {
        curves.retain(|curve| !curve.points.is_empty());
        let range = range(&curves)?;
        // Where one run ends and the next begins.
        for &start in starts.iter().skip(1) {
            let ends = range.map(|at| [start, at]).to_vec();
            curves.push(Curve::new("", GREY, Line::Dotted, ends));
        }
        let axis = |name, range| Axis { name, range, log: false };
        let (x, y) = (axis("steps of the optimiser", [0.0, from]), axis(name, range));
        Some(Panel { title: title.into(), x, y, curves, legend: Legend::UpperRight })
    };
    let all = [
        panel("Object points that move", "error / error of 'nothing moves'", shares),
        panel("False motion of static points", "mm per step", still),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// The range of all values, with a margin; none of nothing.
fn range(curves: &[Curve]) -> Option<[f64; 2]> {
    let of = |f: fn(f64, f64) -> f64| {
        curves.iter().flat_map(|curve| &curve.points).map(|point| point[1]).reduce(f)
    };
    let (low, high) = (of(f64::min)?, of(f64::max)?);
    let room = (0.05 * (high - low)).max(0.05 * high.abs()).max(1e-6);
    Some([low - room, high + room])
}

fn read(path: &Path, from: f64) -> Result<Vec<Check>> {
    let text = std::fs::read_to_string(path)?;
    let checks: Option<Vec<Check>> = text.lines().map(|line| check(line, from)).collect();
    checks.context("a line is not one of `forecloud train`")
}

fn check(line: &str, from: f64) -> Option<Check> {
    let line: Value = serde_json::from_str(line).ok()?;
    let of = line.get("validation")?;
    let share = |error: &str, i: usize| {
        Some(of[error].as_f64()? / of["nothing_mm"][i].as_f64().filter(|mm| *mm > 0.0)?)
    };
    Some(Check {
        step: from + line["step"].as_f64()?,
        n_steps: of["n_steps"].as_u64()?,
        shares: [share("moving_1_mm", 0), share("moving_last_mm", 1)],
        static_mm: of["static_1_mm"].as_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_leaves_a_gap_and_a_panel_without_points_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("train.jsonl");
        let lines = [
            r#"{"step":10,"validation":{"n_windows":3,"n_steps":5,"static_1_mm":0.5}}"#,
            r#"{"step":20,"validation":{"n_windows":3,"n_steps":5,"static_1_mm":0.4}}"#,
        ];
        std::fs::write(&log, lines.join("\n")).unwrap();
        let drawn = panels(&[&log]).unwrap();
        assert_eq!(drawn.len(), 1);
        assert_eq!(drawn[0].curves[0].points, [[10.0, 0.5], [20.0, 0.4]]);
        let picture = folder.path().join("curve.svg");
        forecloud_eval::plot::draw(&picture, &drawn).unwrap();
        assert!(std::fs::read_to_string(picture).unwrap().contains("False motion"));
        std::fs::write(&log, r#"{"step":10,"validation":{"n_windows":0,"n_steps":5}}"#).unwrap();
        assert!(panels(&[&log]).unwrap().is_empty());
        std::fs::write(&log, "{}\n").unwrap();
        assert!(panels(&[&log]).is_err());
        assert!(panels(&[folder.path().join("none")]).is_err());
    }

    #[test]
    fn a_log_without_validations_is_nothing_to_draw_and_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [empty, log] = ["a", "b"].map(|name| folder.path().join(name));
        std::fs::write(&empty, "").unwrap();
        assert!(panels(&[&empty]).unwrap().is_empty());
        let line = r#"{"step":10,"validation":{"n_windows":3,"n_steps":5,"static_1_mm":0.5}}"#;
        std::fs::write(&log, line).unwrap();
        let drawn = panels(&[&empty, &log, &empty]).unwrap();
        assert_eq!(drawn[0].curves.len(), 1, "no line where nothing ends");
        assert_eq!(drawn[0].curves[0].points, [[10.0, 0.5]]);
    }
}
