//! What a robot slows down by: contacts to come, and the share of its speed. Not a certified safety function.

mod messages;
mod watchdog;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use r2r::forecloud::msg::Contacts as ContactsMsg;
use r2r::std_msgs::msg::{Float64, Header};
use r2r::visualization_msgs::msg::MarkerArray;
use r2r::{Publisher, PublisherUntyped, QosProfile};

use super::parameters::NodeConfig;
use forecloud::predict::contacts::{ContactSettings, Contacts};
use forecloud::predict::predictor::Prediction;
pub use watchdog::Watchdog;

/// The topic that joint trajectory controllers take their speed from, and its type.
const FACTOR: [&str; 2] = ["~/speed_scaling_factor", "control_msgs/msg/SpeedScalingFactor"];

/// How contacts become a share of the speed.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedSettings {
    /// What counts as a contact.
    pub contacts: ContactSettings,
    /// Contacts that are less probable don't slow down.
    pub probability: f32,
    /// Times to a contact at which the robot stands, and from which on it goes at full speed (s).
    pub stop_secs: f32,
    /// See `stop_secs`.
    pub slow_secs: f32,
    /// Links whose contacts are wanted: they don't slow down.
    pub wanted: Vec<String>,
    /// Age of a prediction (from when its last image came) from which on it is late.
    pub timeout: Duration,
}

impl SpeedSettings {
    /// Of the node's parameters.
    pub fn new(config: &NodeConfig) -> Self {
        Self {
            contacts: ContactSettings {
                touch_m: config.contact_distance_m as f32,
                ..ContactSettings::default()
            },
            probability: config.slow_probability as f32,
            stop_secs: config.slow_stop_secs as f32,
            slow_secs: config.slow_secs as f32,
            wanted: config.slow_ignored_links.clone(),
            timeout: Duration::from_secs_f64(config.slow_timeout_secs),
        }
    }

    /// The share of the speed, 0 to 1, that the most urgent of `contacts` allows: 0 without a robot, as nothing
    /// is known then.
    fn scale(&self, contacts: &Contacts) -> f64 {
        if !contacts.has_robot {
            return 0.0;
        }
        let counted = contacts.contacts.iter().filter(|contact| {
            contact.probability >= self.probability && !self.wanted.contains(&contact.link)
        });
        let span_secs = (self.slow_secs - self.stop_secs).max(1e-3);
        let scale = |secs: f32| ((secs - self.stop_secs) / span_secs).clamp(0.0, 1.0);
        f64::from(counted.map(|contact| scale(contact.time_secs)).fold(1.0, f32::min))
    }
}

/// The publishers, which the watchdog's thread alone publishes with: so a late prediction is never published
/// after the word that it is late.
#[derive(Clone)]
pub(super) struct Publishers {
    contacts: Publisher<ContactsMsg>,
    markers: Publisher<MarkerArray>,
    scale: Publisher<Float64>,
    /// Where this ROS has the type.
    factor: Option<PublisherUntyped>,
}

impl Publishers {
    fn new(node: &mut r2r::Node) -> anyhow::Result<Self> {
        let failed = |topic: &'static str| {
            move |error: r2r::Error| anyhow::anyhow!("publisher of {topic}: {error}")
        };
        let qos = QosProfile::default().keep_last(10).reliable();
        let latched = QosProfile::default().keep_last(1).reliable().transient_local();
        let factor = node.create_publisher_untyped(FACTOR[0], FACTOR[1], latched.clone());
        if let Err(error) = &factor {
            let [topic, kind] = FACTOR;
            tracing::info!("no {topic}: this ROS has no {kind} ({error}). Use ~/speed_scale");
        }
        Ok(Self {
            contacts: node
                .create_publisher("~/contact", qos.clone())
                .map_err(failed("~/contact"))?,
            markers: node
                .create_publisher("~/contact_markers", qos)
                .map_err(failed("~/contact_markers"))?,
            scale: node
                .create_publisher("~/speed_scale", latched)
                .map_err(failed("~/speed_scale"))?,
            factor: factor.ok(),
        })
    }

    fn end(self, node: &mut r2r::Node) {
        let Self { contacts, markers, scale, factor } = self;
        node.destroy_publisher(contacts);
        node.destroy_publisher(markers);
        node.destroy_publisher(scale);
        if let Some(factor) = factor {
            node.destroy_publisher_untyped(factor);
        }
    }

    /// Whether somebody subscribes to any of it.
    fn are_heard(&self) -> bool {
        let factor = self.factor.as_ref().map(|p| p.get_inter_process_subscription_count());
        let counts = [
            self.contacts.get_inter_process_subscription_count(),
            self.markers.get_inter_process_subscription_count(),
            self.scale.get_inter_process_subscription_count(),
        ];
        // Where rcl can't tell, rather once too often.
        counts.into_iter().chain(factor).any(|count| count.map_or(true, |n| n > 0))
    }

    fn publish(&self, told: &Told) -> r2r::Result<()> {
        self.scale.publish(&Float64 { data: told.scale })?;
        if let Some(factor) = &self.factor {
            factor.publish_raw(&messages::factor(told.scale))?;
        }
        if let Some(contacts) = &told.contacts {
            self.contacts.publish(contacts)?;
            if self.markers.get_inter_process_subscription_count()? > 0 {
                self.markers.publish(&messages::markers(contacts))?;
            }
        }
        Ok(())
    }
}

/// What is told of one prediction, or of there being none.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    scale: f64,
    contacts: Option<ContactsMsg>,
}

/// The predicting thread's end.
pub struct Safety {
    settings: SpeedSettings,
    /// To see who hears.
    publishers: Publishers,
    watchdog: Arc<Watchdog>,
    /// Its thread, until it is ended.
    thread: Option<JoinHandle<()>>,
}

impl Safety {
    /// Creates the publishers, and starts the watchdog, which says at once that nothing is known.
    ///
    /// # Errors
    /// What rcl says, with the topic.
    pub fn new(node: &mut r2r::Node, settings: SpeedSettings) -> anyhow::Result<Self> {
        let publishers = Publishers::new(node)?;
        let (watchdog, thread) = Watchdog::start(publishers.clone())?;
        Ok(Self { settings, publishers, watchdog, thread: Some(thread) })
    }

    /// Ends the watchdog, which says a last time that nothing is known, and takes all publishers from `node`.
    pub fn end(mut self, node: &mut r2r::Node) {
        self.watchdog.close();
        // A thread that panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
        if self.is_heard() {
            // The last word is sent again where it was lost, for as long as its publisher is there.
            std::thread::sleep(super::node::FAREWELL);
        }
        self.publishers.clone().end(node);
    }

    /// Whether somebody subscribes to any of it.
    pub fn is_heard(&self) -> bool {
        self.publishers.are_heard()
    }

    /// Tells what `prediction`, whose last image came at `arrived`, says; late ones are told as such.
    pub fn tell(&self, prediction: &Prediction, header: &Header, arrived: Instant) {
        if !self.is_heard() {
            return;
        }
        let contacts = prediction.contacts(&self.settings.contacts);
        let scale = self.settings.scale(&contacts);
        let contacts = messages::contacts(&contacts, header.clone());
        let told = Told { scale, contacts: Some(contacts) };
        self.watchdog.tell(told, arrived + self.settings.timeout);
    }

    /// Nothing that was told holds any more: frames were forgotten, or predicting is paused.
    pub fn invalidate(&self) {
        self.watchdog.invalidate();
    }
}

impl Drop for Safety {
    fn drop(&mut self) {
        self.watchdog.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::predict::contacts::Contact;

    fn settings() -> SpeedSettings {
        SpeedSettings {
            contacts: ContactSettings::default(),
            probability: 0.5,
            stop_secs: 0.2,
            slow_secs: 0.6,
            wanted: vec!["finger".into()],
            timeout: Duration::from_millis(300),
        }
    }

    fn scale(contacts: &[(&str, f32, f32)]) -> f64 {
        let contact = |&(link, time_secs, probability): &(&str, f32, f32)| Contact {
            link: link.into(),
            object: None,
            time_secs,
            min_distance_m: 0.0,
            place: [0.0; 3],
            probability,
        };
        let contacts = contacts.iter().map(contact).collect();
        settings().scale(&Contacts { has_robot: true, horizon_secs: 1.0, contacts })
    }

    #[test]
    fn the_most_urgent_probable_contact_of_a_link_that_counts_slows_down() {
        assert_eq!(scale(&[]), 1.0);
        assert!((scale(&[("arm", 0.4, 0.9)]) - 0.5).abs() < 1e-6);
        assert!((scale(&[("arm", 0.4, 0.9), ("hand", 0.3, 0.5)]) - 0.25).abs() < 1e-6);
        assert_eq!(scale(&[("arm", 0.1, 0.9)]), 0.0);
        assert_eq!(scale(&[("arm", 0.9, 0.9)]), 1.0);
        assert_eq!(scale(&[("arm", 0.1, 0.4), ("finger", 0.1, 1.0)]), 1.0);
        assert_eq!(settings().scale(&Contacts::default()), 0.0, "without a robot");
        let equal = SpeedSettings { slow_secs: 0.2, ..settings() };
        let contacts = Contacts { has_robot: true, ..Contacts::default() };
        assert_eq!(equal.scale(&contacts), 1.0);
    }
}
