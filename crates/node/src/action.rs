//! What all actions have in common: the names of their services and topics, and the ids of goals.

use r2r::QosProfile;
use r2r::unique_identifier_msgs::msg::UUID;

pub use forecloud::robot::relay::GoalId;

/// Name of one of the three services and two topics that an action is made of.
pub fn part(action: &str, what: &str) -> String {
    format!("{action}/_action/{what}")
}

/// QoS of an action's status: the last one, also for those who come later.
pub fn status_qos() -> QosProfile {
    QosProfile::default().keep_last(1).reliable().transient_local()
}

/// A UUID as ROS has it.
pub fn uuid(id: &GoalId) -> UUID {
    UUID { uuid: id.to_vec() }
}

/// A UUID from ROS.
pub fn goal_id(uuid: &UUID) -> GoalId {
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(&uuid.uuid) {
        *to = *from;
    }
    id
}
