//! The statuses: what the facts mean, with cause and remedy.
//!
//! ERROR: no predictions come because of this. WARN: some are lost or worse than they could be.
//! STALE: there is nothing to judge by; another status says why.

mod inputs;
mod outputs;
mod rig;

pub(super) use inputs::is_losing;

use std::time::Duration;

use super::{Cause, Facts, Publisher, Topic};

/// As in `diagnostic_msgs/msg/DiagnosticStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok = 0,
    /// Works, but not as well as it could.
    Warn = 1,
    /// Does not work.
    Error = 2,
    /// Nothing to judge by.
    Stale = 3,
}

/// The state of one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Which thing, without the node's name.
    pub name: &'static str,
    /// How it is.
    pub level: Level,
    /// The causes with their remedies; without any, a summary.
    pub message: String,
    /// Figures.
    pub values: Vec<(String, String)>,
}

impl Status {
    /// One that only says what went wrong.
    pub fn error(name: &'static str, message: String) -> Self {
        Self { name, level: Level::Error, message, values: Vec::new() }
    }

    /// The only one of a node that is not configured.
    pub fn unconfigured(state: &str) -> Self {
        let message = match state {
            "unconfigured" => {
                "the node is unconfigured: call ~/change_state with `configure`".into()
            }
            _ => format!("the node is {state}: restart it to have predictions"),
        };
        Self { message, ..Self::new("lifecycle") }
    }

    fn new(name: &'static str) -> Self {
        Self { name, level: Level::Ok, message: String::new(), values: Vec::new() }
    }

    /// Adds a finding; the worst one sets the level.
    fn add(&mut self, level: Level, text: impl AsRef<str>) {
        self.level = self.level.max(level);
        let separator = if self.message.is_empty() { "" } else { "; " };
        self.message.extend([separator, text.as_ref()]);
    }

    fn value(&mut self, key: impl Into<String>, value: impl ToString) {
        self.values.push((key.into(), value.to_string()));
    }

    /// The message where nothing was found.
    fn or_summary(mut self, summary: impl FnOnce() -> String) -> Self {
        if self.message.is_empty() {
            self.message = summary();
        }
        self
    }
}

/// Time that others may take to start before what they lack is a finding.
const GRACE: Duration = Duration::from_secs(3);
/// Time without a frame or a prediction after which one that was dropped is an error.
const HINDERED: Duration = Duration::from_secs(1);

impl Facts {
    /// All statuses.
    pub(super) fn report(&self, now: Duration) -> Vec<Status> {
        vec![
            self.images(now),
            self.cameras(now),
            self.transforms(now),
            self.joints(now),
            self.robot_description(now),
            self.rig(),
            self.plan(now),
            self.time(now),
            self.messages(now),
            self.publishers_status(),
            self.transport(now),
            self.shared_memory(),
            self.workspace(now),
            self.predictions(now),
            self.latency(now),
            self.load(now),
            self.outcome(now),
            self.model(),
        ]
    }

    /// Adds what came up of `cause` in the last seconds, at the level of `since`: when there last
    /// was a success in spite of it.
    fn add_trouble(
        &self,
        status: &mut Status,
        now: Duration,
        cause: Cause,
        since: Option<Duration>,
    ) {
        let trouble = &self.troubles[cause as usize];
        let n = trouble.recent.sum(now);
        if n > 0 {
            let level = hindered(now, since);
            status.add(level, format!("{} ({n} in the last 5 s)", trouble.said.text()));
        }
    }
}

/// An error if there was no success for a while, else a warning.
fn hindered(now: Duration, last_success: Option<Duration>) -> Level {
    match now.saturating_sub(last_success.unwrap_or_default()) > HINDERED {
        true => Level::Error,
        false => Level::Warn,
    }
}

/// The topics, and in parentheses since when they are silent and who publishes them.
fn silence(topics: &[&Topic], now: Duration) -> String {
    let since = |topic: &Topic| match topic.last {
        None => "never".to_owned(),
        Some(last) => format!("for {} s", now.saturating_sub(last).as_secs()),
    };
    let publishers_of = |topic: &Topic| match topic.publishers.as_deref() {
        None => String::new(),
        Some([]) => "; published by nobody".to_owned(),
        Some(publishers) => format!("; published by {}", names(publishers)),
    };
    let mut texts: Vec<String> = Vec::new();
    let mut topics =
        topics.iter().map(|topic| (topic, since(topic) + &publishers_of(topic))).peekable();
    while let Some((topic, state)) = topics.next() {
        // Of several in a row that are alike, the last one says it.
        let alike = topics.peek().is_some_and(|(_, next)| *next == state);
        texts.push(if alike { topic.name.clone() } else { format!("{} ({state})", topic.name) });
    }
    texts.join(", ")
}

/// The nodes, each once.
fn names(publishers: &[Publisher]) -> String {
    let mut names: Vec<&str> = publishers.iter().map(|publisher| publisher.node.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// What can be done about silent topics.
fn remedy_of_silence(topics: &[&Topic]) -> String {
    let publishers = || topics.iter().map(|topic| topic.publishers.as_deref());
    let unknown = publishers().any(|publishers| publishers.is_none());
    let nobody = publishers().flatten().any(|publishers| publishers.is_empty());
    let wrong = publishers().flatten().flatten().any(|publisher| publisher.mismatch.is_some());
    let unheard = publishers()
        .flatten()
        .any(|list| !list.is_empty() && list.iter().all(|publisher| publisher.mismatch.is_none()));
    let remedies = [
        (nobody || unknown, "start what publishes them, or remap the topics"),
        (wrong, "correct type or QoS as the status 'topics' says"),
        (
            unheard,
            "if `ros2 topic hz` sees their messages, start their publisher with the DDS profile \
             config/fastdds_large_clouds.xml",
        ),
    ];
    let remedies: Vec<&str> =
        remedies.into_iter().filter(|(fits, _)| *fits).map(|(_, text)| text).collect();
    format!("Remedy: {}", remedies.join("; "))
}
