//! The tables of the page.

use std::fmt::Write;

use super::text::{escape, escape_message, secs};
use crate::method::Method;
use crate::metrics::Class;
use crate::report::{
    ErrorRow, HOW_TO_READ, HindsightReport, HindsightRow, Report, millimetres, percent,
};

/// Tasks that have rows of their own; the CSV has all.
const MAX_TASKS: usize = 40;

/// Name in a table's head, and whether it holds numbers.
struct Column(String, bool);

/// Errors against the truth: a table for each class.
pub(super) fn errors(report: &Report) -> String {
    let mut html = String::new();
    for class in Class::ALL {
        let rows: Vec<&ErrorRow> =
            report.errors.iter().filter(|row| row.class == class.name()).collect();
        if rows.is_empty() {
            continue;
        }
        let steps = (1..=report.horizon).map(|step| format!("{} s", secs(step, report.step_secs)));
        let columns = [Column("task".into(), false), Column("method".into(), false)].into_iter();
        let columns = columns.chain(steps.map(|name| Column(name, true)));
        let id = class.name();
        begin(&mut html, id, class.title(), columns);
        let tasks = tasks(&rows);
        for row in rows {
            let is_shown = row
                .task
                .as_ref()
                .is_none_or(|task| tasks.iter().take(MAX_TASKS).any(|shown| shown == task));
            // Of one task alone, all tasks together are the same numbers again.
            if is_shown && !(row.task.is_none() && class.is_object() && tasks.len() == 1) {
                error_row(&mut html, row);
            }
        }
        html += "</tbody></table></div>";
        if tasks.len() > MAX_TASKS {
            let n = tasks.len() - MAX_TASKS;
            let _ = write!(html, "<p class=note>{n} more tasks are in errors.csv.</p>");
        }
    }
    if !html.is_empty() {
        html += "<p class=note>* privileged: it knows how each point truly moved just before.</p>";
    }
    html
}

/// How sure the predictions were: a row for each situation and figure.
pub(super) fn confidence(report: &Report) -> String {
    if report.confidence.is_empty() {
        return String::new();
    }
    let mut html = String::new();
    let steps = (1..=report.horizon).map(|step| format!("{} s", secs(step, report.step_secs)));
    let columns = [Column("particles".into(), false), Column("figure".into(), false)].into_iter();
    let columns = columns.chain(steps.map(|name| Column(name, true)));
    begin(&mut html, "confidence", "How sure, and whether rightly", columns);
    for row in &report.confidence {
        for line in row.lines() {
            let _ = write!(html, "<tr><td>{}</td><td>{}</td>", row.situation, line.label);
            line.values.iter().for_each(|value| number_cell(&mut html, *value, line.show, ""));
            html += "</tr>";
        }
    }
    html + "</tbody></table></div><p class=note>Half of all errors should lie within sigma, nine of ten \
            within sigma_90: means over recordings. Unplanned: on the robot, in steps without a plan.</p>"
}

/// How alike drawn pictures are to what was seen: a row for each method and figure.
pub(super) fn video(report: &Report) -> String {
    let Some(video) = &report.video else { return String::new() };
    let mut html = String::new();
    let n_steps = video.rows.first().map_or(0, |row| row.ssim.len());
    let steps = (0..n_steps).map(|step| match step {
        0 => "0 s".to_owned(),
        step => format!("{} s", secs(step, report.step_secs)),
    });
    let columns = [Column("figure".into(), false), Column("method".into(), false)].into_iter();
    let columns = columns.chain(steps.map(|name| Column(name, true)));
    let title = format!("Drawn pictures of {} frames, beside what the cameras saw", video.n_frames);
    begin(&mut html, "video", &title, columns);
    for row in &video.rows {
        for (name, values, digits) in
            [("SSIM (1: the same)", &row.ssim, 3), ("PSNR, dB", &row.psnr, 1)]
        {
            let show = |value: f64| format!("{value:.digits$}");
            start_row(&mut html, row.method, &format!("<td>{name}</td>"));
            for (value, n) in values.iter().zip(&row.n_pictures) {
                number_cell(&mut html, *value, show, &format!(" title=\"{n} pictures\""));
            }
            html += "</tr>";
        }
    }
    html + "</tbody></table></div>"
}

fn tasks<'a>(rows: &[&'a ErrorRow]) -> Vec<&'a str> {
    let mut tasks: Vec<&str> = rows.iter().filter_map(|row| row.task.as_deref()).collect();
    tasks.dedup();
    tasks
}

fn error_row(html: &mut String, row: &ErrorRow) {
    let task = escape(row.task.as_deref().unwrap_or("all"));
    start_row(html, row.method, &format!("<td><bdi>{task}</bdi></td>"));
    for (mean_mm, n_points) in row.mean_mm.iter().zip(&row.n_points) {
        number_cell(html, *mean_mm, millimetres, &format!(" title=\"{n_points} points\""));
    }
    *html += "</tr>";
}

/// What was held against what was seen later: a table for each region.
pub(super) fn hindsight(report: &HindsightReport, step_secs: f64) -> String {
    let mut html = String::new();
    for (region, title) in super::regions(report) {
        let share = percent(report.share_of(region));
        let names = [
            "covered, %",
            "front, %",
            "agree, %",
            "unknown, %",
            "viol., mm",
            "to seen, mm",
            "to pred, mm",
            "Chamfer, mm",
        ];
        let columns = [Column("time".into(), true), Column("method".into(), false)].into_iter();
        let columns = columns.chain(names.map(|name| Column(name.into(), true)));
        begin(&mut html, region, &format!("{title}, {share} % of the points"), columns);
        for step in 0..report.steps.len() {
            for row in report.of(region).filter(|row| row.n_points[step] > 0) {
                hindsight_row(&mut html, row, step, step_secs);
            }
        }
        html += "</tbody></table></div>";
    }
    let _ = write!(html, "<p class=note>{}</p>", escape_message(HOW_TO_READ));
    html
}

fn hindsight_row(html: &mut String, row: &HindsightRow, step: usize, step_secs: f64) {
    let time = secs(step + 1, step_secs);
    start_row(html, row.method, &format!("<td data-value={time}>{time} s</td>"));
    let shares = [&row.covered_share, &row.in_front_share, &row.agree_share, &row.unknown_share];
    shares.into_iter().for_each(|values| number_cell(html, values[step], percent, ""));
    let lengths = [
        &row.violation_mm,
        &row.chamfer_predicted_to_observed_mm,
        &row.chamfer_observed_to_predicted_mm,
        &row.chamfer_mm,
    ];
    lengths.into_iter().for_each(|values| number_cell(html, values[step], millimetres, ""));
    *html += "</tr>";
}

/// Head of a table that can be sorted by its columns.
fn begin(html: &mut String, id: &str, title: &str, columns: impl Iterator<Item = Column>) {
    let _ = write!(
        html,
        "<h3 id=\"t-{id}\">{title}</h3><div class=scroll tabindex=0 role=region \
         aria-labelledby=\"t-{id}\"><table data-table=\"{id}\"><thead><tr>"
    );
    for Column(name, is_number) in columns {
        let class = if is_number { " class=number" } else { "" };
        let _ = write!(html, "<th scope=col{class}><button type=button>{name}</button></th>");
    }
    *html += "</tr></thead><tbody>";
}

fn start_row(html: &mut String, method: Method, first: &str) {
    let name = method.name();
    let label = method.label();
    let _ = write!(
        html,
        "<tr data-method=\"{name}\">{first}<th scope=row><span class=\"mark m-{name}\"></span>\
         {label}</th>"
    );
}

/// A number as the text report shows it; all its digits in `data-value`.
fn number_cell(html: &mut String, value: Option<f64>, show: impl Fn(f64) -> String, more: &str) {
    let _ = match value.filter(|value| value.is_finite()) {
        Some(value) => write!(html, "<td data-value={value}{more}>{}</td>", show(value)),
        None => write!(html, "<td>-</td>"),
    };
}
