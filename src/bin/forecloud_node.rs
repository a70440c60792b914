//! The ROS 2 node: see [`forecloud::ros`].

use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    // To stderr, where `ros2 launch` shows and records it; RUST_LOG chooses what.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match forecloud::ros::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
