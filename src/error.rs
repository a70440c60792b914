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
    /// Too few points to go on with.
    #[error(
        "{got} points, at least {needed} are needed: check the workspace box and the depth images"
    )]
    TooFewPoints {
        /// How many are needed.
        needed: usize,
        /// How many there are.
        got: usize,
    },
    /// A number that is not finite where only finite ones make sense.
    #[error("{what}: not finite")]
    NonFinite {
        /// Which numbers.
        what: &'static str,
    },
    /// The k-d tree could not be built.
    #[error("k-d tree: {reason}")]
    KdTree {
        /// What the k-d tree said.
        reason: String,
    },
}
