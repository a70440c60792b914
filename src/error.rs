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
    /// Serialized bytes that are not the message they should be.
    #[error("{message_type}: field `{field}` at byte {offset}: {problem}")]
    Message {
        /// ROS name of the message type.
        message_type: &'static str,
        /// Which field of it.
        field: &'static str,
        /// Position behind the last byte that was read.
        offset: usize,
        /// What is wrong, and the remedy where there is one.
        problem: String,
    },
    /// A recording that cannot be read.
    #[error("{path}: {problem}")]
    Bag {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and the remedy where there is one.
        problem: String,
    },
    /// No chain of transforms joins two coordinate frames at the wanted time.
    #[error("no transform from '{source_frame}' to '{target_frame}': {problem}")]
    Transform {
        /// Frame of the points as they are.
        source_frame: String,
        /// Frame that the points are wanted in.
        target_frame: String,
        /// Which link is missing, and the remedy.
        problem: String,
    },
}
