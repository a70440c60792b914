//! `forecloud info`: what recordings and model files hold.

use anyhow::{Context, Result, ensure};
use forecloud::Error;
use forecloud::engine::model::Model;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::bag::{Bag, TopicInfo};
use forecloud_bag::recording::Recording;
use forecloud_eval::rig_check::{CheckReport, check_first};
use forecloud_video::VideoModel;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::replay_args::corner;
use super::say::{name_first, print, say};
use super::topics::proposed;

/// What the rig is checked by: the first so many seconds.
const CHECKED_SECS: f64 = 10.0;

/// Show what recordings contain (topics, message counts, rates) or what a model file is (hash, sizes,
/// settings).
#[derive(clap::Args)]
#[command(after_help = "\
Lists every file, and why a file can't be read.

Exit codes:
  0  all files were read
  1  a file can't be read
  2  wrong arguments

Examples:
  forecloud info data/demo_tumble
  forecloud info models/small.safetensors
  forecloud info --json a.mcap b.db3")]
pub struct Args {
    /// rosbag2 folders or their files (.mcap, .db3, .zstd), or model files (.safetensors)
    #[arg(required = true, value_name = "BAG|MODEL")]
    paths: Vec<PathBuf>,
    /// Print one JSON array with an object for each file; a file that can't be read has an `error`
    #[arg(long)]
    json: bool,
}

/// Prints what the files hold to stdout, their warnings and errors to stderr.
///
/// # Errors
/// If a file could not be read: after all others have been told.
pub fn run(args: &Args) -> Result<()> {
    let mut shown = Vec::new();
    let mut failed = Vec::new();
    for path in &args.paths {
        match look(path) {
            Ok((value, _)) if args.json => shown.push(value),
            Ok((_, table)) => print(&table)?,
            Err(error) => {
                let problem = format!("{error:#}");
                // Where there is but one, it is the command's own error.
                if args.paths.len() > 1 {
                    say(format_args!("error: {problem}"));
                }
                shown.push(json!({ "path": path.display().to_string(), "error": problem }));
                failed.push(error);
            }
        }
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&shown)? + "\n"))?;
    }
    let (n, all) = (failed.len(), args.paths.len());
    match failed.pop() {
        Some(error) if all == 1 => Err(error),
        _ => {
            ensure!(n == 0, "{n} of {all} files cannot be read: see above");
            Ok(())
        }
    }
}

/// What `path` holds, as JSON and as a table.
fn look(path: &Path) -> Result<(Value, String)> {
    if is_model(path) {
        let n_bytes = std::fs::metadata(path).map_or(0, |found| found.len());
        let file = match Model::load(path) {
            Ok(model) => ModelFile {
                kind: "model",
                n_weights: model.weights.len(),
                settings: serde_json::to_string(&model.config)?,
                hash: model.hash,
                n_bytes,
            },
            Err(error) => match VideoModel::load(path) {
                Ok(video) => ModelFile {
                    kind: "renderer",
                    n_weights: video.weights.len(),
                    settings: serde_json::to_string(&video.layout.config)?,
                    hash: video.hash(),
                    n_bytes,
                },
                Err(_) => return Err(error).context("cannot read the model"),
            },
        };
        return Ok((file.json(path), file.table(path)));
    }
    let bag =
        Bag::open(path).with_context(|| format!("cannot read the recording {}", path.display()))?;
    for warning in bag.warnings() {
        say(format_args!("warning: {}", name_first(path, warning)));
    }
    let frames = Frames::of(path);
    Ok((to_json(&bag, &frames), to_table(&bag, &frames)))
}

/// What the frames of a recording show.
#[derive(Default)]
struct Frames {
    /// The box that `replay` and the node predict in, unless one is named; none if no frame tells.
    workspace: Option<Workspace>,
    /// What `check` finds in the first seconds.
    rig: Option<CheckReport>,
    /// Arguments by which its topics, which have other names, may be read.
    arguments: Option<String>,
}

impl Frames {
    fn of(path: &Path) -> Self {
        match Recording::open(path, FramesConfig::default()) {
            Ok(recording) => {
                let place = recording.place(&Workspace::default()).ok().flatten();
                let rig = check_first(&recording, &MeshSearch::default(), CHECKED_SECS).ok();
                Self { workspace: place.map(|place| place.workspace), rig, arguments: None }
            }
            Err(Error::MissingTopics { arguments, .. }) => Self { arguments, ..Self::default() },
            Err(_) => Self::default(),
        }
    }
}

/// Whether a file is a model's, by its name or its first bytes: the length of a JSON object, then
/// that object.
fn is_model(path: &Path) -> bool {
    let has_name = path.extension().is_some_and(|extension| extension == "safetensors");
    let begins = || {
        let mut file = std::fs::File::open(path).ok()?;
        let n_bytes = file.metadata().ok().filter(|found| found.is_file())?.len();
        let mut head = [0; 9];
        file.read_exact(&mut head).ok()?;
        let (length, [first]) = head.split_first_chunk::<8>()? else { return None };
        Some(*first == b'{' && u64::from_le_bytes(*length) <= n_bytes - 8)
    };
    has_name || begins().unwrap_or(false)
}

/// What a file of weights holds: a model, or the renderer of pictures.
struct ModelFile {
    kind: &'static str,
    hash: String,
    n_weights: usize,
    n_bytes: u64,
    /// As in the file: JSON.
    settings: String,
}

impl ModelFile {
    /// The configuration, its numbers as short as in the file.
    fn settings(&self) -> Value {
        serde_json::from_str(&self.settings).unwrap_or_default()
    }

    fn json(&self, path: &Path) -> Value {
        json!({
            "kind": self.kind,
            "path": path.display().to_string(),
            "hash": self.hash,
            "n_weights": self.n_weights,
            "n_bytes": self.n_bytes,
            "config": self.settings(),
            "error": null,
        })
    }

    fn table(&self, path: &Path) -> String {
        let Self { kind, hash, n_weights, n_bytes, .. } = self;
        let mut text =
            format!("{}\n  {kind} {hash}, {n_weights} weights, {n_bytes} bytes\n", path.display());
        let settings = self.settings();
        let settings: Vec<(&String, &Value)> = settings.as_object().into_iter().flatten().collect();
        let width = settings.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in settings {
            text += &format!("  {key:width$}  {value}\n");
        }
        text
    }
}

fn to_json(bag: &Bag, frames: &Frames) -> Value {
    let topic = |topic: &TopicInfo| {
        json!({
            "name": &*topic.name,
            "type": topic.message_type,
            "n_messages": topic.n_messages,
            "rate_hz": topic.rate_hz(),
        })
    };
    json!({
        "kind": "recording",
        "path": bag.path().display().to_string(),
        "start_ns": bag.start().map(|start| start.nanos()),
        "duration_secs": bag.duration_secs(),
        "n_messages": bag.n_messages(),
        "n_files": bag.n_files(),
        "storage": bag.storage().collect::<Vec<_>>(),
        "compression": bag.compression().collect::<Vec<_>>(),
        "topics": bag.topics().iter().map(topic).collect::<Vec<_>>(),
        "workspace": frames.workspace,
        "rig": frames.rig,
        "arguments": frames.arguments,
        "warnings": bag.warnings(),
        "error": null,
    })
}

/// `sqlite3 in 2 files, zstd by message`
fn storage(bag: &Bag) -> String {
    let storage = bag.storage().collect::<Vec<_>>().join(" and ");
    let compression = bag.compression().collect::<Vec<_>>().join(", ");
    let files = match bag.n_files() {
        1 => "1 file".into(),
        n => format!("{n} files"),
    };
    let compression = if compression.is_empty() { "not compressed" } else { &compression };
    format!("{storage} in {files}, {compression}")
}

fn to_table(bag: &Bag, frames: &Frames) -> String {
    let start = bag.start().map_or("none".into(), |start| start.to_string());
    let mut rows = vec![["topic", "type", "messages", "Hz"].map(String::from)];
    rows.extend(bag.topics().iter().map(|topic| {
        [
            topic.name.to_string(),
            topic.message_type.clone(),
            topic.n_messages.to_string(),
            format!("{:.1}", topic.rate_hz()),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [name, kind, count, rate] = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let mut text = format!(
        "{}\n  {:.3} s from {start} s, {} messages\n  {}\n",
        bag.path().display(),
        bag.duration_secs(),
        bag.n_messages(),
        storage(bag),
    );
    if let Some(Workspace { min, max }) = frames.workspace {
        let (min, max) = (corner(min), corner(max));
        text +=
            &format!("  workspace {min} to {max} (m), as the cameras see; --workspace sets it\n");
    }
    if let Some(rig) = &frames.rig {
        let line = rig.line();
        text += &format!("  rig: {line} (first {CHECKED_SECS} s; `forecloud check` tells more)\n");
    }
    if let Some(arguments) = &frames.arguments {
        let path = bag.path().display().to_string();
        let command = proposed(&["check", &path], arguments).replace('\n', "\n  ");
        text += &format!("  its topics have other names than usual. {command}\n");
    }
    for [topic, message_type, n_messages, hz] in &rows {
        text +=
            &format!("  {topic:name$}  {message_type:kind$}  {n_messages:>count$}  {hz:>rate$}\n");
    }
    text
}
