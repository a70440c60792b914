//! Who looks on.

/// What a comparison tells while it runs, and asks; called by all of its threads.
pub trait Watch: Sync {
    /// A line about what is done now.
    fn stage(&self, what: &str);
    /// So many more seconds of the whole budget are used.
    fn advance(&self, secs: f64);
    /// Whether to stop: checkpoints are written, and the same comparison goes on from them.
    fn stops(&self) -> bool;
}
