//! The plan relay: see [`forecloud_node::relay`].

use std::process::ExitCode;

fn main() -> ExitCode {
    forecloud_node::relay::run()
}
