//! An opened file of a recording: what it is, by its first bytes.

use super::index::Index;
use super::sqlite::{self, Database, Extent};
use super::{mcap, temporary, unpack};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that tell what a file is; enough for zstd to say its size.
const HEAD_BYTES: usize = 18;
/// Files that are held open at least, and at most.
const N_OPEN: std::ops::RangeInclusive<usize> = 4..=128;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Mcap,
    Sqlite,
    Zstd,
    Ros1,
}

impl Format {
    /// By the first bytes.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        [
            (::mcap::MAGIC, Self::Mcap),
            (sqlite::MAGIC, Self::Sqlite),
            (&unpack::MAGIC, Self::Zstd),
            (b"#ROSBAG V", Self::Ros1),
        ]
        .into_iter()
        .find_map(|(magic, format)| head.starts_with(magic).then_some(format))
    }

    /// Of the file at `path`; `None` also if it can't be read.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        let mut head = [0; HEAD_BYTES];
        let n = read_up_to(&mut File::open(path).ok()?, &mut head).ok()?;
        Self::of(&head[..n])
    }
}

/// An opened file.
pub(super) struct Source {
    pub(super) storage: Storage,
    /// Whether the file is compressed as a whole.
    pub(super) is_packed: bool,
    /// What was wrong with it on opening.
    pub(super) warnings: Vec<String>,
}

/// How the messages lie in a file.
pub(super) enum Storage {
    Mcap(File),
    Sqlite(Database),
}

impl Source {
    /// # Errors
    /// [`Error::Io`]; [`Error::Bag`] if it is no recording of ROS 2.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        let refuse = |problem: &str| Err(Error::Bag { path: path.into(), problem: problem.into() });
        // Opening a named pipe would wait for its writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return refuse("is no file");
        }
        let mut file = File::open(path).map_err(io)?;
        let mut head = [0; HEAD_BYTES];
        let n = read_up_to(&mut file, &mut head).map_err(io)?;
        let storage = match Format::of(&head[..n]) {
            Some(Format::Mcap) => Storage::Mcap(file),
            Some(Format::Sqlite) => {
                let extent = Extent::of(&mut file).map_err(io)?;
                if extent.has_part_of_page() && !sqlite::has_log(path) {
                    return temporary::whole_pages(path, file, &extent);
                }
                Storage::Sqlite(Database::open(path, &extent)?)
            }
            Some(Format::Zstd) => return unpack::file(path, file, &head[..n]),
            Some(Format::Ros1) => {
                return refuse("is a ROS 1 recording: convert it with rosbags-convert");
            }
            None if n == 0 => return refuse("is empty"),
            None => {
                return refuse(
                    "is no recording of ROS 2: it starts with the magic bytes of neither MCAP, \
                     SQLite nor zstd",
                );
            }
        };
        Ok(Self { storage, is_packed: false, warnings: vec![] })
    }

    /// Adds the messages of the file to `index`; damage becomes warnings there.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Bag`] if it is no recording of ROS 2.
    pub(super) fn scan(&mut self, path: &Path, index: &mut Index) -> Result<()> {
        index.start_file(path);
        for warning in &self.warnings {
            index.warn(warning.clone());
        }
        if self.is_packed {
            index.compressions.insert("zstd by file");
        }
        match &mut self.storage {
            Storage::Mcap(file) => mcap::scan(file, path, index),
            Storage::Sqlite(database) => database.scan(index),
        }
    }
}

/// Reads until `buffer` is full or the end; the number of bytes.
pub(super) fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match from.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // What came before the damage counts; it shows again on the next call.
            Err(_) if n > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

/// An opened file, of which one message is read at a time.
pub(super) type Shared = Arc<Mutex<Source>>;

/// The files that were used last, by their numbers, the newest last.
pub(super) struct Sources {
    open: Mutex<VecDeque<(u32, Shared)>>,
    capacity: usize,
}

impl Sources {
    /// For files of which up to `n_at_once` overlap in time; `last` is open already.
    pub(super) fn new(n_at_once: usize, last: Option<(u32, Source)>) -> Self {
        let open = last.map(|(number, source)| (number, Arc::new(Mutex::new(source))));
        let capacity = n_at_once.clamp(*N_OPEN.start(), *N_OPEN.end());
        Self { open: Mutex::new(open.into_iter().collect()), capacity }
    }

    /// File `number`, at `path`.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub(super) fn get(&self, number: u32, path: &Path) -> Result<Shared> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().position(|(other, _)| *other == number);
        let source = match known.and_then(|at| open.remove(at)) {
            Some((_, source)) => source,
            None => {
                while open.len() >= self.capacity {
                    open.pop_front();
                }
                Arc::new(Mutex::new(Source::open(path)?))
            }
        };
        open.push_back((number, source.clone()));
        Ok(source)
    }
}
