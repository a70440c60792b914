//! The library's error type: what was expected, what came, and where.

use std::path::PathBuf;

/// Result of the library's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in the library; each message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Shapes of arguments that do not belong together.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// Which argument.
        what: &'static str,
        /// Expected number of elements.
        expected: usize,
        /// Number of elements that came.
        got: usize,
    },
}
