//! From drawn numbers to a way of the joints.

use nalgebra::{Point3, UnitQuaternion, Vector3};

use super::PlanSettings;
use super::draw::{Kind, N_CARRY, N_KNOTS, N_PUSH};
use super::path::Path;
use super::tools::{Tool, tools};
use crate::message::Stamp;
use crate::planner::candidates::{Candidate, Snapshot};
use crate::planner::costs::{Judge, Zone};
use crate::robot::kinematics::{JointLimits, ReachFor, Robot};
use crate::robot::plan::Horizon;
use crate::{Error, Result};

/// Particles of the target nearer than this are of one lump (m).
const LUMP_M: f64 = 0.04;
/// Lumps that are pushed at most: those farthest from where they are wanted.
const MAX_LUMPS: usize = 4;
/// Particles of the target that lumps are found among at most.
const MAX_PLACES: usize = 1024;
/// Way between tool and target before a push (m).
const STANDOFF_M: f64 = 0.035;
/// Over the target on the way (m).
const OVER_M: f64 = 0.06;
/// A tool this near to the target may hold it (m).
const HOLDS_M: f64 = 0.04;
/// How far off inverse kinematics may be (m).
const OFF_M: f64 = 0.004;
/// Longest straight piece of a tool's way between two solutions (m).
const PIECE_M: f64 = 0.03;
/// Usual speeds of a tool: on the way, down, and in touch (m/s).
const SPEEDS_M_S: [f64; 3] = [0.5, 0.3, 0.18];
/// Speed of joints whose limit is not told, and the most of any (rad/s or m/s).
const JOINT_SPEEDS: [f64; 2] = [1.0, 2.5];
/// Share of the joints' speed that is used.
const SPEED_SHARE: f64 = 0.9;
/// Steps behind the end of a plan that things get to come to rest.
const N_REST: usize = 2;
/// Steps of a spline at most.
const N_SPLINE: usize = 10;

/// A lump of the target, and where it is wanted.
#[derive(Debug, Clone)]
struct Lump {
    places: Vec<[f64; 3]>,
    middle: Point3<f64>,
    zone: Zone,
    /// From its middle to where that is wanted (m).
    way: Vector3<f64>,
}

/// The robot and the target as they are.
pub(super) struct Situation {
    stamp: Stamp,
    joints: Vec<f64>,
    active: Vec<usize>,
    names: Vec<String>,
    limits: Vec<JointLimits>,
    speeds: Vec<f64>,
    tools: Vec<Tool>,
    /// Which tools may hold the target.
    holds: Vec<bool>,
    lumps: Vec<Lump>,
    horizon: Horizon,
    /// Height of what things stand on (m).
    floor: Option<f64>,
}

/// Numbers of the robot's joints of these names.
///
/// # Errors
/// [`Error::Config`] of one that the robot lacks.
pub(super) fn joints_of(robot: &Robot, wanted: &[String]) -> Result<Vec<usize>> {
    let names = robot.joint_names();
    let number = |name: &String| {
        names.iter().position(|other| other == name).ok_or_else(|| {
            let known = names.join(", ");
            let problem = format!("the robot has no joint '{name}'; its joints are: {known}");
            Error::Config { key: "joint_names".into(), problem }
        })
    };
    wanted.iter().map(number).collect()
}

impl Situation {
    /// Of a frame and a goal in it.
    ///
    /// # Errors
    /// [`Error::Config`] of joints or links that the robot lacks, or that can't be tools.
    pub fn new(snapshot: &Snapshot, judge: &Judge, settings: &PlanSettings) -> Result<Self> {
        let mut robot = Robot::clone(snapshot.robot()?);
        let joints = snapshot.joints().to_vec();
        snapshot.robot_forecast.mount(&mut robot)?;
        robot.place(&joints, &mut Vec::new())?;
        let names = robot.joint_names().to_vec();
        let mut active = joints_of(&robot, &settings.joint_names)?;
        if active.is_empty() {
            active = (0..names.len()).collect();
        }
        active.sort_unstable();
        active.dedup();
        let tools = tools(&robot, &settings.tool_links, &active)?;
        // Of large targets a share: it is enough to tell where they are.
        let mut places = judge.target_places();
        let one_in = places.len().div_ceil(MAX_PLACES).max(1);
        places = places.into_iter().step_by(one_in).collect();
        let holds = |tool: &Tool| {
            let pose = robot.pose_of(tool.link).copied().unwrap_or_default();
            let near = |p: &[f64; 3]| {
                tool.surface.iter().any(|q| (pose * q - Point3::from(*p)).norm() < HOLDS_M)
            };
            places.iter().any(near)
        };
        let holds = tools.iter().map(holds).collect();
        let speed = |limits: &JointLimits| {
            let told = if limits.speed.is_finite() { limits.speed } else { JOINT_SPEEDS[0] };
            SPEED_SHARE * told.min(JOINT_SPEEDS[1])
        };
        let config = &snapshot.model.config;
        Ok(Self {
            stamp: snapshot.stamp(),
            speeds: robot.limits().iter().map(speed).collect(),
            limits: robot.limits().to_vec(),
            joints,
            active,
            names,
            tools,
            holds,
            lumps: lumps(judge, &places),
            horizon: config.steps(settings.n_steps),
            floor: snapshot.prediction.particles.support_m.map(f64::from),
        })
    }

    /// Stamp of the frame.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Joints now (rad or m).
    pub fn joints(&self) -> &[f64] {
        &self.joints
    }

    /// Numbers of the joints that may move.
    pub fn active(&self) -> &[usize] {
        &self.active
    }

    /// Their names.
    pub fn active_names(&self) -> Vec<String> {
        self.active.iter().map(|&j| self.names[j].clone()).collect()
    }

    /// Height of what things stand on (world z, m).
    pub fn floor(&self) -> Option<f64> {
        self.floor
    }

    /// Kinds of motion that make sense, with the number of numbers that each is drawn from, and the
    /// share of the draws.
    pub fn kinds(&self) -> Vec<(Kind, usize, f64)> {
        let mut kinds = Vec::new();
        let (n_tools, n_lumps) = (self.tools.len(), self.lumps.len());
        for tool in 0..n_tools {
            for lump in 0..n_lumps {
                let kind = Kind::Push(tool * n_lumps + lump);
                kinds.push((kind, N_PUSH, 0.9 / (n_tools * n_lumps) as f64));
            }
            if self.holds[tool] {
                kinds.push((Kind::Carry(tool), N_CARRY, 1.0));
            }
        }
        kinds.push((Kind::Spline, N_KNOTS * self.active.len(), 0.05));
        kinds
    }

    /// The way of the joints that numbers stand for, or why there is none; moves `robot` about.
    pub fn path(
        &self,
        robot: &mut Robot,
        kind: Kind,
        numbers: &[f64],
    ) -> std::result::Result<Path, &'static str> {
        match (kind, numbers) {
            (Kind::Push(which), &[angle, across, way, height, speed, turn]) => {
                let (tool, lump) = (which / self.lumps.len(), which % self.lumps.len());
                let numbers = [angle, across, way, height, speed, turn];
                self.push(robot, &self.tools[tool], &self.lumps[lump], &numbers)
            }
            (Kind::Carry(tool), &[x, y, z, speed]) => {
                self.carry(robot, &self.tools[tool], &[x, y, z], speed)
            }
            (Kind::Spline, numbers) => Ok(self.spline(numbers)),
            _ => Err("of another kind"),
        }
    }

    fn push(
        &self,
        robot: &mut Robot,
        tool: &Tool,
        lump: &Lump,
        &[angle, across, way, height, speed, turn]: &[f64; N_PUSH],
    ) -> std::result::Result<Path, &'static str> {
        let place = |robot: &mut Robot| robot.place(&self.joints, &mut Vec::new());
        place(robot).map_err(|_| "at joints that can't be placed")?;
        let pose = *robot.pose_of(tool.link).ok_or("without a tool")?;
        let flat = Vector3::new(lump.way.x, lump.way.y, 0.0);
        // Where it is to go nowhere, any direction will do.
        let angle = match flat.norm() > 0.005 {
            true => flat.y.atan2(flat.x) + 0.35 * angle,
            false => std::f64::consts::PI * angle,
        };
        let along = Vector3::new(angle.cos(), angle.sin(), 0.0);
        let side = Vector3::new(-along.y, along.x, 0.0);
        let off = |p: &[f64; 3], axis: &Vector3<f64>| (Point3::from(*p) - lump.middle).dot(axis);
        let behind = lump.places.iter().map(|p| -off(p, &along)).fold(0.0, f64::max);
        let width = lump.places.iter().map(|p| off(p, &side).abs()).fold(0.0, f64::max);
        // The tool is turned so that its broad side leads, if it has one.
        let turned = {
            let spread = tool.surface.iter().map(|p| pose.rotation * (p - tool.tip));
            let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
            for p in spread {
                (xx, xy, yy) = (xx + p.x * p.x, xy + p.x * p.y, yy + p.y * p.y);
            }
            let broad = 0.5 * (2.0 * xy).atan2(xx - yy);
            let is_round = (0.25 * (xx - yy).powi(2) + xy * xy).sqrt() < 0.15 * (xx + yy);
            let wanted = angle + std::f64::consts::FRAC_PI_2 - broad;
            let half = std::f64::consts::PI;
            let least = wanted - half * (wanted / half).round();
            let by = if is_round { 0.0 } else { least } + 0.2 * turn;
            UnitQuaternion::from_axis_angle(&Vector3::z_axis(), by) * pose.rotation
        };
        let turned = tool.leaning(turned, &along);
        let front = tool.surface.iter().map(|p| (turned * (p - tool.tip)).dot(&along));
        let front = front.fold(0.0, f64::max);
        let base = self.floor.unwrap_or(lump.zone.min[2]);
        let tall = (lump.zone.max[2] - base).max(0.0);
        let z = base + (0.02 + 0.15 * (tall - 0.04).max(0.0) + 0.008 * height).max(0.012);
        let aim = lump.middle + side * (0.4 * width * across);
        let start = aim - along * (behind + front + STANDOFF_M);
        let start = Point3::new(start.x, start.y, z);
        let way = (flat.norm() * (1.0 + 0.25 * way) + 0.01 * way).max(0.01) + STANDOFF_M;
        let end = start + along * way;
        let tip = pose * tool.tip;
        let high = (lump.zone.max[2] + OVER_M).max(tip.z.min(base + 0.2));
        let above = Point3::new(start.x, start.y, high.max(z));
        let mut path = Path::stand(&self.joints);
        let mut joints = self.joints.clone();
        // The first way is through the air: the joints go straight.
        let mut to = |robot: &mut Robot, path: &mut Path, place: Point3<f64>, secs: f64| {
            let wanted = ReachFor { link: tool.link, point: tool.tip, place, turned: Some(turned) };
            let off_m = robot.reach(&wanted, &tool.joints, &mut joints);
            if !off_m.is_ok_and(|off_m| off_m < OFF_M) {
                return Err("out of reach");
            }
            path.go(&joints, secs, &self.speeds);
            Ok(())
        };
        to(robot, &mut path, above, (above - tip).norm() / SPEEDS_M_S[0])?;
        for (from, place, speed) in
            [(above, start, SPEEDS_M_S[1]), (start, end, SPEEDS_M_S[2] * (0.3 * speed).exp())]
        {
            let n = ((place - from).norm() / PIECE_M).ceil().max(1.0);
            for i in 1..=n as usize {
                let there = from + (place - from) * (i as f64 / n);
                to(robot, &mut path, there, (place - from).norm() / n / speed)?;
            }
            if place == start {
                path.free_until = path.end();
            }
        }
        Ok(path)
    }

    fn carry(
        &self,
        robot: &mut Robot,
        tool: &Tool,
        noise: &[f64; 3],
        speed: f64,
    ) -> std::result::Result<Path, &'static str> {
        let placed = robot.place(&self.joints, &mut Vec::new());
        placed.map_err(|_| "at joints that can't be placed")?;
        let pose = *robot.pose_of(tool.link).ok_or("without a tool")?;
        let n = self.lumps.len().max(1) as f64;
        let way: Vector3<f64> = self.lumps.iter().map(|lump| lump.way).sum::<Vector3<f64>>() / n;
        let way = way + Vector3::from(*noise) * 0.02;
        let from = pose * tool.tip;
        let mut path = Path::stand(&self.joints);
        let mut joints = self.joints.clone();
        let n = (way.norm() / PIECE_M).ceil().max(1.0);
        for i in 1..=n as usize {
            let place = from + way * (i as f64 / n);
            let turned = Some(pose.rotation);
            let wanted = ReachFor { link: tool.link, point: tool.tip, place, turned };
            let off_m = robot.reach(&wanted, &tool.joints, &mut joints);
            if !off_m.is_ok_and(|off_m| off_m < OFF_M) {
                return Err("out of reach");
            }
            let secs = way.norm() / n / (SPEEDS_M_S[2] * (0.3 * speed).exp());
            path.go(&joints, secs, &self.speeds);
        }
        Ok(path)
    }

    fn spline(&self, numbers: &[f64]) -> Path {
        let mut path = Path::stand(&self.joints);
        let mut joints = self.joints.clone();
        let n_steps = self.horizon.n_steps.min(N_SPLINE).saturating_sub(N_REST);
        let secs = self.horizon.step_secs * n_steps.max(1) as f64 / N_KNOTS as f64;
        for knot in numbers.chunks_exact(self.active.len().max(1)) {
            for (&j, number) in self.active.iter().zip(knot) {
                let most = 0.5 * self.speeds[j] * secs;
                let way = (0.15 * number).clamp(-most, most);
                joints[j] = (joints[j] + way).max(self.limits[j].lower).min(self.limits[j].upper);
            }
            path.go(&joints, secs, &self.speeds);
        }
        path
    }

    /// The plan of a way, and how long it is to be looked at: until things have come to rest.
    pub fn candidate(
        &self,
        path: &Path,
        most: usize,
    ) -> std::result::Result<Candidate, &'static str> {
        let Horizon { step_secs, lag_secs, .. } = self.horizon;
        let n_all = ((path.end() + lag_secs) / step_secs).ceil() as usize + N_REST;
        if n_all > most {
            return Err("longer than n_steps");
        }
        Ok(Candidate { plan: path.trajectory(self), n_steps: n_all })
    }
}

/// What hangs together of the target, the farthest from where it is wanted first.
fn lumps(judge: &Judge, places: &[[f64; 3]]) -> Vec<Lump> {
    let mut lump_of: Vec<usize> = (0..places.len()).collect();
    // Each takes the least number of its neighbours, until nothing changes.
    let squared = |a: &[f64; 3], b: &[f64; 3]| -> f64 {
        (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum()
    };
    let mut changes = true;
    while changes {
        changes = false;
        for i in 0..places.len() {
            for j in 0..i {
                let (a, b) = (lump_of[i], lump_of[j]);
                if a != b && squared(&places[i], &places[j]) < LUMP_M * LUMP_M {
                    (lump_of[i], lump_of[j]) = (a.min(b), a.min(b));
                    changes = true;
                }
            }
        }
    }
    let mut lumps: Vec<(f64, Lump)> = Vec::new();
    for first in 0..places.len() {
        let of_lump = places.iter().zip(&lump_of).filter(|(_, lump)| **lump == first);
        let places: Vec<[f64; 3]> = of_lump.map(|(p, _)| *p).collect();
        if places.is_empty() {
            continue;
        }
        let n = places.len() as f64;
        let way = |p: &[f64; 3]| Vector3::from(judge.wanted(p)) - Vector3::from(*p);
        let sum: Vector3<f64> = places.iter().map(way).sum();
        let middle: Vector3<f64> =
            places.iter().map(|p| Vector3::from(*p)).sum::<Vector3<f64>>() / n;
        let zone = Zone::around(&places);
        let far = places.iter().map(|p| way(p).norm()).sum::<f64>();
        lumps.push((far, Lump { places, middle: middle.into(), zone, way: sum / n }));
    }
    lumps.sort_by(|a, b| b.0.total_cmp(&a.0));
    lumps.truncate(MAX_LUMPS);
    lumps.into_iter().map(|(_, lump)| lump).collect()
}
