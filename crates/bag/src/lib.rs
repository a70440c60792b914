//! Recordings: rosbag2 in MCAP and SQLite, read frame by frame, and files that replace no one else's.

#![warn(missing_docs)]

pub mod bag;
pub mod goal_file;
pub mod outputs;
pub mod plans_file;
pub mod recording;
pub mod shards;
mod yaml;
