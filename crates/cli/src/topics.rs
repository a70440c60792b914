//! Which topics of a recording are read, as the commands' arguments say.

use anyhow::{Result, anyhow, bail};
use forecloud::Error;
use forecloud::robot::kinematics::{MeshSearch, RobotMode};
use forecloud::vision::frames::{CameraInput, CameraTopics, FramesConfig};
use forecloud_bag::recording::shell_word;
use std::path::PathBuf;

/// Where frames come from; the same settings as the node's parameters and remappings.
#[derive(clap::Args)]
#[command(next_help_heading = "Topics and frames")]
pub struct TopicArgs {
    /// Names of the cameras, the topics' first part: NAME/color/image_raw, NAME/depth/image_raw,
    /// NAME/color/camera_info [default: those that the recording names, else
    /// camera_left,camera_right]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cameras: Option<Vec<String>>,
    /// What the cameras send, one for all or one for each: images; compressed
    /// (…/color/image_raw/compressed, …/depth/image_raw/compressedDepth); points (NAME/points)
    #[arg(long, value_name = "INPUT", value_delimiter = ',', default_value = "images")]
    input: Vec<String>,
    /// The depth images have a calibration of their own (NAME/depth/camera_info): they are not
    /// registered to the colour images, pixel by pixel
    #[arg(long)]
    unregistered_depth: bool,
    /// Read topic NEW where the name would be OLD (repeatable), as ROS does
    #[arg(long, value_name = "OLD:=NEW", value_parser = parse_remap)]
    remap: Vec<(String, String)>,
    /// Frame of the predictions, fixed to the ground, z up
    #[arg(long, value_name = "FRAME", default_value_t = FramesConfig::default().world_frame)]
    world_frame: String,
    /// Where an only camera stands that no transform places within 2 s is told by the largest plane
    /// that it sees (table or floor), which is taken for level
    #[arg(long)]
    level_camera: bool,
    /// The robot of a recording: required; optional (taken where description and joints are there);
    /// none (nothing of it is read)
    #[arg(long, value_name = "MODE", default_value = "optional", value_parser = parse_robot)]
    pub(super) robot: RobotMode,
    /// Seconds by which images of one frame, and a late joint state, may differ
    #[arg(long, value_name = "SECONDS", default_value_t = FramesConfig::default().tolerance_secs)]
    tolerance_secs: f64,
    /// Look for the robot's meshes in this folder, a ROS package or one of packages, before the
    /// sourced workspaces (repeatable)
    #[arg(long, value_name = "FOLDER")]
    mesh_path: Vec<PathBuf>,
}

/// The error; where a recording lacks topics, with the command that may read it.
pub fn with_command(error: Error, command: &str) -> anyhow::Error {
    match error {
        Error::MissingTopics { path, problem, arguments: Some(arguments) } => {
            let word = shell_word(&path.display().to_string());
            anyhow!("{}: {problem}\nTry:\n  {command} {word} {arguments}", path.display())
        }
        error => error.into(),
    }
}

fn parse_robot(name: &str) -> Result<RobotMode, String> {
    RobotMode::of("--robot", name).map_err(|error| error.to_string())
}

fn parse_remap(text: &str) -> Result<(String, String), String> {
    match text.split_once(":=") {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("expected OLD:=NEW, such as /camera_left/points:=/lidar/points".into()),
    }
}

impl TopicArgs {
    /// Where the robot's meshes are looked for.
    ///
    /// # Errors
    /// If a folder is none.
    pub fn meshes(&self) -> Result<MeshSearch> {
        if let Some(path) = self.mesh_path.iter().find(|path| !path.is_dir()) {
            bail!("--mesh-path {}: no such folder", path.display());
        }
        Ok(MeshSearch::new(&self.mesh_path))
    }

    /// The options that say what is read of a recording, and their values in words.
    pub fn told(&self) -> [(&'static str, String); 8] {
        let remapped = |(old, new): &(String, String)| format!("{old}:={new}");
        let remap: Vec<String> = self.remap.iter().map(remapped).collect();
        let cameras = self.cameras.as_ref().map(|names| names.join(","));
        [
            ("--cameras", cameras.unwrap_or("not given".into())),
            ("--input", self.input.join(",")),
            ("--unregistered-depth", self.unregistered_depth.to_string()),
            ("--remap", if remap.is_empty() { "not given".into() } else { remap.join(" ") }),
            ("--world-frame", self.world_frame.clone()),
            ("--level-camera", self.level_camera.to_string()),
            ("--robot", self.robot.name().into()),
            ("--tolerance-secs", self.tolerance_secs.to_string()),
        ]
    }

    /// How messages become frames.
    ///
    /// # Errors
    /// Inputs that are none or too few, remappings of topics that are not read, and as
    /// [`FramesConfig::validate`].
    pub fn config(&self) -> Result<FramesConfig> {
        let mut config = FramesConfig {
            world_frame: self.world_frame.clone(),
            tolerance_secs: self.tolerance_secs,
            robot: self.robot,
            level_camera: self.level_camera,
            ..FramesConfig::default()
        };
        let known = config.topics.cameras.iter().map(|camera| camera.name.clone()).collect();
        let names: Vec<String> = self.cameras.clone().unwrap_or(known);
        let inputs = CameraInput::of_cameras("--input", &self.input, names.len())?;
        let camera = |(name, input): (&String, CameraInput)| {
            CameraTopics::new(name.trim_start_matches('/'), input, !self.unregistered_depth)
        };
        config.topics.cameras = names.iter().zip(inputs).map(camera).collect();
        for (old, new) in &self.remap {
            if !config.topics.remap(old, new) {
                let topics = config.specs().into_iter().map(|spec| spec.name);
                let topics: Vec<String> = topics.collect();
                bail!("--remap {old}:={new}: {old} is not read; what is: {}", topics.join(", "));
            }
        }
        // A recording may choose only where nothing was said of cameras.
        let unchanged = config.topics.cameras == FramesConfig::default().topics.cameras;
        config.cameras_of_recording = self.cameras.is_none() && unchanged;
        config.validate()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        topics: TopicArgs,
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
        assert!(!chooses(&["--input", "points"]) && !chooses(&["--unregistered-depth"]));
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
            "--unregistered-depth",
            "--remap",
            "front/points:=/lidar/points",
            "--remap",
            "/joint_states:=/arm/joint_states",
            "--world-frame",
            "map",
            "--tolerance-secs",
            "0.05",
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
    fn folders_of_meshes_must_be_there() {
        let meshes = |arguments: &[&str]| {
            Command::try_parse_from([&["tool"], arguments].concat()).unwrap().topics.meshes()
        };
        assert!(meshes(&["--mesh-path", "/", "--mesh-path", "/tmp"]).is_ok());
        let problem = meshes(&["--mesh-path", "/", "--mesh-path", "/none"]).unwrap_err();
        assert_eq!(problem.to_string(), "--mesh-path /none: no such folder");
    }

    #[test]
    fn what_is_wrong_is_told_with_what_is_allowed() {
        let problem = |arguments: &[&str]| format!("{:#}", config(arguments).unwrap_err());
        for (arguments, told) in [
            (&["--input", "video"][..], "images, compressed or points"),
            (&["--input", "images,points,points"], "3 inputs for 2 cameras"),
            (&["--cameras", "a,a"], "different names"),
            (&["--remap", "/nowhere:=/x"], "/nowhere is not read; what is: /camera_left/color"),
            (&["--remap", "/tf"], "OLD:=NEW"),
            (&["--remap", "/tf:=/tf_static"], "/tf_static serves two purposes"),
            (&["--tolerance-secs", "11"], "tolerance_secs: 11 s is not in 0.0..=10.0"),
        ] {
            let problem = problem(arguments);
            assert!(problem.contains(told), "{problem}");
        }
    }
}
