//! What was replayed, with what, on what.

use std::fmt::Write;
use std::path::Path;

use super::scenes::Span;
use super::text::{date, escape, escape_message};
use crate::published::Agreement;
use crate::replay::BagResult;
use crate::report::{MAX_PROBLEMS, Report, Verdict};
use forecloud::vision::frames::FrameCounts;

/// Recordings with a row of their own.
const MAX_RECORDINGS: usize = 300;
/// Letters of a name that goes into the view.
const MAX_NAME: usize = 80;

/// The last part of a path.
pub(super) fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    cut(&name.to_string_lossy())
}

/// The beginning of a name.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// One line below the title.
pub(super) fn summary(report: &Report, spans: &[Option<Span>]) -> String {
    let first = spans.iter().flatten().map(|[first, _]| *first).min();
    let last = spans.iter().flatten().map(|[_, last]| *last).max();
    let recorded = match first.zip(last) {
        Some((first, last)) if first == last => format!("recorded {}", date(first)),
        Some((first, last)) => format!("recorded {} to {}", date(first), date(last)),
        None => "no frames".into(),
    };
    let model = report
        .model_path
        .as_deref()
        .map_or(String::new(), |path| format!(" <bdi>{}</bdi>", escape(&path.to_string_lossy())));
    let frames = frames(report);
    format!(
        "{frames}; {recorded}. Model <code>{}</code>{model}, {} steps of {} s.",
        escape(&report.model_hash),
        report.horizon,
        report.step_secs as f32
    )
}

fn frames(report: &Report) -> String {
    let n_dropped: u64 = report.bags.iter().map(|bag| bag.frames.n_dropped()).sum();
    let mut text = format!("{} of {} frames predicted", report.n_predicted, report.n_frames);
    if report.n_without_history > 0 {
        let _ = write!(text, ", {} without a frame one step back", report.n_without_history);
    }
    if n_dropped > 0 {
        let _ = write!(text, ", {n_dropped} frames or messages dropped");
    }
    text
}

/// Whether the model is better than the baselines: a line with truth, a line without.
pub(super) fn verdicts(report: &Report) -> String {
    let line = |verdict: &Verdict| {
        let text = escape_message(&verdict.text());
        let mut letters = text.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!("<p class=verdict>{first}{}.</p>", letters.as_str())
    };
    report.verdicts.iter().map(line).collect()
}

/// What is missing, failed or differs; nothing if all is well.
pub(super) fn warnings(report: &Report) -> String {
    let warnings = report.warnings();
    let notes = report.notes.iter().chain(&warnings);
    let mut items: Vec<String> = notes.map(|note| escape_message(note)).collect();
    for failure in &report.failures {
        let (n, first) = (failure.count, escape_message(&failure.first));
        items.push(format!("{n} frames could not be predicted; the first: {first}"));
    }
    for bag in report.bags.iter().filter(|bag| !bag.problems.is_empty()).take(5) {
        let (name, why) = (escape(&short_name(&bag.path)), dropped(&bag.frames));
        if !why.is_empty() {
            items.push(format!("<bdi>{name}</bdi>: dropped {why}"));
        }
        let problems = bag.problems.iter().take(MAX_PROBLEMS);
        items.extend(
            problems
                .map(|problem| format!("<bdi>{name}</bdi>: {}", escape_message(&problem.text()))),
        );
    }
    for bag in report.skipped.iter().take(5) {
        let (name, why) = (escape(&short_name(&bag.path)), escape_message(&bag.reason));
        items.push(format!("<bdi>{name}</bdi> was skipped: {why}"));
    }
    let published = report.published.as_ref();
    if let Some(published) = published.filter(|found| found.agreement() != Agreement::Equal) {
        let why = escape_message(&published.verdict());
        items.push(format!("published predictions equal, bit for bit: {why}"));
    }
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{item}</li>")).collect();
    format!("<ul class=warnings aria-label=\"Notes\">{items}</ul>")
}

/// Why messages and frames were dropped, in words.
fn dropped(counts: &FrameCounts) -> String {
    let causes = [
        (counts.dropped_unpaired, "images without partners"),
        (counts.dropped_no_info, "frames without calibration"),
        (counts.dropped_no_tf, "frames without the pose of a camera"),
        (counts.dropped_no_joints, "frames without joints"),
        (counts.dropped_mismatched, "frames of images that do not belong together"),
        (counts.dropped_late, "frames not newer than the last"),
        (counts.bad_messages, "messages that could not be used"),
    ];
    let causes = causes.into_iter().filter(|(n, _)| *n > 0);
    causes.map(|(n, cause)| format!("{n} {cause}")).collect::<Vec<_>>().join(", ")
}

/// A row for each recording.
pub(super) fn recordings(report: &Report, spans: &[Option<Span>]) -> String {
    let mut html = String::from(
        "<div class=scroll tabindex=0 role=region aria-label=\"Recordings\"><table \
         data-table=recordings><thead><tr>",
    );
    for (name, is_number) in [
        ("recording", false),
        ("task", false),
        ("first frame", false),
        ("frames", true),
        ("predicted", true),
        ("with truth", true),
        ("in hindsight", true),
        ("no history", true),
        ("dropped", true),
        ("why", false),
    ] {
        let class = if is_number { " class=number" } else { "" };
        let _ = write!(html, "<th scope=col{class}><button type=button>{name}</button></th>");
    }
    html += "</tr></thead><tbody>";
    for (index, bag) in report.bags.iter().enumerate().take(MAX_RECORDINGS) {
        row(&mut html, bag, spans.get(index).copied().flatten());
    }
    html += "</tbody></table></div>";
    if report.bags.len() > MAX_RECORDINGS {
        let n = report.bags.len() - MAX_RECORDINGS;
        let _ = write!(html, "<p class=note>{n} more recordings are in report.json.</p>");
    }
    html
}

fn row(html: &mut String, bag: &BagResult, span: Option<Span>) {
    let path = escape(&bag.path.to_string_lossy());
    let task = bag.task.as_deref().map_or("without truth".into(), escape);
    let first = span.map_or("-".into(), |[first, _]| date(first));
    let _ = write!(
        html,
        "<tr><th scope=row><bdi>{path}</bdi></th><td><bdi>{task}</bdi></td><td>{first}</td>"
    );
    for count in [
        bag.frames.frames,
        bag.n_predicted,
        bag.n_evaluated,
        bag.n_in_hindsight,
        bag.n_without_history,
        bag.frames.n_dropped(),
    ] {
        let _ = write!(html, "<td data-value={count}>{count}</td>");
    }
    let _ = write!(html, "<td>{}</td></tr>", dropped(&bag.frames));
}

/// Names and values of everything that makes the result what it is.
pub(super) fn facts(report: &Report) -> String {
    let mut facts = vec![
        ("Forecloud", escape(report.version)),
        ("recordings", escape_message(&report.recordings())),
        ("frames", escape_message(&report.frames())),
    ];
    if let Some(inside) = report.inside() {
        facts.push(("workspace", inside));
    }
    if let Some(added) = report.added_noise() {
        facts.push(("noise", added));
    }
    if let Some(hindsight) = &report.hindsight {
        facts.push(("seen later", escape_message(&hindsight.fate())));
    }
    if let Some([least, most]) = report.n_particles {
        let least = if least < most { format!("{least} to ") } else { String::new() };
        let (history, robot) = (report.n_history, report.of_robot());
        facts.push(("particles", format!("{least}{most}; {history} of history{robot}")));
    }
    facts.push(("rig", escape_message(&report.rig())));
    if let Some(agreement) = report.agreement() {
        facts.push(("published", escape_message(&agreement)));
    }
    let path = report.model_path.as_deref().map_or("in memory".into(), Path::to_string_lossy);
    facts.push(("model", format!("<code>{}</code>", escape(&report.model_hash))));
    facts.push(("model file", format!("<bdi>{}</bdi>", escape(&path))));
    let config = serde_json::to_value(report.config).unwrap_or_default();
    let settings = config.as_object().into_iter().flatten();
    let settings = settings.map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
    facts.push(("settings", format!("<code>{}</code>", escape_message(&settings.join(", ")))));
    list(&facts)
}

/// What differs from run to run of the same input.
pub(super) fn timing(report: &Report) -> String {
    let threads = report.device.n_threads;
    let plural = if threads == 1 { "" } else { "s" };
    let mut facts =
        vec![("device", format!("{}, {threads} thread{plural}", escape(&report.device.cpu)))];
    if let Some(time) = report.time {
        let (median, p90) = (time.step_ms_median, time.step_ms_p90);
        facts.push(("a step", format!("{median:.1} ms (median; 90 % within {p90:.1} ms)")));
        let particles = time.particles_ms_median;
        facts.push(("cloud and particles", format!("{particles:.1} ms a frame (median)")));
    }
    list(&facts)
}

/// The files beside the page.
pub(super) fn files(files: &[(String, String)]) -> String {
    let item = |(name, what): &(String, String)| {
        let (name, what) = (escape(name), escape_message(what));
        format!("<li><a href=\"{name}\">{name}</a>: {what}</li>")
    };
    files.iter().take(MAX_RECORDINGS).map(item).collect()
}

fn list(facts: &[(&str, String)]) -> String {
    let item = |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{value}</dd>");
    format!("<dl>{}</dl>", facts.iter().map(item).collect::<String>())
}
