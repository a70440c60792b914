//! Messages that a recording has late: given out before the images that they belong to.

use std::collections::{HashMap, HashSet};

use crate::bag::{Bag, RawMessage};
use forecloud::message::{Stamp, TfMessage};
use forecloud::vision::frames::{FramesConfig, Topics};

/// Bytes of such messages that are held; what is beyond that comes when it was recorded.
const MAX_BYTES: usize = 256 << 20;
/// Seconds of stamps by which joints and transforms go ahead of the images.
const AHEAD_SECS: f64 = 0.5;
/// Bytes of a message before its header's stamp: of one that begins with a header.
const HEADER_AT: usize = 4;

/// What is given out before its time.
pub(super) struct Ahead {
    /// Calibrations, fixed transforms and the robot's description: the first of each.
    start: Vec<RawMessage>,
    /// Joint states and moving transforms, the last first.
    moving: Vec<(Stamp, RawMessage)>,
    /// How many of each topic's messages, as they were recorded, these are: the first ones.
    n_given: HashMap<String, usize>,
}

impl Ahead {
    /// Reads what `config` names of `bag`; what can't be read is told when it is played.
    ///
    /// Topics whose time was set back come as they were recorded.
    pub(super) fn read(bag: &Bag, config: &FramesConfig) -> Self {
        let Topics { joint_states, tf, tf_static, robot_description, cameras, .. } = &config.topics;
        let infos = cameras.iter().flat_map(|camera| [&camera.color_info, &camera.depth_info]);
        let once: HashSet<&str> =
            infos.chain([robot_description, tf_static]).map(String::as_str).collect();
        let moves = [joint_states.as_str(), tf.as_str()];
        let is_wanted = |name: &str| once.contains(name) || moves.contains(&name);
        let (mut start, mut moving, mut n_bytes) = (Vec::new(), Vec::new(), 0);
        let (mut known, mut newest) = (HashSet::new(), HashMap::<String, Stamp>::new());
        let mut jumped = HashSet::new();
        for message in bag.messages_where(is_wanted).flatten() {
            n_bytes += message.data.len();
            if n_bytes > MAX_BYTES {
                break;
            }
            let topic = message.topic.to_string();
            if once.contains(topic.as_str()) {
                let is_new = match topic == *tf_static {
                    // One message may tell of one frame of many.
                    true => children(&message.data).into_iter().all(|child| known.insert(child)),
                    false => known.insert(topic),
                };
                start.extend(is_new.then_some(message));
                continue;
            }
            // What has no stamp can't be decoded: it is counted like any other.
            let stamp = stamp_of(&message.data, topic == *tf).unwrap_or_default();
            let last = newest.entry(topic.clone()).or_insert(stamp);
            if last.secs_since(stamp) > config.time_jump_secs {
                jumped.insert(topic);
            }
            *last = stamp.max(*last);
            moving.push((stamp, message));
        }
        moving.retain(|(_, message)| !jumped.contains(&*message.topic));
        // Stable: of one stamp, in the order of the recording.
        moving.sort_by_key(|(stamp, _)| *stamp);
        moving.reverse();
        let mut n_given = HashMap::new();
        for (_, message) in &moving {
            *n_given.entry(message.topic.to_string()).or_insert(0) += 1;
        }
        Self { start, moving, n_given }
    }

    /// Whether the next message of `topic`, as they were recorded, is given out here.
    pub(super) fn gives(&mut self, topic: &str) -> bool {
        let left = self.n_given.get_mut(topic).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }

    /// The messages that are to be known before an image of `stamp`.
    pub(super) fn until(&mut self, stamp: Stamp) -> Vec<RawMessage> {
        let until = stamp.plus_secs(AHEAD_SECS);
        let at = self.moving.partition_point(|(stamp, _)| *stamp > until);
        let moving = self.moving.split_off(at).into_iter().rev().map(|(_, message)| message);
        std::mem::take(&mut self.start).into_iter().chain(moving).collect()
    }
}

/// The frames that a message of fixed transforms places.
fn children(data: &[u8]) -> Vec<String> {
    let transforms = TfMessage::decode(data).map_or(Vec::new(), |message| message.transforms);
    transforms.into_iter().map(|transform| transform.child_frame_id).collect()
}

/// The stamp of the first header; transforms are counted before it.
pub(super) fn stamp_of(data: &[u8], is_tf: bool) -> Option<Stamp> {
    let at = if is_tf { HEADER_AT + 4 } else { HEADER_AT };
    let is_little = data.get(1)? & 1 == 1;
    let number = |at: usize| -> Option<[u8; 4]> { data.get(at..at + 4)?.try_into().ok() };
    let (sec, nanosec) = (number(at)?, number(at + 4)?);
    Some(match is_little {
        true => Stamp::from_parts(i32::from_le_bytes(sec), u32::from_le_bytes(nanosec)),
        false => Stamp::from_parts(i32::from_be_bytes(sec), u32::from_be_bytes(nanosec)),
    })
}
