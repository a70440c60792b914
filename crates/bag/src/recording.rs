//! A recorded scene: its frames, and the truth beside them where there is one.
//!
//! Simulated recordings hold on topics under `/truth` which body each pixel shows and where every
//! body is; from these follows where every point truly goes, for as long as the recording lasts.

mod ahead;
mod proposal;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

use nalgebra::{Isometry3, Point3};
use serde::Deserialize;

use crate::bag::Bag;
use ahead::Ahead;
use forecloud::message::{Image, PoseArray, Stamp, StringMessage};
use forecloud::robot::kinematics::Robot;
use forecloud::robot::tf::Carried;
use forecloud::vision::cloud::{Place, Workspace, level_camera};
use forecloud::vision::frames::{
    CameraTopics, Frame, FrameCounts, Frames, FramesConfig, MAX_CAMERAS, Problem, TopicSpec,
    Topics, View,
};
use forecloud::{Error, Result};

pub use proposal::{Proposal, propose, shell_word};

const BODIES_TOPIC: &str = "/truth/bodies";
const POSES_TOPIC: &str = "/truth/body_poses";
/// Seconds by which stamps of the truth may differ from those of the frames.
const TOLERANCE_SECS: f64 = 0.01;
/// Body-id images that may wait for their frame.
const MAX_WAITING_IDS: usize = 64;

/// What a body is to the robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyKind {
    /// The world: table and floor.
    Static,
    /// A link of the robot.
    Robot,
    /// A free object.
    Object,
}

/// One body of the scene; its index is its id.
#[derive(Debug, Clone, Deserialize)]
pub struct Body {
    /// Id: its index in the poses, its value in body-id images.
    pub id: usize,
    /// Name.
    pub name: String,
    /// What it is.
    pub kind: BodyKind,
}

/// What the truth says of the whole recording.
#[derive(Debug, Clone)]
pub struct Truth {
    /// The task that was recorded.
    pub task: String,
    /// What the recording may be used for: `train`, `val`, `test`, `unseen` or `materials`.
    pub split: String,
    /// Names of the recording's cameras; none where it leaves them to the configuration.
    pub cameras: Vec<String>,
    /// Bodies by id.
    pub bodies: Vec<Body>,
    poses: BTreeMap<Stamp, Vec<Isometry3<f64>>>,
}

#[derive(Deserialize)]
struct BodiesJson {
    task: String,
    #[serde(default)]
    split: String,
    #[serde(default)]
    cameras: Option<Vec<String>>,
    bodies: Vec<Body>,
}

/// The body-id images of one frame, by the cameras' numbers.
#[derive(Debug, Clone)]
pub struct BodyIds(Vec<Option<Image>>);

/// A bag opened as a sequence of frames.
pub struct Recording {
    bag: Bag,
    config: FramesConfig,
    truth: Option<Truth>,
    /// Why poses of the truth could not be read, one message each.
    bad_poses: Vec<String>,
    /// How an only camera was placed, once it was.
    leveled: OnceLock<String>,
    /// How its world frame moves, once it was played that far.
    moving_world: OnceLock<Carried>,
    /// What its frames gave cause to warn of, once it was played to its end.
    told: OnceLock<Vec<String>>,
}

/// A bag of which little is known yet: see [`Recording::glimpse`].
pub struct Glimpse {
    bag: Bag,
    truth: Option<Truth>,
}

impl Glimpse {
    /// The bag.
    pub fn bag(&self) -> &Bag {
        &self.bag
    }

    /// The truth without poses, if the recording has one.
    pub fn truth(&self) -> Option<&Truth> {
        self.truth.as_ref()
    }

    /// The recording.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open(self, config: FramesConfig) -> Result<Recording> {
        Recording::with_truth(self.bag, config, self.truth)
    }
}

impl Truth {
    /// Where the bodies are at `stamp`, by id; none if the truth has no such time.
    pub fn poses(&self, stamp: Stamp) -> Option<&[Isometry3<f64>]> {
        let slack = |sign: f64| stamp.plus_secs(sign * TOLERANCE_SECS);
        let near = self.poses.range(slack(-1.0)..=slack(1.0));
        near.min_by_key(|(at, _)| at.abs_diff(stamp)).map(|(_, poses)| poses.as_slice())
    }

    /// What body `id` is; bodies that the truth does not name count as static.
    pub fn kind(&self, id: u16) -> BodyKind {
        self.bodies.get(usize::from(id)).map_or(BodyKind::Static, |body| body.kind)
    }
}

/// Where a point of body `id` at `position` (world frame, m) is after the bodies moved.
pub fn carry(
    position: [f32; 3],
    id: u16,
    from: &[Isometry3<f64>],
    to: &[Isometry3<f64>],
) -> [f32; 3] {
    let id = usize::from(id);
    let (Some(from), Some(to)) = (from.get(id), to.get(id)) else { return position };
    if from == to {
        return position;
    }
    let point = Point3::from(position.map(f64::from));
    (to * from.inverse_transform_point(&point)).coords.cast::<f32>().into()
}

impl BodyIds {
    /// Body at a pixel; `source` as in [`forecloud::vision::cloud::Cloud::sources`].
    pub fn id(&self, source: u32) -> u16 {
        let Some(Some(image)) = self.0.get((source >> 24) as usize) else { return 0 };
        let (pixel, width) = (source & 0x00ff_ffff, image.width.max(1));
        let row = image.row(pixel / width).unwrap_or(&[]);
        let at = 2 * (pixel % width) as usize;
        row.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}

/// Topic of the truth that says which body each pixel of a camera shows.
fn ids_topic(camera: &str) -> String {
    format!("/truth/{camera}/body_ids")
}

impl Recording {
    /// Opens a bag and reads what its truth says of the whole recording.
    ///
    /// With [`FramesConfig::cameras_of_recording`], the cameras that the truth names are read.
    ///
    /// # Errors
    /// As [`Bag::open`]; [`Error::MissingTopics`] if topics that frames need are missing;
    /// [`Error::Bag`] if the truth can't be read, or names no cameras that can be.
    pub fn open(path: &Path, config: FramesConfig) -> Result<Self> {
        Self::glimpse(path)?.open(config)
    }

    /// Looks at a bag and what its truth says of the whole recording, but for poses: little more
    /// than the bag's index.
    ///
    /// # Errors
    /// As [`Bag::open`]; [`Error::Bag`] if the truth can't be read.
    pub fn glimpse(path: &Path) -> Result<Glimpse> {
        let bag = Bag::open(path)?;
        let truth = read_bodies(&bag)?;
        Ok(Glimpse { bag, truth })
    }

    fn with_truth(bag: Bag, config: FramesConfig, mut truth: Option<Truth>) -> Result<Self> {
        let bad_poses = truth.as_mut().map_or(vec![], |truth| read_poses(&bag, truth));
        let named = truth.as_ref().map_or(&[][..], |truth| &truth.cameras);
        let mut config = with_cameras(config, named);
        // The truth is told in the world frame that there was.
        config.level_camera &= truth.is_none();
        check_topics(&bag, &config)?;
        let (leveled, moving_world, told) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self { bag, config, truth, bad_poses, leveled, moving_world, told })
    }

    /// The truth, if the recording has one.
    pub fn truth(&self) -> Option<&Truth> {
        self.truth.as_ref()
    }

    /// How its only camera was placed by what it sees ([`FramesConfig::level_camera`]), in words; none
    /// before it was played that far.
    pub fn leveled(&self) -> Option<&str> {
        self.leveled.get().map(String::as_str)
    }

    /// How its world frame moves by tf ([`Frames::moving_world`]); none before it was played that far.
    pub fn moving_world(&self) -> Option<&Carried> {
        self.moving_world.get()
    }

    /// The bag.
    pub fn bag(&self) -> &Bag {
        &self.bag
    }

    /// What its frames gave cause to warn of; nothing before it was played to its end.
    pub fn told(&self) -> &[String] {
        self.told.get().map_or(&[], Vec::as_slice)
    }

    /// How its frames are made.
    pub fn frames_config(&self) -> &FramesConfig {
        &self.config
    }

    /// The robot's description, the first there is; [`Frame::robot_description`] has the one of its time.
    ///
    /// # Errors
    /// [`Error::Message`] if it can't be decoded.
    pub fn robot_description(&self) -> Result<Option<String>> {
        let topic = &self.config.topics.robot_description;
        match self.bag.messages_where(|name| name == topic).next() {
            Some(message) => Ok(Some(StringMessage::decode(&message?.data)?.data)),
            None => Ok(None),
        }
    }

    /// Where its cameras see a scene first, `usual` if it is there; none where no frame tells.
    ///
    /// # Errors
    /// As [`Workspace::proposal`].
    pub fn place(&self, usual: &Workspace) -> Result<Option<Place>> {
        let mut proposed = Ok(None);
        // Until the first frame that tells; an error ends the play.
        let _ = self.play(|frame, _| {
            proposed = usual.proposal(&frame.cameras, frame.world_from_workspace.as_ref());
            if matches!(proposed, Ok(None)) { Ok(()) } else { Err(()) }
        });
        proposed
    }

    /// Why it is played without a robot, with the remedy; none if description and joints are there.
    pub fn robot_lack(&self) -> Option<String> {
        let Topics { joint_states, robot_description, .. } = &self.config.topics;
        let topics = self.bag.topics();
        let is_there = |name: &str| topics.iter().any(|t| &*t.name == name && t.n_messages > 0);
        let lacking: Vec<&str> = [robot_description, joint_states]
            .into_iter()
            .map(String::as_str)
            .filter(|name| !is_there(name))
            .collect();
        if lacking.is_empty() {
            return None;
        }
        let alike = |kind: &str| topics.iter().find(|t| t.message_type == kind && t.n_messages > 0);
        let joints = alike("sensor_msgs/msg/JointState").filter(|_| !is_there(joint_states));
        let remedy = joints.map(|topic| format!(": try --remap {joint_states}:={}", topic.name));
        Some(format!(
            "it is played without a robot, as there is no {}{}",
            lacking.join(" and no "),
            remedy.unwrap_or_default()
        ))
    }

    /// Topics that its truth lacks, without which nothing can be judged by it; empty without truth, too.
    pub fn truth_lack(&self) -> Vec<String> {
        let topics = self.bag.topics();
        let is_there = |name: &str| topics.iter().any(|t| &*t.name == name && t.n_messages > 0);
        let cameras = self.config.topics.cameras.iter();
        let needed = cameras.map(|c| ids_topic(&c.name)).chain([POSES_TOPIC.to_owned()]);
        needed.filter(|name| self.truth.is_some() && !is_there(name)).collect()
    }

    /// What is to be warned of the robot's description: what was read otherwise than its author may
    /// expect. Nothing where there is none.
    ///
    /// # Errors
    /// As [`Recording::robot_description`] and [`Robot::from_urdf`].
    pub fn robot_warnings(&self) -> Result<Vec<String>> {
        let Some(urdf) = self.robot_description()? else { return Ok(Vec::new()) };
        Ok(Robot::from_urdf(&urdf, 0, self.config.world_link())?.warnings)
    }

    /// Calls `f` with each frame in order, and with its body ids where the truth has them for all
    /// cameras of the frame; returns what became of the messages, and the first problem of each
    /// kind.
    ///
    /// Messages that can't be read are counted and left out. Images wait for joints and transforms as long as
    /// they do in the node, by the times at which messages were recorded; without a patience
    /// ([`FramesConfig::patience_secs`]), those count that were recorded at any time.
    ///
    /// # Errors
    /// What `f` returns.
    pub fn play<E>(
        &self,
        mut f: impl FnMut(Frame, Option<BodyIds>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(FrameCounts, Vec<Problem>), E> {
        let mut frames = Frames::new(self.config.clone());
        self.bad_poses.iter().for_each(|problem| frames.bad_message(problem.clone()));
        let cameras = &self.config.topics.cameras;
        let ids_topics: Vec<String> = cameras.iter().map(|c| ids_topic(&c.name)).collect();
        let mut ids = IdsByStamp { n_cameras: cameras.len(), images: HashMap::new() };
        let mut ahead =
            self.config.patience_secs.is_none().then(|| Ahead::read(&self.bag, &self.config));
        let mut complete: Option<Frame> = None;
        for message in self.bag.messages() {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    frames.bad_message(error.to_string());
                    continue;
                }
            };
            if let Some(camera) = ids_topics.iter().position(|topic| **topic == *message.topic) {
                match Image::decode(&message.data) {
                    Ok(image) => ids.push(camera, image),
                    Err(error) => frames.bad_message(format!("{}: {error}", message.topic)),
                }
                continue;
            }
            if ahead.as_mut().is_some_and(|ahead| ahead.gives(&message.topic)) {
                continue;
            }
            let mut messages = Vec::new();
            if let Some(ahead) = &mut ahead
                && cameras.iter().any(|camera| camera.timing() == &*message.topic)
            {
                let stamp = ahead::stamp_of(&message.data, false).unwrap_or_default();
                messages = ahead.until(stamp);
            }
            let arrived = Stamp::from_nanos(message.log_time_ns);
            messages.push(message);
            for message in messages {
                let mut frame = frames.push_raw_at(&message.topic, message.data, arrived);
                if let Some(leveled) = level_camera(&mut frames) {
                    // Told already if it is not the first play.
                    let _ = self.leveled.set(leveled.news);
                }
                if let Some(carried) = frames.moving_world() {
                    self.moving_world.get_or_init(|| carried.clone());
                }
                while let Some(next) = frame {
                    // A frame waits for the next: its body ids may lie behind it in the bag.
                    if let Some(frame) = complete.replace(next) {
                        let ids = ids.take(&frame);
                        f(frame, ids)?;
                    }
                    frame = frames.take_frame();
                }
            }
        }
        while let Some(frame) = complete.take().or_else(|| frames.finish()) {
            let ids = ids.take(&frame);
            f(frame, ids)?;
        }
        // Why not, if the last frame might have been the one.
        level_camera(&mut frames);
        let _ = self.told.set(frames.take_warnings().collect());
        let problems = frames.problems().into_iter().map(words::of_recordings);
        Ok((*frames.counts(), problems.collect()))
    }
}

/// Body-id images that wait for their frame.
struct IdsByStamp {
    n_cameras: usize,
    images: HashMap<(usize, Stamp), Image>,
}

impl IdsByStamp {
    fn push(&mut self, camera: usize, image: Image) {
        if self.images.len() >= MAX_WAITING_IDS {
            let oldest = self.images.keys().map(|(_, stamp)| *stamp).min();
            self.images.retain(|(_, stamp), _| Some(*stamp) != oldest);
        }
        self.images.insert((camera, image.header.stamp), image);
    }

    /// Those of the cameras of `frame`, if none is missing and each has its camera's pixels.
    fn take(&mut self, frame: &Frame) -> Option<BodyIds> {
        let mut images = vec![None; self.n_cameras];
        for view in &frame.cameras {
            let ids = self.images.remove(&(view.camera, view.stamp()))?;
            let fits = match &view.view {
                View::Depth { depth, .. } => [ids.width, ids.height] == [depth.width, depth.height],
                View::Points(cloud) => {
                    let n = |[width, height]: [u32; 2]| u64::from(width) * u64::from(height);
                    n([ids.width, ids.height]) == n([cloud.width, cloud.height])
                }
            };
            images[view.camera] = fits.then_some(ids);
            images[view.camera].as_ref()?;
        }
        Some(BodyIds(images))
    }
}

/// The configuration with the cameras that a recording names, if it names any and may choose.
fn with_cameras(mut config: FramesConfig, named: &[String]) -> FramesConfig {
    if !named.is_empty() && config.cameras_of_recording {
        config.topics.cameras = named.iter().map(|name| CameraTopics::of(name)).collect();
    }
    config
}

/// What is wrong with the cameras that a truth names; nothing allocates for them before.
fn check_cameras(names: &[String]) -> std::result::Result<(), String> {
    if names.len() > MAX_CAMERAS {
        return Err(format!("{} cameras are more than {MAX_CAMERAS}", names.len()));
    }
    let mut different = HashSet::new();
    match names.iter().position(|name| name.is_empty() || !different.insert(name)) {
        Some(index) => Err(format!("camera {index} has no name of its own")),
        None => Ok(()),
    }
}

fn check_topics(bag: &Bag, config: &FramesConfig) -> Result<()> {
    let has =
        |name: &str| bag.topics().iter().any(|topic| &*topic.name == name && topic.n_messages > 0);
    let missing = |topics: &Topics| -> Vec<TopicSpec> {
        let config = FramesConfig { topics: topics.clone(), ..config.clone() };
        let required = config.specs().into_iter().filter(|spec| spec.required);
        required.filter(|spec| !has(&spec.name)).collect()
    };
    let lacking = missing(&config.topics);
    if lacking.is_empty() {
        return Ok(());
    }
    let proposal = propose(bag.topics(), &config.topics);
    // What lacks as much is no help; it may be just what was asked for.
    let helps = missing(&proposal.topics()).len() < lacking.len();
    Err(Error::MissingTopics {
        path: bag.path().to_owned(),
        problem: proposal::describe(&lacking, bag.topics(), &proposal.notes),
        arguments: proposal.arguments().filter(|_| helps),
    })
}

/// The truth without poses.
fn read_bodies(bag: &Bag) -> Result<Option<Truth>> {
    let Some(message) = bag.messages_where(|name| name == BODIES_TOPIC).next() else {
        return Ok(None);
    };
    let wrong = |problem| Error::Bag { path: bag.path().to_owned(), problem };
    let json = StringMessage::decode(&message?.data)?.data;
    let BodiesJson { task, split, cameras, bodies } =
        serde_json::from_str(&json).map_err(|e| wrong(format!("{BODIES_TOPIC}: {e}")))?;
    let cameras = cameras.unwrap_or_default();
    check_cameras(&cameras).map_err(|problem| wrong(format!("{BODIES_TOPIC}: {problem}")))?;
    if let Some((index, body)) = bodies.iter().enumerate().find(|(i, body)| body.id != *i) {
        let id = body.id;
        return Err(wrong(format!("{BODIES_TOPIC}: body {index} has id {id}, expected {index}")));
    }
    Ok(Some(Truth { task, split, cameras, bodies, poses: BTreeMap::new() }))
}

/// Reads the poses that can be read, of times of which there are those of all bodies; returns why
/// others can't be used.
fn read_poses(bag: &Bag, truth: &mut Truth) -> Vec<String> {
    let (mut problems, n_bodies) = (Vec::new(), truth.bodies.len());
    // Messages that the bag can't read are told when it is played.
    for message in bag.messages_where(|name| name == POSES_TOPIC).flatten() {
        match PoseArray::decode(&message.data) {
            Ok(PoseArray { header, poses }) if poses.len() < n_bodies => {
                let (stamp, n) = (header.stamp, poses.len());
                let problem = format!("{n} poses for {n_bodies} bodies at {stamp} s");
                problems.push(format!("{POSES_TOPIC}: {problem}"));
            }
            Ok(PoseArray { header, poses }) => drop(truth.poses.insert(header.stamp, poses)),
            Err(error) => problems.push(format!("{POSES_TOPIC}: {error}")),
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &FramesConfig) -> Vec<&str> {
        config.topics.cameras.iter().map(|camera| camera.name.as_str()).collect()
    }

    #[test]
    fn cameras_of_the_recording_take_the_place_of_those_nobody_chose() {
        let named = ["camera_left", "camera_right", "camera_front"].map(String::from);
        let config = with_cameras(FramesConfig::default(), &named);
        assert_eq!(names(&config), named);
        assert_eq!(config.topics.cameras[2].depth, "/camera_front/depth/image_raw");
        assert_eq!(with_cameras(FramesConfig::default(), &[]), FramesConfig::default());
        // Chosen, even if they are the default's.
        let own = FramesConfig { cameras_of_recording: false, ..FramesConfig::default() };
        assert_eq!(with_cameras(own.clone(), &named), own);
    }

    #[test]
    fn cameras_named_twice_or_too_many_are_an_error() {
        assert!(check_cameras(&["camera_front", "camera_left"].map(String::from)).is_ok());
        for wrong in [["camera_front"; 2], ["camera_front", ""]] {
            assert!(check_cameras(&wrong.map(String::from)).is_err());
        }
        let many: Vec<String> = (0..1000).map(|i| format!("camera_{i}")).collect();
        assert!(check_cameras(&many).unwrap_err().contains("1000 cameras"));
    }
}
