//! How the messages lie in a file.

use super::sqlite::Database;
use std::fs::File;

/// A file that messages can be read from.
pub(super) enum Storage {
    Mcap(File),
    Sqlite(Database),
}
