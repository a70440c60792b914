//! YAML, of which JSON is a part, from files of others.

use std::path::Path;

use forecloud::base::whole_file::read_at_most;

/// Deepest nesting of `[` and `{`: the parser's time goes with its square.
const MAX_DEPTH: usize = 64;

/// Reads the text of a file of at most `most` bytes.
///
/// # Errors
/// Those of the system, and text that is none.
pub fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    let invalid =
        |_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is no text in UTF-8");
    String::from_utf8(read_at_most(path, most)?).map_err(invalid)
}

/// Reads a value.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse<T: for<'d> serde::Deserialize<'d>>(text: &str) -> Result<T, String> {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_DEPTH {
        return Err(format!("brackets are nested {deepest} deep: at most {MAX_DEPTH}"));
    }
    serde_norway::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_limited_before_it_costs_anything() {
        // Minutes, without the limit.
        for bracket in ["[", "{"] {
            let told = parse::<serde_norway::Value>(&bracket.repeat(1 << 20)).unwrap_err();
            assert!(told.contains("nested 1048576 deep"), "{told}");
        }
        assert_eq!(parse::<Vec<Vec<u8>>>("[[1], [2]]"), Ok(vec![vec![1], vec![2]]));
        assert!(parse::<Vec<u8>>("x").is_err());
    }
}
