//! Lines for people, on stderr, and results, on stdout.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a line to stderr.
///
/// One that can't be written is given up: `eprintln!` would end the program in a panic where stderr
/// is closed or full, and there is nobody to tell.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(&line.to_string()));
}

/// Writes a command's result to stdout.
///
/// # Errors
/// Those of the system.
pub fn print(text: &str) -> Result<()> {
    let text = printable(text);
    let mut stdout = std::io::stdout().lock();
    // Flushed by hand: what is left to the end of the program fails in silence.
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("standard output")
}

/// The text as a terminal may get it: characters of names from files that would steer it are escaped,
/// as in JSON.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        let is_bidi = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        is_bidi || c.is_control() && !matches!(c, '\n' | '\t')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| match steers(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// What there is to say of `path`, which it may name itself.
pub fn name_first(path: &Path, what: &str) -> String {
    let path = path.display().to_string();
    if what.starts_with(&path) { what.to_owned() } else { format!("{path}: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        for (text, shown) in [
            ("/a\u{1b}[31m\u{7}b", "/a\\u001b[31m\\u0007b"),
            ("x\r\u{9b}2J\u{202e}y", "x\\u000d\\u009b2J\\u202ey"),
        ] {
            assert_eq!(printable(text), shown);
        }
        let plain = "a\tb\nµm 'camera'";
        assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
    }
}
