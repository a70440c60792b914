//! Curves against the horizon, as SVG in the page.

use std::fmt::Write;

use super::text::{escape, json, secs};
use crate::method::Method;
use crate::metrics::Class;
use crate::report::{ErrorRow, HindsightReport, HindsightRow, Report};

/// Size of a chart, and the room around its axes, in its own units.
const SIZE: [f64; 2] = [440.0, 270.0];
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Steps up to which each has a marker.
const MAX_MARKERS: usize = 25;
/// Charts of single tasks at most.
const MAX_TASKS: usize = 12;

/// One curve: a value after each step.
type Curve<'a> = (Method, &'a [Option<f64>]);

/// The errors of each class, then of the objects that move in each task.
pub(super) fn errors(report: &Report) -> String {
    let titles = [
        (Class::Moving, "Object points that move"),
        (Class::Resting, "Object points at rest"),
        (Class::Robot, "Robot points"),
        (Class::Static, "Static points: false motion in each step"),
    ];
    let mut html = String::new();
    let mut chart = |class: Class, task: Option<&str>, title: &str| {
        let is_it = |row: &&ErrorRow| row.class == class.name() && row.task.as_deref() == task;
        let rows = report.errors.iter().filter(is_it);
        let curves: Vec<Curve> = rows.map(|row| (row.method, row.mean_mm.as_slice())).collect();
        let id = task.map_or(class.name(), |_| "task");
        html += &figure(id, title, "mean error, mm", &curves, report.step_secs);
    };
    for (class, title) in titles {
        chart(class, None, title);
    }
    let moving = report.errors.iter().filter(|row| row.class == Class::Moving.name());
    let mut tasks: Vec<&str> = moving.filter_map(|row| row.task.as_deref()).collect();
    tasks.dedup();
    if tasks.len() > 1 {
        for task in tasks.into_iter().take(MAX_TASKS) {
            chart(Class::Moving, Some(task), &format!("Object points that move: {task}"));
        }
    }
    html
}

/// What was held against what was seen later, for each region.
pub(super) fn hindsight(report: &HindsightReport, step_secs: f64) -> String {
    let mut html = String::new();
    for (region, title) in super::regions(report) {
        let rows: Vec<&HindsightRow> = report.of(region).collect();
        let chamfer: Vec<Curve> =
            rows.iter().map(|row| (row.method, row.chamfer_mm.as_slice())).collect();
        let name = format!("{title}: distance to what was seen");
        html += &figure(region, &name, "Chamfer distance, mm", &chamfer, step_secs);
        let shares: Vec<(Method, Vec<Option<f64>>)> = rows
            .iter()
            .map(|row| {
                (row.method, row.in_front_share.iter().map(|s| s.map(|s| 100.0 * s)).collect())
            })
            .collect();
        let front: Vec<Curve> = shares.iter().map(|(method, s)| (*method, s.as_slice())).collect();
        let name = format!("{title}: points that a camera saw through");
        html += &figure(region, &name, "share that is wrong, %", &front, step_secs);
    }
    html
}

/// A chart with its title; nothing without values.
fn figure(id: &str, title: &str, unit: &str, curves: &[Curve], step_secs: f64) -> String {
    let values = curves.iter().flat_map(|(_, values)| values.iter().flatten());
    let n_steps = curves.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let most = values.copied().filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return String::new();
    }
    let y_step = tick(most.max(1e-3) / 6.0);
    let axes = Axes { n_steps, y_top: (most.max(1e-3) / y_step).ceil() * y_step, y_step };
    let title = escape(title);
    let times: Vec<f32> = (1..=n_steps).map(|step| secs(step, step_secs)).collect();
    let told: Vec<(&str, &str, &[Option<f64>])> =
        curves.iter().map(|(method, values)| (method.name(), method.label(), *values)).collect();
    let data = escape_attribute(&json(&(unit, times, told)));
    let mut svg = format!(
        "<figure class=chart data-chart=\"{id}\"><figcaption>{title}</figcaption>\
         <svg viewBox=\"0 0 {} {}\" role=img tabindex=0 aria-label=\"{title}: {unit}, after each \
         step; left and right arrow keys read the values\" data-curves=\"{data}\">",
        SIZE[0], SIZE[1]
    );
    axes.draw(&mut svg, unit, step_secs);
    // The model last, above all others.
    for (method, values) in curves.iter().rev() {
        axes.curve(&mut svg, *method, values);
    }
    svg + "<line class=cursor hidden y1=\"12\" y2=\"230\"/></svg></figure>"
}

/// JSON for an attribute in double quotes.
fn escape_attribute(json: &str) -> String {
    json.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// The nearest of 1, 2, 5 times a power of ten that is no less.
fn tick(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let of = |factor: f64| factor * power;
    [1.0, 2.0, 5.0].into_iter().map(of).find(|&tick| tick >= least * 0.999).unwrap_or(10.0 * power)
}

/// From 0 to the last step, and from 0 to `y_top`.
struct Axes {
    n_steps: usize,
    y_top: f64,
    y_step: f64,
}

impl Axes {
    fn x(&self, steps: usize) -> f64 {
        LEFT + (SIZE[0] - LEFT - RIGHT) * steps as f64 / self.n_steps.max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (SIZE[1] - TOP - BOTTOM) * (1.0 - value / self.y_top)
    }

    fn draw(&self, svg: &mut String, unit: &str, step_secs: f64) {
        let (right, bottom) = (SIZE[0] - RIGHT, SIZE[1] - BOTTOM);
        for i in 0..=(self.y_top / self.y_step).round() as usize {
            let value = i as f64 * self.y_step;
            let (y, label) = (self.y(value), value as f32);
            let _ = write!(
                svg,
                "<line class=grid x1={LEFT} x2={right} y1={y:.1} y2={y:.1} />\
                 <text x={} y={:.1} text-anchor=end>{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let every = self.n_steps.div_ceil(10).max(1);
        for step in (0..=self.n_steps).step_by(every) {
            let (x, time) = (self.x(step), secs(step, step_secs));
            let _ =
                write!(svg, "<text x={x:.1} y={} text-anchor=middle>{time}</text>", bottom + 16.0);
        }
        let _ = write!(
            svg,
            "<line class=axis x1={LEFT} x2={right} y1={bottom} y2={bottom} />\
             <text class=unit x={} y={} text-anchor=middle>time ahead, s</text>\
             <text class=unit transform=\"translate(11 {:.1}) rotate(-90)\" \
             text-anchor=middle>{unit}</text>",
            0.5 * (LEFT + right),
            SIZE[1] - 6.0,
            0.5 * (TOP + bottom)
        );
    }

    fn curve(&self, svg: &mut String, method: Method, values: &[Option<f64>]) {
        let key = method.name();
        let (mut path, mut marks, mut is_on) = (String::new(), String::new(), false);
        for (step, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.is_finite()) else {
                is_on = false;
                continue;
            };
            let (x, y) = (self.x(step + 1), self.y(value));
            let _ = write!(path, "{}{x:.1} {y:.1}", if is_on { 'L' } else { 'M' });
            is_on = true;
            if values.len() <= MAX_MARKERS {
                let _ = write!(marks, "<path d=\"{}\"/>", marker(method, x, y));
            }
        }
        let label = method.label();
        let _ = write!(
            svg,
            "<g class=\"curve m-{key}\" data-method=\"{key}\"><title>{label}</title>\
             <path class=line d=\"{path}\"/><g class=marks>{marks}</g></g>"
        );
    }
}

/// Each method has a shape of its own, so that colour is not all that tells them apart.
fn marker(method: Method, x: f64, y: f64) -> String {
    let shape = |points: &[[f64; 2]]| {
        let points = points.iter().map(|[dx, dy]| format!("{:.1} {:.1}", x + dx, y + dy));
        format!("M{}Z", points.collect::<Vec<_>>().join("L"))
    };
    match method {
        Method::Model => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
        Method::NothingMoves => shape(&[[-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]]),
        Method::VelocityEstimated => shape(&[[0.0, -4.5], [4.3, 3.2], [-4.3, 3.2]]),
        Method::VelocityTrue => shape(&[[0.0, 4.5], [4.3, -3.2], [-4.3, -3.2]]),
        Method::Node => shape(&[[0.0, -4.8], [4.8, 0.0], [0.0, 4.8], [-4.8, 0.0]]),
        Method::Observed => shape(&[[-4.5, -1.2], [4.5, -1.2], [4.5, 1.2], [-4.5, 1.2]]),
    }
}

/// The legend of all charts: line and marker of each method that has a row.
pub(super) fn legend(methods: &[Method]) -> String {
    let mut html = String::from("<ul class=legend aria-label=\"Methods\">");
    for &method in methods {
        let key = method.name();
        let (mark, label) = (marker(method, 17.0, 7.0), method.label());
        let _ = write!(
            html,
            "<li><svg viewBox=\"0 0 34 14\" width=34 height=14 aria-hidden=true><g class=\"curve \
             m-{key}\"><path class=line d=\"M1 7L33 7\"/><g class=marks><path \
             d=\"{mark}\"/></g></g></svg>{label}</li>"
        );
    }
    html + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        for (least, expected) in [(0.3, 0.5), (1.0, 1.0), (1.01, 2.0), (23.0, 50.0), (80.0, 100.0)]
        {
            assert!((tick(least) - expected).abs() < 1e-9 * expected, "{least}: {}", tick(least));
        }
    }

    #[test]
    fn what_is_missing_breaks_a_curve() {
        let curves: [Curve; 2] = [
            (Method::Model, &[Some(1.0), None, Some(3.0), Some(4.0)]),
            (Method::NothingMoves, &[Some(f64::NAN), Some(2.0), None, None]),
        ];
        let svg = figure("x", "<b>", "mm", &curves, 0.1);
        assert_eq!(svg.matches("class=\"curve").count(), 2);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>") && !svg.contains("NaN"), "{svg}");
        let line = svg.rsplit("class=line d=\"").next().and_then(|rest| rest.split('"').next());
        assert_eq!(
            line.map(|line| (line.matches('M').count(), line.matches('L').count())),
            Some((2, 1))
        );
        assert_eq!(figure("x", "t", "mm", &[(Method::Model, &[None])], 0.1), "");
    }
}
