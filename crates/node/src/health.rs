//! What the node knows about its own health: facts that intake and worker note as they go, and the
//! statuses that are made of them. No ROS in here: `diagnostics` publishes them.

mod recent;
mod report;
mod robot;
mod said;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forecloud::engine::motion_class::MotionClass;
use forecloud::message::Stamp;
use forecloud::predict::last_miss::Outcomes;
use forecloud::predict::moving_camera::PoseError;
use forecloud::predict::rig::Item;
use forecloud::robot::kinematics::RobotMode;
pub use recent::{Recent, WINDOW};
pub use report::{Level, Status};
pub use robot::Description;
pub use said::Said;
pub use topic::{Kind, Publisher, Topic};

/// Latencies that p50 and p99 are taken of.
const N_LATENCIES: usize = 100;

/// The facts, shared by the spinning and the predicting thread.
pub struct Health {
    start: Instant,
    facts: Mutex<Facts>,
}

/// What stays as it is while the node runs.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Frame of the predictions.
    pub world_frame: String,
    /// Model file.
    pub model_file: String,
    /// The model's hash.
    pub model_hash: String,
    /// The model's step, seconds.
    pub step_secs: f64,
    /// Whether predictions need the robot, and with it its plan; none also where the model takes
    /// none.
    pub robot: RobotMode,
}

/// Why something did not become a frame, or a frame not a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No calibration of a camera.
    Calibration,
    /// Images whose sizes do not belong together, or that can't be read.
    Image,
    /// A camera is left out of the frames.
    LeftOut,
    /// Images without partners.
    Unpaired,
    /// Images that came after those of a later time.
    Late,
    /// No transform to the world frame.
    Transform,
    /// No measured joints, or not all of them.
    Joints,
    /// Frames without the robot.
    Robot,
    /// Time was set back.
    TimeJump,
    /// Too few points in the workspace.
    Workspace,
    /// No frame one step back.
    History,
    /// The GPU failed.
    Device,
    /// The prediction failed for another reason.
    Rejected,
    /// The world frame moves.
    World,
    /// A prediction that could not be published.
    Publish,
}

/// The number of [`Cause`]s.
const N_CAUSES: usize = Cause::Publish as usize + 1;

/// What came up of one cause.
#[derive(Debug, Clone, Default)]
struct Trouble {
    /// How often.
    recent: Recent,
    /// What was said.
    said: Said,
}

/// All facts; times are since the start of the node.
#[derive(Debug, Clone)]
pub struct Facts {
    about: About,
    topics: Vec<Topic>,
    troubles: [Trouble; N_CAUSES],
    frames: Recent,
    last_frame: Option<Duration>,
    predictions: Recent,
    first_prediction: Option<Duration>,
    last_prediction: Option<Duration>,
    working_since: Option<Duration>,
    late: Recent,
    /// By class, particles that were found again one step later, and of them those within sigma_90.
    outcomes: [[Recent; 2]; MotionClass::ALL.len()],
    cut: Recent,
    n_steps_cut: usize,
    /// Why no predictions are made although frames come.
    pub resting: Option<&'static str>,
    without_plan: Recent,
    busy: Recent,
    /// Frames that gave no prediction as none lies one step back.
    pub n_without_history: u64,
    n_particles: usize,
    latencies_ms: VecDeque<f32>,
    waits_ms: VecDeque<f32>,
    /// Frames whose moving cameras had an error of tf taken out, and its sums in tenths of a
    /// millimetre and hundredths of a degree.
    pose_errors: [Recent; 3],
    /// Whether the last prediction followed a plan.
    is_planned: bool,
    device: String,
    missed_device: Option<String>,
    robot: Description,
    /// What was found of the rig last; none before.
    pub rig: Option<Vec<Item>>,
    absent_cameras: Vec<String>,
    /// How the world frame moves by tf, with the remedy; none where it does not.
    pub moving_world: Option<String>,
    memory_problems: Vec<String>,
    memory_values: Vec<(String, String)>,
    /// What these statuses cost the spinning thread.
    pub monitor_ms_per_sec: f64,
}

impl Health {
    /// Facts of a node that has heard nothing yet.
    pub fn new(about: About, topics: Vec<Topic>) -> Self {
        Self { start: Instant::now(), facts: Mutex::new(Facts::new(about, topics)) }
    }

    /// Notes facts, at the time since the start.
    pub fn note<R>(&self, note: impl FnOnce(&mut Facts, Duration) -> R) -> R {
        // After the lock: times may not go back from one fact to the next.
        let mut facts = self.lock();
        note(&mut facts, self.start.elapsed())
    }

    /// The statuses of now, always the same ones in the same order.
    pub fn report(&self) -> Vec<Status> {
        self.note(|facts, now| facts.report(now))
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    fn new(about: About, topics: Vec<Topic>) -> Self {
        Self {
            about,
            topics,
            troubles: Default::default(),
            frames: Recent::default(),
            last_frame: None,
            predictions: Recent::default(),
            first_prediction: None,
            last_prediction: None,
            working_since: None,
            late: Recent::default(),
            outcomes: Default::default(),
            cut: Recent::default(),
            n_steps_cut: 0,
            resting: None,
            without_plan: Recent::default(),
            busy: Recent::default(),
            n_without_history: 0,
            n_particles: 0,
            waits_ms: VecDeque::new(),
            pose_errors: Default::default(),
            is_planned: true,
            latencies_ms: VecDeque::with_capacity(N_LATENCIES),
            device: String::new(),
            missed_device: None,
            robot: Description::default(),
            rig: None,
            absent_cameras: Vec::new(),
            moving_world: None,
            memory_problems: Vec::new(),
            memory_values: Vec::new(),
            monitor_ms_per_sec: 0.0,
        }
    }

    /// A message of `n_bytes` came on `topic`.
    pub fn heard(&mut self, now: Duration, topic: &str, stamp: Option<Stamp>, n_bytes: usize) {
        if let Some(topic) = self.topics.iter_mut().find(|known| known.key == topic) {
            topic.heard(now, stamp, n_bytes);
        }
    }

    /// A message on `topic` could not be used.
    pub fn bad_message(&mut self, now: Duration, topic: &str, n: u64, text: &str) {
        if let Some(topic) = self.topics.iter_mut().find(|known| known.key == topic) {
            topic.bad.add(now, n);
            topic.said.add(now, text, |_| false);
        }
    }

    /// Something came up `n` times; `text` names the cause and the remedy.
    pub fn trouble(&mut self, now: Duration, cause: Cause, n: u64, text: &str) {
        let trouble = &mut self.troubles[cause as usize];
        trouble.recent.add(now, n);
        // A camera that is left out is told of once.
        let absent = &self.absent_cameras;
        let is_absent = |text: &str| absent.iter().any(|name| text.contains(&format!("'{name}'")));
        trouble.said.add(now, text, |text| cause == Cause::LeftOut && is_absent(text));
    }

    /// A frame is complete, `waited_ms` after its last image came: so long joints and transforms took.
    pub fn frame(&mut self, now: Duration, waited_ms: f32) {
        if self.waits_ms.len() == N_LATENCIES {
            self.waits_ms.pop_front();
        }
        self.waits_ms.push_back(waited_ms);
        self.frames.add(now, 1);
        self.last_frame = Some(now);
    }

    /// The predictor takes a frame; `n_replaced`: frames that newer ones replaced so far.
    pub fn working(&mut self, now: Duration, n_replaced: u64) {
        self.working_since = Some(now);
        self.busy.add(now, n_replaced.saturating_sub(self.busy.total()));
    }

    /// The predictor is done with the frame, whatever came of it.
    pub fn rests(&mut self) {
        self.working_since = None;
    }

    /// A prediction of `n_particles` was published, `latency_ms` after its last image came.
    pub fn predicted(&mut self, now: Duration, latency_ms: f32, n_particles: usize, planned: bool) {
        self.predictions.add(now, 1);
        self.first_prediction.get_or_insert(now);
        self.last_prediction = Some(now);
        self.n_particles = n_particles;
        self.late.add(now, u64::from(f64::from(latency_ms) > self.about.step_secs * 1e3));
        self.without_plan.add(now, u64::from(!planned));
        self.is_planned = planned;
        if self.latencies_ms.len() == N_LATENCIES {
            self.latencies_ms.pop_front();
        }
        self.latencies_ms.push_back(latency_ms);
    }

    /// What was taken out as an error of a moving camera's pose.
    pub fn pose_error(&mut self, now: Duration, error: &PoseError) {
        let [n, tenths_mm, hundredths] = &mut self.pose_errors;
        n.add(now, 1);
        tenths_mm.add(now, (1e4 * error.shift_m) as u64);
        hundredths.add(now, (100.0 * error.turn_rad.to_degrees()) as u64);
    }

    /// How the prediction of one step back turned out.
    pub fn turned_out(&mut self, now: Duration, outcomes: &Outcomes) {
        for ([found, within], outcome) in self.outcomes.iter_mut().zip(outcomes) {
            found.add(now, outcome.n.into());
            within.add(now, outcome.n_within.into());
        }
    }

    /// The prediction was cut to so many steps, or to fewer particles, for the deadline; or not.
    pub fn cut(&mut self, now: Duration, n_steps: Option<usize>) {
        self.cut.add(now, u64::from(n_steps.is_some()));
        self.n_steps_cut = n_steps.unwrap_or(self.n_steps_cut);
    }

    /// What predictions run on; why not on the GPU where there is one.
    pub fn device(&mut self, name: &str, missed: Option<&str>) {
        name.clone_into(&mut self.device);
        self.missed_device = missed.map(str::to_owned);
    }

    /// A robot description came.
    pub fn robot(&mut self, came: Result<&[String], String>) {
        self.robot.came(came);
    }

    /// Cameras that frames are made without.
    pub fn absent_cameras<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.absent_cameras.clear();
        self.absent_cameras.extend(names.map(str::to_owned));
    }

    /// Who publishes a topic, by its place among them; returns those that don't fit and did not
    /// publish it so before.
    pub fn publishers(&mut self, topic: usize, publishers: Vec<Publisher>) -> Vec<Publisher> {
        let Some(topic) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let before = topic.publishers.replace(publishers).unwrap_or_default();
        let now = topic.publishers.iter().flatten();
        let new = now.filter(|publisher| !before.contains(publisher));
        new.filter(|publisher| publisher.mismatch.is_some()).cloned().collect()
    }

    /// What is wrong with the shared memory of the middleware, and its figures.
    pub fn memory(&mut self, problems: Vec<String>, values: Vec<(String, String)>) {
        self.memory_problems = problems;
        self.memory_values = values;
    }

    /// Of images: the nodes that publish them, bytes of the largest, and whether some get lost.
    pub fn images_at(&self, now: Duration) -> (u64, u64, bool) {
        let images = || self.topics.iter().filter(|topic| topic.kind == Kind::Images);
        let publishers = images().flat_map(|topic| topic.publishers.iter().flatten());
        let nodes: HashSet<&str> = publishers.map(|publisher| publisher.node.as_str()).collect();
        let largest = images().map(|topic| topic.largest_bytes).max().unwrap_or(0);
        let losing = images().any(|topic| report::is_losing(self.loss(now, topic)));
        (nodes.len() as u64, largest as u64, losing)
    }

    /// What was lost on a topic in the last seconds.
    pub fn loss(&self, now: Duration, topic: &Topic) -> topic::Loss {
        topic.loss(now, self.calibration_beside(topic))
    }

    /// The calibration that a driver sends with each image: in the nearest folder above.
    fn calibration_beside(&self, image: &Topic) -> Option<&Topic> {
        let folder = |name: &str| name.rfind('/').map_or(0, |slash| slash + 1);
        let calibrations = self.topics.iter().filter(|topic| topic.kind == Kind::Calibration);
        calibrations
            .filter(|info| image.key.starts_with(&info.key[..folder(&info.key)]))
            .max_by_key(|info| folder(&info.key))
    }
}
