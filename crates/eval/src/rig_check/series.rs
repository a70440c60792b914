//! Stamps and values of a recording's messages, without the images' pixels.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use forecloud::message::{
    CameraInfo, CompressedImage, Image, JointState, JointTrajectory, Reduction, Stamp,
    StringMessage, TfMessage,
};
use forecloud::predict::rig::DepthValues;
use forecloud_bag::recording::Recording;

/// Plans that are kept.
const MAX_PLANS: usize = 4096;
/// Depth images of a camera that are looked at.
const N_DEPTHS: u64 = 6;
/// Joint states that are kept.
const MAX_STATES: usize = 1 << 20;

/// When the messages of a source were stamped and received.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    /// Stamps, and receive times (ns), in the order of receipt.
    pub(super) all: Vec<(Stamp, i64)>,
    /// Messages with a stamp of 0.
    pub(super) n_zero: u64,
}

/// A joint state, its joints by their numbers in [`Series::joints`].
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) stamp: Stamp,
    /// Which order of names it has: index into [`Series::orders`].
    pub(super) order: usize,
    pub(super) positions: Vec<f64>,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// By topic: images, calibrations, joint states, plans; and `tf` by child frame, without the fixed ones.
    pub(super) times: BTreeMap<String, Times>,
    /// In the order of receipt.
    pub(super) states: Vec<State>,
    /// Lists of joint names that came.
    pub(super) orders: Vec<Arc<[String]>>,
    pub(super) plans: Vec<JointTrajectory>,
    /// Of the images (colour, or what is registered to it), by camera.
    pub(super) infos: Vec<Option<CameraInfo>>,
    /// The first ones as they were published, with what was done to the images: by topic.
    pub(super) published: BTreeMap<String, (CameraInfo, Reduction)>,
    /// Size of the first image, by topic.
    pub(super) sizes: BTreeMap<String, [u32; 2]>,
    /// Depths as they were published, by camera: frames have them in known units.
    pub(super) depths: Vec<DepthValues>,
    /// Frame of each camera's images.
    pub(super) camera_frames: Vec<Option<String>>,
    /// Messages that can't be decoded: by topic, how many, and why the first can't.
    pub(super) unreadable: BTreeMap<String, (u64, String)>,
    /// All that came, in their order, without repetitions in a row.
    pub(super) descriptions: Vec<String>,
}

impl Series {
    /// Reads the messages of the topics that frames are made of, of the first `secs` of a recording.
    pub(super) fn read(recording: &Recording, secs: f64) -> Self {
        let topics = &recording.frames_config().topics;
        let n_cameras = topics.cameras.len();
        let mut series = Self {
            infos: vec![None; n_cameras],
            depths: vec![DepthValues::default(); n_cameras],
            camera_frames: vec![None; n_cameras],
            ..Self::default()
        };
        let specs = recording.frames_config().specs();
        let kinds: HashMap<&str, &str> =
            specs.iter().map(|spec| (spec.name.as_str(), spec.message_type)).collect();
        let messages = recording.bag().messages_where(|name| kinds.contains_key(name));
        let mut n_depths = vec![0u64; n_cameras];
        let period_ns = 1e9 * recording.bag().duration_secs().min(secs) / N_DEPTHS as f64;
        // What can't be read of the file is told by its frames.
        for message in messages.flatten() {
            let topic: &str = &message.topic;
            let (data, at) = (&message.data[..], message.log_time_ns);
            let start = recording.bag().start().map_or(at, |start| start.nanos());
            if (at - start) as f64 * 1e-9 > secs {
                break;
            }
            let camera = topics.cameras.iter().position(|camera| {
                [
                    &camera.color,
                    &camera.depth,
                    &camera.color_info,
                    &camera.depth_info,
                    &camera.points,
                ]
                .contains(&&message.topic.to_string())
            });
            let taken = match kinds.get(topic).copied().unwrap_or_default() {
                "sensor_msgs/msg/CameraInfo" => series.take_info(topic, data, camera),
                "sensor_msgs/msg/JointState" => series.take_state(data),
                "trajectory_msgs/msg/JointTrajectory" => series.take_plan(data),
                "tf2_msgs/msg/TFMessage" => {
                    if topic == topics.tf {
                        series.take_tf(data, at);
                    }
                    continue;
                }
                "std_msgs/msg/String" => {
                    if let Ok(text) = StringMessage::decode(data)
                        && series.descriptions.last() != Some(&text.data)
                    {
                        series.descriptions.push(text.data);
                    }
                    continue;
                }
                kind => {
                    series.take_size(topic, kind, data);
                    let start = recording.bag().start().map_or(at, |start| start.nanos());
                    let due = camera.map_or(f64::INFINITY, |i| n_depths[i] as f64 * period_ns);
                    if (at - start) as f64 >= due
                        && let Some(camera) = camera.filter(|i| topics.cameras[*i].depth == topic)
                        // As published: frames have other units where these are known to be wrong.
                        && let Ok(image) = Image::decode(data)
                    {
                        n_depths[camera] += 1;
                        series.depths[camera].add(&image);
                    }
                    Ok(())
                }
            };
            if let Err(error) = taken {
                let entry = series.unreadable.entry(topic.to_owned());
                entry.or_insert((0, error.to_string())).0 += 1;
            }
            if let Some((stamp, frame)) = header(data) {
                series.note(topic, stamp, at);
                if let Some(slot) = camera.and_then(|i| series.camera_frames.get_mut(i)) {
                    slot.get_or_insert(frame);
                }
            }
        }
        series
    }

    fn note(&mut self, source: &str, stamp: Stamp, at: i64) {
        let times = self.times.entry(source.to_owned()).or_default();
        times.n_zero += u64::from(stamp.nanos() == 0);
        times.all.push((stamp, at));
    }

    fn take_info(
        &mut self,
        topic: &str,
        data: &[u8],
        camera: Option<usize>,
    ) -> forecloud::Result<()> {
        if !self.published.contains_key(topic) {
            self.published.insert(topic.to_owned(), CameraInfo::published(data)?);
        }
        let info = CameraInfo::decode(data)?;
        if let Some(slot) = camera.and_then(|camera| self.infos.get_mut(camera)) {
            slot.get_or_insert(info);
        }
        Ok(())
    }

    /// The size of a topic's first image; what is none is told by its frames.
    fn take_size(&mut self, topic: &str, kind: &str, data: &[u8]) {
        let decode: fn(&[u8]) -> forecloud::Result<Image> = match kind {
            "sensor_msgs/msg/Image" => Image::decode,
            "sensor_msgs/msg/CompressedImage" => CompressedImage::decode,
            _ => return,
        };
        if !self.sizes.contains_key(topic)
            && let Ok(image) = decode(data)
        {
            self.sizes.insert(topic.to_owned(), [image.width, image.height]);
        }
    }

    fn take_state(&mut self, data: &[u8]) -> forecloud::Result<()> {
        let JointState { header, names, positions, .. } = JointState::decode(data)?;
        if positions.is_empty() || self.states.len() == MAX_STATES {
            return Ok(());
        }
        let known = self.orders.iter().position(|order| **order == *names);
        let order = known.unwrap_or_else(|| {
            self.orders.push(names.into());
            self.orders.len() - 1
        });
        self.states.push(State { stamp: header.stamp, order, positions });
        Ok(())
    }

    fn take_plan(&mut self, data: &[u8]) -> forecloud::Result<()> {
        let plan = JointTrajectory::decode(data)?;
        if self.plans.len() < MAX_PLANS {
            self.plans.push(plan);
        }
        Ok(())
    }

    fn take_tf(&mut self, data: &[u8], at: i64) {
        let Ok(message) = TfMessage::decode(data) else { return };
        for transform in message.transforms {
            let source = format!("tf of {}", transform.child_frame_id);
            self.note(&source, transform.header.stamp, at);
        }
    }

    /// Joint states that came with positions.
    pub(super) fn n_states(&self) -> usize {
        self.states.len()
    }

    /// Positions of a joint over time (stamp order of receipt), with the order that told them.
    pub(super) fn of_joint(&self, name: &str) -> Vec<(Stamp, f64, usize)> {
        let columns: Vec<Option<usize>> =
            self.orders.iter().map(|names| names.iter().position(|other| other == name)).collect();
        let value = |state: &State| {
            let position = state.positions.get(columns[state.order]?)?;
            Some((state.stamp, *position, state.order))
        };
        self.states.iter().filter_map(value).collect()
    }

    /// Names of all joints that came, each once.
    pub(super) fn joint_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.orders.iter().flat_map(|order| order.iter()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Lowest and highest position of joints.
    pub(super) fn ranges(&self, names: &[String]) -> Vec<Option<[f64; 2]>> {
        let range = |name: &String| {
            let values = self.of_joint(name).into_iter().map(|(_, q, _)| [q, q]);
            values.reduce(|[a, b], [c, d]| [a.min(c), b.max(d)])
        };
        names.iter().map(range).collect()
    }
}

/// Stamp and frame of a message that begins with a header.
fn header(data: &[u8]) -> Option<(Stamp, String)> {
    let is_little = data.get(1)? & 1 == 1;
    let word = |at: usize| -> Option<u32> {
        let bytes = data.get(at..at + 4)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let stamp = Stamp::from_parts(word(4)? as i32, word(8)?);
    let length = word(12)? as usize;
    let text = data.get(16..)?.get(..length.checked_sub(1)?)?;
    Some((stamp, String::from_utf8_lossy(text).into_owned()))
}
