//! The command-line tool.

// `println!` and `eprintln!` panic where nobody reads them any more: see `cli::say`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;

use clap::Parser;
use forecloud::instruction_set::InstructionSet;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match InstructionSet::from_environment().map_err(Into::into).and_then(|_| cli.run()) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            cli::say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
