//! Whether a recording's rig is as predictions take it to be: the robot where the cameras see it, cameras
//! that agree, clocks that agree, joints that fit the description. `forecloud check`.
//!
//! The messages are read twice: once for their stamps and values alone (`series`), once as frames, some
//! of which are looked at (`looks`).

mod looks;
mod series;
mod states;
mod time;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::survey::Surveyor;
use forecloud::predict::rig::{
    CloudValues, Item, LIMITS, RigWatch, Verdict, calibration_items, cloud_items, depth_item,
    largest_turn, limits_item, plane_heights, plane_items, robot_items, size_item, worst,
};
use forecloud::robot::kinematics::{MeshSearch, RobotMode};
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{CameraTopics, FrameCounts, Problem, View};
use forecloud::{Error, Result};
use forecloud_bag::recording::Recording;
use looks::Looks;
use series::Series;

/// Share of frames without the robot from which on that is told.
pub const MANY_WITHOUT: f64 = 0.05;
/// The same of frames that were lost: drivers drop images now and then, which costs up to 8 % in recordings that
/// are fine otherwise.
const MANY_LOST: f64 = 0.15;
/// Coordinates beyond this are too coarse in 32 bits: a quarter of a millimetre (m).
const TOO_FAR_M: f32 = 2000.0;
/// Least share of what the cameras see that should lie in the box.
// Of a small scene before a wide background 4 % were, and nothing was wrong.
const LEAST_INSIDE: f64 = 0.02;
/// What the item says that it is about where the world frame moves.
pub const WORLD_FRAME: &str = "world frame";
const REMEDY_OF_LOSS: &str = "mend the cause; the guide's page on trouble lists them";
/// Points of the robot in a camera's picture that are kept of a frame.
const N_SIGHTINGS: usize = 400;

/// What was found in a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The recording.
    pub path: PathBuf,
    /// The worst of all.
    pub verdict: Verdict,
    /// Frames, and those of them that have the robot.
    pub n_frames: u64,
    /// Frames with the robot's joints, which its description can use.
    pub n_with_robot: u64,
    /// By how much later the joints must be taken (s) to lie where the cameras see the robot; 0 where no other
    /// time fits much better than their own, none where it hardly moves.
    pub lag_secs: Option<f64>,
    /// Height (world z, m) of the plane that things stand on, as each camera sees it, by its name.
    pub planes_m: BTreeMap<String, f64>,
    /// What was checked, what is wrong first.
    pub items: Vec<Item>,
}

impl CheckReport {
    /// What is not as it should be.
    pub fn findings(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.verdict != Verdict::Ok)
    }

    /// In a line: that all is well, or what is not.
    pub fn line(&self) -> String {
        let found: Vec<String> = self.findings().map(|item| item.what.clone()).collect();
        let robot = match self.n_with_robot {
            0 => "no frame has a robot".to_owned(),
            n => format!("{n} of {} frames have the robot", self.n_frames),
        };
        match found.is_empty() {
            true => format!("nothing suspicious in {} checks; {robot}", self.items.len()),
            false => format!("suspicious: {}; {robot}", found.join(", ")),
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path.display())?;
        self.items
            .iter()
            .try_for_each(|item| writeln!(f, "  {}", item.to_string().replace('\n', "\n  ")))?;
        writeln!(f, "  {}", self.line())
    }
}

/// Checks a recording; the robot's meshes are looked for in `meshes`, and beside it.
///
/// # Errors
/// What makes all of it unreadable; what is wrong with parts of it is an item of the report.
pub fn check(recording: &Recording, meshes: &MeshSearch) -> Result<CheckReport> {
    check_first(recording, meshes, f64::INFINITY)
}

/// As [`check`], by the first `secs` of a recording alone.
///
/// # Errors
/// As [`check`].
pub fn check_first(recording: &Recording, meshes: &MeshSearch, secs: f64) -> Result<CheckReport> {
    let config = recording.frames_config();
    let series = Series::read(recording, secs);
    let names: Vec<String> =
        config.topics.cameras.iter().map(|camera| camera.name.clone()).collect();
    let mut watch = RigWatch::new(names.clone(), looks::N_LOOKS, N_SIGHTINGS);
    let mut items = Vec::new();
    let urdf = match config.robot {
        RobotMode::None => None,
        _ => series.descriptions.last().cloned(),
    };
    if let Some(urdf) = &urdf {
        let meshes = meshes.beside(recording.bag().path());
        if let Err(error) = watch.set_robot(urdf, config.world_link(), &meshes) {
            items.push(Item::wrong(
                Verdict::Fail,
                "robot description",
                error.to_string(),
                "a description that can't be used",
                "publish the URDF as robot_state_publisher does",
            ));
        }
    }
    let place = recording.place(&Workspace::default())?;
    let workspace = place.map_or(Workspace::default(), |place| place.workspace);
    let mut surveyor = Surveyor::new(workspace, config);
    let mut looks = Looks::new(recording.bag().duration_secs().min(secs), names.len());
    let mut first = None;
    let played = recording.play(|frame, _| -> std::result::Result<(), u64> {
        if frame.stamp.secs_since(*first.get_or_insert(frame.stamp)) > secs {
            return Err(looks.n_frames());
        }
        // What is wrong with the frame is told by its camera's items.
        let _ = surveyor.watch(&frame);
        looks.take(frame, &mut watch);
        Ok(())
    });
    let (counts, problems) = played
        .unwrap_or_else(|frames| (FrameCounts { frames, ..FrameCounts::default() }, Vec::new()));
    // The first cause comes first.
    let problem = problems.first().map(Problem::text);
    let mut found = looks.finish(&mut watch)?;
    if let Some(robot) = watch.robot() {
        found.trials.largest_rad = largest_turn(robot, &series.ranges(robot.joint_names()));
    }
    items.extend(robot_items(&watch, &found.trials));
    items.extend(frame_items(
        recording,
        &counts,
        problem.as_deref(),
        &found,
        urdf.is_some(),
        &series,
    ));
    if let Some(robot) = watch.robot() {
        items.push(limits_item(robot, &series.ranges(robot.joint_names())));
        items.extend(states::name_item(robot, &series));
    }
    // Joints of another unit are nowhere near any plan.
    let is_far_off = |item: &Item| item.what == LIMITS && item.verdict == Verdict::Fail;
    let is_other_unit = found.trials.are_degrees() || items.iter().any(is_far_off);
    let states = states::items(&series, watch.robot()).into_iter();
    items.extend(states.filter(|item| !is_other_unit || item.what != states::PLANS));
    items.extend(plane_items(&found.planes, &found.overlaps, &names));
    let (survey, warnings) = surveyor.finish();
    items.extend(moving_world(recording));
    items.extend(world_items(&survey, &warnings, &config.world_frame));
    items.extend(camera_items(&series, &found.clouds, &names, config));
    items.extend(time::items(&series, &found.stamps));
    items.sort_by_key(|item| std::cmp::Reverse(item.verdict));
    let path = recording.bag().path().to_owned();
    let (verdict, n_frames, n_with_robot) = (worst(&items), counts.frames, found.n_with_robot);
    let lag_secs = found.trials.lag.map(|lag| if lag.is_off() { lag.secs } else { 0.0 });
    let named = |(camera, z): (usize, f64)| Some((names.get(camera)?.clone(), z));
    let planes_m = plane_heights(&found.planes).into_iter().filter_map(named).collect();
    Ok(CheckReport { path, verdict, n_frames, n_with_robot, lag_secs, planes_m, items })
}

/// Frames that came, frames that did not and why, and those with the robot.
fn frame_items(
    recording: &Recording,
    counts: &FrameCounts,
    problem: Option<&str>,
    found: &looks::Found,
    is_described: bool,
    series: &Series,
) -> Vec<Item> {
    let losses: Vec<String> = counts.losses().map(|(n, what)| format!("{n} {what}")).collect();
    let text = match losses.is_empty() {
        true => format!("{} frames, none lost", counts.frames),
        false => format!("{} frames; lost: {}", counts.frames, losses.join(", ")),
    };
    // What can't be read comes before what is missing for it.
    let unreadable = series.unreadable.iter().next();
    let unreadable = unreadable
        .map(|(topic, (n, first))| format!("{n} messages on {topic} can't be used: {first}"));
    let first =
        || unreadable.clone().unwrap_or_else(|| problem.unwrap_or("cause unknown").to_owned());
    // Two images of each camera make a frame.
    let per_frame = 2 * recording.frames_config().topics.cameras.len().max(1) as u64;
    let n_lost = counts.n_dropped() - counts.dropped_unpaired + counts.dropped_unpaired / per_frame;
    let is_many = n_lost as f64 > MANY_LOST * counts.frames as f64;
    let frames = match counts.frames {
        0 => Item::wrong(Verdict::Fail, "frames", text, first(), REMEDY_OF_LOSS),
        _ if is_many => Item::wrong(Verdict::Warn, "frames", text, first(), REMEDY_OF_LOSS),
        _ => Item::ok("frames", text),
    };
    let frames =
        frames.value("n_frames", counts.frames as f64).value("n_lost", counts.n_dropped() as f64);
    let is_wanted = recording.frames_config().robot != RobotMode::None;
    if counts.frames == 0 || !is_wanted {
        return vec![frames];
    }
    let (n, with) = (counts.frames, found.n_with_robot);
    let text = format!("{with} of {n} frames have the robot");
    let share = 1.0 - with as f64 / n as f64;
    let lack = || recording.robot_lack();
    let has_states = series.n_states() > 0;
    let robot = match (share > MANY_WITHOUT, is_described || has_states) {
        (false, _) => Item::ok("robot in frames", text),
        // There is none, and nothing says that there should be.
        (true, false) => {
            Item::ok("robot in frames", format!("{text}: there is none in the recording"))
        }
        (true, true) => {
            let cause =
                found.why_no_robot.clone().or_else(lack).or_else(|| problem.map(str::to_owned));
            let verdict = if with == 0 { Verdict::Fail } else { Verdict::Warn };
            let remedy = "publish description, joint states and the base's transform for the whole time; \
                          if there is no robot, say -p robot:=none";
            Item::wrong(verdict, "robot in frames", text, cause.unwrap_or_else(first), remedy)
        }
    };
    vec![frames, robot.value("without_share", share)]
}

/// That the world frame of `recording` moves, where tf has told so as far as it was played: then all that rests
/// seems to move.
pub fn moving_world(recording: &Recording) -> Option<Item> {
    let carried = recording.moving_world()?;
    let remedy = format!(
        "name {} with -p world_frame:={}; with -p workspace_frame:={} the box still goes along",
        carried.instead(),
        carried.above,
        carried.frame
    );
    let item = Item::wrong(
        Verdict::Fail,
        WORLD_FRAME,
        carried.to_string(),
        "a world frame that is not fixed to the ground: all that stands there seems to move",
        remedy,
    );
    let item = item.value("shift_mm", 1e3 * carried.shift_m);
    Some(item.value("turn_degrees", carried.turn_rad.to_degrees()).value("in_secs", carried.secs))
}

fn world_items(
    survey: &crate::survey::Survey,
    warnings: &[String],
    world_frame: &str,
) -> Vec<Item> {
    let mut items = Vec::new();
    for warning in warnings {
        items.push(Item::wrong(
            Verdict::Warn,
            "up",
            warning.clone(),
            "the world frame is a camera's, or the transform to it is wrong",
            "name a frame with z up: -p world_frame:=FRAME",
        ));
    }
    let Some([low, high]) = survey.points else { return items };
    let farthest = low.iter().chain(&high).fold(0.0f32, |most, x| most.max(x.abs()));
    if farthest > TOO_FAR_M {
        items.push(Item::wrong(
            Verdict::Fail,
            "size of coordinates",
            format!("points lie up to {farthest:.0} m from the origin of '{world_frame}': coordinates of 32 bits are {:.1} mm coarse there", 1e3 * farthest * f32::EPSILON),
            "a world frame far from the scene, as of UTM or a map",
            "name a frame near the robot that is fixed to the ground: -p world_frame:=odom, or base_link of an arm that stands",
        ));
    }
    let share = survey.n_in_workspace as f64 / survey.n_measured.max(1) as f64;
    let text = format!(
        "{:.0} % of the points of the first frame lie in the box that is predicted",
        100.0 * share
    );
    items.push(
        match share < LEAST_INSIDE {
            true => Item::wrong(
                Verdict::Warn,
                "box",
                text,
                "the cameras look elsewhere, or their transforms are wrong",
                "set the box: --workspace of `forecloud replay`, workspace_min and workspace_max of the node (-p workspace_min:=[x,y,z] of `plan`)",
            ),
            false => Item::ok("box", text),
        }
        .value("inside_share", share),
    );
    items
}

/// Calibrations that are of other sizes than their images.
fn size_items(series: &Series, name: &str, topics: &CameraTopics) -> Vec<Item> {
    let has_depth_info = !topics.depth_registered || !topics.input.has_color();
    let depth_info = if has_depth_info { &topics.depth_info } else { &topics.color_info };
    let pairs = [(&topics.color_info, &topics.color), (depth_info, &topics.depth)];
    let item = |(info, image): (&String, &String)| {
        let (published, image) = (series.published.get(info)?, series.sizes.get(image)?);
        size_item(name, &published.0.reduced(&published.1)?, Some(published), *image)
    };
    let mut items: Vec<Item> = pairs.into_iter().filter_map(item).collect();
    items.dedup();
    items
}

fn camera_items(
    series: &Series,
    clouds: &[CloudValues],
    names: &[String],
    config: &forecloud::vision::frames::FramesConfig,
) -> Vec<Item> {
    let mut items = Vec::new();
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for (camera, name) in names.iter().enumerate() {
        let topics = &config.topics.cameras[camera];
        if let Some(info) = &series.infos[camera] {
            items.extend(calibration_items(name, info, &[&topics.color, &topics.depth]));
        }
        items.extend(size_items(series, name, topics));
        items.extend(cloud_items(name, &clouds[camera]));
        items.extend(depth_item(name, &series.depths[camera]));
        if let Some(frame) = &series.camera_frames[camera] {
            if let Some((other, _)) = frames.iter().find(|(_, known)| known == frame) {
                items.push(Item::wrong(
                    Verdict::Fail,
                    format!("frames of {other} and {name}"),
                    format!("both cameras stamp their images with the frame '{frame}'"),
                    "two drivers with the same frame name: one transform for both",
                    "give each driver its own camera_name or frame prefix",
                ));
            }
            frames.push((name, frame));
        }
    }
    for (topic, (n, first)) in &series.unreadable {
        let (verdict, cause, remedy) = match () {
            () if first.contains("focal lengths") => (
                Verdict::Fail,
                "the camera is not calibrated (K of 0)",
                "publish its calibration: run camera_calibration, or set the driver's camera_info_url",
            ),
            () if first.contains("a region of") || first.contains("bins of") => (
                Verdict::Fail,
                "binning or region of interest of camera_info do not fit the calibrated image",
                "publish both as the driver applies them, or all 0 for the whole image",
            ),
            () => (Verdict::Warn, "messages that can't be used", "see the first one's error"),
        };
        let item = Item::wrong(
            verdict,
            format!("messages on {topic}"),
            format!("{n} can't be used; the first: {first}"),
            cause,
            remedy,
        );
        items.push(item.value("n_unreadable", *n as f64));
    }
    items
}

/// A view's depth image, if it has one.
fn depth_of(view: &View) -> Option<&forecloud::message::Image> {
    match view {
        View::Depth { depth, .. } => Some(depth),
        View::Points(_) => None,
    }
}

/// Whether an error is of joints that a description and the joint states don't share.
fn is_missing_joints(error: &Error) -> bool {
    matches!(error, Error::MissingJoints { .. })
}
