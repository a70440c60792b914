//! The ROS 2 node: subscribes, calls the [`Predictor`](crate::predictor::Predictor), publishes.
//!
//! Two threads. One spins: it takes every message as soon as it is there, decodes it and pairs it
//! into frames. The other predicts and publishes. Between them lies a [mailbox](mailbox::Mailbox)
//! that holds the newest frame only, so that a slow machine predicts from new frames, never from a
//! queue of old ones; each frame that a newer one replaced is counted in `~/timing`.

mod intake;
mod mailbox;
mod node;
mod parameters;
mod problems;
mod publish;
mod worker;

pub use node::run;
