//! `forecloud info`: what recordings hold.

use anyhow::Context;
use forecloud::bag::{Bag, TopicInfo};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Show the topics, message counts and rates of recordings.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  forecloud info data/push\n  forecloud info --json a.mcap b.db3"
)]
pub struct Args {
    /// rosbag2 folders, or files of them: .mcap, .db3, .zstd
    #[arg(required = true, value_name = "BAG")]
    bags: Vec<PathBuf>,
    /// Print one JSON array, an object for each recording
    #[arg(long)]
    json: bool,
}

/// Prints the recordings to stdout and their warnings to stderr.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut shown = Vec::new();
    let mut stdout = std::io::stdout().lock();
    for path in &args.bags {
        let bag = Bag::open(path)
            .with_context(|| format!("cannot read the recording {}", path.display()))?;
        for warning in bag.warnings() {
            eprintln!("warning: {warning}");
        }
        match args.json {
            true => shown.push(to_json(&bag)),
            false => write!(stdout, "{}", to_table(&bag))?,
        }
    }
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&shown)?)?;
    }
    Ok(())
}

fn to_json(bag: &Bag) -> Value {
    let topic = |topic: &TopicInfo| {
        json!({
            "name": &*topic.name,
            "type": topic.message_type,
            "n_messages": topic.n_messages,
            "rate_hz": topic.rate_hz(),
        })
    };
    json!({
        "path": bag.path().display().to_string(),
        "start_ns": bag.start().map(|start| start.nanos()),
        "duration_secs": bag.duration_secs(),
        "n_messages": bag.n_messages(),
        "n_files": bag.n_files(),
        "storage": bag.storage().collect::<Vec<_>>(),
        "compression": bag.compression().collect::<Vec<_>>(),
        "topics": bag.topics().iter().map(topic).collect::<Vec<_>>(),
        "warnings": bag.warnings(),
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

fn to_table(bag: &Bag) -> String {
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
    for [topic, message_type, n_messages, hz] in &rows {
        text +=
            &format!("  {topic:name$}  {message_type:kind$}  {n_messages:>count$}  {hz:>rate$}\n");
    }
    text
}
