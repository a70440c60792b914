//! The messages of a recording, one after the other.

use super::index::{Entry, Index, Place};
use super::record::Record;
use super::source::{Source, Sources};
use super::storage::Storage;
use super::{mcap, unpack};
use forecloud::base::error::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// Bytes that held blocks of MCAP may have, but the newest. Chunks overlap in time: with few of them held,
/// each would be read again for each of its messages.
const MAX_BYTES: usize = 256 << 20;
/// What a message of a block takes besides its data.
const MESSAGE_BYTES: usize = size_of::<Option<Vec<u8>>>();

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

/// Messages of a [`super::Bag`]; after an error the next message follows.
pub struct Messages<'a> {
    index: &'a Index,
    sources: &'a Sources,
    next: usize,
    /// By topic.
    wanted: Vec<bool>,
    held: Held,
    /// Files that could not be opened, and why: not tried again for each of their messages.
    failed: HashMap<u32, String>,
}

/// Blocks that were read.
#[derive(Default)]
struct Held {
    blocks: HashMap<u32, Block>,
    /// Their numbers, the one that was used longest ago first.
    order: BTreeMap<u64, u32>,
    n_uses: u64,
    n_bytes: usize,
}

/// An unpacked block of MCAP.
struct Block {
    /// Its key in the order of use.
    used: u64,
    /// By their ordinals; taken once they were asked for.
    messages: Vec<Option<Vec<u8>>>,
    /// Of those that are left.
    n_bytes: usize,
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

impl<'a> Messages<'a> {
    /// `wanted`: by topic.
    pub(super) fn new(index: &'a Index, sources: &'a Sources, wanted: Vec<bool>) -> Self {
        let (held, failed) = (Held::default(), HashMap::new());
        Self { index, sources, next: 0, wanted, held, failed }
    }

    fn read(&mut self, entry: Entry) -> Result<RawMessage> {
        let block = self.index.blocks[entry.block as usize];
        let data = match block.place {
            Place::Record { .. } | Place::Chunk { .. } => self.take(entry, block.place)?,
            Place::Rows { first } => {
                let row = first.saturating_add(i64::from(entry.ordinal));
                self.with_source(block.file, |storage| match storage {
                    Storage::Sqlite(database) => database.read(row).map(Some),
                    Storage::Mcap(_) => Ok(None),
                })?
            }
        };
        let path = self.path(entry.block);
        let damaged = |problem| Error::Bag { path: path.to_owned(), problem };
        let data = data.ok_or_else(|| damaged("was changed while it was read".into()))?;
        let topic = self.index.topics[entry.topic as usize].name.clone();
        let log_time_ns = entry.log_time_ns;
        let data = unpack::message(data).map_err(|problem| {
            damaged(format!("{topic}, message of {log_time_ns} ns: {problem}"))
        })?;
        Ok(RawMessage { topic, log_time_ns, data })
    }

    fn path(&self, block: u32) -> &'a Path {
        &self.index.files[self.index.blocks[block as usize].file as usize]
    }

    fn with_source<T>(
        &mut self,
        file: u32,
        read: impl FnOnce(&mut Storage) -> Result<T>,
    ) -> Result<T> {
        let path = &self.index.files[file as usize];
        if let Some(problem) = self.failed.get(&file) {
            return Err(Error::Bag { path: path.clone(), problem: problem.clone() });
        }
        let source = self.sources.get(file, path).inspect_err(|error| {
            self.failed.insert(file, error.to_string());
        })?;
        let Source { storage, .. } = &mut *source.lock().unwrap_or_else(PoisonError::into_inner);
        read(storage)
    }

    /// The message's data out of its block, which is read if it is not at hand.
    fn take(&mut self, entry: Entry, place: Place) -> Result<Option<Vec<u8>>> {
        let mut block = match self.held.take(entry.block) {
            Some(block) => block,
            None => self.read_block(entry.block, place)?,
        };
        // Each message is asked for once, so it can be taken out.
        let data = block.messages.get_mut(entry.ordinal as usize).and_then(Option::take);
        block.n_bytes -= data.as_ref().map_or(0, Vec::len);
        let (index, next) = (self.index, self.next);
        let is_needed = |number: u32| index.blocks[number as usize].last as usize >= next;
        self.held.make_room(is_needed);
        if is_needed(entry.block) {
            self.held.keep(entry.block, block);
        }
        Ok(data)
    }

    fn read_block(&mut self, number: u32, place: Place) -> Result<Block> {
        let path = self.path(number);
        let file = self.index.blocks[number as usize].file;
        let bytes = self.with_source(file, |storage| match storage {
            Storage::Mcap(file) => mcap::read_block(file, place)
                .map_err(|cause| Error::Io { path: path.to_owned(), cause }),
            Storage::Sqlite(_) => Ok(vec![]),
        })?;
        let mut messages = Vec::new();
        // Damage was reported on opening: what lies before it is what the index knows.
        let _ = mcap::walk(&bytes, &mut |record| {
            if let Record::Message { data, .. } = record {
                messages.push(Some(data.to_vec()));
            }
        });
        let data_bytes: usize = messages.iter().flatten().map(Vec::len).sum();
        let n_bytes = data_bytes + MESSAGE_BYTES * messages.len();
        Ok(Block { used: 0, messages, n_bytes })
    }
}

impl Held {
    fn take(&mut self, number: u32) -> Option<Block> {
        let block = self.blocks.remove(&number)?;
        self.order.remove(&block.used);
        self.n_bytes -= block.n_bytes;
        Some(block)
    }

    fn keep(&mut self, number: u32, block: Block) {
        self.n_uses += 1;
        self.n_bytes += block.n_bytes;
        self.order.insert(self.n_uses, number);
        self.blocks.insert(number, Block { used: self.n_uses, ..block });
    }

    /// Lets go of blocks that were not used for longest: those that are done with, and as many as are too
    /// many.
    fn make_room(&mut self, is_needed: impl Fn(u32) -> bool) {
        while let Some((_, &number)) = self.order.first_key_value() {
            if self.n_bytes <= MAX_BYTES && is_needed(number) {
                return;
            }
            self.take(number);
        }
    }
}
