//! How a recording's topics can serve as those that frames need, guessed by types and names.
//!
//! The names are those of the ROS 2 drivers of RealSense (realsense2_camera 4), Orbbec
//! (OrbbecSDK_ROS2 2), Azure Kinect (Azure_Kinect_ROS_Driver) and ZED (zed_wrapper 5) cameras, and
//! what is common to them: the words `color`, `rgb`, `depth`, and one namespace for each camera.

mod cameras;
#[cfg(test)]
mod tests;

use crate::bag::TopicInfo;
use cameras::Found;
use forecloud::vision::frames::{CameraInput, CameraTopics, TopicSpec, Topics};

const UNREGISTERED: &str = "-p depth_registered:=false";
/// Words in names of joint states that nobody measured.
const COMMAND_WORDS: [&str; 12] = [
    "command",
    "commands",
    "commanded",
    "cmd",
    "desired",
    "target",
    "targets",
    "goal",
    "reference",
    "setpoint",
    "planned",
    "leader",
];
/// Words in names of robot descriptions.
const DESCRIPTION_WORDS: [&str; 2] = ["robot_description", "urdf"];
/// Topics that are listed.
const MAX_LISTED: usize = 60;

/// Settings with which a recording can be read, probably.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Proposal {
    /// The cameras, with the topics that they have in the recording.
    pub cameras: Vec<CameraTopics>,
    /// Other topics: the name that is set, and that in the recording.
    pub remaps: Vec<(String, String)>,
    /// What can't be told from the names, and what is missing.
    pub notes: Vec<String>,
}

/// Guesses what of `topics` can serve as `wanted`; what is there stays as it is wanted.
///
/// Topics without messages count as missing.
pub fn propose(topics: &[TopicInfo], wanted: &Topics) -> Proposal {
    let topics: Vec<&TopicInfo> = topics.iter().filter(|topic| topic.n_messages > 0).collect();
    let has = |name: &str| topics.iter().any(|topic| &*topic.name == name);
    let (of_cameras, others): (Vec<TopicSpec>, Vec<TopicSpec>) =
        wanted.specs().into_iter().partition(|spec| is_of_camera(wanted, &spec.name));
    let default = Topics::default();
    let mut proposal = Proposal::default();
    if of_cameras.iter().any(|spec| spec.required && !has(&spec.name)) {
        let is_unregistered = wanted.cameras.iter().all(|camera| !camera.depth_registered);
        proposal.set_cameras(cameras::find(&topics), is_unregistered);
    } else if wanted.cameras != default.cameras {
        proposal.cameras.clone_from(&wanted.cameras);
    }
    let default_specs = default.specs().into_iter();
    let defaults = default_specs.filter(|spec| !is_of_camera(&default, &spec.name));
    for (spec, default) in others.into_iter().zip(defaults) {
        let serves = if has(&spec.name) { Some(&*spec.name) } else { similar(&topics, &spec) };
        match serves {
            Some(name) if name == default.name => {}
            Some(name) => proposal.remaps.push((default.name, name.to_owned())),
            None if spec.required => proposal
                .notes
                .push(format!("no topic is a {}: record {}", spec.message_type, spec.name)),
            None => {}
        }
    }
    proposal
}

/// The topic of the same type that has most messages, measured ones before commanded ones.
fn similar<'a>(topics: &[&'a TopicInfo], spec: &TopicSpec) -> Option<&'a str> {
    // Other nodes publish transforms and texts, too: only those of the same last name will do.
    let is_named_alike = |name: &str| match spec.message_type {
        "tf2_msgs/msg/TFMessage" => last_part(name) == last_part(&spec.name),
        "std_msgs/msg/String" => {
            DESCRIPTION_WORDS.iter().any(|word| last_part(name).contains(word))
        }
        _ => true,
    };
    let fits = |topic: &&&TopicInfo| {
        topic.message_type == spec.message_type && is_named_alike(&topic.name)
    };
    let is_measured = |topic: &TopicInfo| {
        spec.message_type != "sensor_msgs/msg/JointState"
            || !last_words(&topic.name).any(|word| COMMAND_WORDS.contains(&&*word))
    };
    let best =
        topics.iter().filter(fits).max_by_key(|topic| (is_measured(topic), topic.n_messages));
    best.map(|topic| &*topic.name)
}

/// Words of a topic's last part, small.
fn last_words(name: &str) -> impl Iterator<Item = String> {
    last_part(name).split('_').map(str::to_lowercase).collect::<Vec<_>>().into_iter()
}

/// What a recording lacks and has, for [`forecloud::Error::MissingTopics`].
pub(super) fn describe(missing: &[TopicSpec], present: &[TopicInfo], notes: &[String]) -> String {
    let mut text = String::from("topics that frames need have no messages:");
    for TopicSpec { name, message_type, .. } in missing {
        text += &format!("\n  {name} ({message_type})");
    }
    text += "\nIt has:";
    for TopicInfo { name, message_type, n_messages, .. } in present.iter().take(MAX_LISTED) {
        text += &format!("\n  {name} ({message_type}): {n_messages}");
    }
    if present.len() > MAX_LISTED {
        text += &format!("\n  and {} more: see `forecloud info`", present.len() - MAX_LISTED);
    }
    for note in notes {
        text += &format!("\nNote: {note}");
    }
    text
}

fn is_of_camera(topics: &Topics, name: &str) -> bool {
    let is = |camera: &CameraTopics| {
        let CameraTopics { color, depth, color_info, depth_info, points, .. } = camera;
        [color, depth, color_info, depth_info, points].into_iter().any(|topic| topic == name)
    };
    topics.cameras.iter().any(is)
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

impl Proposal {
    /// The topics that are read with it.
    pub fn topics(&self) -> Topics {
        let mut topics = Topics::default();
        if !self.cameras.is_empty() {
            topics.cameras.clone_from(&self.cameras);
        }
        for (from, to) in &self.remaps {
            topics.remap(from, to);
        }
        topics
    }

    /// The tool's arguments for it; none if there is nothing to propose.
    ///
    /// Names that a shell would take apart are quoted.
    pub fn arguments(&self) -> Option<String> {
        let mut arguments = Vec::new();
        if let Some(first) = self.cameras.first() {
            let names: Vec<&str> = self.cameras.iter().map(|camera| &*camera.name).collect();
            arguments.push(format!("--cameras {}", shell_word(&names.join(","))));
            let mut inputs: Vec<&str> = self.cameras.iter().map(|c| c.input.name()).collect();
            if self.cameras.iter().all(|camera| camera.input == first.input) {
                inputs.truncate(1);
            }
            if inputs != [CameraInput::default().name()] {
                arguments.push(format!("--input {}", inputs.join(",")));
            }
            if !first.depth_registered {
                arguments.push(UNREGISTERED.into());
            }
        }
        for (from, to) in self.cameras.iter().flat_map(camera_remaps).chain(self.remaps.clone()) {
            arguments.push(format!("--remap {}", shell_word(&format!("{from}:={to}"))));
        }
        (!arguments.is_empty()).then(|| arguments.join(" "))
    }

    /// Images where there are any; clouds of lidars beside them are not asked for.
    /// `is_unregistered`: it was said that depth is not registered to colour.
    fn set_cameras(&mut self, mut found: Vec<Found>, is_unregistered: bool) {
        if is_unregistered {
            found.iter_mut().for_each(Found::unregister);
        }
        let has_images = found.iter().any(|camera| camera.images.is_some());
        let topics = |camera: &Found| match has_images {
            true => camera.images.clone(),
            false => camera.points.clone(),
        };
        self.cameras = found.iter().filter_map(topics).collect();
        if self.cameras.is_empty() && found.is_empty() {
            self.notes.push(
                "no camera was found: record the colour and depth images and the calibration \
                 (sensor_msgs/msg/CameraInfo) of each, or its point cloud"
                    .into(),
            );
            return;
        }
        for camera in found.iter().filter(|camera| topics(camera).is_none()) {
            let namespace = if camera.namespace.is_empty() { "/" } else { &camera.namespace };
            let is = if self.cameras.is_empty() { "can't be used" } else { "is left out" };
            self.notes.push(format!("the camera in {namespace} {is}: {}", camera.lack));
        }
        if self.cameras.is_empty() {
            return;
        }
        self.register();
        if has_images && !is_unregistered && found.iter().any(|camera| camera.is_unsure) {
            let (is, change) = match self.cameras.iter().all(|camera| camera.depth_registered) {
                true => ("is not", "add"),
                false => ("is", "leave out"),
            };
            self.notes.push(format!("if depth {is} registered to colour, {change} {UNREGISTERED}"));
        }
        self.name_cameras();
    }

    /// Cameras are either all registered or none: that of which there are more.
    fn register(&mut self) {
        let n = self.cameras.iter().filter(|camera| camera.depth_registered).count();
        let registered = 2 * n >= self.cameras.len();
        let notes = &mut self.notes;
        self.cameras.retain_mut(|camera| {
            let CameraTopics { depth, color_info, depth_info, depth_registered, .. } = camera;
            // Registered depth with a calibration of its own can be read as if it were not.
            if !registered && !depth_info.is_empty() && depth_info != color_info {
                *depth_registered = false;
            }
            let fits = *depth_registered == registered;
            if !fits {
                let is = if registered { "is not" } else { "is" };
                notes.push(format!("{depth} is left out: it {is} registered to colour"));
            }
            fits
        });
    }

    /// Each name is the last part of the namespace that no other camera has.
    fn name_cameras(&mut self) {
        let parts = |camera: &CameraTopics| -> Vec<String> {
            let parts = camera.name.split('/').filter(|part| !part.is_empty());
            parts.filter(|part| !part.ends_with("_node")).map(str::to_owned).collect()
        };
        let all: Vec<Vec<String>> = self.cameras.iter().map(parts).collect();
        for (i, camera) in self.cameras.iter_mut().enumerate() {
            let is_own = |part: &&String| {
                all.iter().enumerate().all(|(j, other)| j == i || !other.contains(part))
            };
            let own = all[i].iter().rev().find(is_own).cloned();
            camera.name = own.unwrap_or_else(|| match all.len() {
                1 => "camera".into(),
                _ => format!("camera_{}", i + 1),
            });
        }
    }
}

/// Default names of the topics of a camera's input, and its own where they differ.
fn camera_remaps(camera: &CameraTopics) -> Vec<(String, String)> {
    let default = CameraTopics::new(&camera.name, camera.input, camera.depth_registered);
    let mut pairs = match camera.input {
        CameraInput::Points => vec![(default.points, &camera.points)],
        input if !input.has_color() => {
            vec![(default.depth, &camera.depth), (default.depth_info.clone(), &camera.depth_info)]
        }
        _ => vec![
            (default.color, &camera.color),
            (default.depth, &camera.depth),
            (default.color_info, &camera.color_info),
        ],
    };
    if !camera.depth_registered && camera.input.has_color() {
        pairs.push((default.depth_info, &camera.depth_info));
    }
    pairs.retain(|(from, to)| from != *to);
    pairs.into_iter().map(|(from, to)| (from, to.clone())).collect()
}

/// Quotes `word`, if need be, so that a shell takes it for one word and as it is.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-.:=,".contains(c);
    match word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
