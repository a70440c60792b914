//! The rig watched while predictions go on.
//!
//! It costs at most 2 ms a second: one frame a second is looked at, with few points, and what that tells is
//! worked out twice a minute; planes and overlaps of cameras once a minute.

use super::{
    Item, Overlap, RigWatch, Trials, camera_planes, largest_turn, limits_item, overlaps,
    plane_items, robot_items,
};
use crate::Result;
use crate::message::Stamp;
use crate::robot::kinematics::MeshSearch;
use crate::vision::frames::Frame;

/// Time between two looks at the robot, two tellings, and two looks at the cameras (s, of the frames' stamps).
const LOOK_SECS: f64 = 1.0;
const TELL_SECS: f64 = 30.0;
const CAMERAS_SECS: f64 = 60.0;
/// Looks after which it is told first, and that are kept; points of each camera in a look.
const FIRST_LOOKS: usize = 5;
const N_LOOKS: usize = 10;
const N_SIGHTINGS: usize = 60;
/// Looks at the cameras that are kept.
const N_PLANES: usize = 5;

/// What a node knows of its rig.
pub struct LiveRig {
    watch: RigWatch,
    joints: Option<(Stamp, Vec<f64>)>,
    ranges: Vec<Option<[f64; 2]>>,
    looked: Option<Stamp>,
    told: Option<Stamp>,
    cameras_looked: Option<Stamp>,
    planes: Vec<Vec<super::CameraPlane>>,
    overlaps: Vec<Overlap>,
}

impl LiveRig {
    /// Of cameras by these names.
    pub fn new(cameras: Vec<String>) -> Self {
        Self {
            watch: RigWatch::new(cameras, N_LOOKS, N_SIGHTINGS),
            joints: None,
            ranges: Vec::new(),
            looked: None,
            told: None,
            cameras_looked: None,
            planes: Vec::new(),
            overlaps: Vec::new(),
        }
    }

    /// Takes the robot's description.
    ///
    /// # Errors
    /// As [`RigWatch::set_robot`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str, meshes: &MeshSearch) -> Result<()> {
        self.forget();
        self.watch.set_robot(urdf, world_frame, meshes)?;
        self.ranges = vec![None; self.watch.robot().map_or(0, |robot| robot.joint_names().len())];
        Ok(())
    }

    /// Forgets what was seen: time was set back, or the robot is another.
    pub fn forget(&mut self) {
        self.watch.forget();
        (self.joints, self.looked, self.told, self.cameras_looked) = (None, None, None, None);
        self.ranges.fill(None);
        self.planes.clear();
        self.overlaps.clear();
    }

    /// Takes a frame; what is known of the rig, when that was worked out anew.
    ///
    /// # Errors
    /// As [`RigWatch::look`].
    pub fn take(&mut self, frame: &Frame) -> Result<Option<Vec<Item>>> {
        let stamp = frame.stamp;
        if self.joints.as_ref().is_some_and(|(before, _)| *before > stamp) {
            self.forget();
        }
        let joints = self.watch.joints(frame.robot.as_ref())?;
        let before = self.joints.as_ref().map(|(then, before)| (*then, &before[..]));
        let both = before.zip(joints.as_deref());
        let velocities = both.and_then(|(before, now)| self.watch.velocities(before, (stamp, now)));
        let is_due = |since: Option<Stamp>, secs: f64| {
            since.is_none_or(|since| stamp.secs_since(since).abs() >= secs)
        };
        if let Some(joints) = &joints {
            for (range, q) in self.ranges.iter_mut().zip(joints) {
                let [low, high] = range.unwrap_or([*q, *q]);
                *range = Some([low.min(*q), high.max(*q)]);
            }
            self.joints = Some((stamp, joints.clone()));
        }
        if is_due(self.cameras_looked, CAMERAS_SECS) {
            self.cameras_looked = Some(stamp);
            self.look_at_cameras(frame)?;
        }
        if !is_due(self.looked, LOOK_SECS) {
            return Ok(None);
        }
        self.looked = Some(stamp);
        self.watch.look(frame, velocities.as_deref().unwrap_or_default())?;
        let is_first = self.told.is_none() && self.watch.n_looks() >= FIRST_LOOKS;
        if !is_first && (self.told.is_none() || !is_due(self.told, TELL_SECS)) {
            return Ok(None);
        }
        self.told = Some(stamp);
        let trials = self.trials(frame, joints.as_deref())?;
        Ok(Some(self.items(&trials)))
    }

    fn look_at_cameras(&mut self, frame: &Frame) -> Result<()> {
        self.planes.push(camera_planes(frame)?);
        self.overlaps.extend(overlaps(frame)?);
        let n_pairs = frame.cameras.len() * frame.cameras.len().saturating_sub(1);
        self.planes.drain(..self.planes.len().saturating_sub(N_PLANES));
        self.overlaps.drain(..self.overlaps.len().saturating_sub(N_PLANES * n_pairs));
        Ok(())
    }

    /// Joints as they are and as degrees, in this frame.
    fn trials(&mut self, frame: &Frame, joints: Option<&[f64]>) -> Result<Trials> {
        let (Some(joints), Some(robot)) = (joints, self.watch.robot()) else {
            return Ok(Trials::default());
        };
        let largest_rad = largest_turn(robot, &self.ranges);
        let radians = self.watch.from_degrees(joints);
        let as_they_are = self.watch.misfit(frame, joints)?;
        let as_degrees = self.watch.misfit(frame, &radians)?;
        Ok(Trials { as_they_are, as_degrees, largest_rad, lag: None })
    }

    fn items(&self, trials: &Trials) -> Vec<Item> {
        let mut items = robot_items(&self.watch, trials);
        items.extend(self.watch.robot().map(|robot| limits_item(robot, &self.ranges)));
        items.extend(plane_items(&self.planes, &self.overlaps, self.watch.cameras()));
        items
    }
}
