//! One SQLite file of rosbag2: tables `topics` and `messages`, in all schemas there have been.
//!
//! Nothing is written beside the file, not even the `-shm` that SQLite keeps to a `-wal`, and no
//! lock is taken: a recording is read once it is finished.

mod extent;
mod scan;

use super::unpack::MAX_MESSAGE_BYTES;
use forecloud::base::error::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(super) use extent::Extent;

const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// A write-ahead log without any page is no longer.
const WAL_HEADER_BYTES: u64 = 32;
/// Longest SQL of a schema that is parsed; rosbag2's is a hundredth of it.
const MAX_SQL_BYTES: i32 = 64 << 10;

/// An opened file.
pub(super) struct Database {
    connection: Connection,
    /// Shown in messages.
    path: PathBuf,
    warnings: Vec<String>,
    /// What is missing at the end: the data of messages may be.
    cut: Option<String>,
}

impl Database {
    /// Opens the file at `path`.
    ///
    /// A write-ahead log that a stopped recorder left is read along; the file is not copied for
    /// it, as that may take as much room again. Without one the file counts as immutable.
    ///
    /// # Errors
    /// [`Error::Bag`] if SQLite does not open it.
    pub(super) fn open(path: &Path, extent: &Extent) -> Result<Self> {
        if has_log(path) {
            return Self::connect(path, path, "vfs=unix-none");
        }
        let mut database = Self::connect(path, path, "immutable=1")?;
        let journal = sidecar(path, "-journal");
        if starts_with(&journal, &JOURNAL_MAGIC) {
            database.warnings.push(format!(
                "{} is there: the recorder was stopped within a write, which may have left damage",
                journal.display()
            ));
        }
        database.cut = extent.cut();
        Ok(database)
    }

    /// Opens `temporary`, which is still empty (an immutable file would stay so); messages call
    /// it `path`.
    ///
    /// # Errors
    /// [`Error::Bag`] if SQLite does not open it.
    pub(super) fn open_empty(temporary: &Path, path: &Path) -> Result<Self> {
        Self::connect(temporary, path, "vfs=unix-none")
    }

    /// The file has been filled to this extent.
    pub(super) fn filled(&mut self, extent: &Extent) {
        self.cut = extent.cut();
    }

    fn connect(file: &Path, path: &Path, options: &str) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(file, options)?, flags)
            .and_then(|connection| configure(&connection).map(|()| connection))
            .map_err(|error| refusal(path, &error))?;
        Ok(Self { connection, path: path.to_owned(), warnings: vec![], cut: None })
    }

    /// The data of the message whose row is `row`.
    ///
    /// # Errors
    /// [`Error::Bag`] if the file is damaged there.
    pub(super) fn read(&self, row: i64) -> Result<Vec<u8>> {
        let select = "SELECT data FROM messages NOT INDEXED WHERE rowid = ?1";
        let data = self.connection.prepare_cached(select).and_then(|mut select| {
            select.query_row([row], |columns| match columns.get_ref(0)? {
                ValueRef::Blob(data) => Ok(Some(data.to_vec())),
                _ => Ok(None),
            })
        });
        let problem = match data {
            Ok(Some(data)) => return Ok(data),
            Ok(None) => "is no message".into(),
            Err(error) => error.to_string(),
        };
        Err(Error::Bag { path: self.path.clone(), problem: format!("row {row}: {problem}") })
    }
}

/// The schema in the file is untrusted, and damage is met step by step, not on opening.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    for (option, on) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        // Else the write-ahead log would be merged into the file.
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
        // Else files that are cut off are not read at all.
        (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true),
    ] {
        connection.set_db_config(option, on)?;
    }
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_MESSAGE_BYTES as i32),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    connection.pragma_update(None, "cell_size_check", true)?;
    // Before the file is first touched: then the index of a write-ahead log stays in memory.
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))
}

fn refusal(path: &Path, error: &rusqlite::Error) -> Error {
    let problem = format!("can't be read as SQLite ({error})");
    Error::Bag { path: path.to_owned(), problem }
}

/// `file:` and the absolute path, with all but plain characters escaped.
fn uri(path: &Path, options: &str) -> Result<String> {
    let absolute =
        std::path::absolute(path).map_err(|cause| Error::Io { path: path.into(), cause })?;
    let mut uri = String::from("file://");
    for &byte in absolute.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(byte));
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    Ok(uri + "?" + options)
}

/// Whether there is a write-ahead log with pages in it.
pub(super) fn has_log(path: &Path) -> bool {
    let log = std::fs::metadata(sidecar(path, "-wal"));
    log.is_ok_and(|log| log.is_file() && log.len() > WAL_HEADER_BYTES)
}

/// The file that SQLite keeps beside `path`.
fn sidecar(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn starts_with(path: &Path, magic: &[u8; 8]) -> bool {
    let mut head = [0; 8];
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok())
        && head == *magic
}
