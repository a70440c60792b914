//! A topic of a recording.

use forecloud::message::Stamp;
use std::sync::Arc;

/// A topic of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicInfo {
    /// Name of the topic.
    pub name: Arc<str>,
    /// ROS name of the message type, `std_msgs/msg/String`.
    pub message_type: String,
    /// Number of messages.
    pub n_messages: u64,
    /// Log time of the first message.
    pub first: Stamp,
    /// Log time of the last message.
    pub last: Stamp,
}

impl TopicInfo {
    /// Messages a second between the first and the last one; 0 for less than two.
    pub fn rate_hz(&self) -> f64 {
        let secs = self.last.secs_since(self.first);
        if secs > 0.0 { self.n_messages.saturating_sub(1) as f64 / secs } else { 0.0 }
    }
}
