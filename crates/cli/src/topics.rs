//! Which topics of a recording are read, as the commands' arguments say.

use anyhow::{Result, anyhow};
use forecloud::Error;
use forecloud::predict::config::PredictorConfig;
use forecloud::robot::kinematics::{MeshSearch, RobotMode};
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{CameraInput, CameraTopics, FramesConfig};
use forecloud_bag::recording::shell_word;
use std::path::PathBuf;

use super::numbers::{must, wrong};
use super::params::{self, Param};
use super::say::say;

/// Options of commands that only read recordings.
pub type ReadArgs = TopicArgs<false>;
/// Options of commands that predict them as the node would.
pub type PredictArgs = TopicArgs<true>;

/// Where frames come from; the same settings as the node's parameters and remappings.
#[derive(clap::Args)]
#[command(next_help_heading = "Topics and frames")]
pub struct TopicArgs<const PREDICTS: bool> {
    /// Names of the cameras, the first part of their topics: NAME/color/image_raw,
    /// NAME/depth/image_raw, NAME/color/camera_info [default: those that the recording names, else
    /// camera_left,camera_right]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cameras: Option<Vec<String>>,
    /// What the cameras send, one for all or one for each: images; compressed
    /// (…/color/image_raw/compressed, …/depth/image_raw/compressedDepth); points (NAME/points);
    /// color_compressed or depth_compressed (only one of the two); depth_only or
    /// compressed_depth_only (no colour; NAME/depth/camera_info)
    #[arg(long, value_name = "INPUT", value_delimiter = ',', default_value = "images")]
    input: Vec<String>,
    /// Read topic NEW instead of OLD, as ROS does (repeatable)
    #[arg(long, value_name = "OLD:=NEW", value_parser = parse_remap)]
    remap: Vec<(String, String)>,
    #[arg(
        short = 'p',
        long,
        value_name = "NAME:=VALUE",
        help = params::help(PREDICTS),
        value_parser = |text: &str| params::parse(text, PREDICTS)
    )]
    param: Vec<Param>,
    /// The whole command as it was given, without the tool's name; empty if nobody said.
    #[arg(skip)]
    pub given: Vec<String>,
}

/// The command that is proposed: its own words, and arguments that say which topics are read.
pub fn proposed(own: &[&str], arguments: &str) -> String {
    let own: Vec<String> = own.iter().map(|word| shell_word(word)).collect();
    format!("Try:\n  forecloud {} {arguments}", own.join(" "))
}

/// The command without what says which topics are read.
fn without_topics(given: &[String]) -> Vec<&str> {
    let (mut kept, mut words) = (Vec::new(), given.iter().map(String::as_str));
    let is_registered = |value: &str| value.trim_start_matches('=').starts_with("depth_registered");
    while let Some(word) = words.next() {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let value = word.strip_prefix("--param").or_else(|| word.strip_prefix("-p"));
        match (name, value) {
            ("--cameras" | "--input" | "--remap", _) => {
                if name == word {
                    words.next();
                }
            }
            (_, Some("")) => {
                let value = words.next();
                kept.extend(value.filter(|value| !is_registered(value)).map(|_| word));
                kept.extend(value.filter(|value| !is_registered(value)));
            }
            (_, Some(value)) if is_registered(value) => {}
            _ => kept.push(word),
        }
    }
    kept
}

fn parse_remap(text: &str) -> Result<(String, String), String> {
    match text.split_once(":=") {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("expected OLD:=NEW, such as /camera_left/points:=/lidar/points".into()),
    }
}

/// What the parameters are, given or not.
struct Params {
    frames: FramesConfig,
    predictor: PredictorConfig,
    mesh_paths: Vec<PathBuf>,
    depth_registered: bool,
    /// Corners of the workspace, as far as they are given.
    corners: [Option<[f32; 3]>; 2],
}

impl<const PREDICTS: bool> TopicArgs<PREDICTS> {
    /// The last of those that are given twice counts, as in ROS.
    fn params(&self) -> Params {
        let mut params = Params {
            // Who only reads takes what was recorded, who predicts is as patient as the node.
            frames: FramesConfig {
                patience_secs: PREDICTS.then_some(FramesConfig::DEFAULT_PATIENCE_SECS),
                ..FramesConfig::default()
            },
            predictor: PredictorConfig::default(),
            mesh_paths: Vec::new(),
            depth_registered: true,
            corners: [None; 2],
        };
        for param in self.param.iter().cloned() {
            match param {
                Param::WorldFrame(name) => params.frames.world_frame = name,
                Param::FramePrefix(prefix) => params.frames.frame_prefix = prefix,
                Param::Robot(mode) => params.frames.robot = mode,
                Param::LevelCamera(is) => params.frames.level_camera = is,
                Param::ToleranceSecs(secs) => params.frames.tolerance_secs = secs,
                Param::MeshPaths(paths) => params.mesh_paths = paths,
                Param::DepthRegistered(is) => params.depth_registered = is,
                Param::PatienceSecs(secs) => params.frames.patience_secs = secs,
                Param::CameraTimeoutSecs(secs) => params.frames.camera_timeout_secs = secs,
                Param::PlanLagSecs(secs) => params.predictor.plan_lag_secs = Some(secs),
                Param::WorkspaceFrame(name) => params.frames.workspace_frame = Some(name),
                Param::WorkspaceMin(corner) => params.corners[0] = Some(corner),
                Param::WorkspaceMax(corner) => params.corners[1] = Some(corner),
                Param::HoldAtRest(is) => params.predictor.hold_at_rest = is,
                Param::CarryRobot(is) => params.predictor.carry_robot = is,
            }
        }
        params
    }

    /// Checks all that can be without a recording or a model, before any work; tells on stderr what has no
    /// effect beside the rest.
    ///
    /// # Errors
    /// As [`TopicArgs::config`].
    pub fn check(&self) -> Result<()> {
        let config = self.config()?;
        if let Params { corners: [Some(min), Some(max)], .. } = self.params() {
            let checked = Workspace { min, max }.validate();
            checked.map_err(|error| wrong(format!("-p workspace_min, workspace_max: {error}")))?;
        }
        self.without_effect(&config).iter().for_each(|line| say(format_args!("note: {line}")));
        Ok(())
    }

    /// Parameters that were given and change nothing, and why.
    fn without_effect(&self, config: &FramesConfig) -> Vec<String> {
        let mut other = config.clone();
        other.topics.cameras.iter_mut().for_each(|camera| camera.depth_registered ^= true);
        let has_registered = other.specs() != config.specs();
        let n_cameras = config.topics.cameras.len();
        let why = |param: &Param| match param {
            Param::DepthRegistered(_) if !has_registered => {
                Some("no camera of --input sends colour and depth images".to_owned())
            }
            Param::LevelCamera(true) if self.cameras.is_some() && n_cameras > 1 => {
                Some(format!("it is for a single camera, and --cameras names {n_cameras}"))
            }
            Param::MeshPaths(_) | Param::PlanLagSecs(_) | Param::CarryRobot(_)
                if config.robot == RobotMode::None =>
            {
                Some("there is no robot (-p robot:=none)".into())
            }
            _ => None,
        };
        let told =
            |param: &Param| Some(format!("-p {} has no effect: {}", param.name(), why(param)?));
        self.param.iter().filter_map(told).collect()
    }

    /// Tells that a parameter has no effect in this command, if it was given.
    pub fn tell_unused(&self, name: &str, why: &str) {
        if self.param.iter().any(|param| param.name() == name) {
            say(format_args!("note: -p {name} has no effect: {why}"));
        }
    }

    /// Refuses corners of the workspace beside another option that sets all of it.
    ///
    /// # Errors
    /// Names both.
    pub fn must_not_set_workspace(&self, option: &str) -> Result<()> {
        let is_corner =
            |param: &&Param| matches!(param, Param::WorkspaceMin(_) | Param::WorkspaceMax(_));
        let corner = self.param.iter().find(is_corner).map_or("", Param::name);
        must(corner.is_empty(), || {
            format!(
                "{option} sets the whole box: leave out -p {corner}, or give both corners by -p"
            )
        })
    }

    /// The error; where a recording lacks topics, with the command that may read it. `name` is the
    /// command's.
    pub fn with_command(&self, error: Error, name: &str) -> anyhow::Error {
        match (self.proposal(&error, name), error) {
            (Some(command), Error::MissingTopics { path, problem, .. }) => {
                anyhow!("{}: {problem}\n{command}", path.display())
            }
            (_, error) => error.into(),
        }
    }

    /// The command that may read a recording that lacks topics: as it was given, but for the topics.
    pub fn proposal(&self, error: &Error, name: &str) -> Option<String> {
        let Error::MissingTopics { path, arguments: Some(arguments), .. } = error else {
            return None;
        };
        let path = path.display().to_string();
        let own = match self.given.is_empty() {
            true => vec![name, &path],
            false => without_topics(&self.given),
        };
        Some(proposed(&own, arguments))
    }

    /// Whether recordings have a robot.
    pub fn robot(&self) -> RobotMode {
        self.params().frames.robot
    }

    /// The node's defaults, with the parameters of predicting that are given.
    pub fn predictor(&self) -> PredictorConfig {
        let params = self.params();
        PredictorConfig { robot: params.frames.robot, ..params.predictor }
    }

    /// The box to predict in, if a corner of it is given; the other one is that of `usual`.
    pub fn workspace(&self, usual: Workspace) -> Option<Workspace> {
        usual.with_corners(self.params().corners)
    }

    /// Where the robot's meshes are looked for.
    pub fn meshes(&self) -> MeshSearch {
        MeshSearch::new(&self.params().mesh_paths)
    }

    /// The options that say what is read of a recording, and their values in words.
    pub fn settings(&self) -> [(&'static str, String); 12] {
        let remapped = |(old, new): &(String, String)| format!("{old}:={new}");
        let remap: Vec<String> = self.remap.iter().map(remapped).collect();
        let cameras = self.cameras.as_ref().map(|names| names.join(","));
        let Params { frames, depth_registered, .. } = self.params();
        let prefix = frames.frame_prefix;
        [
            ("--cameras", cameras.unwrap_or("not given".into())),
            ("--input", self.input.join(",")),
            ("--remap", if remap.is_empty() { "not given".into() } else { remap.join(" ") }),
            ("-p depth_registered", depth_registered.to_string()),
            ("-p world_frame", frames.world_frame),
            ("-p workspace_frame", frames.workspace_frame.unwrap_or("not given".into())),
            ("-p frame_prefix", if prefix.is_empty() { "nothing".into() } else { prefix }),
            ("-p level_camera", frames.level_camera.to_string()),
            ("-p robot", frames.robot.name().into()),
            ("-p tolerance_secs", frames.tolerance_secs.to_string()),
            ("-p patience_secs", frames.patience_secs.map_or("all".into(), |s| s.to_string())),
            ("-p camera_timeout_secs", frames.camera_timeout_secs.to_string()),
        ]
    }

    /// How messages become frames.
    ///
    /// # Errors
    /// Inputs that are none or too few, remappings of topics that are not read, and as
    /// [`FramesConfig::validate`].
    pub fn config(&self) -> Result<FramesConfig> {
        let Params { frames: mut config, depth_registered, .. } = self.params();
        let known = config.topics.cameras.iter().map(|camera| camera.name.clone()).collect();
        let names: Vec<String> = self.cameras.clone().unwrap_or(known);
        let inputs = CameraInput::of_cameras("--input", &self.input, names.len()).map_err(wrong)?;
        let camera = |(name, input): (&String, CameraInput)| {
            CameraTopics::new(name.trim_start_matches('/'), input, depth_registered)
        };
        config.topics.cameras = names.iter().zip(inputs).map(camera).collect();
        for (old, new) in &self.remap {
            if !config.topics.remap(old, new) {
                let topics = config.specs().into_iter().map(|spec| spec.name);
                let topics: Vec<String> = topics.collect();
                let topics = topics.join(", ");
                return Err(wrong(format!(
                    "--remap {old}:={new}: {old} is not read; topics that are: {topics}"
                )));
            }
        }
        // A recording may choose only where nothing was said of cameras.
        let unchanged = config.topics.cameras == FramesConfig::default().topics.cameras;
        config.cameras_of_recording = self.cameras.is_none() && unchanged;
        config.validate().map_err(|error| wrong(by_option(error)))?;
        Ok(config)
    }
}

/// The error, by the option that the topics come from.
fn by_option(error: Error) -> Error {
    match error {
        Error::Config { key, problem } => {
            Error::Config { key: format!("--cameras, --remap or -p ({key})"), problem }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        topics: PredictArgs,
    }

    fn config(arguments: &[&str]) -> Result<FramesConfig> {
        Command::try_parse_from([&["tool"], arguments].concat())?.topics.config()
    }

    #[test]
    fn without_arguments_the_defaults_hold() {
        assert_eq!(config(&[]).unwrap(), FramesConfig::default());
    }

    #[test]
    fn a_recording_chooses_its_cameras_where_nothing_is_said_of_them() {
        let chooses = |arguments: &[&str]| config(arguments).unwrap().cameras_of_recording;
        assert!(chooses(&[]) && chooses(&["--remap", "/joint_states:=/arm/joint_states"]));
        assert!(!chooses(&["--cameras", "camera_left,camera_right"]));
        assert!(!chooses(&["--input", "points"]) && !chooses(&["-p", "depth_registered:=false"]));
        let remap = "/camera_left/depth/image_raw:=/left/depth";
        assert!(!chooses(&["--remap", remap]));
    }

    #[test]
    fn every_argument_counts() {
        let arguments = [
            "--cameras",
            "front,rear",
            "--input",
            "points,compressed",
            "--param",
            "depth_registered:=false",
            "--remap",
            "front/points:=/lidar/points",
            "--remap",
            "/joint_states:=/arm/joint_states",
            "-p",
            "world_frame:=odom",
            "-p",
            "tolerance_secs:=0.05",
            "-p",
            "world_frame:=map",
            "-p",
            "hold_at_rest:=false",
        ];
        let config = config(&arguments).unwrap();
        let names: Vec<String> = config.topics.specs().into_iter().map(|s| s.name).collect();
        let expected = [
            "/lidar/points",
            "/rear/color/image_raw/compressed",
            "/rear/depth/image_raw/compressedDepth",
            "/rear/color/camera_info",
            "/rear/depth/camera_info",
            "/arm/joint_states",
        ];
        assert_eq!(names[..6], expected);
        assert_eq!((&*config.world_frame, config.tolerance_secs), ("map", 0.05));
        assert!(config.topics.cameras.iter().all(|camera| !camera.depth_registered));
    }

    #[test]
    fn a_proposed_command_keeps_all_but_the_topics() {
        let given = "replay my bag --cameras a,b --model m.x --input=points -p depth_registered:=true \
                     -p world_frame:=map --remap /a:=/b --param=depth_registered:=false --json";
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let kept = ["replay", "my", "bag", "--model", "m.x", "-p", "world_frame:=map", "--json"];
        assert_eq!(without_topics(&given), kept);
        let mut topics = Command::try_parse_from(["tool"]).unwrap().topics;
        let error = || Error::MissingTopics {
            path: "a b".into(),
            problem: "lacks".into(),
            arguments: Some("--cameras c".into()),
        };
        let told = topics.with_command(error(), "plan").to_string();
        assert_eq!(told, "a b: lacks\nTry:\n  forecloud plan 'a b' --cameras c");
        topics.given = ["plan", "a b", "--goal", "g.yaml"].map(str::to_owned).into();
        let told = topics.with_command(error(), "plan").to_string();
        assert_eq!(told, "a b: lacks\nTry:\n  forecloud plan 'a b' --goal g.yaml --cameras c");
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let told = |arguments: &[&str]| {
            let given = Command::try_parse_from([&["tool"], arguments].concat()).unwrap().topics;
            given.without_effect(&given.config().unwrap()).join("; ")
        };
        for effective in [
            &[][..],
            &["-p", "depth_registered:=false"],
            &["--input", "points,images", "-p", "depth_registered:=true"],
            &["-p", "level_camera:=true"],
            &["-p", "carry_robot:=false", "-p", "plan_lag_secs:=0.1"],
        ] {
            assert_eq!(told(effective), "", "{effective:?}");
        }
        let points = told(&["--input", "points", "-p", "depth_registered:=false"]);
        assert!(
            points.contains("-p depth_registered has no effect: no camera of --input"),
            "{points}"
        );
        let two = told(&["--cameras", "a,b", "-p", "level_camera:=true"]);
        assert!(two.contains("-p level_camera has no effect: it is for a single camera"), "{two}");
        let none = ["-p", "robot:=none", "-p", "plan_lag_secs:=0.1", "-p", "carry_robot:=true"];
        let none = told(&[&none[..], &["-p", "mesh_paths:=/"]].concat());
        for name in ["plan_lag_secs", "carry_robot", "mesh_paths"] {
            assert!(
                none.contains(&format!("-p {name} has no effect: there is no robot")),
                "{none}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_is_allowed() {
        let problem = |arguments: &[&str]| format!("{:#}", config(arguments).unwrap_err());
        for (arguments, told) in [
            (&["--input", "video"][..], "these are: images, compressed, points, color_compressed"),
            (&["--input", "images,points,points"], "3 inputs for 2 cameras"),
            (&["--cameras", "a,a"], "different names"),
            (
                &["--remap", "/nowhere:=/x"],
                "/nowhere is not read; topics that are: /camera_left/color",
            ),
            (&["--remap", "/tf"], "OLD:=NEW"),
            (&["--remap", "/tf:=/tf_static"], "/tf_static serves two purposes"),
            (&["-p", "tolerance_secs:=11"], "tolerance_secs: expected a number in 0..=10"),
        ] {
            let problem = problem(arguments);
            assert!(problem.contains(told), "{problem}");
        }
    }
}
