//! What is checked before a robot description reaches the XML parser.

use crate::base::error::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Longest robot description, bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of elements; the parser recurses once per level.
const MAX_DEPTH: usize = 64;

/// The text, with the prefixes declared that it only uses (`drake:…`): other readers of URDF take
/// them, the parser does not.
///
/// Refuses texts that are too long or nested so deeply that parsing them would overflow the stack.
/// Only plain tags pass (`<name key="value">`), so this scan and the parser agree on the depth.
pub(super) fn checked(text: &str) -> Result<Cow<'_, str>> {
    if text.len() > MAX_BYTES {
        return error(format!("{} bytes, at most {MAX_BYTES} are read", text.len()));
    }
    let mut depth = 0usize;
    let mut prefixes = Prefixes::default();
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
            let whole = &tag[..tag.len() - rest.len()];
            refuse_xacro(whole)?;
            prefixes.take(whole, text.len() - tag.len());
            depth += usize::from(!closed);
            rest
        };
        if depth > MAX_DEPTH {
            return error(format!("elements nested deeper than {MAX_DEPTH}"));
        }
    }
    Ok(prefixes.declared_in(text))
}

/// Prefixes of a text's names.
#[derive(Default)]
struct Prefixes<'a> {
    used: BTreeSet<&'a str>,
    declared: BTreeSet<&'a str>,
    /// End of the root's name: where declarations go.
    root: Option<usize>,
}

impl<'a> Prefixes<'a> {
    /// Takes those of a tag that begins at `start`.
    fn take(&mut self, tag: &'a str, start: usize) {
        let name = tag.find(|c: char| !is_name(c)).unwrap_or(tag.len());
        self.root.get_or_insert(start + name);
        let mut rest = tag;
        loop {
            let (outside, value) = rest.split_at(rest.find(['"', '\'']).unwrap_or(rest.len()));
            for (prefix, name) in outside.split(|c| !is_name(c)).filter_map(|n| n.split_once(':')) {
                match prefix {
                    "xmlns" => self.declared.insert(name),
                    _ => self.used.insert(prefix),
                };
            }
            let mut quotes = value.chars();
            let Some(quote) = quotes.next() else { break };
            rest = quotes.as_str().split_once(quote).map_or("", |(_, rest)| rest);
        }
    }

    /// `text` with those declared that are not.
    fn declared_in(&self, text: &'a str) -> Cow<'a, str> {
        let missing = self.used.difference(&self.declared).filter(|prefix| **prefix != "xml");
        let missing: String = missing.map(|p| format!(" xmlns:{p}=\"undeclared\"")).collect();
        match self.root {
            Some(root) if !missing.is_empty() => {
                let (head, tail) = text.split_at(root);
                Cow::Owned([head, &missing, tail].concat())
            }
            _ => Cow::Borrowed(text),
        }
    }
}

/// Refuses a tag that xacro would have replaced; comments keep what they quote of it.
fn refuse_xacro(tag: &str) -> Result<()> {
    let is_xacro = tag.starts_with("xacro:") || tag.contains("${") || tag.contains("$(");
    if is_xacro {
        let start: String = tag.chars().take(60).collect();
        return error(format!(
            "it is still xacro ('<{}'): expand it with `xacro FILE > robot.urdf`",
            start.escape_debug()
        ));
    }
    Ok(())
}

/// Reads a tag behind its `<`: whether it closes itself, and the text behind it.
fn scan_tag(tag: &str) -> Result<(bool, &str)> {
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

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_:.-".contains(c)
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
