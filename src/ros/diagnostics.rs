//! The node's health on `/diagnostics` and in the log.

use std::time::{Duration, Instant};

use r2r::diagnostic_msgs::msg::{DiagnosticArray, DiagnosticStatus, KeyValue};
use r2r::{Publisher, QosProfile};

use super::health::{Health, Level, Status};
use super::problems::Problems;
use super::qos::TopicWatch;
use super::rosout::{Records, Rosout};
use super::shm::Memory;
use super::system_time;

/// Time between two messages on `/diagnostics`, while no level changes.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two looks at whether one did.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks at shared memory.
const MEMORY_LOOK: Duration = Duration::from_secs(5);
/// Longest wait for a reader of why the node ends, and time for the message to leave.
const FAREWELL: Duration = Duration::from_secs(1);
const LEAVE: Duration = Duration::from_millis(200);
/// The statuses that are logged when they get worse; the others are made of what is logged already.
const LOGGED: [&str; 8] = [
    "images",
    "robot description",
    "plan",
    "topics",
    "transport",
    "shared memory",
    "latency",
    "load",
];

/// What the spinning thread does besides taking messages: looks at the publishers and at shared
/// memory, and publishes `/diagnostics` and `/rosout`.
pub struct Monitor {
    diagnostics: Diagnostics,
    rosout: Option<Rosout>,
    memory: Memory,
    problems: Problems,
    looked: Option<Instant>,
    memory_looked: Option<Instant>,
    /// What this took since the last message.
    spent: Duration,
}

impl Monitor {
    /// Of `node`, and of what is logged into `records` (none: not on `/rosout`).
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node, records: Option<Records>) -> anyhow::Result<Self> {
        Ok(Self {
            diagnostics: Diagnostics::new(node)?,
            rosout: records.map(|records| Rosout::new(node, records)).transpose()?,
            memory: Memory::of_process(),
            problems: Problems::default(),
            looked: None,
            memory_looked: None,
            spent: Duration::ZERO,
        })
    }

    /// Does what is due. To be called often; returns at once if nothing is.
    pub fn tick(&mut self, node: &r2r::Node, topics: &mut TopicWatch, health: &Health) {
        let start = Instant::now();
        self.publish_log();
        if self.looked.is_none_or(|looked| start - looked >= LOOK) {
            self.looked = Some(start);
            topics.look(node, health);
            self.look_at_memory(start, health);
            self.report(start, health);
        }
        self.spent += start.elapsed();
    }

    /// Publishes what was logged since the last time.
    pub fn publish_log(&self) {
        self.rosout.iter().for_each(Rosout::publish);
    }

    /// Tells why the node ends (its caller logs it), and waits a moment for somebody to be there to read it.
    pub fn farewell(&self, why: &anyhow::Error) {
        let start = Instant::now();
        let heard = || {
            self.diagnostics.has_subscriber()
                || self.rosout.as_ref().is_some_and(Rosout::has_subscriber)
        };
        while !heard() && start.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.publish_log();
        self.rosout.iter().for_each(|rosout| rosout.last_word(&format!("{why:#}")));
        if heard() && self.diagnostics.publisher.publish(&self.diagnostics.last_word(why)).is_ok() {
            std::thread::sleep(LEAVE);
        }
    }

    fn look_at_memory(&mut self, now: Instant, health: &Health) {
        if self.memory_looked.is_some_and(|looked| now - looked < MEMORY_LOOK) {
            return;
        }
        self.memory_looked = Some(now);
        let (n_publishers, largest_image, losing) = health.note(|facts, now| facts.images_at(now));
        let (problems, values) = self.memory.look(n_publishers, largest_image, losing).check();
        health.note(|facts, _| facts.memory(problems, values));
    }

    fn report(&mut self, now: Instant, health: &Health) {
        let statuses = health.report();
        let worse = self.diagnostics.worse(&statuses);
        for status in worse.filter(|status| LOGGED.contains(&status.name)) {
            self.problems.warn(status.name, format!("{}: {}", status.name, status.message));
        }
        let since = self.diagnostics.published.map(|published| now - published);
        if since.is_none_or(|since| since >= PERIOD) || self.diagnostics.changed(&statuses) {
            if let Some(since) = since.filter(|since| *since >= PERIOD) {
                let ms_per_sec = self.spent.as_secs_f64() * 1e3 / since.as_secs_f64();
                self.spent = Duration::ZERO;
                health.note(|facts, _| facts.monitor_ms_per_sec = ms_per_sec);
            }
            if let Err(error) = self.diagnostics.publish(&statuses, now) {
                self.problems.warn("diagnostics", format!("/diagnostics: {error}"));
            }
        }
    }
}

/// The publisher of `/diagnostics`.
pub struct Diagnostics {
    publisher: Publisher<DiagnosticArray>,
    /// Name of the node, with which names of statuses begin.
    node_name: String,
    /// Its full name.
    hardware_id: String,
    levels: Vec<Level>,
    published: Option<Instant>,
}

impl Diagnostics {
    /// Publishes for `node`.
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node) -> anyhow::Result<Self> {
        let publisher = node
            .create_publisher("/diagnostics", QosProfile::default())
            .map_err(|error| anyhow::anyhow!("publisher of /diagnostics: {error}"))?;
        Ok(Self {
            publisher,
            node_name: node.name()?,
            hardware_id: node.fully_qualified_name()?,
            levels: Vec::new(),
            published: None,
        })
    }

    fn changed(&self, statuses: &[Status]) -> bool {
        !self.levels.iter().copied().eq(statuses.iter().map(|status| status.level))
    }

    /// The statuses whose level is worse than when they were published last.
    fn worse<'a>(&self, statuses: &'a [Status]) -> impl Iterator<Item = &'a Status> {
        let before = self.levels.iter().copied().chain(std::iter::repeat(Level::Ok));
        let worse = |(status, before): &(&Status, Level)| {
            matches!(status.level, Level::Warn | Level::Error) && status.level > *before
        };
        let pairs: Vec<_> = statuses.iter().zip(before).filter(worse).collect();
        pairs.into_iter().map(|(status, _)| status)
    }

    fn publish(&mut self, statuses: &[Status], now: Instant) -> r2r::Result<()> {
        self.levels.clear();
        self.levels.extend(statuses.iter().map(|status| status.level));
        self.published = Some(now);
        self.publisher.publish(&self.message(statuses))
    }

    fn message(&self, statuses: &[Status]) -> DiagnosticArray {
        let status = |status: &Status| DiagnosticStatus {
            level: status.level as u8,
            name: format!("{}: {}", self.node_name, status.name),
            message: status.message.clone(),
            hardware_id: self.hardware_id.clone(),
            values: status
                .values
                .iter()
                .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() })
                .collect(),
        };
        let mut message = DiagnosticArray::default();
        message.header.stamp = system_time(std::time::SystemTime::now());
        message.status = statuses.iter().map(status).collect();
        message
    }

    fn last_word(&self, why: &anyhow::Error) -> DiagnosticArray {
        self.message(&[Status::error("start", format!("the node ends: {why:#}"))])
    }

    fn has_subscriber(&self) -> bool {
        self.publisher.get_inter_process_subscription_count().is_ok_and(|n| n > 0)
    }
}
