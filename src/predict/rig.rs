//! Whether the robot is where the cameras see it, and the cameras where each other do: the measuring part
//! of `forecloud check`, small enough to run in the node all the time.
//!
//! [`RigWatch`] looks at single frames. Points all over the robot's surface are put into each depth image;
//! of those that should be visible (nearest of all the robot's points there, and facing the camera) it
//! counts how many are seen at their depth, how many lie behind something, and through how many the camera
//! looks: the sign that the robot is elsewhere. What nearly fits tells by how much and why it is off
//! (`explain.rs`).

mod calibration;
mod clouds;
mod explain;
mod item;
mod limits;
mod live;
mod planes;
mod robot;
mod sight;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use nalgebra::{Point3, Vector3, Vector6};

use crate::Result;
use crate::message::Stamp;
use crate::robot::kinematics::{JointOrder, MeshSearch, Robot, RobotOptions, Spread, SurfacePoint};
use crate::robot::plan;
use crate::vision::frames::{Frame, RobotState};
use explain::{Cause, Explanation, Links, Look, Sighting, explain};
use sight::{Buffer, Eye, Fate, Glance};

pub use calibration::{DepthValues, calibration_items, depth_item, size_item};
pub use clouds::{CloudValues, OnCloud, cloud_items};
pub use item::{Item, Verdict, worst};
pub use limits::{LIMITS, largest_turn, limits_item};
pub use live::LiveRig;
pub use planes::{
    CameraPlane, Overlap, PLANE, camera_planes, overlaps, plane_heights, plane_items,
};
pub use robot::{LAG, Lag, Trials, robot_items};

/// Points of the robot that the surface's are sixteen times as many of ([`Robot::place_surface`]).
const N_POINTS: usize = 384;
/// A point whose seen surface is farther along the ray (m) tells nothing of where the robot is.
const NEAR_M: f32 = 0.08;
/// Frames farther apart tell no velocity (s).
const NEAR_SECS: f64 = 0.4;
/// Largest misfit of a point (m): farther off is no worse.
const FAR_M: f32 = 0.03;

/// Points that should be visible, by what is seen of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// A surface at their depth.
    pub seen: u64,
    /// Something before them.
    pub hidden: u64,
    /// What lies behind them.
    pub through: u64,
    /// No depth was measured there.
    pub unknown: u64,
    /// Of the others: what is seen lies within 8 cm along the ray.
    pub near: u64,
}

impl Counts {
    /// Points at which a depth was measured.
    pub fn n_known(&self) -> u64 {
        self.seen + self.hidden + self.through
    }

    /// Share of those that are seen, and of those that the camera looks through; none of none.
    pub fn shares(&self) -> Option<[f64; 2]> {
        let n = self.n_known();
        let share = |count: u64| count as f64 / n as f64;
        (n > 0).then(|| [share(self.seen), share(self.through)])
    }

    fn note(&mut self, glance: &Glance) {
        self.near += u64::from(glance.beyond_m.abs() <= NEAR_M);
        *match glance.fate {
            Fate::Seen => &mut self.seen,
            Fate::Hidden => &mut self.hidden,
            Fate::Through => &mut self.through,
            Fate::Unknown => &mut self.unknown,
        } += 1;
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.seen += other.seen;
        self.hidden += other.hidden;
        self.through += other.through;
        self.unknown += other.unknown;
        self.near += other.near;
    }
}

/// Counts by camera and link.
pub type CountsBy = BTreeMap<(usize, usize), Counts>;

/// How well a robot fits a frame, with joints that may be others than the frame's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Misfit {
    /// What is seen of it.
    pub counts: Counts,
    /// Mean distance along the rays between its points and what is seen, none more than 3 cm (m).
    pub mean_m: f64,
}

/// Looks at frames, and tells what is wrong with the rig.
pub struct RigWatch {
    cameras: Vec<String>,
    body: Option<Body>,
    most_looks: usize,
    most_sightings: usize,
    looks: VecDeque<(Look, CountsBy)>,
    /// Of each look: by how much farther off than the robot's points lies what is seen (median ratio).
    stretches: VecDeque<f32>,
    /// The same of cameras that give only clouds, by their numbers.
    on_clouds: VecDeque<BTreeMap<usize, OnCloud>>,
    /// Whether there were depth images.
    has_depth: bool,
    points: Vec<SurfacePoint>,
    buffer: Buffer,
}

struct Body {
    robot: Robot,
    order: Option<(Arc<[String]>, JointOrder)>,
    links: Links,
}

impl RigWatch {
    /// Of cameras by these names, by what the last `most_looks` frames show with at most `most_sightings`
    /// points of the robot per camera.
    pub fn new(cameras: Vec<String>, most_looks: usize, most_sightings: usize) -> Self {
        let (looks, points) = (VecDeque::new(), Vec::new());
        let (body, buffer) = (None, Buffer::default());
        let (stretches, on_clouds, has_depth) = (VecDeque::new(), VecDeque::new(), false);
        Self {
            cameras,
            body,
            most_looks,
            most_sightings,
            looks,
            stretches,
            on_clouds,
            has_depth,
            points,
            buffer,
        }
    }

    /// Takes the robot's description; what was seen of another one is forgotten.
    ///
    /// # Errors
    /// As [`Robot::with_options`].
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str, meshes: &MeshSearch) -> Result<()> {
        self.forget();
        let (n_points, spread) = (N_POINTS, Spread::Even);
        let options = RobotOptions { n_points, spread, world_frame, meshes };
        let robot = Robot::with_options(urdf, &options)?;
        let n_links = robot.link_names().len();
        let parents = (0..n_links).map(|link| robot.parent_of(link)).collect();
        let links = Links { parents, n_joints: robot.joint_names().len() };
        self.body = Some(Body { robot, order: None, links });
        Ok(())
    }

    /// Forgets what was seen.
    pub fn forget(&mut self) {
        self.looks.clear();
        self.stretches.clear();
        self.on_clouds.clear();
        self.has_depth = false;
    }

    /// By how much farther off than the robot's points lies what is seen there: median ratio of the looks.
    fn stretch(&self) -> f64 {
        let mut all: Vec<f32> = self.stretches.iter().copied().collect();
        all.sort_unstable_by(f32::total_cmp);
        all.get(all.len() / 2).map_or(1.0, |middle| f64::from(*middle))
    }

    /// The robot, if there is one.
    pub fn robot(&self) -> Option<&Robot> {
        self.body.as_ref().map(|body| &body.robot)
    }

    /// Names of the cameras, by their numbers.
    pub fn cameras(&self) -> &[String] {
        &self.cameras
    }

    /// Joints of a frame's robot in the robot's order, which is put where its mount says; none where there
    /// is no robot.
    ///
    /// # Errors
    /// [`crate::Error::MissingJoints`].
    pub fn joints(&mut self, state: Option<&RobotState>) -> Result<Option<Vec<f64>>> {
        let (Some(body), Some(RobotState { joints, mount })) = (&mut self.body, state) else {
            return Ok(None);
        };
        if !body.robot.fits(mount) {
            return Ok(None);
        }
        if body.order.as_ref().is_none_or(|(known, _)| *known != joints.names) {
            body.order = Some((joints.names.clone(), body.robot.order(&joints.names)?));
        }
        body.robot.set_mount(mount)?;
        let mut positions = Vec::new();
        if let Some((_, order)) = &body.order {
            order.apply(&joints.positions, &mut positions)?;
        }
        Ok(Some(positions))
    }

    /// Velocities of the robot's joints (rad/s or m/s) from one frame to another; none without a robot, and of
    /// frames that are far apart.
    pub fn velocities(
        &self,
        (then, before): (Stamp, &[f64]),
        (stamp, now): (Stamp, &[f64]),
    ) -> Option<Vec<f64>> {
        let (secs, mut velocities) = (stamp.secs_since(then), Vec::new());
        let limits = self.robot().filter(|_| (1e-3..NEAR_SECS).contains(&secs))?.limits();
        plan::velocities(now, before, limits, secs, &mut velocities).ok()?;
        Some(velocities)
    }

    /// What positions of the robot's joints are if the turning ones are in degrees.
    pub fn from_degrees(&self, joints: &[f64]) -> Vec<f64> {
        let limits = self.robot().map_or(&[][..], Robot::limits).iter().zip(joints);
        limits.map(|(limits, q)| if limits.slides { *q } else { q.to_radians() }).collect()
    }

    /// Looks at a frame; whether it has the robot. `velocities` (rad/s or m/s): of the joints, in the
    /// robot's order; empty where they are not known.
    ///
    /// # Errors
    /// As [`RigWatch::joints`]; what makes images unusable.
    pub fn look(&mut self, frame: &Frame, velocities: &[f64]) -> Result<bool> {
        let Some(joints) = self.joints(frame.robot.as_ref())? else { return Ok(false) };
        let Some(body) = &mut self.body else { return Ok(false) };
        body.robot.place_surface(&joints, &mut self.points)?;
        let n_links = body.links.parents.len();
        let known = velocities.len() == body.links.n_joints;
        let mut look = Look {
            world_from_link: (0..n_links)
                .filter_map(|link| body.robot.pose_of(link).map(|pose| pose.cast()))
                .collect(),
            velocities: if known { velocities.to_vec() } else { vec![0.0; body.links.n_joints] },
            ..Look::default()
        };
        let mut counts = CountsBy::new();
        let (mut columns, mut stretches) = (Vec::new(), Vec::new());
        let mut on_clouds = BTreeMap::new();
        let spacing_m = body.robot.surface_spacing_m();
        for camera in &frame.cameras {
            if let Some(on_cloud) = clouds::look(camera, &self.points, spacing_m) {
                on_clouds.insert(camera.camera, on_cloud);
            }
            let Some(eye) = Eye::of(camera)? else { continue };
            self.has_depth = true;
            self.buffer.look(&eye, &self.points, spacing_m);
            let glances = &self.buffer.glances;
            stretches.extend(glances.iter().map(|g| g.stretch).filter(|s| s.is_finite()));
            for glance in glances {
                let link = self.points[glance.point].link;
                counts.entry((eye.number, link)).or_default().note(glance);
            }
            let near = glances.iter().filter(|glance| glance.beyond_m.abs() <= NEAR_M);
            let every = near.clone().count().div_ceil(self.most_sightings).max(1);
            let world_from_camera = eye.world_from_camera.cast::<f32>();
            let origin = world_from_camera.translation.vector;
            for glance in near.step_by(every) {
                let point = &self.points[glance.point];
                let ray = Vector3::from(point.position) - origin;
                let normal = Vector3::from(point.normal);
                let off_m = normal.dot(&ray) * (glance.stretch - 1.0);
                let (camera, link) = (eye.number as u16, point.link as u16);
                let (point, place) = (point.position, Point3::from(point.position).cast());
                let normal = normal.into();
                look.sightings.push(Sighting { camera, link, point, normal, off_m });
                body.robot.jacobian(usize::from(link), &place, &mut columns);
                let slope = |column: &Vector6<f64>| {
                    let way = column.fixed_rows::<3>(0).into_owned().cast::<f32>();
                    way.dot(&Vector3::from(normal))
                };
                look.slopes.extend(columns.iter().map(slope));
            }
        }
        if self.looks.len() == self.most_looks {
            self.looks.pop_front();
            self.stretches.pop_front();
            self.on_clouds.pop_front();
        }
        self.on_clouds.push_back(on_clouds);
        self.looks.push_back((look, counts));
        let middle = stretches.len() / 2;
        self.stretches.push_back(match stretches.is_empty() {
            true => 1.0,
            false => *stretches.select_nth_unstable_by(middle, f32::total_cmp).1,
        });
        Ok(true)
    }

    /// How well the robot fits a frame that has it, with its joints at `joints` (robot's order).
    ///
    /// # Errors
    /// As [`RigWatch::look`].
    pub fn misfit(&mut self, frame: &Frame, joints: &[f64]) -> Result<Option<Misfit>> {
        let (Some(body), Some(state)) = (&mut self.body, &frame.robot) else { return Ok(None) };
        if !body.robot.fits(&state.mount) {
            return Ok(None);
        }
        body.robot.set_mount(&state.mount)?;
        body.robot.place_surface(joints, &mut self.points)?;
        let (mut counts, mut sum) = (Counts::default(), 0.0);
        for camera in &frame.cameras {
            let Some(eye) = Eye::of(camera)? else { continue };
            self.buffer.look(&eye, &self.points, body.robot.surface_spacing_m());
            for glance in &self.buffer.glances {
                counts.note(glance);
                if glance.fate != Fate::Unknown {
                    sum += f64::from(glance.beyond_m.abs().min(FAR_M));
                }
            }
        }
        let n = counts.n_known();
        Ok((n > 0).then(|| Misfit { counts, mean_m: sum / n as f64 }))
    }

    /// What is seen of the robot: by camera and link (in the order of [`Robot::link_poses`]).
    pub fn counts(&self) -> CountsBy {
        let mut sums = CountsBy::new();
        for (key, counts) in self.looks.iter().flat_map(|(_, counts)| counts) {
            *sums.entry(*key).or_default() += *counts;
        }
        sums
    }

    /// Where the robot is on the clouds of cameras that give nothing else, by the cameras' numbers.
    pub fn on_clouds(&self) -> BTreeMap<usize, OnCloud> {
        let mut sums = BTreeMap::<usize, OnCloud>::new();
        for (camera, counts) in self.on_clouds.iter().flatten() {
            *sums.entry(*camera).or_default() += *counts;
        }
        sums
    }

    /// Frames with the robot that were looked at.
    pub fn n_looks(&self) -> usize {
        self.looks.len()
    }

    /// What may explain where the robot is seen, best first.
    fn explanations(&self) -> Vec<Explanation> {
        let Some(body) = &self.body else { return Vec::new() };
        let looks: Vec<&Look> = self.looks.iter().map(|(look, _)| look).collect();
        let links = &body.links;
        let with_points: Vec<usize> = body.robot.surfaces().map(|(link, _)| link).collect();
        let is_above = |node: &usize| with_points.iter().any(|link| links.is_below(*link, *node));
        // A joint that holds all and hangs on what stands: that is where the robot stands.
        let is_base = |node: &usize| {
            body.robot.joints_to(links.parents[*node]).is_empty()
                && with_points.iter().all(|link| links.is_below(*link, *node))
        };
        let nodes = (1..links.parents.len()).filter(is_above).filter(|node| !is_base(node));
        let seen_by = 0..self.cameras.len();
        let causes = [Cause::Robot]
            .into_iter()
            .chain(seen_by.filter(|_| self.cameras.len() > 1).map(Cause::Camera))
            .chain(nodes.map(Cause::Origin))
            .chain((0..links.n_joints).map(Cause::Zero))
            .chain([Cause::Time]);
        explain(&looks, links, &causes.collect::<Vec<_>>())
    }
}
