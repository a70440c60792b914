//! The plan relay: see [`forecloud::ros::relay`].

use std::process::ExitCode;

fn main() -> ExitCode {
    forecloud::ros::relay::run()
}
