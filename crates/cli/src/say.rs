//! Lines for people, on stderr.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// Writes a line to stderr.
///
/// One that can't be written is given up: `eprintln!` would end the program in a panic where stderr
/// is closed or full, and there is nobody to tell.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// What there is to say of `path`, which it may name itself.
pub fn name_first(path: &Path, what: &str) -> String {
    let path = path.display().to_string();
    if what.starts_with(&path) { what.to_owned() } else { format!("{path}: {what}") }
}
