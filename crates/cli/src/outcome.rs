//! How commands end, for scripts.

/// What a command comes to; errors end with 1, arguments that are wrong with 2 (by clap).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All was done.
    Done,
    /// There is a result, and it is not of all that was asked for, or something in it is suspicious.
    Partial,
}

impl Outcome {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Partial => 3,
        }
    }
}
