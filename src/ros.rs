//! The ROS 2 node: subscribes, calls the [`Predictor`](crate::predictor::Predictor), publishes.
//!
//! Three threads. One spins: it takes every message as soon as it is there, decodes it and pairs it
//! into frames, and answers services. One predicts and publishes. Between them lies a
//! [mailbox](mailbox::Mailbox) that holds the newest frame only, so that a slow machine predicts
//! from new frames, never from a queue of old ones; each frame that a newer one replaced is counted
//! in `~/timing`. The third rolls out [candidate plans](rollouts::Rollouts) when asked to.

mod clock;
mod intake;
mod mailbox;
mod node;
mod parameter_services;
mod parameters;
mod problems;
mod publish;
mod rollouts;
mod service;
mod services;
mod worker;

pub use node::run;
