//! Where the messages of an SQLite file are, around damage where there is any.

use super::Database;
use crate::bag::format::ZSTD_MAGIC;
use crate::bag::index::{Index, Place};
use crate::bag::unpack::MAX_MESSAGE_BYTES;
use forecloud::base::error::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Statement};
use std::collections::HashMap;

/// Damaged places that are read around; behind more of them a file is given up.
const MAX_GAPS: usize = 32;
const MAX_TOPICS: usize = 1 << 16;
/// Longest name of a topic, type or encoding (bytes).
const MAX_NAME_BYTES: usize = 4096;
/// Of what is there, but nothing leads to.
const RECOVER: &str = "docs/src/reference/faults.md tells how `sqlite3` may save more of it";

/// What has been read of the messages.
struct Rows<'a> {
    index: &'a mut Index,
    /// Numbers of the topics, by their ids in the file.
    topics: HashMap<i64, u32>,
    /// The row that was read last, and the first one of the present block.
    last: Option<i64>,
    block_first: Option<i64>,
    /// A row that holds a message.
    example: Option<i64>,
    n_malformed: u64,
    n_unknown_topic: u64,
}

impl Database {
    /// Adds the messages to `index`; damage becomes warnings there.
    ///
    /// Only the heads of the rows are read, and the data too where pages are known to be missing.
    ///
    /// # Errors
    /// [`Error::Bag`] if it holds no tables of rosbag2 that can be read.
    pub(in crate::bag) fn scan(&mut self, index: &mut Index) -> Result<()> {
        for warning in self.warnings.drain(..) {
            index.warn(warning);
        }
        index.storages.insert("sqlite3");
        let path = self.path.display();
        if let Some(cut) = &self.cut {
            index.warn(format!("{path} is {cut}"));
        }
        for table in ["topics", "messages"] {
            match has_table(&self.connection, table) {
                Ok(true) => {}
                Ok(false) => return Err(self.refusal(format!("has no table {table}"))),
                Err(error) => return Err(self.refusal(format!("its tables: {error}"))),
            }
        }
        let topics = self.read_topics(index)?;
        let mut rows = Rows {
            index,
            topics,
            last: None,
            block_first: None,
            example: None,
            n_malformed: 0,
            n_unknown_topic: 0,
        };
        self.read_rows(&mut rows)?;
        for (n, what) in [
            (rows.n_malformed, "rows that are no messages"),
            (rows.n_unknown_topic, "messages of unknown topics"),
        ] {
            if n > 0 {
                rows.index.warn(format!("{path}: left out {n} {what}"));
            }
        }
        // rosbag2 compresses either all messages or none.
        let example = rows.example.and_then(|row| self.read(row).ok());
        if example.is_some_and(|data| data.starts_with(&ZSTD_MAGIC)) {
            rows.index.compressions.insert("zstd by message");
        }
        rows.index.check_size(&self.path)
    }

    fn refusal(&self, problem: String) -> Error {
        // What is cut off nothing can save.
        let end =
            self.cut.as_ref().map_or(format!("); {RECOVER}"), |cut| format!("; it is {cut})"));
        let problem = format!("can't be read as a recording ({problem}{end}");
        Error::Bag { path: self.path.clone(), problem }
    }

    /// The topics by their ids in the file, as far as they can be read.
    fn read_topics(&self, index: &mut Index) -> Result<HashMap<i64, u32>> {
        let refuse = |error: rusqlite::Error| self.refusal(format!("table topics: {error}"));
        let mut topics = HashMap::new();
        let mut select =
            self.connection.prepare("SELECT * FROM topics NOT INDEXED").map_err(refuse)?;
        let column = |name: &str| select.column_index(name);
        let (id, name, kind) = (column("id"), column("name"), column("type"));
        let (id, name, kind) = (id.map_err(refuse)?, name.map_err(refuse)?, kind.map_err(refuse)?);
        // Recordings of 2018 have none.
        let encoding = column("serialization_format").ok();
        let mut rows = select.query([]).map_err(refuse)?;
        loop {
            let row = match rows.next() {
                Ok(None) => return Ok(topics),
                Ok(Some(_)) if topics.len() == MAX_TOPICS => {
                    index.warn(format!("{}: more than {MAX_TOPICS} topics", self.path.display()));
                    return Ok(topics);
                }
                Ok(Some(row)) => row,
                Err(error) if topics.is_empty() => return Err(refuse(error)),
                Err(error) => {
                    let path = self.path.display();
                    index.warn(format!("{path}: table topics: {error}; {RECOVER}"));
                    return Ok(topics);
                }
            };
            let encoding = encoding.map_or(Some("cdr"), |column| text(row, column));
            match (integer(row, id), text(row, name), text(row, kind)) {
                (Some(id), Some(name), Some(kind)) => {
                    topics.insert(id, index.topic(name, kind, encoding.unwrap_or_default()));
                }
                _ => index.warn(format!("{}: left out a malformed topic", self.path.display())),
            }
        }
    }

    fn read_rows(&self, rows: &mut Rows) -> Result<()> {
        let refuse = |error: rusqlite::Error| self.refusal(format!("table messages: {error}"));
        // SQLite knows the length of data without reading them.
        let data = if self.cut.is_some() { "data" } else { "length(data)" };
        let select = format!(
            "SELECT rowid, topic_id, timestamp, {data} FROM messages NOT INDEXED \
             WHERE rowid >= ?1 ORDER BY rowid"
        );
        let mut select = self.connection.prepare(&select).map_err(refuse)?;
        let mut from = i64::MIN;
        for _ in 0..MAX_GAPS {
            let Err(damage) = rows.add_from(&mut select, from) else { return Ok(()) };
            let path = self.path.display();
            let last = rows.last.unwrap_or(0);
            let first_lost = last.saturating_add(1);
            let Some(next) = resume(&mut select, last) else {
                let remedy = self.cut.as_ref().map_or(format!("; {RECOVER}"), |_| String::new());
                rows.index.warn(format!(
                    "{path}: {damage}: rows from {first_lost} on are left out{remedy}"
                ));
                return Ok(());
            };
            rows.index
                .warn(format!("{path}: {damage}: rows {first_lost} to {} are left out", next - 1));
            from = next;
        }
        let path = self.path.display();
        rows.index.warn(format!("{path}: more damage follows, and is left out; {RECOVER}"));
        Ok(())
    }
}

impl Rows<'_> {
    /// Adds the rows from `from` on until damage.
    fn add_from(&mut self, select: &mut Statement, from: i64) -> std::result::Result<(), String> {
        let mut rows = select.query([from]).map_err(|error| error.to_string())?;
        while let Some(row) = rows.next().map_err(|error| error.to_string())? {
            let Some(number) = integer(row, 0) else { return Err("a row without number".into()) };
            // Else damaged pages that lead back to others would be read without end.
            if number < from || self.last.is_some_and(|last| number <= last) {
                return Err(format!("row {number} is out of order"));
            }
            self.last = Some(number);
            self.add(number, row);
            if self.index.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, number: i64, row: &Row) {
        let n_bytes = match row.get_ref(3) {
            Ok(ValueRef::Blob(data)) => Some(data.len() as i64),
            Ok(ValueRef::Integer(n_bytes)) => Some(n_bytes),
            _ => None,
        };
        let (topic, log_time_ns) = match (integer(row, 1), integer(row, 2), n_bytes) {
            (Some(topic), Some(log_time_ns), Some(n_bytes))
                if n_bytes <= MAX_MESSAGE_BYTES as i64 =>
            {
                (topic, log_time_ns)
            }
            _ => {
                self.n_malformed += 1;
                return;
            }
        };
        let Some(&topic) = self.topics.get(&topic) else {
            self.n_unknown_topic += 1;
            return;
        };
        let ordinal = self.block_first.and_then(|first| number.checked_sub(first));
        let ordinal =
            ordinal.and_then(|ordinal| u32::try_from(ordinal).ok()).unwrap_or_else(|| {
                self.index.start_block(Place::Rows { first: number });
                self.block_first = Some(number);
                0
            });
        self.index.push(topic, log_time_ns, ordinal);
        self.example = self.example.or(Some(number));
    }
}

/// The next row behind the damage that follows `last`, if one is found.
fn resume(select: &mut Statement, last: i64) -> Option<i64> {
    let mut step = 2i64;
    let (mut damaged, mut good) = loop {
        let at = last.checked_add(step)?;
        match first_row(select, at) {
            Ok(Some(_)) => break (at - step / 2, at),
            Ok(None) => return None,
            Err(_) => step = step.checked_mul(2)?,
        }
    };
    while good - damaged > 1 {
        let middle = damaged + (good - damaged) / 2;
        match first_row(select, middle) {
            Ok(Some(_)) => good = middle,
            _ => damaged = middle,
        }
    }
    first_row(select, good).ok()?
}

/// The first row from `from` on.
fn first_row(select: &mut Statement, from: i64) -> rusqlite::Result<Option<i64>> {
    let row: Option<i64> = select.query_row([from], |row| row.get(0)).optional()?;
    match row {
        Some(row) if row < from => Err(rusqlite::Error::IntegralValueOutOfRange(0, row)),
        row => Ok(row),
    }
}

/// Whether there is an ordinary table of that name: no view, no virtual one.
fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let select = "SELECT 1 FROM sqlite_schema \
                  WHERE type = 'table' AND name = ?1 AND rootpage > 0";
    connection.prepare(select)?.exists([name])
}

fn integer(row: &Row, column: usize) -> Option<i64> {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(value)) => Some(value),
        _ => None,
    }
}

fn text<'a>(row: &'a Row, column: usize) -> Option<&'a str> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(text)) if text.len() <= MAX_NAME_BYTES => std::str::from_utf8(text).ok(),
        _ => None,
    }
}
