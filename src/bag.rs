//! rosbag2 recordings: their topics, and their messages in the order of their log times.
//!
//! Opening reads all files once and keeps an index of 24 bytes a message; the messages
//! themselves are read again when they are asked for, chunk by chunk, so memory stays bounded.

mod index;
mod mcap;
mod metadata;
mod record;

use crate::error::{Error, Result};
use crate::message::Stamp;
use index::{Entry, Index};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unpacked chunks that are held at a time; chunks overlap a little in time.
const N_CACHED_BLOCKS: usize = 4;

/// An opened recording.
pub struct Bag {
    path: PathBuf,
    index: Index,
}

/// A topic of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicInfo {
    /// Name of the topic.
    pub name: Arc<str>,
    /// ROS name of the message type, `std_msgs/msg/String`.
    pub message_type: String,
    /// Number of messages.
    pub n_messages: u64,
    /// Log time of the first message.
    pub first: Stamp,
    /// Log time of the last message.
    pub last: Stamp,
}

/// A serialized message of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RawMessage {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// When it was recorded: nanoseconds since the epoch.
    pub log_time_ns: i64,
    /// CDR with its encapsulation header.
    pub data: Vec<u8>,
}

impl TopicInfo {
    /// Messages a second between the first and the last one; 0 for less than two.
    pub fn rate_hz(&self) -> f64 {
        let secs = self.last.secs_since(self.first);
        if secs > 0.0 { self.n_messages.saturating_sub(1) as f64 / secs } else { 0.0 }
    }
}

impl Bag {
    /// Opens a rosbag2 folder or a single `.mcap` file.
    ///
    /// Damage is no error as long as a file can be read up to it: see [`Bag::warnings`].
    ///
    /// # Errors
    /// [`Error::Io`] if a file can't be read; [`Error::Bag`] if it is no MCAP recording of ROS 2.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let files = metadata::files(path)?;
        let mut index = Index::default();
        index.warnings = files.warnings;
        let mut failure = None;
        for file in &files.paths {
            if let Err(error) = mcap::scan(file, &mut index) {
                if files.paths.len() > 1 {
                    index.warn(format!("{error}; its file is left out"));
                }
                failure = Some(error);
            }
        }
        if let (Some(error), true) = (failure, index.entries.is_empty()) {
            return Err(error);
        }
        index.finish();
        let (promised, got) = (files.message_count, index.entries.len() as u64);
        if promised.is_some_and(|promised| promised != got) {
            let promised = promised.unwrap_or_default();
            index.warn(format!(
                "metadata.yaml counts {promised} messages, {got} were read: `ros2 bag reindex` \
                 rewrites it"
            ));
        }
        Ok(Self { path: path.to_owned(), index })
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The topics, by name.
    pub fn topics(&self) -> &[TopicInfo] {
        &self.index.topics
    }

    /// Number of messages.
    pub fn n_messages(&self) -> u64 {
        self.index.entries.len() as u64
    }

    /// What was wrong with the files and could be read around; one line each.
    pub fn warnings(&self) -> &[String] {
        &self.index.warnings
    }

    /// Log time of the first message.
    pub fn start(&self) -> Option<Stamp> {
        self.index.entries.first().map(|entry| Stamp::from_nanos(entry.log_time_ns))
    }

    /// Log time of the last message.
    pub fn end(&self) -> Option<Stamp> {
        self.index.entries.last().map(|entry| Stamp::from_nanos(entry.log_time_ns))
    }

    /// Seconds from the first to the last message.
    pub fn duration_secs(&self) -> f64 {
        self.end().zip(self.start()).map_or(0.0, |(end, start)| end.secs_since(start))
    }

    /// All messages in the order of their log times.
    pub fn messages(&self) -> Messages<'_> {
        self.messages_where(|_| true)
    }

    /// The messages of the topics that `wanted` accepts, in the order of their log times.
    ///
    /// Chunks that hold none of them are not read.
    pub fn messages_where(&self, wanted: impl Fn(&str) -> bool) -> Messages<'_> {
        let wanted = self.index.topics.iter().map(|topic| wanted(&topic.name)).collect();
        Messages { index: &self.index, next: 0, wanted, file: None, blocks: VecDeque::new() }
    }
}

/// Messages of a [`Bag`]; after an error the next message follows.
pub struct Messages<'a> {
    index: &'a Index,
    next: usize,
    /// By topic.
    wanted: Vec<bool>,
    file: Option<(u32, File)>,
    /// Numbers of blocks with the data of their messages, the newest last.
    blocks: VecDeque<(u32, Vec<Vec<u8>>)>,
}

impl Iterator for Messages<'_> {
    type Item = Result<RawMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = *self.index.entries.get(self.next)?;
            self.next += 1;
            if self.wanted[entry.topic as usize] {
                return Some(self.read(entry));
            }
        }
    }
}

impl Messages<'_> {
    fn read(&mut self, entry: Entry) -> Result<RawMessage> {
        if !self.blocks.iter().any(|(block, _)| *block == entry.block) {
            let messages = self.read_block(entry.block)?;
            if self.blocks.len() == N_CACHED_BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back((entry.block, messages));
        }
        let block = self.blocks.iter_mut().find(|(block, _)| *block == entry.block);
        let data = block.and_then(|(_, messages)| messages.get_mut(entry.ordinal as usize));
        match data.map(std::mem::take) {
            // Each message is asked for once, so it can be taken out.
            Some(data) => Ok(RawMessage {
                topic: self.index.topics[entry.topic as usize].name.clone(),
                log_time_ns: entry.log_time_ns,
                data,
            }),
            None => Err(Error::Bag {
                path: self.path(entry.block).to_owned(),
                problem: "was changed while it was read".into(),
            }),
        }
    }

    fn path(&self, block: u32) -> &Path {
        &self.index.files[self.index.blocks[block as usize].file as usize]
    }

    fn read_block(&mut self, number: u32) -> Result<Vec<Vec<u8>>> {
        let block = self.index.blocks[number as usize];
        let path = self.path(number).to_owned();
        let io = |cause| Error::Io { path, cause };
        let mut file = match self.file.take() {
            Some((open, file)) if open == block.file => file,
            _ => match File::open(self.path(number)) {
                Ok(file) => file,
                Err(source) => return Err(io(source)),
            },
        };
        let bytes = mcap::read_block(&mut file, &block).map_err(io)?;
        self.file = Some((block.file, file));
        let mut messages = Vec::new();
        // Damage was reported on opening: what lies before it is what the index knows.
        let _ = mcap::walk(&bytes, &mut |record| {
            if let record::Record::Message { data, .. } = record {
                messages.push(data.to_vec());
            }
        });
        Ok(messages)
    }
}
