//! `-p NAME:=VALUE`: parameters of the node, under their names in config/forecloud.yaml, as options of
//! the tool's commands.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use forecloud::predict::config::PredictorConfig;
use forecloud::robot::kinematics::RobotMode;
use forecloud::vision::frames::FramesConfig;

/// A parameter and its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    /// Frame of the predictions.
    WorldFrame(String),
    /// What the robot's frames begin with in tf.
    FramePrefix(String),
    /// Whether there is a robot.
    Robot(RobotMode),
    /// Whether an only camera is placed by the plane that it sees.
    LevelCamera(bool),
    /// Seconds by which what belongs together may differ.
    ToleranceSecs(f64),
    /// Folders of meshes.
    MeshPaths(Vec<PathBuf>),
    /// Whether depth images are registered to colour.
    DepthRegistered(bool),
    /// Seconds that images wait for joints and transforms; none: all messages of a recording count.
    PatienceSecs(Option<f64>),
    /// Seconds after which a camera is left out.
    CameraTimeoutSecs(f64),
    /// Seconds from a command to the robot being there.
    PlanLagSecs(f64),
    /// Frame that the box to predict in is given in.
    WorkspaceFrame(String),
    /// Corners of the box to predict in.
    WorkspaceMin([f32; 3]),
    /// The other one.
    WorkspaceMax([f32; 3]),
    /// Whether static points are held still.
    HoldAtRest(bool),
    /// Whether what lies on the robot goes with it.
    CarryRobot(bool),
}

impl Param {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WorldFrame(_) => "world_frame",
            Self::FramePrefix(_) => "frame_prefix",
            Self::Robot(_) => "robot",
            Self::LevelCamera(_) => "level_camera",
            Self::ToleranceSecs(_) => "tolerance_secs",
            Self::MeshPaths(_) => "mesh_paths",
            Self::DepthRegistered(_) => "depth_registered",
            Self::PatienceSecs(_) => "patience_secs",
            Self::CameraTimeoutSecs(_) => "camera_timeout_secs",
            Self::PlanLagSecs(_) => "plan_lag_secs",
            Self::WorkspaceFrame(_) => "workspace_frame",
            Self::WorkspaceMin(_) => "workspace_min",
            Self::WorkspaceMax(_) => "workspace_max",
            Self::HoldAtRest(_) => "hold_at_rest",
            Self::CarryRobot(_) => "carry_robot",
        }
    }
}

/// Parameters that say how recordings are read: all commands take them.
const OF_READING: [&str; 10] = [
    "world_frame",
    "workspace_frame",
    "frame_prefix",
    "robot",
    "level_camera",
    "tolerance_secs",
    "patience_secs",
    "camera_timeout_secs",
    "mesh_paths",
    "depth_registered",
];
/// Those that say how frames are predicted, which only some commands take.
const OF_PREDICTING: [&str; 5] =
    ["hold_at_rest", "carry_robot", "plan_lag_secs", "workspace_min", "workspace_max"];

/// Names of the parameters that a command takes.
fn known(predicts: bool) -> Vec<&'static str> {
    let predicting = OF_PREDICTING.into_iter().filter(|_| predicts);
    OF_READING.into_iter().chain(predicting).collect()
}

/// Help of `--param` of a command that `predicts`.
pub fn help(predicts: bool) -> String {
    let frames = FramesConfig::default();
    let mut text = format!(
        "Set a parameter of the node, as in config/forecloud.yaml (repeatable): world_frame [default: {}]; \
         workspace_frame: the frame of tf that the box to predict in is given in and goes with, such as \
         base_link [default: world_frame]; \
         frame_prefix: what the robot's frames begin with in tf [default: nothing]; \
         robot: required, optional or none [default: {}]; depth_registered: true or false, whether \
         each pixel of a depth image shows what the same pixel of the colour image does [default: \
         true]; level_camera: true or false, whether an only camera is placed by the table or floor \
         that it sees [default: false]; tolerance_secs: 0 to 10, by which images of one frame may \
         differ [default: {}]; patience_secs: 0 to 10, the time that images wait for joint states and \
         transforms, by the times of the recording; or all, to use them however late they were recorded \
         [default: {}]; camera_timeout_secs: 0.05 to 3600, after which a camera that is silent or not \
         placed is left out [default: {}]; mesh_paths: [FOLDER,…] in which the robot's meshes are \
         looked for",
        frames.world_frame,
        frames.robot.name(),
        frames.tolerance_secs,
        if predicts { FramesConfig::DEFAULT_PATIENCE_SECS.to_string() } else { "all".to_owned() },
        frames.camera_timeout_secs
    );
    if predicts {
        let PredictorConfig { hold_at_rest, carry_robot, .. } = PredictorConfig::default();
        text += &format!(
            "; hold_at_rest: true or false, whether static points are held still until something \
             comes near [default: {hold_at_rest}]; carry_robot: true or false, whether what lies on \
             the robot moves with it [default: {carry_robot}]; plan_lag_secs: 0 to 2, from a command to the \
             robot being there [default: the model file's]; workspace_min and workspace_max: [x,y,z], corners \
             of the box to predict in (m) [default: as --workspace of `forecloud replay`]"
        );
    }
    text
}

/// Reads NAME:=VALUE.
///
/// # Errors
/// Lists the known names, or says what the value may be.
pub fn parse(text: &str, predicts: bool) -> Result<Param, String> {
    let Some((name, value)) = text.split_once(":=") else {
        return Err("expected NAME:=VALUE, such as world_frame:=map".into());
    };
    let (name, value) = (name.trim(), value.trim());
    if !known(predicts).contains(&name) {
        return Err(format!("unknown parameter '{name}'; known: {}", known(predicts).join(", ")));
    }
    let flag = || match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name}: expected true or false")),
    };
    Ok(match name {
        "world_frame" if value.is_empty() => return Err("world_frame: expected a name".into()),
        "world_frame" => Param::WorldFrame(value.to_owned()),
        "workspace_frame" if value.is_empty() => {
            return Err("workspace_frame: expected a name, or leave it out".into());
        }
        "workspace_frame" => Param::WorkspaceFrame(value.to_owned()),
        "frame_prefix" => Param::FramePrefix(value.to_owned()),
        "robot" => {
            let found = RobotMode::ALL.into_iter().find(|(known, _)| *known == value);
            Param::Robot(found.ok_or("robot: expected required, optional or none")?.1)
        }
        "level_camera" => Param::LevelCamera(flag()?),
        "depth_registered" => Param::DepthRegistered(flag()?),
        "hold_at_rest" => Param::HoldAtRest(flag()?),
        "carry_robot" => Param::CarryRobot(flag()?),
        "tolerance_secs" => {
            Param::ToleranceSecs(seconds(name, value, FramesConfig::TOLERANCE_SECS)?)
        }
        "patience_secs" if value == "all" => Param::PatienceSecs(None),
        "patience_secs" => {
            let secs = seconds(name, value, FramesConfig::PATIENCE_SECS);
            Param::PatienceSecs(Some(secs.map_err(|problem| problem + ", or all")?))
        }
        "camera_timeout_secs" => {
            Param::CameraTimeoutSecs(seconds(name, value, FramesConfig::CAMERA_TIMEOUT_SECS)?)
        }
        "plan_lag_secs" => {
            Param::PlanLagSecs(seconds(name, value, PredictorConfig::PLAN_LAG_SECS)?)
        }
        "workspace_min" => Param::WorkspaceMin(corner(name, value)?),
        "workspace_max" => Param::WorkspaceMax(corner(name, value)?),
        _ => Param::MeshPaths(folders(value)?),
    })
}

fn seconds(name: &str, value: &str, allowed: RangeInclusive<f64>) -> Result<f64, String> {
    let (low, high) = (allowed.start(), allowed.end());
    let secs = value.parse().ok().filter(|secs| allowed.contains(secs));
    secs.ok_or_else(|| format!("{name}: expected a number in {low}..={high}"))
}

/// `[x, y, z]` as in YAML.
fn corner(name: &str, value: &str) -> Result<[f32; 3], String> {
    let list = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let number = |text: &str| text.trim().parse().ok().filter(|x: &f32| x.is_finite());
    let numbers = list.and_then(|list| list.split(',').map(number).collect::<Option<Vec<f32>>>());
    let corner = numbers.and_then(|numbers| <[f32; 3]>::try_from(numbers).ok());
    corner.ok_or_else(|| format!("{name}: expected three numbers, such as [-0.5,-0.5,0.0]"))
}

/// `[a, b]` as in YAML, or one folder; all must be there.
fn folders(value: &str) -> Result<Vec<PathBuf>, String> {
    let list = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let unquoted = |name: &str| PathBuf::from(name.trim().trim_matches(['"', '\'']));
    let all: Vec<PathBuf> = match list {
        Some(list) => list.split(',').map(unquoted).collect(),
        None => vec![PathBuf::from(value)],
    };
    let all: Vec<PathBuf> = all.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    match all.iter().find(|path| !path.is_dir()) {
        Some(path) => Err(format!("mesh_paths: {}: no such folder", path.display())),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_one_of_the_nodes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/");
        let files = std::fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path());
        let text: String = files.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        for name in known(true) {
            assert!(text.contains(&format!("\n    {name}: ")), "{name}");
            assert!(help(true).contains(name), "{name}");
        }
    }

    #[test]
    fn each_is_read_by_its_own_name() {
        for name in known(true) {
            let values = ["0.5", "true", "none", "map", "[/]", "[0,0,0]"];
            let read =
                values.iter().find_map(|value| parse(&format!("{name}:={value}"), true).ok());
            assert_eq!(read.expect("one of them is a value").name(), name);
        }
    }

    #[test]
    fn values_are_read_and_the_wrong_ones_told_what_is_allowed() {
        assert_eq!(parse("robot:=none", false), Ok(Param::Robot(RobotMode::None)));
        assert_eq!(parse("tolerance_secs:=0.5", false), Ok(Param::ToleranceSecs(0.5)));
        assert_eq!(parse("carry_robot:=false", true), Ok(Param::CarryRobot(false)));
        assert_eq!(parse("patience_secs:=all", false), Ok(Param::PatienceSecs(None)));
        assert_eq!(parse("plan_lag_secs:=0", true), Ok(Param::PlanLagSecs(0.0)));
        let corner = Param::WorkspaceMin([-0.5, 1.0, 0.25]);
        assert_eq!(parse("workspace_min:=[-0.5, 1,.25]", true), Ok(corner));
        for wrong in ["[1,2]", "1,2,3", "[1,2,nan]", "[a,b,c]"] {
            let told = parse(&format!("workspace_max:={wrong}"), true).unwrap_err();
            assert!(told.contains("three numbers"), "{told}");
        }
        let folders = vec![PathBuf::from("/"), PathBuf::from("/tmp")];
        assert_eq!(parse("mesh_paths:=[/, \"/tmp\"]", false), Ok(Param::MeshPaths(folders)));
        for (text, told) in [
            ("world_frame", "NAME:=VALUE"),
            ("world_frame:=", "expected a name"),
            ("frame:=map", "'frame'; known: world_frame, workspace_frame, frame_prefix, robot, "),
            ("hold_at_rest:=true", "unknown parameter 'hold_at_rest'"),
            ("robot:=maybe", "required, optional or none"),
            ("level_camera:=1", "true or false"),
            ("tolerance_secs:=11", "0..=10"),
            ("tolerance_secs:=nan", "0..=10"),
            ("patience_secs:=-1", "0..=10, or all"),
            ("plan_lag_secs:=0", "unknown parameter"),
            ("mesh_paths:=[/,/none]", "mesh_paths: /none: no such folder"),
        ] {
            let problem = parse(text, false).unwrap_err();
            assert!(problem.contains(told), "{text}: {problem}");
        }
    }
}
