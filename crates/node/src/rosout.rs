//! The log on `/rosout`, which r2r leaves out: a layer that keeps records, and their publisher.
//!
//! Whoever logs only appends to a queue of bounded length; the spinning thread publishes. So a slow
//! middleware holds up nobody, and what is logged while publishing can't lead to more of itself.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use r2r::rcl_interfaces::msg::Log;
use r2r::{Publisher, QosProfile};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::arguments::Arguments;
use super::system_time;

/// Records that wait to be published at most.
const MAX_RECORDS: usize = 1000;
/// Records that are published at a time at most: the spinning thread has messages to take.
const MAX_PUBLISHED: usize = 100;

thread_local! {
    /// Whether this thread publishes records: what it logs meanwhile is not for `/rosout`.
    static PUBLISHING: Cell<bool> = const { Cell::new(false) };
}

/// Records that wait to be published.
#[derive(Clone, Default)]
pub struct Records(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    /// Records that found no room.
    n_lost: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Record {
    time: SystemTime,
    level: u8,
    message: String,
    file: String,
    function: String,
    line: u32,
}

/// Starts the log: to stderr, where `ros2 launch` shows and records it, and into what is returned.
///
/// `--log-level` of the ROS arguments chooses what; without one, RUST_LOG; without that, `info`.
pub fn start_log(arguments: &Arguments, node_name: &str) -> Records {
    let records = Records::default();
    let stderr = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(filter(arguments, node_name))
        .with(stderr)
        .with(records.clone())
        .init();
    records
}

fn filter(arguments: &Arguments, node_name: &str) -> EnvFilter {
    let (own, others) = arguments.levels(node_name);
    let filter = match own {
        Some(level) => EnvFilter::new(directive(level)),
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    others.into_iter().fold(filter, |filter, (name, level)| {
        match format!("{name}={}", directive(level)).parse() {
            Ok(directive) => filter.add_directive(directive),
            Err(_) => filter,
        }
    })
}

/// The level of the log that a ROS level means; this node says nothing that is `fatal`.
fn directive(level: &str) -> &str {
    match level {
        "fatal" => "off",
        "unset" => "info",
        level => level,
    }
}

impl<S: Subscriber> Layer<S> for Records {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if PUBLISHING.get() {
            return;
        }
        let metadata = event.metadata();
        let mut record = Record {
            time: SystemTime::now(),
            level: rosout_level(*metadata.level()),
            message: String::new(),
            file: metadata.file().unwrap_or_default().to_owned(),
            // The language doesn't tell the function; its module is as near as it gets.
            function: metadata.module_path().unwrap_or_default().to_owned(),
            line: metadata.line().unwrap_or_default(),
        };
        event.record(&mut record);
        self.push(record);
    }
}

impl Records {
    fn push(&self, record: Record) {
        let mut queue = self.lock();
        if queue.records.len() == MAX_RECORDS {
            queue.n_lost += 1;
        } else {
            queue.records.push_back(record);
        }
    }

    /// The oldest records, and how many found no room.
    fn take(&self) -> (Vec<Record>, u64) {
        let mut queue = self.lock();
        let n = queue.records.len().min(MAX_PUBLISHED);
        (queue.records.drain(..n).collect(), std::mem::take(&mut queue.n_lost))
    }

    /// Held to move a record in or out, never while one is published.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rosout_level(level: Level) -> u8 {
    match level {
        Level::TRACE | Level::DEBUG => 10,
        Level::INFO => 20,
        Level::WARN => 30,
        Level::ERROR => 40,
    }
}

/// The message, then other fields by name. Records of the crate `log` (r2r's) have their place in
/// fields too.
impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string can't fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name if name.starts_with("log.") => Ok(()),
            name => {
                let space = if self.message.is_empty() { "" } else { " " };
                write!(self.message, "{space}{name}={value:?}")
            }
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "log.file" => value.clone_into(&mut self.file),
            "log.module_path" => value.clone_into(&mut self.function),
            _ => self.record_debug(field, &format_args!("{value}")),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "log.line" => self.line = u32::try_from(value).unwrap_or_default(),
            _ => self.record_debug(field, &value),
        }
    }
}

/// Publishes the records.
pub struct Rosout {
    publisher: Publisher<Log>,
    logger: String,
    records: Records,
}

impl Rosout {
    /// The publisher of `/rosout`, with the QoS that rcl gives it.
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node, records: Records) -> anyhow::Result<Self> {
        let mut qos = QosProfile::default().keep_last(1000).reliable().transient_local();
        qos.lifespan = Duration::from_secs(10);
        let publisher = node
            .create_publisher("/rosout", qos)
            .map_err(|error| anyhow::anyhow!("publisher of /rosout: {error}"))?;
        Ok(Self { publisher, logger: node.logger().to_owned(), records })
    }

    /// Publishes what was logged since, or the oldest of it.
    pub fn publish(&self) {
        let (mut records, n_lost) = self.records.take();
        if n_lost > 0 {
            records.push(Record {
                time: SystemTime::now(),
                level: rosout_level(Level::WARN),
                message: format!("/rosout lost {n_lost} log messages: see stderr"),
                file: file!().to_owned(),
                function: module_path!().to_owned(),
                line: line!(),
            });
        }
        PUBLISHING.set(true);
        for record in records {
            // A failure is logged by r2r, to stderr.
            let _ = self.publisher.publish(&message(record, &self.logger));
        }
        PUBLISHING.set(false);
    }

    /// Whether somebody listens.
    pub fn has_subscriber(&self) -> bool {
        self.publisher.get_inter_process_subscription_count().is_ok_and(|n| n > 0)
    }
}

fn message(record: Record, logger: &str) -> Log {
    Log {
        stamp: system_time(record.time),
        level: record.level,
        name: logger.to_owned(),
        msg: record.message,
        file: record.file,
        function: record.function,
        line: record.line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(log: impl FnOnce()) -> (Vec<Record>, u64) {
        let records = Records::default();
        let subscriber = tracing_subscriber::registry().with(records.clone());
        tracing::subscriber::with_default(subscriber, log);
        records.take()
    }

    #[test]
    fn a_record_has_message_level_and_place() {
        let line = line!() + 1;
        let (records, _) = logged(|| tracing::warn!(topic = "/a", n = 3, "no {}", "images"));
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!((record.message.as_str(), record.level), ("no images topic=/a n=3", 30));
        assert_eq!((record.file.as_str(), record.line), (file!(), line));
        assert_eq!(record.function, module_path!());
        let message = message(record.clone(), "robot_1.seer");
        assert_eq!((message.name.as_str(), message.level), ("robot_1.seer", Log::WARN as u8));
        assert!(message.stamp.sec > 1_600_000_000);
    }

    #[test]
    fn levels_are_those_of_rosout() {
        let (records, _) = logged(|| {
            tracing::trace!("t");
            tracing::debug!("d");
            tracing::info!("i");
            tracing::error!("e");
        });
        let levels: Vec<u8> = records.iter().map(|record| record.level).collect();
        let (debug, info, error) = (Log::DEBUG as u8, Log::INFO as u8, Log::ERROR as u8);
        assert_eq!(levels, [debug, debug, info, error]);
    }

    #[test]
    fn the_queue_is_bounded_and_counts_what_it_leaves_out() {
        let records = Records::default();
        let subscriber = tracing_subscriber::registry().with(records.clone());
        tracing::subscriber::with_default(subscriber, || {
            (0..MAX_RECORDS + 7).for_each(|i| tracing::info!("{i}"));
        });
        let (first, n_lost) = records.take();
        assert_eq!((first.len(), n_lost), (MAX_PUBLISHED, 7));
        assert_eq!((first[0].message.as_str(), records.take().1), ("0", 0));
    }

    #[test]
    fn what_is_logged_while_publishing_is_left_out() {
        let (records, n_lost) = logged(|| {
            PUBLISHING.set(true);
            tracing::error!("could not publish");
            PUBLISHING.set(false);
        });
        assert_eq!((records.len(), n_lost), (0, 0));
    }
}
