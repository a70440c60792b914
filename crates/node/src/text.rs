//! Words of others in answers and in the log.

/// Bytes of foreign words that are told at most.
const MAX_BYTES: usize = 100;
/// Bytes of one answer that are told at most.
const MAX_ANSWER_BYTES: usize = 4000;

/// A name that came from outside, for a message: of any length, it forges no line of a log.
pub fn quoted(name: &str) -> String {
    escaped(name, MAX_BYTES)
}

/// A whole answer in which names from outside may stand, likewise.
pub fn bounded(answer: &str) -> String {
    escaped(answer, MAX_ANSWER_BYTES)
}

/// What a terminal shows as it is stays so: quotes and letters of any language.
fn escaped(text: &str, max_bytes: usize) -> String {
    let mut told = String::new();
    for letter in text.chars() {
        let before = told.len();
        match letter {
            '\'' | '"' | '\\' => told.push(letter),
            _ => told.extend(letter.escape_debug()),
        }
        if told.len() > max_bytes {
            told.truncate(before);
            told.push('…');
            break;
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_are_cut_and_forge_no_line() {
        assert_eq!(quoted("arm's \"ä\""), "arm's \"ä\"");
        assert_eq!(
            quoted("a\n2026 WARN b\u{1b}[31m\u{202e}"),
            "a\\n2026 WARN b\\u{1b}[31m\\u{202e}"
        );
        for letter in ["x", "ä", "\n", "\u{202e}"] {
            let told = quoted(&letter.repeat(5_000_000));
            assert!(told.ends_with('…') && told.len() <= MAX_BYTES + '…'.len_utf8(), "{told}");
        }
        let told = bounded(&format!("no joint '{}'", "x\n".repeat(5_000_000)));
        assert!(told.starts_with("no joint 'x\\nx\\n") && told.len() <= MAX_ANSWER_BYTES + 3);
    }
}
