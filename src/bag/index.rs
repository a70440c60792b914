//! Where each message of a recording is, and the topics.

use super::TopicInfo;
use super::record::Record;
use crate::error::{Error, Result};
use crate::message::Stamp;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Messages beyond which a recording is refused (the index takes 24 bytes each).
const MAX_MESSAGES: usize = 50_000_000;
/// Warnings that are kept; more of them are counted only.
const MAX_WARNINGS: usize = 50;

/// A record of a file that is read in one go: a chunk or a message outside of chunks.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) n_bytes: u64,
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
    /// Of the present file: names of the types by schema, topics by channel.
    schemas: HashMap<u16, String>,
    channels: HashMap<u16, u32>,
    /// Of the present block: messages seen, and where its entries start.
    ordinal: u32,
    block_start: usize,
    n_unknown_channel: u64,
}

impl Index {
    pub(super) fn start_file(&mut self, path: &Path) {
        self.files.push(path.to_owned());
        self.schemas.clear();
        self.channels.clear();
    }

    /// Number of the present file.
    pub(super) fn file(&self) -> u32 {
        self.files.len().saturating_sub(1) as u32
    }

    pub(super) fn start_block(&mut self, block: Block) {
        self.blocks.push(block);
        self.ordinal = 0;
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

    pub(super) fn add(&mut self, record: Record) {
        match record {
            Record::Schema { id, name } => {
                self.schemas.entry(id).or_insert_with(|| name.to_owned());
            }
            Record::Channel { id, schema_id, topic, encoding } => {
                if !self.channels.contains_key(&id) {
                    let topic = self.topic(topic, schema_id, encoding);
                    self.channels.insert(id, topic);
                }
            }
            Record::Message { channel_id, log_time, .. } => self.add_message(channel_id, log_time),
            Record::Header { .. } | Record::Other => {}
        }
    }

    fn add_message(&mut self, channel_id: u16, log_time: u64) {
        let ordinal = self.ordinal;
        self.ordinal += 1; // a block is too small to overflow it
        match self.channels.get(&channel_id) {
            None => self.n_unknown_channel += 1,
            // One beyond the limit, for `check_size` to see.
            Some(_) if self.entries.len() > MAX_MESSAGES => {}
            Some(&topic) => self.entries.push(Entry {
                log_time_ns: i64::try_from(log_time).unwrap_or(i64::MAX),
                topic,
                block: self.blocks.len().saturating_sub(1) as u32,
                ordinal,
            }),
        }
    }

    fn topic(&mut self, name: &str, schema_id: u16, encoding: &str) -> u32 {
        let message_type = self.schemas.get(&schema_id).cloned().unwrap_or_default();
        if let Some(i) = self.topics.iter().position(|topic| &*topic.name == name) {
            if self.topics[i].message_type != message_type {
                let first = self.topics[i].message_type.clone();
                self.warn(format!("topic {name} is both a {first} and a {message_type}"));
            }
            return i as u32;
        }
        if encoding != "cdr" {
            self.warn(format!("topic {name} is encoded as '{encoding}', only 'cdr' is decoded"));
        }
        self.topics.push(TopicInfo {
            name: Arc::from(name),
            message_type,
            n_messages: 0,
            first: Stamp::default(),
            last: Stamp::default(),
        });
        (self.topics.len() - 1) as u32
    }

    pub(super) fn check_size(&self, path: &Path) -> Result<()> {
        if self.entries.len() <= MAX_MESSAGES {
            return Ok(());
        }
        let problem = format!("holds more than {MAX_MESSAGES} messages: split it");
        Err(Error::Bag { path: path.to_owned(), problem })
    }

    /// Brings the messages in the order of their log times and counts them by topic.
    pub(super) fn finish(&mut self) {
        self.entries.sort_by_key(|entry| entry.log_time_ns);
        for entry in &self.entries {
            let topic = &mut self.topics[entry.topic as usize];
            let stamp = Stamp::from_nanos(entry.log_time_ns);
            if topic.n_messages == 0 {
                topic.first = stamp;
            }
            topic.last = stamp;
            topic.n_messages += 1;
        }
        self.sort_topics();
        if self.n_unknown_channel > 0 {
            self.warn(format!("left out {} messages of unknown channels", self.n_unknown_channel));
        }
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
    }
}
