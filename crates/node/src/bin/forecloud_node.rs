//! The ROS 2 node: see [`forecloud_node`].

use std::process::ExitCode;

fn main() -> ExitCode {
    forecloud_node::run()
}
