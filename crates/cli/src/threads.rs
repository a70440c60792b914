//! How many threads a command works on.

use super::say::say;

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads for what `--threads` asked: all cores where it asked nothing, and no more than there are,
/// which is said: more would only wait for each other.
pub fn bounded(asked: Option<usize>) -> usize {
    let cores = cores();
    let threads = asked.unwrap_or(cores).clamp(1, cores);
    if let Some(asked) = asked.filter(|&asked| asked > cores) {
        say(format_args!("--threads {asked}: more than the {cores} cores; using {threads}"));
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_asked_for_and_no_more_than_there_are() {
        assert_eq!((bounded(None), bounded(Some(1)), bounded(Some(0))), (cores(), 1, 1));
        assert_eq!(bounded(Some(cores() + 1)), cores());
        assert_eq!(bounded(Some(usize::MAX)), cores());
    }
}
