//! The tool: its commands, one file each.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic where nobody reads them any more: see `say`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod calibrate;
mod check;
mod compare;
mod curve;
mod encoder;
mod evaluate;
mod info;
mod intake;
mod label;
mod memory;
mod merge;
mod model_config;
mod model_file;
mod numbers;
mod out_folder;
mod outcome;
mod params;
mod plan;
// Each user of it, the examples among them, takes a part.
#[allow(dead_code)]
mod replay;
mod replay_args;
mod replay_folder;
mod rig_lines;
mod say;
mod snapshot;
mod threads;
mod topics;
mod train;
mod train_data;
mod train_end;
mod train_loop;
mod train_video;
mod train_worker;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser};

use forecloud::base::end_signal::clean_up_on_signals;
use forecloud::base::instruction_set::InstructionSet;
use forecloud::vision::frames::FramesConfig;
use numbers::WrongArguments;
use outcome::Outcome;
use say::say;

pub use anyhow::Error as Failure;
pub use train_worker::TrainWorker;

/// Runs the tool with its arguments, the first of which is its name; returns its exit code.
///
/// What it says goes to the process's stdout and stderr, errors included. Signals that it listens to end
/// the process as they end programs.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    // Models with the laboratory's layers load here.
    forecloud_lab::register();
    // A negative number is the value of its option, whose range is told; else it would be an option
    // that nobody knows.
    let command = Cli::command().mut_subcommands(|command| command.allow_negative_numbers(true));
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let given = command.try_get_matches_from(&arguments);
    let cli = match given.and_then(|given| Cli::from_arg_matches(&given)) {
        Ok(cli) => cli,
        Err(told) => {
            // Help that was asked for is told so, too.
            let _ = told.print();
            return told.exit_code().try_into().unwrap_or(1);
        }
    };
    if let Err(error) = clean_up_on_signals() {
        say(format_args!("note: unfinished files stay if a signal ends this command: {error}"));
    }
    match InstructionSet::from_environment().map_err(Into::into).and_then(|_| cli.run(&arguments)) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            say(format_args!("error: {error:#}"));
            if error.is::<WrongArguments>() { 2 } else { 1 }
        }
    }
}

/// How recordings are read, as the tool's arguments `--cameras`, `--remap` and their like say.
///
/// # Errors
/// In words, what is wrong with them and what is allowed.
pub fn frames_config(arguments: &[String]) -> Result<FramesConfig, String> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Only {
        #[command(flatten)]
        topics: topics::ReadArgs,
    }
    let only = Only::try_parse_from(arguments).map_err(|told| told.render().to_string())?;
    only.topics.config().map_err(|error| format!("{error:#}"))
}

/// Predicts how the point cloud that a robot sees will move.
#[derive(clap::Parser)]
#[command(
    name = "forecloud",
    version,
    arg_required_else_help = true,
    after_help = "\
`forecloud COMMAND --help` explains a command.

Example:
  forecloud replay data/demo_tumble"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Info(info::Args),
    Check(check::Args),
    Replay(Box<replay::Args>),
    Label(Box<label::Args>),
    Merge(merge::Args),
    Train(Box<train::Args>),
    TrainVideo(Box<train_video::Args>),
    Calibrate(Box<calibrate::Args>),
    Compare(Box<compare::Args>),
    Evaluate(Box<evaluate::Args>),
    Plan(Box<plan::Args>),
}

impl Cli {
    /// Runs the chosen command.
    fn run(mut self, arguments: &[OsString]) -> anyhow::Result<Outcome> {
        let given = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
        // For those that propose another one.
        match &mut self.command {
            Command::Info(_) | Command::Merge(_) => {}
            Command::Check(args) => args.topics.given = given.collect(),
            Command::Replay(args) => args.topics.given = given.collect(),
            Command::Label(args) => args.topics.given = given.collect(),
            Command::Train(args) => args.topics.given = given.collect(),
            Command::TrainVideo(args) => args.topics.given = given.collect(),
            Command::Calibrate(args) => args.topics.given = given.collect(),
            Command::Compare(args) => args.topics.given = given.collect(),
            Command::Evaluate(args) => args.snapshot.topics.given = given.collect(),
            Command::Plan(args) => args.snapshot.topics.given = given.collect(),
        }
        match self.command {
            Command::Info(args) => info::run(&args).map(|()| Outcome::Done),
            Command::Check(args) => check::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Label(args) => label::run(&args),
            Command::Merge(args) => merge::run(&args),
            Command::Train(args) => train::run(&args).map(|()| Outcome::Done),
            Command::TrainVideo(args) => train_video::run(&args).map(|()| Outcome::Done),
            Command::Calibrate(args) => calibrate::run(&args).map(|()| Outcome::Done),
            Command::Compare(args) => compare::run(&args).map(|()| Outcome::Done),
            Command::Evaluate(args) => evaluate::run(&args).map(|()| Outcome::Done),
            Command::Plan(args) => plan::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that a command's `-h` lists, without its own.
    fn options(command: &str) -> Vec<String> {
        let cli = Cli::command();
        let command = cli.find_subcommand(command).expect("a command");
        let options = command.get_arguments().filter_map(clap::Arg::get_long);
        options.map(str::to_owned).collect()
    }

    /// A new option replaces another, or is a key of --model-config or a parameter (-p).
    #[test]
    fn commands_have_few_options() {
        for (command, most) in
            [("replay", 20), ("train", 25), ("compare", 19), ("label", 11), ("evaluate", 15)]
        {
            let options = options(command);
            assert!(options.len() <= most, "{command}: {} of {options:?}", options.len());
        }
    }

    #[test]
    fn each_help_has_an_example_and_the_codes_it_ends_with() {
        let mut cli = Cli::command();
        for command in cli.get_subcommands_mut() {
            let help = command.render_help().to_string();
            assert!(help.contains("\nExample"), "{help}");
            assert!(help.contains("2  wrong arguments"), "{help}");
        }
    }
}
