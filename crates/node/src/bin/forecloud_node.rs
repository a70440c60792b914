//! The ROS 2 node: see [`forecloud::ros`].

use std::process::ExitCode;

fn main() -> ExitCode {
    forecloud_node::run()
}
