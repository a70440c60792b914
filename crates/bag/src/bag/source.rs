//! An opened file of a recording, and those that are open at a time.

use super::format::{Format, HEAD_BYTES, read_up_to};
use super::index::Index;
use super::sqlite::{self, Database, Extent};
use super::storage::Storage;
use super::unpack::Unpacked;
use super::{mcap, temporary, unpack};
use forecloud::base::error::{Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Files that are held open at least, and at most.
const N_OPEN: std::ops::RangeInclusive<usize> = 4..=128;

/// An opened file.
pub(super) struct Source {
    pub(super) storage: Storage,
    /// Whether the file is compressed as a whole.
    pub(super) is_packed: bool,
    /// What was wrong with it on opening.
    pub(super) warnings: Vec<String>,
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
                    return temporary::whole_pages(path, file, &extent).map(Self::plain);
                }
                Storage::Sqlite(Database::open(path, &extent)?)
            }
            Some(Format::Zstd) => return Self::unpacked(path, file, &head[..n]),
            Some(Format::Ros1) => {
                return refuse("is a ROS 1 recording: convert it with rosbags-convert");
            }
            None if n == 0 => return refuse("is empty"),
            None => {
                return refuse(
                    "is not a ROS 2 recording: it starts with the magic bytes of neither MCAP, \
                     SQLite nor zstd",
                );
            }
        };
        Ok(Self::plain(storage))
    }

    fn plain(storage: Storage) -> Self {
        Self { storage, is_packed: false, warnings: vec![] }
    }

    /// A file compressed with zstd, of which `head` was read; damage ends it with a warning.
    ///
    /// # Errors
    /// As [`temporary::store`].
    fn unpacked(path: &Path, file: File, head: &[u8]) -> Result<Self> {
        temporary::check_size(path, unpack::claimed_bytes(head))?;
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        let mut unpacked = Unpacked::new(file).map_err(io)?;
        let storage = temporary::store(path, &mut unpacked);
        let damage = unpacked.damage();
        let storage = storage.map_err(|error| match (error, &damage) {
            (Error::Bag { path, problem }, Some(cause)) => {
                let problem = format!("{problem}; its zstd data are damaged ({cause})");
                Error::Bag { path, problem }
            }
            (error, _) => error,
        })?;
        let warning = |cause| {
            format!("{}: zstd data are damaged ({cause}); what follows is left out", path.display())
        };
        let warnings = damage.map(warning).into_iter().collect();
        Ok(Self { storage, is_packed: true, warnings })
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
