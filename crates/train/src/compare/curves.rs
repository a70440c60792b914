//! The runs' validation errors against the CPU time of their training, as a plot.

use super::run::Point;
use super::table::Table;
use forecloud_eval::plot::{Axis, Curve, Legend, Line, Panel};

/// Of each run a dotted line, of each variant the mean over its seeds as a solid one; no panel where no
/// validation knows moving points.
pub(super) fn panels(table: &Table) -> Vec<Panel> {
    let mut curves = Vec::new();
    for (color, row) in table.rows.iter().enumerate() {
        let runs: Vec<&[Point]> = table.curves(&row.name).collect();
        curves.extend(runs.iter().map(|run| {
            let points = run.iter().filter_map(place).collect();
            Curve::new("", color, Line::Dotted, points)
        }));
        curves.push(Curve::new(&row.name, color, Line::Solid, mean_curve(&runs)));
    }
    curves.retain(|curve| !curve.points.is_empty());
    if curves.is_empty() {
        return Vec::new();
    }
    let n_steps = table.plan.settings.validation_steps;
    vec![Panel {
        title: format!("Validation: moving points after {n_steps} steps"),
        x: Axis::spanning("CPU time (s)", &curves, 0, false),
        y: Axis::spanning("mean error (mm)", &curves, 1, false),
        curves,
        legend: Legend::UpperRight,
    }]
}

fn place(point: &Point) -> Option<[f64; 2]> {
    Some([point.cpu_secs, point.moving_last_mm?])
}

/// Means over runs, validation by validation: all have them at the same steps.
fn mean_curve(curves: &[&[Point]]) -> Vec<[f64; 2]> {
    let length = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
    let mean = |i: usize| {
        let points: Option<Vec<[f64; 2]>> = curves.iter().map(|curve| place(&curve[i])).collect();
        let points = points?;
        let n = points.len() as f64;
        Some([0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / n))
    };
    (0..length).filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_ends_where_the_shortest_run_does() {
        let point = |step, mm| Point {
            step,
            cpu_secs: step as f64,
            moving_1_mm: Some(1.0),
            moving_last_mm: Some(mm),
        };
        let (a, b) = ([point(1, 4.0), point(2, 2.0)], [point(1, 8.0)]);
        assert_eq!(mean_curve(&[&a, &b]), [[1.0, 6.0]]);
        assert!(mean_curve(&[]).is_empty());
    }
}
