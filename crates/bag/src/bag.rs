//! rosbag2 recordings: their topics, and their messages in the order of their log times.
//!
//! Opening reads all files once and keeps an index of 24 bytes a message; the messages
//! themselves are read again when they are asked for, so memory stays bounded. Files compressed
//! as a whole are unpacked into temporary ones (in TMPDIR) that have no names, a few at a time.

mod find;
mod format;
mod index;
mod mcap;
mod messages;
mod metadata;
mod record;
mod source;
mod sqlite;
mod storage;
mod temporary;
mod topic;
mod unpack;

use forecloud::base::error::Result;
use forecloud::message::Stamp;
use index::Index;
use source::{Source, Sources};
use std::path::{Path, PathBuf};

pub use find::{Found, recordings_below};
pub use messages::{Messages, RawMessage};
pub use topic::TopicInfo;

/// An opened recording.
pub struct Bag {
    path: PathBuf,
    index: Index,
    n_files: usize,
    sources: Sources,
}

impl Bag {
    /// Opens a rosbag2 folder, or one of its files: MCAP or SQLite, also compressed with zstd.
    ///
    /// What a file is, its first bytes tell. Damage is no error as long as a file can be read up
    /// to it: see [`Bag::warnings`].
    ///
    /// # Errors
    /// [`forecloud::Error::Io`] if a file can't be read; [`forecloud::Error::Bag`] if it is no recording of
    /// ROS 2.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let files = metadata::files(path)?;
        let mut index = Index::default();
        index.warnings = files.warnings;
        let mut failure = None;
        let (mut n_files, mut last) = (0, None);
        for file in &files.paths {
            let source = Source::open(file).and_then(|mut source| {
                source.scan(file, &mut index)?;
                Ok(source)
            });
            match source {
                Ok(source) => {
                    n_files += 1;
                    last = Some((index.file(), source));
                }
                Err(error) if files.paths.len() == 1 => return Err(error),
                Err(error) => {
                    index.warn(format!("{error}; its file is left out"));
                    failure = Some(error);
                }
            }
        }
        if let (Some(error), 0) = (failure, n_files) {
            return Err(error);
        }
        // MCAP files may come without schemas, and so without types.
        index.add_types(&files.types);
        index.finish();
        let (promised, got) = (files.message_count, index.entries.len() as u64);
        if let Some(promised) = promised.filter(|&promised| promised != got) {
            index.warn(format!(
                "metadata.yaml counts {promised} messages, {got} were read: `ros2 bag reindex` \
                 rewrites it"
            ));
        }
        let sources = Sources::new(index.n_files_at_once(), last);
        Ok(Self { path: path.to_owned(), index, n_files, sources })
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

    /// Number of files that could be read.
    pub fn n_files(&self) -> usize {
        self.n_files
    }

    /// rosbag2's names of its storage: `mcap`, `sqlite3`, or both.
    pub fn storage(&self) -> impl Iterator<Item = &'static str> {
        self.index.storages.iter().copied()
    }

    /// How it is compressed, `zstd by chunk` for instance; nothing if it is not.
    pub fn compression(&self) -> impl Iterator<Item = &'static str> {
        self.index.compressions.iter().copied()
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
        Messages::new(&self.index, &self.sources, wanted)
    }
}
