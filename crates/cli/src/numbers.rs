//! Numbers in ranges, as arguments.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use forecloud::Error;

/// A parser of numbers in `range`, which it tells; NaN is in none.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let value = text.trim().parse::<T>().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("expected a number in {}..={}", range.start(), range.end()))
    }
}

/// Arguments that are wrong: exit code 2, as clap's own.
#[derive(Debug)]
pub struct WrongArguments(String);

impl Display for WrongArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongArguments {}

/// The error of arguments that are wrong, in words that name the option.
pub fn wrong(problem: impl Display) -> anyhow::Error {
    WrongArguments(problem.to_string()).into()
}

/// Refuses arguments unless `holds`.
///
/// # Errors
/// What `problem` says.
pub fn must(holds: bool, problem: impl FnOnce() -> String) -> anyhow::Result<()> {
    if holds { Ok(()) } else { Err(wrong(problem())) }
}

/// Settings of the library, and the options that they come from.
const OPTIONS: &[(&str, &str)] = &[
    ("model.stride", "--replan-interval"),
    ("hold_out", "--hold-out"),
    ("horizon", "--horizon"),
    ("n_particles", "--particles"),
    ("workspace", "--workspace, or -p workspace_min and workspace_max"),
    ("budget", "--budget"),
    ("max_plans", "--max-plans"),
    ("joint_names", "--joints"),
    ("tool_links", "--tools"),
    ("compare.variants", "--variants"),
    ("compare.learning_rates", "--learning-rates"),
    ("compare.budget_secs", "--budget-secs"),
    ("compare.test_windows", "--test-windows"),
    ("train.batch", "--batch"),
    ("train.steps", "--steps"),
    ("train.learning_rate", "--learning-rate"),
    ("video.vit.cut_m", "--patch-cut"),
];

/// The error of a setting, by the name of its option.
pub fn by_option(error: Error) -> Error {
    match error {
        Error::Config { key, problem } => {
            let option = OPTIONS.iter().find(|(name, _)| *name == key);
            Error::Config { key: option.map_or(key, |(_, option)| (*option).to_owned()), problem }
        }
        error => error,
    }
}

/// The error of work with the settings that were given: a setting that is wrong is a wrong argument.
pub fn of_settings(error: Error) -> anyhow::Error {
    match error {
        Error::Config { .. } => wrong(by_option(error)),
        error => error.into(),
    }
}

/// Help of an option whose default a preset or a suite can be the source of.
pub fn with_default(what: &str, default: impl Display) -> String {
    format!("{what} [default: {default}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_range_are_read_and_others_told_the_range() {
        let share = within(0.5..=2.0);
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0.4", "2.1", "-1", "nan", "inf", "1e999", "x", ""] {
            assert_eq!(share(text), Err("expected a number in 0.5..=2".into()), "{text}");
        }
        assert_eq!(within(1u64..=9)("7"), Ok(7));
        assert!(within(1usize..=9)("99999999999999999999999").is_err());
    }
}
