//! How commands end, for scripts.

use std::process::ExitCode;

/// What a command comes to; errors end with 1, arguments that are wrong with 2 (by clap).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All was done.
    Done,
    /// There is a result, and it is not of all that was asked for.
    Partial,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Partial => Self::from(3),
        }
    }
}
