//! The ROS 2 node: see [`forecloud::ros`].

use std::process::ExitCode;

fn main() -> ExitCode {
    match forecloud::ros::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
