//! The command-line tool.

use std::process::ExitCode;

fn main() -> ExitCode {
    forecloud_cli::run(std::env::args_os()).into()
}
