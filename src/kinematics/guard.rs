//! What is checked before a robot description reaches the XML parser.

use crate::error::{Error, Result};

/// Longest robot description, bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of elements; the parser recurses once per level.
const MAX_DEPTH: usize = 64;

/// Refuses texts that are too long or nested so deeply that parsing them would overflow the stack.
///
/// Only plain tags pass (`<name key="value">`), so this scan and the parser agree on the depth.
pub(super) fn check_text(text: &str) -> Result<()> {
    if text.len() > MAX_BYTES {
        return error(format!("{} bytes, at most {MAX_BYTES} are read", text.len()));
    }
    let mut depth = 0usize;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let tag = &rest[start + 1..];
        rest = if let Some(comment) = tag.strip_prefix("!--") {
            behind(comment, "-->")?
        } else if tag.starts_with('!') {
            return error("DOCTYPE and CDATA are not read".to_owned());
        } else if let Some(instruction) = tag.strip_prefix('?') {
            behind(instruction, "?>")?
        } else if tag.starts_with('/') {
            depth = depth.saturating_sub(1);
            behind(tag, ">")?
        } else {
            let (closed, rest) = scan_tag(tag)?;
            depth += usize::from(!closed);
            rest
        };
        if depth > MAX_DEPTH {
            return error(format!("elements nested deeper than {MAX_DEPTH}"));
        }
    }
    Ok(())
}

/// Reads a tag behind its `<`: whether it closes itself, and the text behind it.
fn scan_tag(tag: &str) -> Result<(bool, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || "_:.-".contains(c);
    let mut rest = tag.trim_start_matches(is_name);
    if rest.len() == tag.len() {
        return malformed(tag);
    }
    loop {
        rest = rest.trim_ascii_start();
        if let Some(rest) = rest.strip_prefix('>') {
            return Ok((false, rest));
        } else if let Some(rest) = rest.strip_prefix("/>") {
            return Ok((true, rest));
        }
        let value = rest.trim_start_matches(is_name).trim_ascii_start();
        let Some(value) = value.strip_prefix('=') else { return malformed(tag) };
        let value = value.trim_ascii_start();
        rest = match value.as_bytes().first() {
            Some(b'"') => behind(&value[1..], "\"")?,
            Some(b'\'') => behind(&value[1..], "'")?,
            _ => return malformed(tag),
        };
    }
}

fn behind<'a>(text: &'a str, end: &str) -> Result<&'a str> {
    match text.split_once(end) {
        Some((_, rest)) => Ok(rest),
        None => error(format!("the text ends before '{end}'")),
    }
}

fn malformed<T>(tag: &str) -> Result<T> {
    let start: String = tag.chars().take(40).collect();
    error(format!("malformed tag '<{start}'"))
}

fn error<T>(problem: String) -> Result<T> {
    Err(Error::Urdf { problem })
}
