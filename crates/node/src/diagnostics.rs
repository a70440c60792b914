//! The node's health on `/diagnostics` and in the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use r2r::builtin_interfaces::msg::Time;
use r2r::diagnostic_msgs::msg::{DiagnosticArray, DiagnosticStatus, KeyValue};
use r2r::{Publisher, QosProfile};

use super::health::{Health, Level, Status};
use super::lifecycle::State;
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
/// Longest wait for a reader of why the node ends: Fast DDS looks around again after 3 s.
const FAREWELL: Duration = Duration::from_secs(4);
/// How often, and how long one after the other, a reader is told: for longer than Fast DDS takes to look
/// around again, as a reader that is known here finds this node only then if its first answer was lost.
const N_LAST_WORDS: u32 = 20;
const LAST_WORD: Duration = Duration::from_millis(200);
/// The statuses that are logged when they get worse; the others are made of what is logged already.
const LOGGED: [&str; 9] = [
    "images",
    "robot description",
    "rig",
    "plan",
    "transport",
    "shared memory",
    "latency",
    "load",
    "outcome",
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
    /// What this took, and since when.
    spent: (Instant, Duration),
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
            spent: (Instant::now(), Duration::ZERO),
        })
    }

    /// Does what is due. To be called often; returns at once if nothing is.
    ///
    /// `now`: ROS time.
    pub fn tick(&mut self, node: &r2r::Node, topics: &mut TopicWatch, health: &Health, now: Time) {
        let start = Instant::now();
        self.diagnostics.now = Some(now);
        self.publish_log();
        if self.looked.is_none_or(|looked| start - looked >= LOOK) {
            self.looked = Some(start);
            topics.look(node, health);
            self.look_at_memory(start, health);
            self.report(start, health);
        }
        self.spent.1 += start.elapsed();
    }

    /// The same of a node that is not configured: there is nothing to look at.
    pub fn tick_unconfigured(&mut self, state: State, now: Time) {
        self.diagnostics.now = Some(now);
        self.publish_log();
        let (start, told) = (Instant::now(), self.diagnostics.published);
        if told.is_none_or(|told| start - told >= PERIOD) {
            self.publish_statuses(&[Status::unconfigured(state.label())], start);
        }
    }

    /// Publishes what was logged since the last time.
    pub fn publish_log(&self) {
        self.rosout.iter().for_each(Rosout::publish);
    }

    /// The same at the end: stays a moment where somebody reads it, as what is published last is sent again where
    /// it was lost, for as long as the node is there.
    pub fn publish_last_log(&self) {
        self.publish_log();
        if self.rosout.as_ref().is_some_and(Rosout::has_subscriber) {
            std::thread::sleep(super::node::FAREWELL);
        }
    }

    /// Logs why the node ends, and waits a moment for somebody to be there to read it.
    pub fn farewell(&self, why: &anyhow::Error, stop: &AtomicBool) {
        tracing::error!("{why:#}");
        let start = Instant::now();
        let heard = || {
            self.diagnostics.has_subscriber()
                || self.rosout.as_ref().is_some_and(Rosout::has_subscriber)
        };
        while !heard() {
            if start.elapsed() > FAREWELL || stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.publish_log();
        // A reader that is known here may not know this node yet, and nobody tells when it does.
        for _ in 0..N_LAST_WORDS {
            // An error is logged by r2r.
            let _ = self.diagnostics.publisher.publish(&self.diagnostics.last_word(why));
            std::thread::sleep(LAST_WORD);
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
        let changed = self.log_changes(&statuses);
        let due = self.diagnostics.published.is_none_or(|published| now - published >= PERIOD);
        if !changed && !due {
            return;
        }
        self.publish_statuses(&statuses, now);
        let (since, spent) = &mut self.spent;
        let elapsed = now.saturating_duration_since(*since);
        if elapsed >= PERIOD {
            let ms_per_sec = spent.as_secs_f64() * 1e3 / elapsed.as_secs_f64();
            (*since, *spent) = (now, Duration::ZERO);
            health.note(|facts, _| facts.monitor_ms_per_sec = ms_per_sec);
        }
    }

    fn publish_statuses(&mut self, statuses: &[Status], now: Instant) {
        if let Err(error) = self.diagnostics.publish(statuses, now) {
            self.problems.warn("diagnostics", format!("/diagnostics: {error}"));
        }
    }

    /// Logs the statuses that got worse, and at level debug all changes; whether there were any.
    fn log_changes(&mut self, statuses: &[Status]) -> bool {
        let known = self.diagnostics.levels.iter().copied().chain(std::iter::repeat(Level::Ok));
        let changes = statuses.iter().zip(known).filter(|(status, before)| status.level != *before);
        let mut any = false;
        for (Status { name, level, message, .. }, before) in changes {
            any = true;
            tracing::debug!("status '{name}' from {before:?} to {level:?}: {message}");
            let worse = matches!(level, Level::Warn | Level::Error) && *level > before;
            if worse && LOGGED.contains(name) {
                self.problems.warn(name, format!("{name}: {message}"));
            }
        }
        any
    }
}

/// The publisher of `/diagnostics`.
pub struct Diagnostics {
    publisher: Publisher<DiagnosticArray>,
    /// Full name of the node without the first slash, with which names of statuses begin.
    node_name: String,
    /// Its full name.
    hardware_id: String,
    levels: Vec<Level>,
    published: Option<Instant>,
    /// ROS time, as it was told last; before that, the system's counts.
    now: Option<Time>,
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
            // With the namespace: nodes of several robots have the same name.
            node_name: node.fully_qualified_name()?.trim_start_matches('/').to_owned(),
            hardware_id: node.fully_qualified_name()?,
            levels: Vec::new(),
            published: None,
            now: None,
        })
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
        let now = || system_time(std::time::SystemTime::now());
        message.header.stamp = self.now.clone().unwrap_or_else(now);
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
