//! Where each message of a recording is, and the topics.

use super::topic::TopicInfo;
use forecloud::base::error::{Error, Result};
use forecloud::message::Stamp;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Messages beyond which a recording is refused (the index takes 24 bytes each).
const MAX_MESSAGES: usize = 50_000_000;
/// Warnings that are kept; more of them are counted only.
const MAX_WARNINGS: usize = 50;

/// Messages of one file that are found together.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) file: u32,
    /// Number of its last entry, once the index is finished.
    pub(super) last: u32,
    pub(super) place: Place,
}

/// Where a block is in its file.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// A record of MCAP that is read in one go: a chunk, or a message outside of chunks.
    Record { offset: u64, n_bytes: u64 },
    /// A chunk of MCAP whose head is damaged: one of this length, whatever its head says.
    Chunk { offset: u64, n_bytes: u64 },
    /// Rows of SQLite; a message's ordinal counts from the first one.
    Rows { first: i64 },
}

/// One message: the `ordinal`th of its block.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) log_time_ns: i64,
    pub(super) topic: u32,
    pub(super) block: u32,
    pub(super) ordinal: u32,
}

/// What scanning the files collects.
#[derive(Default)]
pub(super) struct Index {
    pub(super) files: Vec<PathBuf>,
    pub(super) blocks: Vec<Block>,
    pub(super) entries: Vec<Entry>,
    pub(super) topics: Vec<TopicInfo>,
    pub(super) warnings: Vec<String>,
    /// rosbag2's names of the storages of the files.
    pub(super) storages: BTreeSet<&'static str>,
    /// How files, chunks or messages are compressed.
    pub(super) compressions: BTreeSet<&'static str>,
    topic_numbers: HashMap<Arc<str>, u32>,
    /// Where the entries of the present block start.
    block_start: usize,
}

impl Index {
    pub(super) fn start_file(&mut self, path: &Path) {
        self.files.push(path.to_owned());
    }

    /// Number of the present file.
    pub(super) fn file(&self) -> u32 {
        self.files.len().saturating_sub(1) as u32
    }

    /// Starts a block of the present file.
    pub(super) fn start_block(&mut self, place: Place) {
        // Blocks without messages would take more memory than their bytes in the file.
        if self.block_start == self.entries.len() {
            self.blocks.pop();
        }
        self.blocks.push(Block { file: self.file(), last: 0, place });
        self.block_start = self.entries.len();
    }

    /// Forgets the messages of the present block.
    pub(super) fn drop_block(&mut self) {
        self.entries.truncate(self.block_start);
    }

    pub(super) fn warn(&mut self, warning: String) {
        match self.warnings.len() {
            n if n < MAX_WARNINGS => self.warnings.push(warning),
            MAX_WARNINGS => self.warnings.push("more damage follows and is not listed".into()),
            _ => {}
        }
    }

    /// Adds a message to the present block.
    pub(super) fn push(&mut self, topic: u32, log_time_ns: i64, ordinal: u32) {
        // One beyond the limit, for `check_size` to see.
        if !self.is_full() {
            let block = self.blocks.len().saturating_sub(1) as u32;
            self.entries.push(Entry { log_time_ns, topic, block, ordinal });
        }
    }

    /// Types of topics that their files don't tell.
    pub(super) fn add_types(&mut self, types: &[(String, String)]) {
        for topic in self.topics.iter_mut().filter(|topic| topic.message_type.is_empty()) {
            let told = types.iter().find(|(name, _)| **name == *topic.name);
            if let Some((_, message_type)) = told {
                topic.message_type = long_type_name(message_type);
            }
        }
    }

    /// Number of the topic, which is new or known.
    pub(super) fn topic(&mut self, name: &str, message_type: &str, encoding: &str) -> u32 {
        let message_type = long_type_name(message_type);
        if let Some(&number) = self.topic_numbers.get(name) {
            let first = &self.topics[number as usize].message_type;
            if *first != message_type {
                let warning = format!("topic {name} is both a {first} and a {message_type}");
                self.warn(warning);
            }
            return number;
        }
        if encoding != "cdr" {
            self.warn(format!("topic {name} is encoded as '{encoding}', only 'cdr' is decoded"));
        }
        let name: Arc<str> = Arc::from(name);
        let number = self.topics.len() as u32;
        self.topic_numbers.insert(name.clone(), number);
        self.topics.push(TopicInfo {
            name,
            message_type,
            n_messages: 0,
            first: Stamp::default(),
            last: Stamp::default(),
        });
        number
    }

    /// Whether there are more messages than are allowed.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() > MAX_MESSAGES
    }

    pub fn check_size(&self, path: &Path) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        let problem = format!("holds more than {MAX_MESSAGES} messages: split it");
        Err(Error::Bag { path: path.to_owned(), problem })
    }

    /// Brings the messages in the order of their log times and counts them by topic.
    pub(super) fn finish(&mut self) {
        self.entries.sort_by_key(|entry| entry.log_time_ns);
        for (at, entry) in self.entries.iter().enumerate() {
            self.blocks[entry.block as usize].last = at as u32; // below MAX_MESSAGES
            let topic = &mut self.topics[entry.topic as usize];
            let stamp = Stamp::from_nanos(entry.log_time_ns);
            if topic.n_messages == 0 {
                topic.first = stamp;
            }
            topic.last = stamp;
            topic.n_messages += 1;
        }
        self.sort_topics();
    }

    fn sort_topics(&mut self) {
        let mut order: Vec<usize> = (0..self.topics.len()).collect();
        order.sort_by(|&a, &b| self.topics[a].name.cmp(&self.topics[b].name));
        let mut rank = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            rank[old] = new as u32;
        }
        for entry in &mut self.entries {
            entry.topic = rank[entry.topic as usize];
        }
        self.topics.sort_by(|a, b| a.name.cmp(&b.name));
        self.topic_numbers.clear();
    }

    /// Most files whose messages alternate at one time.
    pub(super) fn n_files_at_once(&self) -> usize {
        let mut spans: Vec<Option<(usize, usize)>> = vec![None; self.files.len()];
        for (at, entry) in self.entries.iter().enumerate() {
            let span = &mut spans[self.blocks[entry.block as usize].file as usize];
            *span = Some((span.map_or(at, |(first, _)| first), at));
        }
        let spans = spans.into_iter().flatten();
        let mut events: Vec<(usize, i64)> =
            spans.flat_map(|(first, last)| [(first, 1), (last + 1, -1)]).collect();
        events.sort_unstable();
        let mut n_now = 0;
        let counts = events.into_iter().map(|(_, change)| {
            n_now += change;
            n_now
        });
        counts.max().unwrap_or(0).unsigned_abs() as usize
    }
}

/// `std_msgs/String`, as recordings of 2018 say it, is `std_msgs/msg/String`.
fn long_type_name(name: &str) -> String {
    match name.split_once('/') {
        Some((package, name)) if !name.contains('/') => format!("{package}/msg/{name}"),
        _ => name.to_owned(),
    }
}
