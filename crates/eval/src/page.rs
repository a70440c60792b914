//! The page of a replay: one HTML file that needs nothing else, for people.
//!
//! Tables, charts and facts are written here; `page/*.js` sorts the tables, reads out the charts
//! and draws the scenes. Names from recordings are untrusted: they pass `text::escape`, and the
//! page's security policy runs no script but its own, by its hash, and loads nothing.

mod charts;
mod facts;
mod scene;
mod scenes;
mod tables;
mod text;

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

use crate::method::Method;
use crate::metrics::Class;
use crate::report::{HindsightReport, Report, millimetres, percent};
use text::{base64, escape, json};

pub use scene::Scene;
pub use scenes::{Scenes, Setting, Span};

/// Bytes that the page may take, about.
pub const MAX_BYTES: usize = 8_000_000;
/// Of these: bytes of all scenes together.
pub const MAX_SCENE_BYTES: usize = 6_000_000;
/// Bytes of all films in it together; others lie beside it.
const MAX_FILM_BYTES: usize = 700_000;
/// In the head of each page: tells our files from others'.
pub const MARK: &str = "<meta name=\"generator\" content=\"forecloud replay\">";

/// What the view shows: with truth, without, and both.
const VIEWS: [&str; 3] = [
    "Truth and prediction",
    "What was seen later, and the prediction",
    "Truth, or what was seen later, and the prediction",
];
/// What the charts show.
const MEASURES: [&str; 3] =
    ["Error", "Distance to what was seen later", "Error, or distance to what was seen later,"];

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("page/tables.js"),
    include_str!("page/charts.js"),
    include_str!("page/camera.js"),
    include_str!("page/draw_gl.js"),
    include_str!("page/draw_2d.js"),
    include_str!("page/scene.js"),
    include_str!("page/view.js"),
);

/// All that the page tells.
pub struct Page<'a> {
    /// What the replay found.
    pub report: &'a Report,
    /// The frames to show.
    pub scenes: &'a Scenes,
    /// Short films: what each shows, and its bytes (animated PNG).
    pub films: &'a [(String, Vec<u8>)],
    /// Files beside the page: name, and what it is.
    pub files: &'a [(String, String)],
}

/// The beginning of the data in the page's script element.
#[derive(Serialize)]
struct ViewData {
    step_secs: f64,
    workspace: [[f32; 3]; 2],
    scenes: Vec<SceneHead>,
}

#[derive(Serialize)]
struct SceneHead {
    recording: usize,
    name: String,
    task: Option<String>,
    /// Seconds since the recording's first frame.
    at_secs: f64,
}

impl Page<'_> {
    /// The page as a file's text.
    pub fn html(&self) -> String {
        let hash = |text: &str| base64(&Sha256::digest(text.as_bytes()));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
             base-uri 'none'; form-action 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        let (heads, scenes) = self.scenes();
        fill(TEMPLATE, |name| match name {
            "mark" => MARK.to_owned(),
            "policy" => policy.clone(),
            "style" => STYLE.to_owned(),
            "script" => SCRIPT.to_owned(),
            "title" => escape(&self.title()),
            "summary" => facts::summary(self.report, self.scenes.spans()),
            "verdicts" => facts::verdicts(self.report),
            "warnings" => facts::warnings(self.report),
            "view" => self.by_truth(VIEWS).to_owned(),
            "measure" => self.by_truth(MEASURES).to_owned(),
            "cards" => self.cards(),
            "shown" => self.shown(),
            "legend" => charts::legend(&self.methods()),
            "charts" => self.charts(),
            "tables" => self.tables(),
            "films" => self.films(),
            "facts" => facts::facts(self.report),
            "recordings" => facts::recordings(self.report, self.scenes.spans()),
            "files" => facts::files(self.files),
            "timing" => facts::timing(self.report),
            "heads" => heads.clone(),
            "scenes" => scenes.clone(),
            _ => String::new(),
        })
    }

    fn title(&self) -> String {
        let names: Vec<String> =
            self.report.bags.iter().map(|bag| facts::short_name(&bag.path)).collect();
        match names.as_slice() {
            [one] => format!("Forecloud replay of {one}"),
            names => format!("Forecloud replay of {} recordings", names.len()),
        }
    }

    /// One of three: of recordings with truth alone, without, and both.
    fn by_truth(&self, names: [&'static str; 3]) -> &'static str {
        let n_known = self.report.bags.iter().filter(|bag| bag.task.is_some()).count();
        match n_known {
            0 if !self.report.bags.is_empty() => names[1],
            n if n == self.report.bags.len() => names[0],
            _ => names[2],
        }
    }

    fn methods(&self) -> Vec<Method> {
        let of_errors = self.report.errors.iter().map(|row| row.method);
        let hindsight = self.report.hindsight.iter().flat_map(|h| h.rows.iter());
        let there: Vec<Method> = of_errors.chain(hindsight.map(|row| row.method)).collect();
        Method::ALL.into_iter().filter(|method| there.contains(method)).collect()
    }

    fn charts(&self) -> String {
        let hindsight = self.report.hindsight.as_ref();
        charts::errors(self.report)
            + &hindsight.map_or(String::new(), |h| charts::hindsight(h, self.report.step_secs))
    }

    fn tables(&self) -> String {
        let mut html = tables::errors(self.report) + &tables::confidence(self.report);
        html += &tables::video(self.report);
        if let Some(hindsight) = &self.report.hindsight {
            html += "<h3>Without truth: against what the cameras saw later</h3>";
            html += &tables::hindsight(hindsight, self.report.step_secs);
        }
        html
    }

    /// A section with the films that fit; nothing without any.
    fn films(&self) -> String {
        let mut left = MAX_FILM_BYTES;
        let mut figures = String::new();
        for (what, film) in self.films {
            if let Some(rest) = left.checked_sub(film.len()) {
                left = rest;
                let (what, data) = (escape(what), base64(film));
                let _ = write!(
                    figures,
                    "<figure><img src=\"data:image/png;base64,{data}\" alt=\"{what}\">\
                     <figcaption>{what}</figcaption></figure>"
                );
            }
        }
        if figures.is_empty() {
            return figures;
        }
        "<section aria-labelledby=\"h-films\"><h2 id=\"h-films\">What the cameras will see</h2>"
            .to_owned()
            + &figures
            + "</section>"
    }

    /// The figures that matter most, in large letters.
    fn cards(&self) -> String {
        let (mut html, report) = (String::new(), self.report);
        let mut card = |name: &str, value: String, unit: &str, more: String| {
            let _ = write!(
                html,
                "<li><span class=name>{name}</span><span class=value>{value} \
                 <small>{unit}</small></span><span class=more>{more}</span></li>"
            );
        };
        for (class, name) in [
            (Class::Moving, "Object points that move"),
            (Class::Robot, "Robot points"),
            (Class::Static, "Static points"),
        ] {
            let of = |method: Method| {
                let mut rows = report.errors.iter();
                rows.find(|row| {
                    row.method == method && row.class == class.name() && row.task.is_none()
                })
            };
            let Some(model) = of(Method::Model) else { continue };
            let Some(step) = model.mean_mm.iter().rposition(Option::is_some) else { continue };
            let Some(value) = model.mean_mm[step] else { continue };
            let secs = text::secs(step + 1, report.step_secs);
            let better = [Method::NothingMoves, Method::VelocityTrue]
                .into_iter()
                .filter_map(|method| Some((of(method)?.mean_mm[step]?, method)))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let more = match better {
                _ if class == Class::Static => "false motion in one step".to_owned(),
                Some((best, method)) => format!(
                    "{} ahead: {:.2} of the better baseline ({}: {})",
                    format_args!("{secs} s"),
                    value / best.max(1e-9),
                    method.label().trim_end_matches(" *"),
                    millimetres(best)
                ),
                None => format!("{secs} s ahead"),
            };
            card(name, millimetres(value), "mm", more);
        }
        if let Some(hindsight) = &report.hindsight {
            if let Some(mm) = report.verdicts.last().and_then(|verdict| verdict.false_motion_mm) {
                let more = "mean motion predicted in one step for what stays".to_owned();
                card("False motion", millimetres(mm), "mm", more);
            }
            for (region, title) in regions(hindsight) {
                let of = |method: Method| hindsight.of(region).find(|row| row.method == method);
                let Some(model) = of(Method::Model) else { continue };
                let Some(step) = model.chamfer_mm.iter().rposition(Option::is_some) else {
                    continue;
                };
                let Some(value) = model.chamfer_mm[step] else { continue };
                let secs = text::secs(step + 1, report.step_secs);
                let still = of(Method::NothingMoves).and_then(|row| row.chamfer_mm[step]);
                let still = still.map_or("-".into(), millimetres);
                let wrong = model.in_front_share[step].map_or("-".into(), percent);
                let more = format!(
                    "from what was seen {secs} s later (Chamfer; nothing moves: {still}); a camera \
                     saw through {wrong} % of the points"
                );
                card(title, millimetres(value), "mm", more);
            }
        }
        html
    }

    /// Heads and data of the scenes, as JSON.
    fn scenes(&self) -> (String, String) {
        let (setting, chosen) = (self.scenes.setting(), self.scenes.chosen());
        let head = |(recording, scene): &(usize, &Scene)| {
            let bag = self.report.bags.get(*recording);
            let first = self.scenes.spans().get(*recording).copied().flatten();
            SceneHead {
                recording: *recording,
                name: bag.map_or(String::new(), |bag| facts::short_name(&bag.path)),
                task: bag.and_then(|bag| bag.task.clone()).map(|task| facts::cut(&task)),
                at_secs: first.map_or(0.0, |[first, _]| scene.stamp.secs_since(first)),
            }
        };
        let data = ViewData {
            step_secs: setting.step_secs,
            workspace: [setting.workspace.min, setting.workspace.max],
            scenes: chosen.iter().map(head).collect(),
        };
        let scenes: Vec<&str> = chosen.iter().map(|(_, scene)| scene.json.as_str()).collect();
        (json(&data), format!("[{}]", scenes.join(",")))
    }

    /// How many frames are shown, and which.
    fn shown(&self) -> String {
        let (n, n_predicted) = (self.scenes.chosen().len(), self.report.n_predicted);
        let chosen: std::collections::BTreeSet<usize> =
            self.scenes.chosen().into_iter().map(|(recording, _)| recording).collect();
        let n_bags = self.report.bags.len();
        let mut text = format!("{n} of {n_predicted} predicted frames are shown");
        if (n as u64) < n_predicted {
            text += ": those in which most happens, no two of the same motion. The others are left \
                     out to keep this page small; the figures are of all frames";
        }
        if chosen.len() < n_bags {
            let _ = write!(text, ". {} of {n_bags} recordings have a frame here", chosen.len());
        }
        text + "."
    }
}

/// The regions that hindsight tells apart, with titles; all points where it can't.
fn regions(report: &HindsightReport) -> Vec<(&'static str, &'static str)> {
    let known = [("moving", "Moving regions"), ("robot", "Robot"), ("static", "Static regions")];
    let there = |(region, _): &(&'static str, &str)| report.of(region).next().is_some();
    match report.has_regions() {
        true => known.into_iter().filter(there).collect(),
        false => [("all", "All points")].into_iter().filter(there).collect(),
    }
}

/// Puts `value(name)` in the place of each `{{name}}` of `template`, once: what is put in is not
/// looked at again.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        filled += &value(name);
        filled += rest;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        let value = |name: &str| if name == "a" { "{{b}}".into() } else { format!("<{name}>") };
        assert_eq!(fill("x{{a}}y{{b}}z", value), "x{{b}}y<b>z");
    }

    #[test]
    fn every_place_of_the_template_is_filled() {
        let names = TEMPLATE.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
        let filled = fill(TEMPLATE, |_| String::new());
        assert!(names.count() > 15 && !filled.contains("{{") && !filled.contains("}}"));
    }

    #[test]
    fn scripts_do_not_end_their_element() {
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }
}
