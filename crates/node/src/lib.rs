//! The ROS 2 node: subscribes, calls the [`Predictor`](forecloud::predict::predictor::Predictor), publishes.
//!
//! Five threads. One spins: it takes every message as soon as it is there, decodes it and pairs it
//! into frames, and answers services. One predicts and publishes. Between them lies a
//! mailbox (`mailbox.rs`) that holds the newest frame only, so that a slow machine predicts
//! from new frames, never from a queue of old ones; each frame that a newer one replaced is counted
//! in `~/timing`. The third rolls out candidate plans (`rollouts.rs`)
//! when asked to, the fourth judges plans and finds them (`planning.rs`). The fifth is
//! the watchdog of the speed scale (`safety.rs`).

#![cfg(feature = "ros")]

mod action;
mod arguments;
mod clock;
mod diagnostics;
mod goal;
mod health;
mod intake;
mod lifecycle;
mod mailbox;
mod markers;
mod node;
mod object_frames;
mod object_messages;
mod occupied;
mod outside;
mod parameter_services;
mod parameters;
mod plan_action;
mod planning;
mod pose_at;
mod problems;
mod publish;
mod qos;
mod queue;
pub mod relay;
mod rollouts;
mod rosout;
mod safety;
mod service;
mod services;
mod shm;
mod static_tf;
mod text;
mod trajectory;
mod worker;

pub use node::run;

/// A time of the system's clock as ROS has it.
fn system_time(time: std::time::SystemTime) -> r2r::builtin_interfaces::msg::Time {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let sec = i32::try_from(since.as_secs()).unwrap_or(i32::MAX);
    r2r::builtin_interfaces::msg::Time { sec, nanosec: since.subsec_nanos() }
}
