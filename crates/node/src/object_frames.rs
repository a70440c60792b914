//! Objects as tf frames: `forecloud/object_3/now`, `forecloud/object_3/in_0.5s`, for those who look poses up.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use r2r::geometry_msgs::msg::{Transform, TransformStamped, Vector3};
use r2r::std_msgs::msg::Header;
use r2r::tf2_msgs::msg::TFMessage;
use r2r::{Publisher, QosProfile};

use super::object_messages;
use super::parameters::NodeConfig;
use forecloud::predict::objects::Object;

/// Frames for each object, at most: every listener to tf keeps all of them.
const MAX_TIMES: usize = 4;
/// Objects that get frames, at most.
const MAX_OBJECTS: usize = 64;
/// How far ahead a frame may be (s): as far as any prediction.
const MAX_SECS: f64 = 10.0;

/// The publisher on `/tf`, and which frames it tells of.
pub struct ObjectFrames {
    publisher: Publisher<TFMessage>,
    /// Full name of the node without the first slash: nodes side by side have different ones.
    node_name: String,
    /// Seconds ahead, and the last part of the frames' names.
    times: Vec<(f64, String)>,
    /// Age of a prediction from which on it is told no more.
    timeout: Duration,
}

impl ObjectFrames {
    /// The publisher; none where no frames are asked for.
    ///
    /// # Errors
    /// Times that are too many, too far ahead or given twice, and what rcl says.
    pub fn new(node: &mut r2r::Node, config: &NodeConfig) -> anyhow::Result<Option<Self>> {
        let times = frame_times(&config.object_frames_secs).context("parameters")?;
        if times.is_empty() {
            return Ok(None);
        }
        let node_name = node.fully_qualified_name()?.trim_start_matches('/').to_owned();
        let qos = QosProfile::default().keep_last(100).reliable();
        let publisher = node.create_publisher("/tf", qos).context("publisher of /tf")?;
        let timeout = Duration::from_secs_f64(config.slow_timeout_secs);
        Ok(Some(Self { publisher, node_name, times, timeout }))
    }

    /// Takes the publisher from `node`.
    pub fn end(self, node: &mut r2r::Node) {
        node.destroy_publisher(self.publisher);
    }

    /// Whether somebody else subscribes to `/tf`: the node itself always does.
    pub fn are_heard(&self) -> bool {
        // Where rcl can't tell, rather once too often.
        self.publisher.get_inter_process_subscription_count().map_or(true, |n| n > 1)
    }

    /// Publishes where `objects` are and will be, if somebody listens; nothing of a prediction whose last image
    /// came at `arrived`, too long ago.
    ///
    /// # Errors
    /// What rcl says.
    pub fn publish(
        &self,
        objects: &[Object],
        header: &Header,
        step_secs: f64,
        arrived: Instant,
    ) -> r2r::Result<()> {
        if !self.are_heard() || arrived.elapsed() >= self.timeout {
            return Ok(());
        }
        let transforms = self.transforms(objects, header, step_secs);
        if transforms.is_empty() {
            Ok(())
        } else {
            self.publisher.publish(&TFMessage { transforms })
        }
    }

    /// All frames carry the stamp of the prediction: at its time, `in_0.5s` is where the object will be 0.5 s
    /// later. Times beyond the prediction's steps have no frame.
    fn transforms(
        &self,
        objects: &[Object],
        header: &Header,
        step_secs: f64,
    ) -> Vec<TransformStamped> {
        let mut largest: Vec<&Object> = objects.iter().collect();
        largest.sort_by_key(|object| Reverse(object.n_particles));
        largest.truncate(MAX_OBJECTS);
        let frame = |object: &Object, (secs, name): &(f64, String)| {
            let last = object.path.len().checked_sub(1)? as f64;
            let steps = secs / step_secs;
            // 0.3 s are 3 steps of 0.1 s, whatever the last digit says.
            let steps = if steps > last && steps < last + 1e-6 { last } else { steps };
            let pose = object_messages::pose(&object.pose_after(steps)?);
            let (at, number) = (pose.position, object.followed.number);
            Some(TransformStamped {
                header: header.clone(),
                child_frame_id: format!("{}/object_{number}/{name}", self.node_name),
                transform: Transform {
                    translation: Vector3 { x: at.x, y: at.y, z: at.z },
                    rotation: pose.orientation,
                },
            })
        };
        let frames = |object| self.times.iter().filter_map(move |time| frame(object, time));
        largest.into_iter().flat_map(frames).collect()
    }
}

/// The times with their names, such as `now` and `in_0.5s`.
fn frame_times(secs: &[f64]) -> anyhow::Result<Vec<(f64, String)>> {
    if secs.len() > MAX_TIMES {
        bail!("`object_frames_secs` may have {MAX_TIMES} times, but has {}", secs.len());
    }
    let name = |secs: f64| if secs == 0.0 { "now".into() } else { format!("in_{secs}s") };
    let mut times: Vec<(f64, String)> = Vec::new();
    for &secs in secs {
        if !(0.0..=MAX_SECS).contains(&secs) {
            bail!("`object_frames_secs` must be from 0 to {MAX_SECS} (s), but has {secs}");
        }
        if times.iter().any(|(other, _)| *other == secs) {
            bail!("`object_frames_secs` has {secs} twice");
        }
        times.push((secs, name(secs)));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_named_by_their_times() {
        let names = |secs: &[f64]| {
            frame_times(secs).map(|times| times.into_iter().map(|(_, name)| name).collect())
        };
        let named: Vec<String> = names(&[0.0, 0.5, 1.0]).unwrap();
        assert_eq!(named, ["now", "in_0.5s", "in_1s"]);
        assert!(frame_times(&[]).unwrap().is_empty());
        for (wrong, told) in [
            (&[0.1, 0.2, 0.3, 0.4, 0.5][..], "may have 4 times, but has 5"),
            (&[0.5, -0.1], "from 0 to 10 (s), but has -0.1"),
            (&[f64::NAN], "but has NaN"),
            (&[11.0], "but has 11"),
            (&[0.5, 0.0, 0.5], "0.5 twice"),
        ] {
            let error = format!("{:#}", frame_times(wrong).unwrap_err());
            assert!(error.contains(told), "{error}");
        }
    }
}
