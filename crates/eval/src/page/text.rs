//! Text of the page: untrusted words made harmless, bytes as base64, dates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use forecloud::message::Stamp;

/// Letters of a name that are shown at most.
const MAX_LETTERS: usize = 200;
/// Letters of a message that are shown at most.
const MAX_LETTERS_OF_MESSAGE: usize = 3000;
/// Stamps before this (s, 1 January 2000) are not dates but times of a simulation.
const FIRST_DATE_SECS: i64 = 946_684_800;

/// `text` as HTML shows it, in elements and in quoted attributes: no markup, no control
/// characters, none that turn the direction of writing; what is very long is cut.
pub(super) fn escape(text: &str) -> String {
    escape_up_to(text, MAX_LETTERS)
}

/// As [`escape`], of a message, which may be long and have several lines.
pub(super) fn escape_message(text: &str) -> String {
    escape_up_to(&text.replace('\n', " "), MAX_LETTERS_OF_MESSAGE)
}

fn escape_up_to(text: &str, n_letters: usize) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (index, letter) in text.chars().enumerate() {
        if index == n_letters {
            escaped.push('…');
            break;
        }
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.push('\u{fffd}');
            }
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// JSON that may stand in a script element.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    // Keys are text and numbers are finite or null, so nothing can fail.
    serde_json::to_string(value).unwrap_or_else(|_| "null".into()).replace('<', "\\u003c")
}

/// Base64 with padding (RFC 4648, section 4).
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The date and time of a stamp (UTC), or its seconds where the clock is a simulation's.
pub(super) fn date(stamp: Stamp) -> String {
    let (secs, tenths) = (stamp.nanos().div_euclid(1_000_000_000), stamp.parts().1 / 100_000_000);
    if secs < FIRST_DATE_SECS {
        return format!("{:.1} s", stamp.secs());
    }
    match Timestamp::new(secs, 0) {
        Ok(date) => format!("{}.{tenths} UTC", date.strftime("%Y-%m-%d %H:%M:%S")),
        // Beyond the year 9999; stamps end in 2262.
        Err(_) => format!("{:.1} s", stamp.secs()),
    }
}

/// Seconds without needless digits.
pub(super) fn secs(steps: usize, step_secs: f64) -> f32 {
    (steps as f64 * step_secs) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_what_turns_writing_around_is_made_harmless() {
        let nasty = "</script><img src=x onerror='a(\"&\")'>\u{202e}\n";
        let harmless = "&lt;/script&gt;&lt;img src=x onerror=&#39;a(&quot;&amp;&quot;)&#39;&gt;\u{fffd}\u{fffd}";
        assert_eq!(escape(nasty), harmless);
        assert_eq!(escape(&"é".repeat(1000)).chars().count(), MAX_LETTERS + 1);
        assert_eq!(json(&["</script>"]), r#"["\u003c/script>"]"#);
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        let plain = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let coded = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(plain.map(|text| base64(text.as_bytes())), coded);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |secs: i64| date(Stamp::from_nanos(secs * 1_000_000_000 + 250_000_000));
        assert_eq!(at(1_709_210_096), "2024-02-29 12:34:56.2 UTC");
        assert_eq!(at(951_868_800), "2000-03-01 00:00:00.2 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00.2 UTC");
        assert_eq!(at(1_767_225_599), "2025-12-31 23:59:59.2 UTC");
        assert_eq!(at(12), "12.2 s");
        assert!(date(Stamp::from_nanos(i64::MAX)).starts_with("2262-04-11 23:47:16.8"));
    }
}
