//! What the subscriptions ask of their publishers, and whether those give it.

use std::time::{Duration, Instant};

use r2r::QosProfile;
use r2r::qos::{DurabilityPolicy, ReliabilityPolicy};

use super::arguments::Arguments;
use super::health::{Health, Publisher, Topic};
use forecloud::vision::frames::{Role, TopicSpec};

/// Time between two looks at the publishers of one topic after another.
const LOOK: Duration = Duration::from_millis(200);

/// The QoS that a subscription asks for.
pub fn profile(role: Role) -> QosProfile {
    match role {
        // Best effort also matches reliable publishers (the other way it does not), and a lost
        // image or joint state is made up for by the next one. It loses large messages where the
        // publisher has no shared memory segment for them: config/fastdds_large_clouds.xml gives
        // it one.
        Role::Images => QosProfile::sensor_data(),
        Role::States => QosProfile::sensor_data().keep_last(100),
        // What was sent before the node started.
        Role::Latched => QosProfile::default().keep_last(100).reliable().transient_local(),
    }
}

/// Looks at who publishes the subscribed topics, one topic at a time.
pub struct TopicWatch {
    /// With the names that they have after remaps.
    topics: Vec<(String, TopicSpec)>,
    next: usize,
    looked: Option<Instant>,
}

impl TopicWatch {
    /// Of the topics by the names that they have after the remaps of `arguments`.
    ///
    /// # Errors
    /// What rcl says of the node's name.
    pub fn new(
        node: &r2r::Node,
        arguments: &Arguments,
        topics: Vec<TopicSpec>,
    ) -> r2r::Result<Self> {
        let (name, namespace) = (node.name()?, node.namespace()?);
        let with_full_name =
            |topic: TopicSpec| (arguments.topic(&topic.name, &name, &namespace), topic);
        Ok(Self { topics: topics.into_iter().map(with_full_name).collect(), next: 0, looked: None })
    }

    /// The topics, for [`Health`].
    pub fn topics(&self) -> Vec<Topic> {
        let topic = |(name, spec): &(String, TopicSpec)| {
            Topic::new(&spec.name, name, spec.message_type, spec.required)
        };
        self.topics.iter().map(topic).collect()
    }

    /// Looks at the next topic, if it is time to.
    pub fn look(&mut self, node: &r2r::Node, health: &Health) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        let Some((name, spec)) = self.topics.get(self.next) else {
            return;
        };
        // An error is the middleware's; the next look comes soon.
        if let Ok(found) = node.get_publishers_info_by_topic(name, false) {
            let publishers = found.iter().map(|publisher| Publisher {
                node: node_name(&publisher.node_namespace, &publisher.node_name),
                mismatch: mismatch(spec, &publisher.topic_type, &publisher.qos_profile),
            });
            let publishers: Vec<Publisher> = publishers.collect();
            let new = health.note(|facts, _| facts.publishers(self.next, publishers));
            for Publisher { node, mismatch } in new {
                let mismatch = mismatch.unwrap_or_default();
                tracing::warn!("{name} of {node} {mismatch}");
            }
        }
        self.next = (self.next + 1) % self.topics.len();
    }
}

fn node_name(namespace: &str, name: &str) -> String {
    match name {
        "" | "_NODE_NAME_UNKNOWN_" => "a publisher that is not a ROS node".to_owned(),
        name => format!("{}/{name}", namespace.trim_end_matches('/')),
    }
}

/// Why nothing of a publisher arrives, with the remedy; none if it does.
fn mismatch(ours: &TopicSpec, their_type: &str, theirs: &QosProfile) -> Option<String> {
    if their_type != ours.message_type {
        return Some(format!(
            "is of type {their_type}, and the node reads {}: nothing arrives. Remedy: remap the \
             topic to one of that type",
            ours.message_type
        ));
    }
    let wanted = profile(ours.role);
    let lacks = [
        (
            wanted.reliability == ReliabilityPolicy::Reliable
                && theirs.reliability == ReliabilityPolicy::BestEffort,
            "best effort",
            "reliable",
        ),
        (
            wanted.durability == DurabilityPolicy::TransientLocal
                && theirs.durability == DurabilityPolicy::Volatile,
            "volatile",
            "transient local",
        ),
    ];
    let is: Vec<&str> = lacks.iter().filter(|lack| lack.0).map(|lack| lack.1).collect();
    let should: Vec<&str> = lacks.iter().filter(|lack| lack.0).map(|lack| lack.2).collect();
    (!is.is_empty()).then(|| {
        format!(
            "is {}, but the node needs it {}, because it is sent once, maybe before the node \
             starts: nothing arrives. Remedy: publish it {}",
            is.join(" and "),
            should.join(" and "),
            should.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(role: Role) -> TopicSpec {
        let name = "/topic".to_owned();
        TopicSpec { name, message_type: "std_msgs/msg/String", role, required: true }
    }

    #[test]
    fn publishers_that_cannot_be_heard_are_told() {
        let latched = QosProfile::default().transient_local();
        let (sensor, default) = (QosProfile::sensor_data(), QosProfile::default());
        for (role, theirs, told) in [
            (Role::Images, &sensor, None),
            (Role::Images, &default, None),
            (Role::States, &latched, None),
            (Role::Latched, &latched, None),
            (Role::Latched, &default, Some("publish it transient local")),
            (Role::Latched, &sensor, Some("publish it reliable and transient local")),
            (Role::Latched, &latched.clone().best_effort(), Some("publish it reliable")),
        ] {
            let text = mismatch(&of(role), "std_msgs/msg/String", theirs);
            let fits = match (&text, told) {
                (None, None) => true,
                (Some(text), Some(told)) => text.ends_with(told),
                _ => false,
            };
            assert!(fits, "{role:?} {theirs:?}: {text:?}");
        }
        let text = mismatch(&of(Role::Images), "std_msgs/msg/Int32", &default).unwrap();
        assert!(text.contains("std_msgs/msg/Int32") && text.contains("std_msgs/msg/String"));
    }

    #[test]
    fn nodes_are_named_in_full() {
        assert_eq!(node_name("/", "driver"), "/driver");
        assert_eq!(node_name("/robot", "driver"), "/robot/driver");
        assert!(node_name("", "_NODE_NAME_UNKNOWN_").contains("not a ROS node"));
    }
}
