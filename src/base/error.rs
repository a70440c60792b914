//! The library's error type: what was expected, what came, and where.

use std::path::PathBuf;

/// Result of the library's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in the library; each message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said (part of the message, so no `source` beside it).
        cause: std::io::Error,
    },
    /// A place that results are not written to: others' files, inputs, missing folders.
    #[error("{path}: {problem}")]
    Output {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// Shapes of arguments that do not belong together.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// Which argument.
        what: &'static str,
        /// Expected number of elements.
        expected: usize,
        /// Number of elements that came.
        got: usize,
    },
    /// Too few points to go on with.
    #[error(
        "{got} points, at least {needed} are needed: check the workspace box and the depth images"
    )]
    TooFewPoints {
        /// How many are needed.
        needed: usize,
        /// How many there are.
        got: usize,
    },
    /// A number that is not finite where only finite ones make sense.
    #[error("{what}: not finite")]
    NonFinite {
        /// Which numbers.
        what: &'static str,
    },
    /// A device to compute on that is not there, too old, or failing.
    #[error("{device}: {problem}")]
    Device {
        /// Which one.
        device: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// The k-d tree could not be built.
    #[error("k-d tree: {reason}")]
    KdTree {
        /// What the k-d tree said.
        reason: String,
    },
    /// A configuration value that makes no sense.
    #[error("{key}: {problem}")]
    Config {
        /// The parameter.
        key: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A model file that cannot be used.
    #[error("{path}: {problem}; take a model file written by `forecloud train`")]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint that a training run can't go on from.
    #[error("{path}: {problem}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
    /// Serialized bytes that are not the message they should be.
    #[error("{message_type}: field `{field}` at byte {offset}: {problem}")]
    Message {
        /// ROS name of the message type.
        message_type: &'static str,
        /// Which field of it.
        field: &'static str,
        /// Position behind the last byte that was read.
        offset: usize,
        /// What is wrong, and the remedy where there is one.
        problem: String,
    },
    /// A recording that cannot be read.
    #[error("{path}: {problem}")]
    Bag {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and the remedy where there is one.
        problem: String,
    },
    /// Topics that frames need and a recording lacks.
    #[error(
        "{path}: {problem}{}{}",
        if .arguments.is_some() { "\nThese arguments may be right:\n  " } else { "" },
        .arguments.as_deref().unwrap_or_default()
    )]
    MissingTopics {
        /// The recording.
        path: PathBuf,
        /// What it lacks, and what it has.
        problem: String,
        /// Arguments of the tool by which topics that it has may serve.
        arguments: Option<String>,
    },
    /// No chain of transforms joins two coordinate frames at the wanted time.
    #[error("no transform from '{source_frame}' to '{target_frame}': {problem}")]
    Transform {
        /// Frame of the points as they are.
        source_frame: String,
        /// Frame that the points are wanted in.
        target_frame: String,
        /// Which link is missing, and the remedy.
        problem: String,
    },
    /// An image in a layout that is not read.
    #[error("{what} of camera '{frame_id}': encoding '{got}' is not supported, use {supported}")]
    Encoding {
        /// `depth image` or `colour image`.
        what: &'static str,
        /// The camera's optical frame.
        frame_id: String,
        /// The encoding that came.
        got: String,
        /// The encodings that are read.
        supported: &'static str,
    },
    /// Images of one camera whose sizes differ.
    #[error(
        "{what} of camera '{frame_id}': {} x {} pixels where the depth image has {} x {}: \
         register the images to one size",
        .got[0], .got[1], .expected[0], .expected[1]
    )]
    ImageSize {
        /// `colour image` or `camera info`.
        what: &'static str,
        /// The camera's optical frame.
        frame_id: String,
        /// Width and height of the depth image.
        expected: [u32; 2],
        /// Width and height that came.
        got: [u32; 2],
    },
    /// A camera that cannot be used as it is.
    #[error("camera '{frame_id}': {problem}")]
    Camera {
        /// The camera's optical frame.
        frame_id: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// A robot description that cannot be used.
    #[error("robot description (URDF): {problem}")]
    Urdf {
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// Joints that the robot has and the joint state lacks.
    #[error("joint state lacks {}: publish these joints, or fix the robot description", names.join(", "))]
    MissingJoints {
        /// Names of the joints that are missing.
        names: Vec<String>,
    },
    /// A planned motion that cannot be followed.
    #[error("planned motion: {problem}")]
    Plan {
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// A goal that plans can't be judged by.
    #[error("goal: {field}: {problem}")]
    Goal {
        /// The field of the goal, or its file.
        field: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// No window of the training recordings is long enough.
    #[error(
        "no recording has {horizon} steps without a gap: record longer, or shorten the curriculum (--model-config)"
    )]
    NoWindow {
        /// Steps that were asked for.
        horizon: usize,
    },
    /// The settings require the robot's description, and none has come.
    #[error(
        "no robot description yet, and the setting 'robot' is 'required': publish the URDF on \
         robot_description (robot_state_publisher does), or set it to 'optional'"
    )]
    NoRobot,
    /// Shares of a work that are no whole.
    #[error("shards: {}", problems.join("; "))]
    Shards {
        /// What is missing or wrong, and the remedy.
        problems: Vec<String>,
    },
    /// Figures of a replayed recording that can't be.
    #[error("{what}: figures that no replay of these settings has: replay the recording again")]
    Part {
        /// Which figures.
        what: &'static str,
    },
    /// The frame that another one needs as its history can't be used.
    #[error("the frame one step before it, of {stamp} s: {cause}")]
    History {
        /// Stamp of that frame (s).
        stamp: String,
        /// Why it can't be used (part of the message, so no `source` beside it).
        cause: Box<Error>,
    },
    /// Nothing was predicted yet, so there is nothing to start from.
    #[error(
        "no frame was predicted from yet: it takes two frames one step apart; check that the \
         cameras publish"
    )]
    NoPrediction,
}
