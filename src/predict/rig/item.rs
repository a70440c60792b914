//! What a check finds, for people and programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How something is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is wrong, as far as can be seen.
    #[default]
    Ok,
    /// Something may be wrong: predictions may be worse for it.
    Warn,
    /// Something is wrong: predictions are.
    Fail,
}

impl Verdict {
    /// Its name: `ok`, `warn` or `fail`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Item {
    /// What was checked, in a few words: `robot in the picture`.
    pub what: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was measured, in words.
    pub evidence: String,
    /// The same in numbers, by names that end with their units.
    pub values: BTreeMap<String, f64>,
    /// The likeliest cause, where something is wrong.
    pub cause: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Item {
    /// One that is as it should be.
    pub fn ok(what: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { what: what.into(), evidence: evidence.into(), ..Self::default() }
    }

    /// One that is not.
    pub fn wrong(
        verdict: Verdict,
        what: impl Into<String>,
        evidence: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (cause, remedy) = (Some(cause.into()), Some(remedy.into()));
        Self { verdict, cause, remedy, ..Self::ok(what, evidence) }
    }

    /// With a number more, unless it is not finite.
    pub fn value(mut self, name: impl Into<String>, value: f64) -> Self {
        if value.is_finite() {
            self.values.insert(name.into(), value);
        }
        self
    }

    /// Evidence, cause and remedy in one line.
    pub fn line(&self) -> String {
        let mut text = format!("{}: {}", self.what, self.evidence);
        if let Some(cause) = &self.cause {
            text += &format!("; likeliest cause: {cause}");
        }
        if let Some(remedy) = &self.remedy {
            text += &format!("; remedy: {remedy}");
        }
        text
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4}  {:22}  {}", self.verdict.name(), self.what, self.evidence)?;
        for (name, text) in [("cause", &self.cause), ("remedy", &self.remedy)] {
            if let Some(text) = text {
                write!(f, "\n{:30}{name}: {text}", "")?;
            }
        }
        Ok(())
    }
}

/// The worst of all verdicts; of none, that nothing is wrong.
pub fn worst(items: &[Item]) -> Verdict {
    items.iter().map(|item| item.verdict).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_reads_as_lines_and_as_json() {
        let item = Item::wrong(Verdict::Warn, "clocks", "1.2 s apart", "two clocks", "use one");
        let item = item.value("apart_secs", 1.2).value("nothing", f64::NAN);
        assert_eq!(
            item.line(),
            "clocks: 1.2 s apart; likeliest cause: two clocks; remedy: use one"
        );
        let text = item.to_string();
        assert!(text.starts_with("warn  clocks ") && text.ends_with("remedy: use one"), "{text}");
        let json = serde_json::to_value(&item).unwrap();
        assert_eq!(
            (&json["verdict"], &json["values"]["apart_secs"]),
            (&"warn".into(), &1.2.into())
        );
        assert_eq!(item.values.len(), 1);
        let all = [Item::ok("a", "b"), item];
        assert_eq!(
            (worst(&all), worst(&all[..1]), worst(&[])),
            (Verdict::Warn, Verdict::Ok, Verdict::Ok)
        );
    }
}
